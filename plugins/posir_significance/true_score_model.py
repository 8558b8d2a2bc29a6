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
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from posir_significance.observations import Floats, Integers
from posir_tasks.thirds import bin_midpoints

#: Prior standard deviations of the effect of position over the bins, in nDCG@10. The prior probability of each is
#: proportional to its size, which is uniform over effect sizes. (Equal probabilities for doubling sizes would favor small
#: effects; the intervals would then end too low.)
SIZES: Floats = np.array([0.01, 0.02, 0.04, 0.08, 0.16, 0.32])
#: Length scales of the Gaussian processes, as shares of the document.
LENGTH_SCALES = (0.15, 0.4)
#: Eigenvalues below this are rounding errors; their mean is 1.
EIGENVALUE_TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class ShapeFamily:
    """Curves with one free parameter, their effect size: trends, single bins, steps and intervals."""

    shapes: Floats
    """Mean 0 and standard deviation 1 over the bins, shape (shapes, P)."""
    log_prior: Floats
    """Log prior probability of each shape, up to a constant; each kind has the same in total. Shape (shapes,)."""


@dataclass(frozen=True, eq=False)
class PosteriorDraws:
    """Draws of the true effects of the position bins from their posterior distribution."""

    effects: Floats
    """Shape (draws, bins)."""
    means: Floats
    """Posterior mean under each draw's Gaussian process; the draw itself under a one-parameter shape. Shape (draws, bins)."""


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
    centering = np.eye(bins) - 1 / bins
    centered = centering @ kinds @ centering
    values, vectors = np.linalg.eigh(centered / np.trace(centered, axis1=1, axis2=2)[:, None, None] * bins)
    # The symmetric root is the only one that does not depend on which eigenvectors the linear algebra library returns.
    scales = np.sqrt(np.where(values > EIGENVALUE_TOLERANCE, values, 0))
    roots: Floats = (vectors * scales[:, None, :]) @ vectors.transpose(0, 2, 1)
    return roots


@dataclass(frozen=True, eq=False)
class EffectModels:
    """All models of the mixture, ready to be compared with observed effects of one precision.

    Observed effects y are normal around the true ones with covariance V; W = V+ is their precision. W 1 = 0, so the level of
    the scores plays no part.
    """

    shapes: Floats
    """One-parameter shapes over the B filled bins, shape (K, B)."""
    shape_projections: Floats
    """shapes W, shape (K, B)."""
    shape_precisions: Floats
    """1 + size^2 shape' W shape, for S sizes, shape (S, K)."""
    roots: Floats
    """Roots of the prior covariances of the Gaussian processes in every size, shape (G, B, P)."""
    root_projections: Floats
    """L^-1 roots' W with L L' = I + roots' W roots, shape (G, P, B)."""
    inverse_factors: Floats
    """L^-1, shape (G, P, P)."""
    log_prior: Floats
    """Log prior probability of each model, up to a constant, shape (S K + G,)."""

    @classmethod
    def from_precision(cls, precision: Floats, bins: int, filled: Integers) -> EffectModels:
        """Prepare the models.

        Args:
            precision: W, shape (B, B), with W 1 = 0.
            bins: Number of all bins, P.
            filled: The B bins with observed effects.
        """
        family = shape_family(bins)
        shapes = family.shapes[:, filled]
        projections = shapes @ precision
        information = (projections * shapes).sum(axis=1)
        roots = gaussian_process_roots(bins)[:, filled]
        sized = (SIZES[:, None, None, None] * roots).reshape(-1, *roots.shape[1:])
        weighted = sized.transpose(0, 2, 1) @ precision
        inverse = np.linalg.inv(np.linalg.cholesky(np.eye(bins) + weighted @ sized))
        log_sizes = np.log(SIZES / SIZES.sum())
        priors = (family.log_prior + log_sizes[:, None]).ravel(), np.repeat(log_sizes, len(roots))
        precisions = 1 + SIZES[:, None] ** 2 * information
        return cls(
            shapes,
            projections,
            precisions,
            sized,
            inverse @ weighted,
            inverse,
            np.concatenate(priors),
        )

    def log_bayes_factors(self, effects: Floats) -> Floats:
        """Return the log Bayes factor of every model against no effect.

        Args:
            effects: Observed effects, shape (n, B).

        Returns:
            Shape (n, S K + G).
        """
        squares = (effects @ self.shape_projections.T) ** 2
        shapes = 0.5 * squares[:, None] * (SIZES[:, None] ** 2 / self.shape_precisions) - 0.5 * np.log(self.shape_precisions)
        return np.concatenate([shapes.reshape(len(effects), -1), self._process_factors(effects)], axis=1)

    def _process_factors(self, effects: NDArray[Any]) -> NDArray[Any]:
        """Return the log Bayes factor of every Gaussian process, in the precision of the effects; shape (n, G)."""
        kind, (processes, bins) = effects.dtype, self.root_projections.shape[:2]
        whitened = effects @ self.root_projections.reshape(processes * bins, -1).T.astype(kind)
        log_determinants = np.log(np.diagonal(self.inverse_factors, axis1=1, axis2=2)).sum(axis=1)
        squares = (whitened**2).reshape(-1, bins) @ np.full(bins, 0.5, kind)
        factors: NDArray[Any] = squares.reshape(len(effects), processes) + log_determinants.astype(kind)
        return factors

    def _process_means(self, effects: Floats) -> Floats:
        """Return the posterior mean under every Gaussian process, shape (G, B)."""
        whitened = self.root_projections @ effects
        means: Floats = (self.roots @ (self.inverse_factors.transpose(0, 2, 1) @ whitened[..., None]))[..., 0]
        return means

    def log_evidence(self, effects: Floats) -> Floats:
        """Return the log Bayes factor of the whole mixture against no effect, up to a constant; shape (n,)."""
        # Single precision, and a matrix product for the sum over shapes: null distributions evaluate thousands of effects.
        values, shrinkage = effects.astype(np.float32), (0.5 * SIZES[:, None] ** 2 / self.shape_precisions).astype(np.float32)
        log_weights = self.log_prior[: shrinkage.size].reshape(shrinkage.shape) - 0.5 * np.log(self.shape_precisions)
        squares, total = (values @ self.shape_projections.T.astype(np.float32)) ** 2, np.zeros(len(values), np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            for factors, weights in zip(shrinkage, np.exp(log_weights).astype(np.float32), strict=True):
                total += np.exp(squares * factors) @ weights
            total += np.exp(self._process_factors(values) + self.log_prior[shrinkage.size :].astype(np.float32)).sum(axis=1)
        evidence: Floats = np.log(total, dtype=np.float64)
        large = ~np.isfinite(evidence)
        if large.any():
            evidence[large] = logsumexp(self.log_bayes_factors(effects[large]) + self.log_prior, axis=1)
        return evidence

    def expected(self, effects: Floats) -> Floats:
        """Return the posterior mean of the true effects.

        Args:
            effects: Observed effects, shape (B,).

        Returns:
            Shape (B,).
        """
        probabilities = softmax(self.log_bayes_factors(effects[None])[0] + self.log_prior)
        single = self.shape_precisions.size
        amounts = SIZES[:, None] ** 2 / self.shape_precisions * (self.shape_projections @ effects)
        amounts *= probabilities[:single].reshape(amounts.shape)
        smooth = self._process_means(effects)
        mean: Floats = amounts.sum(axis=0) @ self.shapes + probabilities[single:] @ smooth
        return mean

    def draw(self, effects: Floats, draws: int, rng: np.random.Generator) -> PosteriorDraws:
        """Draw true effects from the averaged posterior.

        Args:
            effects: Observed effects, shape (B,).
            draws: Number of draws.
            rng: Random numbers.
        """
        probabilities = softmax(self.log_bayes_factors(effects[None])[0] + self.log_prior)
        # Each model as often as its probability says: systematic sampling.
        models = np.searchsorted(np.minimum(probabilities.cumsum(), 1), (np.arange(draws) + 0.5) / draws)
        models = models.clip(max=len(probabilities) - 1)
        single = self.shape_precisions.size
        single_draws = self._draw_shapes(effects, models[models < single], rng)
        means, smooth = self._draw_processes(effects, models[models >= single] - single, rng)
        return PosteriorDraws(np.concatenate([single_draws, smooth]), np.concatenate([single_draws, means]))

    def _draw_shapes(self, effects: Floats, models: Integers, rng: np.random.Generator) -> Floats:
        size, shape = np.divmod(models, len(self.shapes))
        variances = SIZES[size] ** 2 / self.shape_precisions[size, shape]
        means = variances * (self.shape_projections[shape] @ effects)
        amounts = means + np.sqrt(variances) * rng.standard_normal(len(models))
        drawn: Floats = amounts[:, None] * self.shapes[shape]
        return drawn

    def _draw_processes(self, effects: Floats, models: Integers, rng: np.random.Generator) -> tuple[Floats, Floats]:
        means = self._process_means(effects)[models]
        drawn, noise = means.copy(), rng.standard_normal((len(models), self.roots.shape[2]))
        for model in np.unique(models):
            chosen = models == model
            drawn[chosen] += noise[chosen] @ self.inverse_factors[model] @ self.roots[model].T
        return means, drawn
