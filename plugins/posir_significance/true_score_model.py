"""What the true scores of the position bins may be, given the observed ones: a mixture over simple shapes.

Observed scores scatter more than true ones, so their range is no guide to the range of the true scores. What tells the
two apart is order: true scores follow a shape over positions, chance does not. The mixture holds straight and bowed
trends, single bins, steps (a model that stops reading), stretches that differ from both sides, smooth curves of two
scales and scores without order, each in several sizes; and weighs them by how well they predict the observed scores
(Bayesian model averaging: Hoeting et al. 1999, Statistical Science 14, 382-417; smooth curves: Rasmussen & Williams 2006,
Gaussian Processes for Machine Learning, chapter 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from posir_significance.group_means import SEED, Floats, Integers, Sample

DRAWS = 1000
#: Standard deviations over the bins that the effect of position may have, in nDCG@10. Beforehand each is as likely as it is
#: large: any size is as likely as another. (Doubling sizes alike would favour small effects; intervals then end too low.)
SIZES: Floats = np.array([0.01, 0.02, 0.04, 0.08, 0.16, 0.32])
#: How far smooth curves reach: correlation lengths, as shares of the document.
REACHES = (0.15, 0.4)
#: Variance that is rounding, beside a mean variance of 1.
NOTHING = 1e-10
#: True scores are kept this far from 0 and 1 where they say how much observed ones vary.
MARGIN = 0.02


@dataclass(frozen=True, eq=False)
class Trends:
    """Shapes with one free number, their size: trends, single bins, steps and stretches."""

    shapes: Floats
    """Centred, standard deviation 1 over the bins, shape (shapes, P)."""
    prior: Floats
    """Logarithm of each shape's share beforehand, up to a constant; each family has the same in all. Shape (shapes,)."""


@dataclass(frozen=True, eq=False)
class Draws:
    """Possible true scores of the position bins."""

    scores: Floats
    """In (0, 1], shape (draws, bins)."""
    centres: Floats
    """What each draw scatters around: the best estimate under its shape; a trend scatters in size alone, so its own scores.
    Shape (draws, bins)."""


@dataclass(frozen=True, eq=False)
class Fit:
    """A family of shapes fitted to observed scores; there are M models, a shape in a size each."""

    evidence: Floats
    """Logarithm of the probability of the observed scores, share beforehand included, up to a constant. Shape (M,)."""
    centres: Floats
    """Best estimate of the true scores under each model, shape (M, bins)."""
    roots: Floats
    """Root of the covariance of the true scores under each model, shape (M, bins, dimensions)."""


@cache
def trends(bins: int) -> Trends:
    """Return the trends over a number of bins."""
    middle, index = midpoints(bins), np.arange(bins)
    families = [
        [middle],
        [(middle - 0.5) ** 2],
        [(index == alone).astype(np.float64) for alone in range(bins)],
        [(index >= start).astype(np.float64) for start in range(1, bins)],
        [((index >= start) & (index < end)).astype(np.float64) for start in range(1, bins) for end in range(start + 1, bins)],
    ]
    # With two bins a bowed trend is no trend.
    usable = [[shape for shape in family if np.ptp(shape) > 0] for family in families]
    shapes = np.array([(shape - shape.mean()) / shape.std() for family in usable for shape in family])
    return Trends(shapes, np.array([-np.log(len(family)) for family in usable for _ in family]))


@cache
def curves(bins: int) -> Floats:
    """Return roots of the covariances of smooth curves and of scores without order, mean variance 1 over the bins.

    Returns:
        Shape (kinds, P, P).
    """
    distance = np.subtract.outer(midpoints(bins), midpoints(bins))
    kinds = np.array([*(np.exp(-0.5 * (distance / reach) ** 2) for reach in REACHES), np.eye(bins)])
    centring = np.eye(bins) - 1 / bins
    centred = centring @ kinds @ centring
    values, vectors = np.linalg.eigh(centred / np.trace(centred, axis1=1, axis2=2)[:, None, None] * bins)
    # Of the many roots the symmetric one: it alone does not depend on which eigenvectors a processor's library finds. What is
    # smaller than that is rounding.
    sizes = np.sqrt(np.where(values > NOTHING, values, 0))
    roots: Floats = (vectors * sizes[:, None, :]) @ vectors.transpose(0, 2, 1)
    return roots


def midpoints(bins: int) -> Floats:
    """Return the middles of equal bins of [0, 1], shape (P,)."""
    return (np.arange(bins) + 0.5) / bins


def true_scores(bins: Sample, draws: int = DRAWS, seed: int = SEED) -> Draws:
    """Draw possible true scores of the non-empty position bins from the mixture.

    Fitted twice: first as if all bins varied alike, then with the variance that each bin's first estimate implies. The bin's
    own score would give too small a variance to bins that are low or high by chance.

    Args:
        bins: Position bins, from first to last, of which at least two are not empty.
        draws: Number of draws.
        seed: Of the random numbers.
    """
    filled = np.flatnonzero(bins.queries)
    first = _fit(bins, np.full(bins.means.shape, bins.level), filled)
    expected = np.full(bins.means.shape, bins.level)
    expected[filled] = _weights(first) @ np.concatenate([fit.centres for fit in first])
    return _draw(_fit(bins, expected, filled), draws, np.random.default_rng(seed))


def _fit(bins: Sample, expected: Floats, filled: Integers) -> tuple[Fit, Fit]:
    """Fit trends and curves where the true scores are about `expected`."""
    precisions = 1 / bins.variances(np.clip(expected, MARGIN, 1 - MARGIN))[filled]
    scores, total = bins.means[filled], len(bins.means)
    return fit_trends(scores, precisions, trends(total), filled), fit_curves(scores, precisions, curves(total)[:, filled])


def fit_trends(scores: Floats, precisions: Floats, given: Trends, filled: Integers) -> Fit:
    """Fit every trend in every size: level + size * shape, normal noise, normal size, level free.

    Args:
        scores: Observed scores, shape (bins,).
        precisions: Inverse of their variances, shape (bins,).
        given: The trends over all P bins.
        filled: Which of the P bins the scores are of, shape (bins,).
    """
    total = precisions.sum()
    level = scores @ precisions / total
    shapes = given.shapes[:, filled]
    shapes = shapes - (shapes @ precisions / total)[:, None]
    fits = (shapes * precisions) @ (scores - level)
    precision = shapes**2 @ precisions + 1 / SIZES[:, None] ** 2
    # The share of a size beforehand, and the density of effects within it, cancel: SIZES / SIZES.
    evidence = given.prior + 0.5 * (fits**2 / precision - np.log(precision))
    centres = level + (fits / precision)[..., None] * shapes
    roots = np.stack([shapes / np.sqrt(precision)[..., None], np.full(centres.shape, total**-0.5)], axis=-1)
    return Fit(evidence.ravel(), centres.reshape(-1, len(scores)), roots.reshape(-1, len(scores), 2))


def fit_curves(scores: Floats, precisions: Floats, roots: Floats) -> Fit:
    """Fit every kind of curve in every size: level + size * curve, normal noise, level free.

    Args:
        scores: Observed scores, shape (bins,).
        precisions: Inverse of their variances, shape (bins,).
        roots: Roots of the curves' covariances, shape (kinds, bins, P).
    """
    total = precisions.sum()
    level = scores @ precisions / total
    sized = (SIZES[:, None, None, None] * roots).reshape(-1, *roots.shape[1:])
    sized = sized - (precisions @ sized / total)[:, None, :]
    weighted = (sized * precisions[:, None]).transpose(0, 2, 1)
    precision = np.eye(roots.shape[-1]) + weighted @ sized
    # L with L L' = precision: (precision)^-1 = L^-T L^-1, so sized L^-T is a root of the covariance.
    inverse = np.linalg.inv(np.linalg.cholesky(precision))
    scattered = sized @ inverse.transpose(0, 2, 1)
    fits = (inverse @ (weighted @ (scores - level))[..., None])[..., 0]
    evidence = 0.5 * (fits**2).sum(axis=1) + np.log(np.diagonal(inverse, axis1=1, axis2=2)).sum(axis=1)
    evidence += np.repeat(np.log(SIZES), len(roots))
    levels = np.full((len(sized), len(scores), 1), total**-0.5)
    centres = level + (scattered @ fits[..., None])[..., 0]
    return Fit(evidence, centres, np.concatenate([scattered, levels], axis=-1))


def _weights(fits: tuple[Fit, Fit]) -> Floats:
    """Return each model's share given the observed scores, shape (models of both,)."""
    evidence = np.concatenate([fit.evidence for fit in fits])
    weights = np.exp(evidence - evidence.max())
    normalised: Floats = weights / weights.sum()
    return normalised


def _draw(fits: tuple[Fit, Fit], draws: int, rng: np.random.Generator) -> Draws:
    """Draw true scores, each model as often as its share says."""
    shares = np.minimum(_weights(fits).cumsum(), 1)
    picked = np.searchsorted(shares, (np.arange(draws) + 0.5) / draws).clip(max=len(shares) - 1)
    models = len(fits[0].evidence)
    line, curve = picked[picked < models], picked[picked >= models] - models
    straight, curved = _scatter(fits[0], line, rng), _scatter(fits[1], curve, rng)
    scores, centres = np.concatenate([straight, curved]), np.concatenate([straight, fits[1].centres[curve]])
    return Draws(np.clip(scores, 1e-6, 1), np.clip(centres, 1e-6, 1))


def _scatter(fit: Fit, picked: Integers, rng: np.random.Generator) -> Floats:
    """Draw true scores from the picked models, shape (picked, bins)."""
    noise = rng.standard_normal((len(picked), fit.roots.shape[-1], 1))
    return fit.centres[picked] + (fit.roots[picked] @ noise)[..., 0]
