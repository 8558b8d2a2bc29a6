"""Sample sizes and detectable effects: against simulated tests, and through `posir power`."""

import json

import numpy as np
import pytest
from scipy.stats import norm
from typer.testing import CliRunner

import posir
from benchmarks.simulation import draw_clustered, true_means
from posir_psi.scores import compute_psi
from posir_significance.api import POWER, Design, detectable_effect, find_effect, required_sample, standardized_effect
from posir_significance.decision import ChangeState, compare_gains, decide_state
from posir_significance.effect_test import EffectModels, run_effect_test
from posir_significance.position_effect import estimate_effect
from posir_significance.regression import PositionContrasts
from posir_significance.sentences import name_state
from posir_tasks.command.app import build_app
from posir_tasks.errors import PosirError
from posir_tasks.schemes import assign_thirds, bin_midpoints

DESIGNS = [
    ("independent", Design(0.8, 20, 1, 0.0), {"psi": 0.2}),
    ("random", Design(0.8, 20, 5, 0.2), {"psi": 0.2}),
    ("jaquad", Design(0.7, 6, 3.2, 0.2), {"start_to_end": 0.1}),
    ("independent", Design(0.5, 3, 1, 0.0), {"psi": 0.3}),
    ("random", Design(0.6, 20, 5, 0.4), {"start_to_end": 0.05}),
]


def simulated_power(structure, design, effect, draws):
    """Share of simulated datasets of the stated size that have the stated state."""
    size, states = required_sample(design, effect), []
    means = (
        true_means("linear", effect.psi, design.ndcg_at_10, design.bins) if effect else np.full(design.bins, design.ndcg_at_10)
    )
    for seed in range(draws):
        drawn = draw_clustered(structure, size.questions, design.icc, means, np.random.default_rng(seed))
        states.append(decide_state(PositionContrasts(drawn).start_to_end, 0.05, size.documents)[0])
    return sum(name_state(state, 0.05) == size.state for state in states) / draws


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(
    ("place", "draws", "error"),
    [
        *((place, 60, 0.15) for place in range(3)),
        *(pytest.param(place, 400, 0.07, marks=pytest.mark.slow) for place in range(5)),
    ],
)
def test_data_of_the_stated_size_have_the_state_about_as_often_as_stated(place, draws, error, biased):
    structure, design, target = DESIGNS[place]
    effect = find_effect(design, **target) if biased else None
    assert POWER - error < simulated_power(structure, design, effect, draws) < POWER + max(error, 0.1)


@pytest.mark.parametrize(("bins", "power"), [(2, 0.8), (3, 0.5), (6, 0.9), (20, 0.5), (20, 0.8)])
def test_a_trend_of_the_standardized_size_is_significant_with_the_power(bins, power):
    precision = 150 * (np.eye(bins) - 1 / bins)
    models = EffectModels.from_precision(precision, bins, np.arange(bins))
    null = np.random.default_rng(0).standard_normal((2_000, bins)) / 150**0.5
    null -= null.mean(axis=1, keepdims=True)
    trend = 0.5 - bin_midpoints(bins)
    effect = standardized_effect(bins, power) * trend / np.sqrt(trend @ precision @ trend)
    critical = np.quantile(models.log_evidence(null), 0.95)
    assert (models.log_evidence(null + effect) > critical).mean() == pytest.approx(power, abs=0.05)


def test_the_detectable_effect_of_data_is_found_by_the_test_with_the_power():
    design = Design(0.8, 20, 5, 0.2)
    drawn = draw_clustered("random", 450, design.icc, np.full(20, 0.8), np.random.default_rng(1))
    effect = detectable_effect(estimate_effect(drawn))
    means = true_means("linear", effect.psi, 0.8, 20)
    assert float(compute_psi(means)) == pytest.approx(effect.psi)
    significant = 0
    for seed in range(100):
        drawn = draw_clustered("random", 450, design.icc, means, np.random.default_rng(seed))
        significant += run_effect_test(estimate_effect(drawn)).p_value < 0.05
    assert significant / 100 == pytest.approx(POWER, abs=0.15)


def test_both_targets_describe_the_same_line():
    design = Design(0.6, 20, 1, 0.2)
    by_psi = find_effect(design, psi=0.3)
    means = true_means("linear", 0.3, 0.6, 20)
    third = assign_thirds(20)
    assert by_psi.start_to_end == pytest.approx(means[third == 0].mean() - means[third == 2].mean())
    assert find_effect(design, start_to_end=by_psi.start_to_end).psi == pytest.approx(0.3)


def test_sizes_are_those_of_the_rule():
    """(3.24 SE / margin)^2 times as many documents; of two models 2.39 + 1.28."""
    design = Design(0.6, 20, 4, 0.2)
    variance = 6 * 0.8 * 0.6 * 0.4 * (1 - 0.2) / (1 - 1 / 4)
    effect = find_effect(design, start_to_end=0.08)
    for models, errors in ((1, 1.96), (2, 2.394)):
        none, biased = required_sample(design, None, models=models), required_sample(design, effect, models=models)
        assert none.questions == pytest.approx((errors + 1.2816) ** 2 * variance / 0.05**2, rel=0.005)
        assert biased.questions == pytest.approx((errors + 0.8416) ** 2 * variance / 0.08**2, rel=0.02)
        assert none.documents == -(-none.questions // 4)
    narrow = required_sample(design, None, margin=0.025)
    assert narrow.questions == pytest.approx(4 * required_sample(design, None).questions, rel=0.005)


def test_a_bias_below_the_margin_is_never_said():
    design = Design(0.6, 20, 1, 0.2)
    size = required_sample(design, find_effect(design, start_to_end=0.04))
    assert (size.questions, size.documents) == (None, None)
    assert required_sample(design, find_effect(design, start_to_end=0.04), margin=0.03).questions > 1000


def test_questions_of_one_document_lose_its_mean_but_share_its_difficulty():
    alone, pairs = (required_sample(Design(0.6, 20, size, 0.2), None) for size in (1, 2))
    assert pairs.questions == pytest.approx(alone.questions * 0.8 * 2, rel=0.005)
    # Few documents have two questions, so documents are not held fixed.
    assert required_sample(Design(0.6, 20, 1.2, 0.2), None).questions == pytest.approx(alone.questions, rel=0.005)


def test_a_state_needs_10_documents_and_neighbors_that_fail_together_more_questions():
    large = Design(0.4, 20, 30, 0.2)
    size = required_sample(large, find_effect(large, psi=0.9))
    assert (size.questions, size.documents) == (301, 11)
    apart, near = (required_sample(Design(0.6, 20, 21, 0.2, bin_icc), None) for bin_icc in (0.0, 0.5))
    assert near.questions == pytest.approx(1.5 * apart.questions, rel=0.02)


def test_an_effect_beyond_the_scores_is_refused():
    with pytest.raises(PosirError, match="PSI of 1"):
        find_effect(Design(0.8, 20, 1, 0.2), psi=1.0)
    assert find_effect(Design(0.4, 20, 1, 0.2), psi=1.0).psi == pytest.approx(1)


def test_few_questions_show_nothing_and_neither_does_a_missing_third():
    few = draw_clustered("independent", 20, 0.0, np.full(20, 0.3), np.random.default_rng(0))
    assert detectable_effect(estimate_effect(few)) is None
    many = draw_clustered("independent", 2_000, 0.0, np.full(20, 0.8), np.random.default_rng(0))
    effect = estimate_effect(many.select(many.position < 10))
    assert detectable_effect(effect) is None


def test_the_command_prints_the_states_of_one_model_and_of_two():
    options = ["power", "--difference", "8", "--difference", "3", "--ndcg", "70", "--questions-per-document", "5"]
    shown = " ".join(CliRunner().invoke(build_app(), options).stdout.split())
    for words in ("20 bins, 5 questions per document", "'biased to the start'", "below the margin of 5", "better or worse"):
        assert words in shown
    values = json.loads(CliRunner().invoke(build_app(), [*options, "--format", "json"]).stdout)
    design = Design(0.7, 20, 5, 0.2)
    first, small, none, *changes = values["rows"]
    assert first["questions"] == required_sample(design, find_effect(design, start_to_end=0.08)).questions
    assert (small["questions"], none["state"]) == (None, "no bias larger than 5 points")
    assert [row["models"] for row in changes] == [2, 2, 2]
    assert (values["questions_per_document"], values["margin"]) == (5, 0.05)
    refused = CliRunner().invoke(build_app(), ["power"]).exception
    assert isinstance(refused, PosirError)
    assert "difference" in str(refused)


def test_a_mean_difference_needs_as_many_questions_as_a_paired_t_test():
    """Of two models: (z(0.995) + z(0.8))^2 s^2 / d^2, with z(0.9) for equivalence; clusters by the factor of Kish."""
    variance = 0.8 * 0.7 * 0.3
    apart, equal = posir.power(ndcg_difference=3).rows
    assert apart.questions == pytest.approx((norm.ppf(0.995) + norm.ppf(0.8)) ** 2 * variance / 0.03**2, rel=0.01)
    assert equal.questions == pytest.approx((norm.ppf(0.995) + norm.ppf(0.9)) ** 2 * variance / 0.02**2, rel=0.01)
    clustered, _ = posir.power(ndcg_difference=3, questions_per_document=5, icc=0.25).rows
    assert clustered.questions == pytest.approx(2 * apart.questions, rel=0.01)
    assert "is below the margin" in str(posir.power(ndcg_difference=1))
    rng = np.random.default_rng(1)
    said = 0
    for _ in range(200):
        differences = rng.normal(0.03, variance**0.5, apart.questions)
        said += compare_gains(differences, np.arange(apart.questions)).ndcg_at_10.state is ChangeState.BETTER
    # At the level of three metrics, a little lower than that of five.
    assert 0.75 <= said / 200 <= 0.95
