"""Declared scores: groups of queries, values, and the form of the result file."""

import json

import numpy as np
import pytest

from posir_tasks.values.scores import (
    Estimate,
    ResultScores,
    ResultValues,
    Score,
    ScoreInfo,
    Unit,
    flatten,
    scores_to_json,
)
from tests.support.simulation import build_profile, draw_counts, separate_documents


@pytest.fixture
def values():
    return ResultValues(
        separate_documents(
            build_profile(*(draw_counts(np.full(3, 0.5), 90, seed) for seed in (1, 2)))
        )
    )


def test_groups_are_all_queries_then_each_length_and_bins_span_all_lengths(values):
    groups, bins = list(values.groups()), list(values.bins())
    assert [group.name for group in groups] == ["all", "q1", "q2"]
    assert [group.queries for group in groups] == [180, 90, 90]
    assert sum(group.counts for group in groups[1:]).tolist() == groups[0].counts.tolist()
    assert np.concatenate([bin_.counts for bin_ in bins]).tolist() == groups[0].counts.tolist()
    assert sum(bin_.queries for bin_ in bins) == 180
    assert groups[2].profile == values.profile.of_length(1)
    one_length = ResultValues(separate_documents(build_profile(draw_counts(np.full(3, 0.5), 9, 1))))
    assert [group.name for group in one_length.groups()] == ["all"]


def test_an_estimate_has_its_interval_beside_it_in_json_and_its_ends_in_columns():
    declared = [
        ScoreInfo(key, key, "A score.", interval=key != "queries")
        for key in ("psi", "mean", "start", "queries")
    ]
    scores = {"psi": Estimate(0.2, (0.1, 0.4)), "mean": Estimate(0.5), "start": None, "queries": 3}
    assert scores_to_json(scores, declared) == {
        "psi": 0.2,
        "psi_interval": [0.1, 0.4],
        "mean": 0.5,
        "mean_interval": None,
        "start": None,
        "start_interval": None,
        "queries": 3,
    }
    assert flatten("psi", scores["psi"]) == {"psi": 0.2, "psi_low": 0.1, "psi_high": 0.4}
    assert flatten("queries", 3) == {"queries": 3}


def test_the_result_file_has_scores_by_group_and_bin_and_those_of_columns_beside_mtebs_own():
    declared = (
        ScoreInfo("psi", "PSI", "PSI."),
        ScoreInfo("ndcg_at_10", "nDCG@10", "nDCG@10."),
        ScoreInfo("slope", "Slope", "Slope.", column=False),
        ScoreInfo("verdict", "Verdict", "Verdict.", unit=Unit.TEXT),
    )
    group = {"psi": Estimate(0.2, (0.1, 0.4)), "ndcg_at_10": 0.5, "slope": 0.1, "verdict": "even"}
    scores = ResultScores(declared, {"all": group, "q1": group}, ({"ndcg_at_10": 0.4},))
    result = scores.to_json(["first"], taken={"ndcg_at_10"})
    assert json.loads(json.dumps(result)) == result
    assert result == {
        "position_scores": {
            "all": scores_to_json(group, declared),
            "q1": scores_to_json(group, declared),
        },
        "position_bins": [{"position": "first", "ndcg_at_10": 0.4}],
        "psi": 0.2,
        "psi_q1": 0.2,
        "ndcg_at_10_q1": 0.5,
    }


@pytest.mark.parametrize("key", ["", "PSI", "9th", "psi-q1", "psi\x1b"])
def test_a_key_is_lower_case_letters_digits_and_underscores_and_a_score_is_computed(key):
    with pytest.raises(ValueError, match="must be lower-case"):
        ScoreInfo(key, "Title", "Sentence.")
    with pytest.raises(TypeError):
        Score("key", "Title", "Sentence.")  # type: ignore[call-arg]
