"""The test of the position effect: the evidence of the mixture for any effect, compared with its null distribution.

Of the statistics tried in simulation (observed PSI, chi-square, log evidence), the log evidence needs the fewest queries over
linear, step, dip and single-bin effects (docs/statistics.md). It is calibrated under permutation of the gains within strata,
so its level holds whatever the priors of the mixture.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posir_psi import psi
from posir_significance.observations import Floats
from posir_significance.position_effect import TOLERANCE, PositionEffect, pseudoinverse
from posir_significance.true_score_model import EffectModels, PosteriorDraws

#: Seed of all draws: the same result gives the same numbers.
SEED = 20260108
NULL_DRAWS = 999
POSTERIOR_DRAWS = 1000


@dataclass(frozen=True, eq=False)
class EffectTest:
    """The p-value of the position effect, and PSI under the null."""

    p_value: float
    """Probability of at least this much evidence if position has no effect, in (0, 1]."""
    null_psi: Floats
    """PSI of the bins if position has no effect, shape (draws,)."""
    expected: Floats
    """Posterior mean of the true score of each of the B non-empty bins, in [0, 1], shape (B,)."""


def run_effect_test(effect: PositionEffect, bins: int, draws: int = NULL_DRAWS) -> EffectTest:
    """Test whether position has any effect.

    The p-value counts the observed evidence among those of the null distribution and so is never 0 (Phipson & Smyth 2010,
    arXiv 1603.05766).

    Args:
        effect: Of B non-empty bins.
        bins: Number of all bins.
        draws: Number of draws of the null distribution.
    """
    models = EffectModels.from_precision(pseudoinverse(effect.null_covariance)[0], bins, effect.filled)
    null = draw_null_effects(effect, draws)
    evidence = models.log_evidence(np.concatenate([effect.effects[None], null]))
    reached = int((evidence[1:] >= evidence[0] - TOLERANCE).sum())
    expected = np.clip(effect.level + models.expected(effect.effects), 0, 1)
    return EffectTest((1 + reached) / (draws + 1), psi(np.clip(effect.level + null, 0, 1)), expected)


def draw_null_effects(effect: PositionEffect, draws: int) -> Floats:
    """Draw effects that chance alone gives: normal, with the covariance of permutation within strata. Shape (draws, B)."""
    values, vectors = np.linalg.eigh(effect.null_covariance)
    root = vectors * np.sqrt(np.maximum(values, 0))
    # The symmetric root does not depend on which eigenvectors the linear algebra library returns.
    drawn = np.random.default_rng(SEED).standard_normal((draws, len(values))) @ (root @ vectors.T)
    centred: Floats = drawn - (drawn @ effect.weights)[:, None]
    return centred


def draw_true_effects(effect: PositionEffect, bins: int) -> PosteriorDraws:
    """Draw true effects of the position bins from the posterior of the mixture; their weighted means are 0."""
    models = EffectModels.from_precision(pseudoinverse(effect.covariance)[0], bins, effect.filled)
    drawn = models.draw(effect.effects, POSTERIOR_DRAWS, np.random.default_rng(SEED))
    return PosteriorDraws(*(part - (part @ effect.weights)[:, None] for part in (drawn.effects, drawn.means)))
