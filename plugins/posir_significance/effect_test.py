"""The test of the position effect: the evidence of the mixture for any effect, compared with its null distribution.

Of the statistics tried in simulation (observed PSI, chi-square, log evidence), the log evidence needs the fewest queries over
linear, step, dip and single-bin effects (docs/statistics.md). Its null distribution is drawn by random signs of the clusters'
contributions, so its level holds whatever the priors of the mixture, and however questions of a document depend on each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posir_psi.scores import psi
from posir_significance.clusters import MAX_CLUSTERS, SEED, draw_normals, symmetric_root
from posir_significance.observations import Floats, Observations
from posir_significance.position_effect import PositionEffect, permute_gains, pseudoinverse
from posir_significance.true_score_model import EffectModels, PosteriorDraws

NULL_DRAWS = 999
POSTERIOR_DRAWS = 1000
#: Draws after which those of a p-value above `CERTAIN` stop.
FIRST_DRAWS, CERTAIN = 199, 0.2
#: Share of the null distribution that its tail is fitted to, and the multiple of its scale that bounds the p-value.
TAIL, TAIL_BOUND = 0.1, 2.0
#: Smallest p-value: results round to six decimals.
SMALLEST_P_VALUE = 1e-6
#: Fewest clusters whose signs say what chance alone does.
FEWEST_CLUSTERS = 20
#: Evidence computed in single precision may differ by this much where gains are equal.
ROUNDING = 1e-5


@dataclass(frozen=True, eq=False)
class EffectTest:
    """The p-value of the position effect, and PSI under the null."""

    p_value: float | None
    """Probability of at least this much evidence if position has no effect, in (0, 1]; None with too few clusters to say."""
    null_psi: Floats
    """PSI of the bins if position has no effect, shape (draws,)."""
    expected: Floats
    """Posterior mean of the true effect on each of the B non-empty bins, shape (B,)."""


def run_effect_test(effect: PositionEffect, bins: int, observations: Observations | None = None) -> EffectTest:
    """Test whether position has any effect.

    The p-value counts the observed evidence among those of the null distribution and so is never 0 (Phipson & Smyth 2010,
    arXiv 1603.05766). Draws stop early where it will not be small (Besag & Clifford 1991, Biometrika 78, 301-304). Beyond
    all draws, it is extrapolated from their tail, so that it can stay significant when many rows are corrected.

    Args:
        effect: The effect on B non-empty bins.
        bins: Number of all bins.
        observations: What the effect was estimated from, if these are gains. Where every one of up to `MAX_CLUSTERS` is a
            cluster of its own, they are permuted, which is exact.
    """
    models = EffectModels.from_precision(pseudoinverse(effect.null_covariance)[0], bins, effect.filled)
    null = draw_normal_effects(effect, NULL_DRAWS)
    p_value = _draw_p_value(effect, models, observations) if effect.count >= FEWEST_CLUSTERS else None
    return EffectTest(p_value, psi(np.clip(effect.level + null, 0, 1)), models.expected(effect.effects))


def _draw_p_value(effect: PositionEffect, models: EffectModels, observations: Observations | None) -> float:
    evidence, null_evidence = float(models.log_evidence(effect.effects[None])[0]), np.empty(0)
    rng, p_value = np.random.default_rng(SEED), 1.0
    few = observations is not None and len(observations.gains) <= MAX_CLUSTERS
    for end in (FIRST_DRAWS, NULL_DRAWS):
        start = len(null_evidence)
        permuted = permute_gains(observations, effect, end - start, rng) if few and observations else None
        null = effect.null_clusters.draw(NULL_DRAWS)[start:end] if permuted is None else permuted
        null_evidence = np.append(null_evidence, models.log_evidence(null))
        p_value = find_p_value(evidence, null_evidence)
        if p_value > CERTAIN:
            break
    return p_value


def find_p_value(evidence: float, null_evidence: Floats) -> float:
    """Return the probability of at least this much evidence if position has no effect, in [1e-6, 1].

    Below 1 / (draws + 1), an exponential distribution is fitted to the tail of the null distribution (a generalized Pareto
    distribution of shape 0; Knijnenburg et al. 2009, Bioinformatics 25, i161-i168). Twice the fitted scale keeps the level
    for the heavier tails of few queries, too (docs/statistics.md).

    Args:
        evidence: Of the observed effects.
        null_evidence: Of the draws of the null distribution, shape (draws,).
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


def draw_normal_effects(effect: PositionEffect, draws: int) -> Floats:
    """Draw effects that chance alone gives: normal, with the null covariance. Shape (draws, B)."""
    root = symmetric_root(effect.null_covariance)
    drawn = draw_normals(draws, len(root)) @ root
    centered: Floats = drawn - (drawn @ effect.weights)[:, None]
    return centered


def draw_true_effects(effect: PositionEffect, bins: int) -> PosteriorDraws:
    """Draw true effects of the position bins from the posterior of the mixture; their weighted means are 0."""
    models = EffectModels.from_precision(pseudoinverse(effect.covariance)[0], bins, effect.filled)
    drawn = models.draw(effect.effects, POSTERIOR_DRAWS, np.random.default_rng(SEED))
    return PosteriorDraws(*(part - (part @ effect.weights)[:, None] for part in (drawn.effects, drawn.means)))
