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
from scipy.special import softmax

from posir_significance.observations import Floats, Integers

#: Prior standard deviations of the effect of position over the bins, in nDCG@10. The prior probability of each is
#: proportional to its size, which is uniform over effect sizes. (Equal probabilities for doubling sizes would favour small
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
        kind = effects.dtype
        shrinkage = (0.5 * SIZES[:, None] ** 2 / self.shape_precisions).astype(kind)
        single = shrinkage.size
        factors = np.empty((len(effects), len(self.log_prior)), kind)
        squares = (effects @ self.shape_projections.T.astype(kind)) ** 2
        np.multiply(squares[:, None], shrinkage, out=factors[:, :single].reshape(len(effects), *shrinkage.shape))
        factors[:, :single] -= (0.5 * np.log(self.shape_precisions)).astype(kind).ravel()
        processes, bins = self.root_projections.shape[:2]
        whitened = effects @ self.root_projections.reshape(processes * bins, -1).T.astype(kind)
        log_determinants = np.log(np.diagonal(self.inverse_factors, axis1=1, axis2=2)).sum(axis=1)
        factors[:, single:] = 0.5 * (whitened**2).reshape(len(effects), processes, bins).sum(axis=2) + log_determinants.astype(
            kind
        )
        return factors

    def log_evidence(self, effects: Floats) -> Floats:
        """Return the log Bayes factor of the whole mixture against no effect, up to a constant; shape (n,)."""
        # Single precision halves the time; null distributions evaluate thousands of effects.
        weighted = self.log_bayes_factors(effects.astype(np.float32))
        weighted += self.log_prior.astype(np.float32)
        largest = weighted.max(axis=1, keepdims=True)
        weighted -= largest
        evidence: Floats = largest[:, 0] + np.log(np.exp(weighted, out=weighted).sum(axis=1, dtype=np.float64))
        return evidence

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
        one = self._draw_shapes(effects, models[models < single], rng)
        means, smooth = self._draw_processes(effects, models[models >= single] - single, rng)
        return PosteriorDraws(np.concatenate([one, smooth]), np.concatenate([one, means]))

    def _draw_shapes(self, effects: Floats, models: Integers, rng: np.random.Generator) -> Floats:
        size, shape = np.divmod(models, len(self.shapes))
        variances = SIZES[size] ** 2 / self.shape_precisions[size, shape]
        means = variances * (self.shape_projections[shape] @ effects)
        amounts = means + np.sqrt(variances) * rng.standard_normal(len(models))
        drawn: Floats = amounts[:, None] * self.shapes[shape]
        return drawn

    def _draw_processes(self, effects: Floats, models: Integers, rng: np.random.Generator) -> tuple[Floats, Floats]:
        whitened = self.root_projections[models] @ effects
        factors = self.roots[models] @ self.inverse_factors[models].transpose(0, 2, 1)
        noise = rng.standard_normal(whitened.shape)
        means = (factors @ whitened[..., None])[..., 0]
        return means, means + (factors @ noise[..., None])[..., 0]
