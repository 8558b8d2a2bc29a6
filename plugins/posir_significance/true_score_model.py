"""The posterior distribution of the true scores of the position bins: Bayesian model averaging over simple curves.

Observed scores vary more than true ones, so their range overestimates the range of the true scores. What separates the two
is order: true scores are a function of position, sampling errors are not. The models are linear and quadratic trends, single
bins, steps (a model that stops reading), intervals that differ from both sides, smooth curves (Gaussian processes) of two
length scales, and scores without order, each with several effect sizes. They are weighted by their posterior probabilities
(Hoeting et al. 1999, Statistical Science 14, 382-417; Gaussian processes: Rasmussen & Williams 2006, Gaussian Processes for
Machine Learning, chapter 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from posir_significance.group_means import SEED, Floats, GroupMeans, Integers

DRAWS = 1000
#: Prior standard deviations of the effect of position over the bins, in nDCG@10. The prior probability of each is
#: proportional to its size, which is uniform over effect sizes. (Equal probabilities for doubling sizes would favour small
#: effects; the intervals would then end too low.)
SIZES: Floats = np.array([0.01, 0.02, 0.04, 0.08, 0.16, 0.32])
#: Length scales of the Gaussian processes, as shares of the document.
LENGTH_SCALES = (0.15, 0.4)
#: Eigenvalues below this are rounding errors; their mean is 1.
EIGENVALUE_TOLERANCE = 1e-10
#: True scores are kept this far from 0 and 1 when sampling variances are computed from them.
MARGIN = 0.02


@dataclass(frozen=True, eq=False)
class ShapeFamily:
    """Curves with one free parameter, their effect size: trends, single bins, steps and intervals."""

    shapes: Floats
    """Mean 0 and standard deviation 1 over the bins, shape (shapes, P)."""
    log_prior: Floats
    """Log prior probability of each shape, up to a constant; each kind has the same in total. Shape (shapes,)."""


@dataclass(frozen=True, eq=False)
class PosteriorDraws:
    """Draws of the true scores of the position bins from their posterior distribution."""

    scores: Floats
    """In (0, 1], shape (draws, bins)."""
    means: Floats
    """Posterior mean under each draw's Gaussian process; the draw itself under a one-parameter shape. Shape (draws, bins)."""


@dataclass(frozen=True, eq=False)
class ModelPosteriors:
    """The posteriors of M models of one family, a curve with an effect size each."""

    log_marginal_likelihood: Floats
    """Log marginal likelihood of the observed scores plus the model's log prior, up to a constant. Shape (M,)."""
    means: Floats
    """Posterior means of the true scores, shape (M, bins)."""
    covariance_roots: Floats
    """Matrix square roots of the posterior covariances of the true scores, shape (M, bins, dimensions)."""


@cache
def shape_family(bins: int) -> ShapeFamily:
    """Return the one-parameter shapes over a number of bins."""
    middle, index = bin_midpoints(bins), np.arange(bins)
    kinds = [
        [middle],
        [(middle - 0.5) ** 2],
        [(index == single).astype(np.float64) for single in range(bins)],
        [(index >= start).astype(np.float64) for start in range(1, bins)],
        [((index >= start) & (index < end)).astype(np.float64) for start in range(1, bins) for end in range(start + 1, bins)],
    ]
    # A quadratic trend over two bins is constant.
    usable = [[shape for shape in kind if np.ptp(shape) > 0] for kind in kinds]
    shapes = np.array([(shape - shape.mean()) / shape.std() for kind in usable for shape in kind])
    return ShapeFamily(shapes, np.array([-np.log(len(kind)) for kind in usable for _ in kind]))


@cache
def gaussian_process_roots(bins: int) -> Floats:
    """Return square roots of the prior covariances of smooth curves and of scores without order, mean variance 1.

    Returns:
        Shape (kinds, P, P).
    """
    distance = np.subtract.outer(bin_midpoints(bins), bin_midpoints(bins))
    kinds = np.array([*(np.exp(-0.5 * (distance / scale) ** 2) for scale in LENGTH_SCALES), np.eye(bins)])
    centring = np.eye(bins) - 1 / bins
    centred = centring @ kinds @ centring
    values, vectors = np.linalg.eigh(centred / np.trace(centred, axis1=1, axis2=2)[:, None, None] * bins)
    # The symmetric root is the only one that does not depend on which eigenvectors the linear algebra library returns.
    scales = np.sqrt(np.where(values > EIGENVALUE_TOLERANCE, values, 0))
    roots: Floats = (vectors * scales[:, None, :]) @ vectors.transpose(0, 2, 1)
    return roots


def bin_midpoints(bins: int) -> Floats:
    """Return the midpoints of equal bins of [0, 1], shape (P,)."""
    return (np.arange(bins) + 0.5) / bins


def draw_true_scores(bins: GroupMeans, draws: int = DRAWS, seed: int = SEED) -> PosteriorDraws:
    """Draw true scores of the non-empty position bins from the averaged posterior.

    The models are fitted twice: first with the same sampling variance in all bins, then with the variances implied by the
    first posterior mean. A bin's own observed score would imply too small a variance where it is extreme by chance.

    Args:
        bins: Position bins, from first to last, of which at least two are not empty.
        draws: Number of draws.
        seed: Of the random numbers.
    """
    filled = np.flatnonzero(bins.queries)
    first = _fit(bins, np.full(bins.means.shape, bins.level), filled)
    expected = np.full(bins.means.shape, bins.level)
    expected[filled] = _posterior_probabilities(first) @ np.concatenate([family.means for family in first])
    return _draw(_fit(bins, expected, filled), draws, np.random.default_rng(seed))


def _fit(bins: GroupMeans, expected: Floats, filled: Integers) -> tuple[ModelPosteriors, ModelPosteriors]:
    """Fit both families with the sampling variances that true scores of `expected` imply."""
    precisions = 1 / bins.sampling_variances(np.clip(expected, MARGIN, 1 - MARGIN))[filled]
    scores, total = bins.means[filled], len(bins.means)
    return (
        fit_shapes(scores, precisions, shape_family(total), filled),
        fit_gaussian_processes(scores, precisions, gaussian_process_roots(total)[:, filled]),
    )


def fit_shapes(scores: Floats, precisions: Floats, family: ShapeFamily, filled: Integers) -> ModelPosteriors:
    """Fit every shape with every effect size: level + size * shape, normal errors, normal size, flat prior on the level.

    Args:
        scores: Observed scores, shape (bins,).
        precisions: Inverse sampling variances, shape (bins,).
        family: The shapes over all P bins.
        filled: Indices of the scores' bins among the P, shape (bins,).
    """
    total = precisions.sum()
    level = scores @ precisions / total
    shapes = family.shapes[:, filled]
    shapes = shapes - (shapes @ precisions / total)[:, None]
    products = (shapes * precisions) @ (scores - level)
    precision = shapes**2 @ precisions + 1 / SIZES[:, None] ** 2
    # The prior probability of a size (SIZES) and the prior density of effects given that size (1 / SIZES) cancel.
    log_likelihood = family.log_prior + 0.5 * (products**2 / precision - np.log(precision))
    means = level + (products / precision)[..., None] * shapes
    roots = np.stack([shapes / np.sqrt(precision)[..., None], np.full(means.shape, total**-0.5)], axis=-1)
    return ModelPosteriors(log_likelihood.ravel(), means.reshape(-1, len(scores)), roots.reshape(-1, len(scores), 2))


def fit_gaussian_processes(scores: Floats, precisions: Floats, roots: Floats) -> ModelPosteriors:
    """Fit every Gaussian process with every effect size: level + size * curve, normal errors, flat prior on the level.

    Args:
        scores: Observed scores, shape (bins,).
        precisions: Inverse sampling variances, shape (bins,).
        roots: Square roots of the prior covariances, shape (kinds, bins, P).
    """
    total = precisions.sum()
    level = scores @ precisions / total
    sized = (SIZES[:, None, None, None] * roots).reshape(-1, *roots.shape[1:])
    sized = sized - (precisions @ sized / total)[:, None, :]
    weighted = (sized * precisions[:, None]).transpose(0, 2, 1)
    precision = np.eye(roots.shape[-1]) + weighted @ sized
    # L with L L' = precision: (precision)^-1 = L^-T L^-1, so sized L^-T is a root of the posterior covariance.
    inverse = np.linalg.inv(np.linalg.cholesky(precision))
    posterior_roots = sized @ inverse.transpose(0, 2, 1)
    products = (inverse @ (weighted @ (scores - level))[..., None])[..., 0]
    log_likelihood = 0.5 * (products**2).sum(axis=1) + np.log(np.diagonal(inverse, axis1=1, axis2=2)).sum(axis=1)
    log_likelihood += np.repeat(np.log(SIZES), len(roots))
    levels = np.full((len(sized), len(scores), 1), total**-0.5)
    means = level + (posterior_roots @ products[..., None])[..., 0]
    return ModelPosteriors(log_likelihood, means, np.concatenate([posterior_roots, levels], axis=-1))


def _posterior_probabilities(families: tuple[ModelPosteriors, ModelPosteriors]) -> Floats:
    """Return the posterior probability of each model, shape (models of both families,)."""
    log_likelihood = np.concatenate([family.log_marginal_likelihood for family in families])
    weights = np.exp(log_likelihood - log_likelihood.max())
    probabilities: Floats = weights / weights.sum()
    return probabilities


def _draw(families: tuple[ModelPosteriors, ModelPosteriors], draws: int, rng: np.random.Generator) -> PosteriorDraws:
    """Draw true scores, from each model as often as its posterior probability says."""
    shapes, processes = families
    cumulated = np.minimum(_posterior_probabilities(families).cumsum(), 1)
    models = np.searchsorted(cumulated, (np.arange(draws) + 0.5) / draws).clip(max=len(cumulated) - 1)
    split = len(shapes.means)
    of_shapes, of_processes = models[models < split], models[models >= split] - split
    drawn = _draw_from(shapes, of_shapes, rng)
    scores = np.concatenate([drawn, _draw_from(processes, of_processes, rng)])
    means = np.concatenate([drawn, processes.means[of_processes]])
    return PosteriorDraws(np.clip(scores, 1e-6, 1), np.clip(means, 1e-6, 1))


def _draw_from(family: ModelPosteriors, models: Integers, rng: np.random.Generator) -> Floats:
    """Draw true scores from the posterior of each given model, shape (models, bins)."""
    normal = rng.standard_normal((len(models), family.covariance_roots.shape[-1], 1))
    return family.means[models] + (family.covariance_roots[models] @ normal)[..., 0]
