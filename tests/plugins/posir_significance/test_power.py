"""Sample sizes and detectable effects: against simulated tests, and through `posir power`."""

import json

import numpy as np
import pytest

from benchmarks.simulation import draw_clustered, true_means
from posir_psi.scores import psi
from posir_significance.api import (
    POWER,
    Design,
    StartToEnd,
    TruePsi,
    detectable_effect,
    required_sample,
    standardized_effect,
)
from posir_significance.effect_test import EffectModels, run_effect_test
from posir_significance.position_effect import estimate_effect
from posir_tasks.errors import PosirError
from posir_tasks.schemes import assign_thirds, bin_midpoints
from tests.support.commands import run

DESIGNS = [
    ("independent", Design(0.8, 20, 1, 0.0), TruePsi(0.2)),
    ("random", Design(0.8, 20, 5, 0.2), TruePsi(0.2)),
    ("jaquad", Design(0.7, 6, 3.2, 0.2), StartToEnd(0.1)),
    ("independent", Design(0.5, 3, 1, 0.0), TruePsi(0.3)),
    ("random", Design(0.6, 20, 5, 0.4), StartToEnd(0.05)),
]


def simulated_power(structure, design, target, draws):
    """Share of simulated datasets of the stated size in which the stated effect is significant."""
    size = required_sample(design, target)
    means = true_means("linear", size.psi, design.ndcg_at_10, design.bins)
    assert float(psi(means)) == pytest.approx(size.psi)
    result = 0
    for seed in range(draws):
        drawn = draw_clustered(structure, size.questions, design.icc, means, np.random.default_rng(seed))
        result += run_effect_test(estimate_effect(drawn), design.bins).p_value < 0.05
    return result / draws


@pytest.mark.parametrize(("structure", "design", "target"), DESIGNS[:2])
def test_data_of_the_stated_size_show_the_effect_about_as_often_as_stated(structure, design, target):
    assert simulated_power(structure, design, target, 100) == pytest.approx(POWER, abs=0.15)


@pytest.mark.slow
@pytest.mark.parametrize(("structure", "design", "target"), DESIGNS)
def test_data_of_the_stated_size_have_the_stated_power(structure, design, target):
    assert simulated_power(structure, design, target, 1_000) == pytest.approx(POWER, abs=0.05)


@pytest.mark.parametrize("bins", [2, 3, 6, 20])
@pytest.mark.parametrize("power", [0.5, 0.8, 0.9])
def test_a_trend_of_the_standardized_size_is_significant_with_the_power(bins, power):
    precision = 150 * (np.eye(bins) - 1 / bins)
    models = EffectModels.from_precision(precision, bins, np.arange(bins))
    null = np.random.default_rng(0).standard_normal((2_000, bins)) / 150**0.5
    null -= null.mean(axis=1, keepdims=True)
    trend = 0.5 - bin_midpoints(bins)
    effect = standardized_effect(bins, power) * trend / np.sqrt(trend @ precision @ trend)
    critical = np.quantile(models.log_evidence(null), 0.95)
    assert (models.log_evidence(null + effect) > critical).mean() == pytest.approx(power, abs=0.05)


@pytest.mark.parametrize(("structure", "design", "target"), DESIGNS)
def test_the_detectable_effect_of_data_of_the_stated_size_is_the_stated_one(structure, design, target):
    size = required_sample(design, target)
    drawn = draw_clustered(
        structure,
        size.questions,
        design.icc,
        np.full(design.bins, design.ndcg_at_10),
        np.random.default_rng(1),
    )
    effect = detectable_effect(estimate_effect(drawn), design.bins)
    assert effect.start_to_end == pytest.approx(size.start_to_end, rel=0.12)
    assert effect.psi == pytest.approx(size.psi, rel=0.15)


def test_both_targets_describe_the_same_line():
    design = Design(0.6, 20, 1, 0.2)
    by_psi = required_sample(design, TruePsi(0.3))
    means = true_means("linear", 0.3, 0.6, 20)
    third = assign_thirds(20)
    assert by_psi.start_to_end == pytest.approx(means[third == 0].mean() - means[third == 2].mean())
    by_difference = required_sample(design, StartToEnd(by_psi.start_to_end))
    assert by_difference.psi == pytest.approx(0.3)
    assert by_difference.questions == by_psi.questions


def test_questions_of_one_document_lose_its_mean_but_share_its_difficulty():
    alone, pairs, many = (required_sample(Design(0.6, 20, size, 0.2), TruePsi(0.2)) for size in (1, 2, 50))
    assert pairs.questions == pytest.approx(alone.questions * 0.8 * 2, abs=1)
    # Twenty documents: their signs say less than Student's t with more degrees of freedom.
    assert 1.05 < many.questions / (alone.questions * 0.8 * 50 / 49) < 1.15
    assert pairs.documents == -(-pairs.questions // 2)
    # Few documents have two questions, so documents are not held fixed.
    assert required_sample(Design(0.6, 20, 1.2, 0.2), TruePsi(0.2)).questions == pytest.approx(alone.questions, abs=2)


def test_a_test_needs_10_documents_and_neighbors_that_fail_together_more_questions():
    large = required_sample(Design(0.4, 20, 30, 0.2), TruePsi(0.9))
    assert (large.questions, large.documents) == (300, 10)
    apart, near = (required_sample(Design(0.6, 20, 21, 0.2, bin_icc), TruePsi(0.1)) for bin_icc in (0.0, 0.5))
    assert near.questions == pytest.approx(1.5 * apart.questions, rel=0.02)


def test_an_effect_beyond_the_scores_is_refused():
    with pytest.raises(PosirError, match="PSI of 1: some position would score below 0 or above 100"):
        required_sample(Design(0.8, 20, 1, 0.2), TruePsi(1.0))
    assert required_sample(Design(0.4, 20, 1, 0.2), TruePsi(1.0)).psi == pytest.approx(1)


def test_few_questions_show_nothing_and_neither_does_a_missing_third():
    few = draw_clustered("independent", 20, 0.0, np.full(20, 0.3), np.random.default_rng(0))
    assert detectable_effect(estimate_effect(few), 20) is None
    many = draw_clustered("independent", 2_000, 0.0, np.full(20, 0.8), np.random.default_rng(0))
    effect = estimate_effect(many.select(many.position < 10))
    assert detectable_effect(effect, 20) is None


def test_the_command_prints_a_table_and_json():
    arguments = ("power", "--difference", "5", "--psi", "0.2", "--ndcg", "70", "--questions-per-document", "5")
    shown = run("posir", *arguments).stdout
    assert "nDCG@10 70, 20 bins, 5 questions per document" in shown
    assert "+5.0" in shown
    values = json.loads(run("posir", *arguments, "--format", "json").stdout)
    expected = required_sample(Design(0.7, 20, 5, 0.2), StartToEnd(0.05))
    assert values["rows"][0]["questions"] == expected.questions
    assert values["rows"][1]["psi"] == pytest.approx(0.2)
    assert values["questions_per_document"] == 5


def test_the_command_needs_an_effect():
    done = run("posir", "power")
    assert done.returncode != 0
    assert "difference" in done.stderr
