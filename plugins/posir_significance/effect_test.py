"""The test of the position effect: the evidence of the mixture for any effect, compared with its null distribution.

Of the statistics tried in simulation (observed PSI, chi-square, log evidence), the log evidence needs the fewest queries over
linear, step, dip and single-bin effects (docs/statistics.md). Its null distribution is drawn by random signs of the clusters'
contributions, so its level holds whatever the priors of the mixture, and however questions of a document depend on each other.

Observed scores vary more than true ones, so their range overestimates that of the true scores. Order separates them:
true scores are a function of position, sampling errors are not. Their posterior averages over simple curves: linear
and quadratic trends, single bins, steps (a model that stops reading), intervals that differ from both sides, smooth curves
(Gaussian processes) of two length scales, and scores without order, each with several effect sizes, by posterior probability
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

from posir_significance import position_effect
from posir_significance.observations import Floats, Integers, Observations
from posir_tasks.schemes import bin_midpoints

#: Prior standard deviations of the effect of position over the bins, in nDCG@10. The prior probability of each is
#: proportional to its size, which is uniform over effect sizes. (Equal probabilities for doubling sizes would favor small
#: effects; the intervals would then end too low.)
SIZES: Floats = np.array([0.01, 0.02, 0.04, 0.08, 0.16, 0.32])
#: Length scales of the Gaussian processes, as shares of the document.
LENGTH_SCALES = (0.15, 0.4)
#: Eigenvalues below this are rounding errors; their mean is 1.
EIGENVALUE_TOLERANCE = 1e-10
NULL_DRAWS = 999
POSTERIOR_DRAWS = 1000
#: Draws after which those of a p-value above `CERTAIN` stop.
FIRST_DRAWS, CERTAIN = 199, 0.2
#: Share of the null distribution that its tail is fitted to, and the multiple of its scale that bounds the p-value.
TAIL, TAIL_BOUND = 0.1, 2.0
#: Smallest p-value: results round to six decimals.
SMALLEST_P_VALUE = 1e-6
#: Evidence computed in single precision may differ by this much where gains are equal.
ROUNDING = 1e-5


@dataclass(frozen=True, eq=False)
class EffectTest:
    """The p-value of the position effect, and its expected size."""

    p_value: float | None
    """Probability of at least this much evidence if position has no effect, in (0, 1]; None with too few clusters to say."""
    expected: Floats
    """Posterior mean of the true effect on each of the B non-empty bins, shape (B,)."""


def run_effect_test(effect: position_effect.PositionEffect, observations: Observations | None = None) -> EffectTest:
    """Test whether position has any effect.

    The p-value counts the observed evidence among those of the null distribution and so is never 0 (Phipson & Smyth 2010,
    arXiv 1603.05766). Draws stop early where it will not be small (Besag & Clifford 1991, Biometrika 78, 301-304). Beyond all
    draws, it is extrapolated from their tail, so that it can stay significant when many rows are corrected. Where every one of
    up to `MAX_CLUSTERS` observations is a cluster of its own, gains are permuted, which is exact.
    """
    models = EffectModels.from_precision(position_effect.pseudoinverse(effect.null_covariance)[0], effect.bins, effect.filled)
    expected = models.expected(effect.effects)
    if effect.count < position_effect.fewest_documents(effect.stratum):
        return EffectTest(None, expected)
    evidence, null_evidence = float(models.log_evidence(effect.effects[None])[0]), np.empty(0)
    rng, p_value = np.random.default_rng(position_effect.SEED), 1.0
    few = observations is not None and len(observations.gains) <= position_effect.MAX_CLUSTERS
    for end in (FIRST_DRAWS, NULL_DRAWS):
        start = len(null_evidence)
        permuted = position_effect.permute_gains(observations, effect, end - start, rng) if few and observations else None
        null = effect.null_clusters.draw(NULL_DRAWS)[start:end] if permuted is None else permuted
        null_evidence = np.append(null_evidence, models.log_evidence(null))
        p_value = find_p_value(evidence, null_evidence)
        if p_value > CERTAIN:
            break
    return EffectTest(p_value, expected)


def find_p_value(evidence: float, null_evidence: Floats) -> float:
    """Return the probability of at least this much evidence if position has no effect, in [1e-6, 1].

    Below 1 / (draws + 1), an exponential distribution is fitted to the tail of the null distribution (a generalized Pareto
    distribution of shape 0; Knijnenburg et al. 2009, Bioinformatics 25, i161-i168). Twice the fitted scale keeps the level
    for the heavier tails of few queries, too (docs/statistics.md).
    """
    draws = len(null_evidence)
    counted = (1 + int((null_evidence >= evidence - ROUNDING).sum())) / (draws + 1)
    if counted * (draws + 1) > 1:
        return counted
    largest = int(TAIL * (draws + 1))
    tail = np.sort(null_evidence)[-largest - 1 :]
    scale = TAIL_BOUND * (tail[1:] - tail[0]).mean() if largest else 0.0
    if scale <= 0:
        return counted
    extrapolated = largest / (draws + 1) * np.exp((tail[0] - evidence) / scale)
    return float(np.clip(extrapolated, SMALLEST_P_VALUE, counted))


def draw_true_effects(effect: position_effect.PositionEffect) -> tuple[Floats, Floats]:
    """Draw true effects of the position bins from the posterior of the mixture; their weighted means are 0.

    Returns:
        The effects, and the posterior mean under each draw's Gaussian process (the draw itself under a one-parameter shape);
        shape (draws, bins) each.
    """
    models = EffectModels.from_precision(
        position_effect.pseudoinverse(effect.covariance)[0], effect.bins, effect.filled, ends=True
    )
    drawn, means = models.draw(effect.effects, POSTERIOR_DRAWS, np.random.default_rng(position_effect.SEED))
    return drawn - (drawn @ effect.weights)[:, None], means - (means @ effect.weights)[:, None]


@cache
def _list_shapes(bins: int, ends: bool) -> tuple[Floats, Floats]:
    """Return curves over a number of bins with one free parameter, their effect size: trends, single bins, steps and intervals.

    Args:
        bins: Number of bins.
        ends: Whether the first and the last bin or two are a kind, too.

    Returns:
        The shapes, with mean 0 and standard deviation 1 over the bins, shape (shapes, P); the log prior probability of each, up
        to a constant, shape (shapes,). Each kind has the same in total.
    """
    middle, index = bin_midpoints(bins), np.arange(bins)
    kinds = [
        [middle],
        [(middle - 0.5) ** 2],
        [(index == single).astype(np.float64) for single in range(bins)],
        [(index >= start).astype(np.float64) for start in range(1, bins)],
        [((index >= start) & (index < end)).astype(np.float64) for start in range(1, bins) for end in range(start + 1, bins)],
    ]
    if ends:
        kinds.append([(index < 1) * 1.0, (index >= bins - 1) * 1.0, (index < 2) * 1.0, (index >= bins - 2) * 1.0])
    # A quadratic trend over two bins is constant.
    usable = [[shape for shape in kind if np.ptp(shape) > 0] for kind in kinds]
    shapes = np.array([(shape - shape.mean()) / shape.std() for kind in usable for shape in kind])
    return shapes, np.array([-np.log(len(kind)) for kind in usable for _ in kind])


@cache
def gaussian_process_roots(bins: int) -> Floats:
    """Return square roots of the prior covariances of smooth curves and of scores without order; shape (kinds, P, P)."""
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
    def from_precision(cls, precision: Floats, bins: int, filled: Integers, ends: bool = False) -> EffectModels:
        """Prepare the models.

        `precision` is W, shape (B, B), of the B filled bins. With `ends`, bins at the ends are a kind of their own: that
        covers the PSI of such curves, but costs the test power.
        """
        shapes, shape_prior = _list_shapes(bins, ends)
        shapes = shapes[:, filled]
        projections = shapes @ precision
        information = (projections * shapes).sum(axis=1)
        roots = gaussian_process_roots(bins)[:, filled]
        sized = (SIZES[:, None, None, None] * roots).reshape(-1, *roots.shape[1:])
        weighted = sized.transpose(0, 2, 1) @ precision
        inverse = np.linalg.inv(np.linalg.cholesky(np.eye(bins) + weighted @ sized))
        log_sizes = np.log(SIZES / SIZES.sum())
        priors = (shape_prior + log_sizes[:, None]).ravel(), np.repeat(log_sizes, len(roots))
        precisions = 1 + SIZES[:, None] ** 2 * information
        return cls(shapes, projections, precisions, sized, inverse @ weighted, inverse, np.concatenate(priors))

    def log_bayes_factors(self, effects: Floats) -> Floats:
        """Return the log Bayes factor of every model against no effect, shape (n, S K + G), given effects of shape (n, B)."""
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
        """Return the posterior mean of the true effects, shape (B,), given observed ones of shape (B,)."""
        probabilities = softmax(self.log_bayes_factors(effects[None])[0] + self.log_prior)
        single = self.shape_precisions.size
        amounts = SIZES[:, None] ** 2 / self.shape_precisions * (self.shape_projections @ effects)
        amounts *= probabilities[:single].reshape(amounts.shape)
        smooth = self._process_means(effects)
        mean: Floats = amounts.sum(axis=0) @ self.shapes + probabilities[single:] @ smooth
        return mean

    def draw(self, effects: Floats, draws: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw true effects, given observed ones of shape (B,), from the averaged posterior, as `draw_true_effects` does."""
        probabilities = softmax(self.log_bayes_factors(effects[None])[0] + self.log_prior)
        # Each model as often as its probability says: systematic sampling.
        models = np.searchsorted(np.minimum(probabilities.cumsum(), 1), (np.arange(draws) + 0.5) / draws)
        models = models.clip(max=len(probabilities) - 1)
        single = self.shape_precisions.size
        size, shape = np.divmod(models[models < single], len(self.shapes))
        variances = SIZES[size] ** 2 / self.shape_precisions[size, shape]
        amounts = variances * (self.shape_projections[shape] @ effects) + np.sqrt(variances) * rng.standard_normal(len(size))
        shaped = amounts[:, None] * self.shapes[shape]
        processes = models[models >= single] - single
        means = self._process_means(effects)[processes]
        smooth, noise = means.copy(), rng.standard_normal((len(processes), self.roots.shape[2]))
        for model in np.unique(processes):
            chosen = processes == model
            smooth[chosen] += noise[chosen] @ self.inverse_factors[model] @ self.roots[model].T
        return np.concatenate([shaped, smooth]), np.concatenate([shaped, means])
