"""Declared scores: groups of queries, values, and fields of result files."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from posir_tasks.plugin_api import score_result
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.evidence import Evidence
from posir_tasks.values.profile import build_recall_gains
from posir_tasks.values.schemes import AbsolutePositions
from posir_tasks.values.scores import (
    QueryGroup,
    ResultBatch,
    ResultScores,
    ResultValues,
    Score,
    ScoreInfo,
    Unit,
    flatten,
    serialize_scores,
)
from tests.support.simulation import build_profile, draw_counts, separate_documents


@pytest.fixture
def values():
    return ResultValues(
        separate_documents(
            build_profile(*(draw_counts(np.full(3, 0.5), 90, seed) for seed in (1, 2)))
        )
    )


def test_groups_are_all_queries_then_lengths_and_bins_span_all(values):
    groups, bins = list(values.iterate_groups()), list(values.iterate_bins())
    assert [group.name for group in groups] == ["all", "q1", "q2"]
    assert [group.queries for group in groups] == [180, 90, 90]
    assert sum(group.counts for group in groups[1:]).tolist() == groups[0].counts.tolist()
    assert np.concatenate([bin_.counts for bin_ in bins]).tolist() == groups[0].counts.tolist()
    assert sum(bin_.queries for bin_ in bins) == 180
    assert groups[2].profile == values.profile.select_length(1)
    one_length = ResultValues(separate_documents(build_profile(draw_counts(np.full(3, 0.5), 9, 1))))
    assert [group.name for group in one_length.iterate_groups()] == ["all"]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 1, 0, 3)])
def test_scores_in_a_batch_equal_those_of_each_result(order):
    def build_results():
        buckets = [
            [draw_counts(np.full(3, mean), queries, number) for number in range(lengths)]
            for mean, queries, lengths in ((0.3, 90, 4), (0.6, 40, 1), (0.5, 0, 2), (0.9, 7, 2))
        ]
        return [ResultValues(separate_documents(build_profile(*counts))) for counts in buckets]

    expected = []
    for values in build_results():
        assert values.batch.results == (values,)
        expected.append(score_result(values).to_json(values.profile.positions))
    results = build_results()
    ResultBatch.join(results)
    for index in order:
        values = results[index]
        assert score_result(values).to_json(values.profile.positions) == expected[index]


def test_a_batch_estimates_length_buckets_only_if_one_is_needed(values):
    gain = build_recall_gains(10)
    other = ResultValues(values.ranks)
    ResultBatch.join([values, other])
    overall, *lengths = values.iterate_groups()
    assert overall.estimate(gain)
    assert [kind for kind, _ in values.batch.estimates] == ["overall"]
    assert lengths[0].estimate(gain)
    assert [kind for kind, _ in values.batch.estimates] == ["overall", "lengths"]
    assert other.batch is values.batch


def test_a_score_may_change_the_counts_of_its_group(values):
    expected = values.profile.counts.copy()
    for group in (*values.iterate_groups(), *values.iterate_bins()):
        before = group.counts.tolist()
        counts = group.counts
        counts += 100
        assert group.counts.tolist() == before
    assert values.profile.counts.tolist() == expected.tolist()


def test_an_estimate_has_its_interval_in_json_and_columns():
    declared = [
        ScoreInfo(key, key, "A score.", interval=key != "queries")
        for key in ("psi", "mean", "start", "queries")
    ]
    scores = {"psi": Estimate(0.2, (0.1, 0.4)), "mean": Estimate(0.5), "start": None, "queries": 3}
    assert serialize_scores(scores, declared) == {
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


def test_result_files_contain_scores_by_group_and_bin():
    declared = (
        ScoreInfo("psi", "PSI", "PSI."),
        ScoreInfo("ndcg_at_10", "nDCG@10", "nDCG@10."),
        ScoreInfo("slope", "Slope", "Slope.", column=False),
        ScoreInfo("verdict", "Verdict", "Verdict.", unit=Unit.TEXT),
    )
    group = {"psi": Estimate(0.2, (0.1, 0.4)), "ndcg_at_10": 0.5, "slope": 0.1, "verdict": "even"}
    scores = ResultScores(declared, {"all": group, "q1": group}, ({"ndcg_at_10": 0.4},))
    result = scores.to_json(["first"], reserved_keys={"ndcg_at_10"})
    assert json.loads(json.dumps(result)) == result
    assert result == {
        "position_scores": {
            "all": serialize_scores(group, declared),
            "q1": serialize_scores(group, declared),
        },
        "position_bins": [{"position": "first", "ndcg_at_10": 0.4}],
        "psi": 0.2,
        "psi_q1": 0.2,
        "ndcg_at_10_q1": 0.5,
    }


@pytest.mark.parametrize("key", ["", "PSI", "9th", "psi-q1", "psi\x1b"])
def test_keys_are_lower_case_and_scores_are_computed(key):
    with pytest.raises(ValueError, match="must be lower-case"):
        ScoreInfo(key, "Title", "Sentence.")
    with pytest.raises(TypeError):
        Score("key", "Title", "Sentence.")  # type: ignore[call-arg]


#: Gains of Recall@1.
FIRST = (np.arange(12) == 0).astype(float)


def build_group(starts, ranks, documents, position=None):
    """Build the group of queries about documents of 1,000 characters."""
    number = len(starts)
    begins = np.array(starts)
    evidence = Evidence(
        [f"q{row}" for row in range(number)],
        [f"d{document}" for document in documents],
        begins,
        begins + 5,
        np.full(number, 1_000),
    )
    values = DocumentRanks.from_ranks(AbsolutePositions(), evidence, np.array(ranks))
    return QueryGroup(ResultValues(values), position=position)


def test_a_query_on_a_shared_boundary_counts_once_in_a_mean():
    first, second = 100, 50
    group = build_group([first, second], [0, 1], [0, 1])
    assert group.counts.sum() == 3, "the first query is in two bins"
    assert group.mean(FIRST) == group.estimate(FIRST).value == 0.5
    bins = [build_group([first, second], [0, 1], [0, 1], position) for position in (0, 1, 2)]
    assert [part.mean(FIRST) for part in bins] == [0.5, 0.0, None]
    assert [part.estimate(FIRST) is None for part in bins] == [False, False, True]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 15), st.integers(0, 6)), min_size=1))
def test_means_of_bins_equal_pandas(rows):
    frame = pd.DataFrame(rows, columns=["start", "rank", "document"])
    hit = frame["rank"] == 1
    arguments = (frame.start.tolist(), frame["rank"].tolist(), frame.document.tolist())
    group = build_group(*arguments)
    assert group.mean(FIRST) == pytest.approx(hit.mean())
    for position, (low, high) in enumerate(AbsolutePositions().buckets):
        inside = frame.start.between(low, high)
        mean = build_group(*arguments, position).mean(FIRST)
        assert mean == (pytest.approx(hit[inside].mean()) if inside.any() else None)


@pytest.mark.parametrize("hits", [0, 3, 200, 397, 400])
def test_the_interval_of_independent_queries_is_wilsons(hits):
    ranks = [1] * hits + [0] * (400 - hits)
    estimate = build_group([10] * 400, ranks, range(400)).estimate(FIRST)
    wilson = binomtest(hits, 400).proportion_ci(method="wilson")
    assert estimate.value == pytest.approx(hits / 400)
    # Near 0 and 1 the interval is somewhat wider, since clusters are a sample.
    assert estimate.interval == pytest.approx((wilson.low, wilson.high), abs=0.02)
    assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
    assert estimate.low < estimate.high


def test_questions_of_one_document_are_one_cluster():
    hits = np.repeat(np.random.default_rng(1).integers(0, 2, 100), 4).tolist()
    documents = np.repeat(np.arange(100), 4).tolist()
    alike = build_group([10] * 400, hits, documents).estimate(FIRST)
    apart = build_group([10] * 400, hits, range(400)).estimate(FIRST)
    # Each document counts as one question, so the interval is twice as wide.
    assert np.ptp(alike.interval) == pytest.approx(2 * np.ptp(apart.interval), rel=0.05)
