"""Compare ranks with pytrec_eval, and scores with mteb."""

import math

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st
from mteb._evaluators.retrieval_metrics import calculate_retrieval_scores, make_score_dict

from posir_tasks.base.errors import ScoreError
from posir_tasks.values.ranks import (
    Hits,
    HitsByQuery,
    compute_query_scores,
    compute_retrieval_scores,
    rank_hits,
    rank_results,
)

K_VALUES = (1, 3, 5, 10, 20, 100)
#: Ids, some not ASCII, whose text order differs from numeric order.
DOCUMENTS = ["d1", "d10", "d2", "d", "D2", "ä", "文", "😀", "d1/7", "-"]
#: Few values, to produce ties. Some differ only in double precision, so they tie in pytrec_eval.
SCORES = [0.0, 0.5, 0.5 + 1e-12, 0.7, 0.7 + 1e-9, 0.7 - 1e-9, -1.0, 1e-46]


@st.composite
def draw_runs(draw, scores=SCORES):
    """Draw results of a few queries and a relevant document for each, which may be missing."""
    run = st.dictionaries(st.sampled_from(DOCUMENTS), st.sampled_from(scores), min_size=1)
    results = {
        f"q{k}": result for k, result in enumerate(draw(st.lists(run, min_size=1, max_size=6)))
    }
    return results, {query: draw(st.sampled_from(DOCUMENTS)) for query in results}


def rank_with_pytrec_eval(results, positives):
    evaluator = pytrec_eval.RelevanceEvaluator(
        {query: {name: 1} for query, name in positives.items()}, {"recip_rank"}
    )
    scores = evaluator.evaluate(results)
    reciprocals = [scores[query]["recip_rank"] for query in positives]
    return [round(1 / value) if value else 0 for value in reciprocals]


def score_with_mteb(results, positives):
    scores = calculate_retrieval_scores(
        results, {query: {name: 1} for query, name in positives.items()}, list(K_VALUES)
    )
    names = ("ndcg", "recall", "precision", "mrr", "naucs", "naucs_mrr", "hit_rate")
    return make_score_dict(
        _map=scores.map, task_scores={}, **{name: getattr(scores, name) for name in names}
    )


def build_hits(results, document_ids):
    rows = {name: row for row, name in enumerate(document_ids)}
    return Hits(
        np.array([[rows[name] for name in run] for run in results.values()], np.int64),
        np.array([list(run.values()) for run in results.values()]),
        document_ids,
    )


@given(draw_runs())
def test_ranks_equal_pytrec_eval_with_ties(result):
    results, positives = result
    assert rank_results(results, positives).ranks.tolist() == rank_with_pytrec_eval(
        results, positives
    )


# Computing the expected scores with mteb is slow.
@settings(max_examples=12)
@given(draw_runs())
def test_scores_of_a_query_equal_mteb(result):
    results, positives = result
    qrels = {query: {name: 1} for query, name in positives.items()}
    expected = calculate_retrieval_scores(results, qrels, list(K_VALUES)).all_scores
    ranks = dict(zip(positives, rank_results(results, positives).ranks.tolist(), strict=True))
    for query, scores in expected.items():
        assert compute_query_scores(ranks[query], K_VALUES) == pytest.approx(scores)


def test_hits_are_a_mapping_of_results():
    results = {"q1": {"d1": 0.5, "d2": 0.25}, "q2": {"d": 1.0, "d1": 0.0}}
    hits = HitsByQuery(build_hits(results, DOCUMENTS), {"q1": 0, "q2": 1})
    assert (hits, len(hits), list(hits)) == (results, 2, ["q1", "q2"])


@given(st.data(), st.integers(1, len(DOCUMENTS)), st.sampled_from([np.float32, np.float64]))
def test_ranks_of_hits_equal_pytrec_eval_with_ties(data, k, precision):
    rows = data.draw(st.lists(st.permutations(DOCUMENTS), min_size=1, max_size=6))
    scores = [data.draw(st.lists(st.sampled_from(SCORES), min_size=k, max_size=k)) for _ in rows]
    results = {
        f"q{n}": dict(zip(names[:k], map(float, precision(row)), strict=True))
        for n, (names, row) in enumerate(zip(rows, scores, strict=True))
    }
    positives = {query: data.draw(st.sampled_from(DOCUMENTS)) for query in results}
    ranked = rank_hits(build_hits(results, DOCUMENTS), positives)
    assert ranked.ranks.tolist() == rank_with_pytrec_eval(results, positives)
    by_results = rank_results(results, positives)
    for measure, values in by_results.confidence.items():
        np.testing.assert_allclose(ranked.confidence[measure], values, atol=1e-12)


def generate_run(queries=80, documents=160):
    """Generate results without ties, some of them short, and positives at any rank or missing."""
    rng = np.random.default_rng(0)
    results, positives = {}, {}
    for query in range(queries):
        size = int(rng.integers(1, 6)) if query % 10 == 0 else 100
        names = [f"d{row}" for row in rng.permutation(documents)[:size]]
        results[f"q{query}"] = dict(zip(names, rng.normal(size=size), strict=True))
        best_first = sorted(names, key=lambda name, run=results[f"q{query}"]: -run[name])
        place = int(rng.geometric(0.08)) - 1
        positives[f"q{query}"] = best_first[place] if place < size else "not found"
    return results, positives


def test_scores_and_names_equal_mteb():
    results, positives = generate_run()
    expected = score_with_mteb(results, positives)
    scores = compute_retrieval_scores(rank_results(results, positives), K_VALUES)
    assert list(scores) == list(expected)
    naucs = [name for name in expected if name.startswith("nauc")]
    assert len(naucs) == 5 * len(K_VALUES) * 3
    for name in expected.keys() - naucs:
        assert scores[name] == pytest.approx(expected[name], abs=1e-5), name
    for name in naucs:
        assert scores[name] == pytest.approx(expected[name], abs=1e-9, nan_ok=True), name
    assert sum(math.isfinite(scores[name]) for name in naucs) > 60
    same = {f"q{k}": {"right": 0.5 + k, "wrong": 0.1} for k in range(5)}
    ranked = rank_results(same, dict.fromkeys(same, "right"))
    for computed in (
        score_with_mteb(same, dict.fromkeys(same, "right")),
        compute_retrieval_scores(ranked, K_VALUES),
    ):
        assert math.isnan(computed["nauc_recall_at_10_max"])


@given(draw_runs(scores=[0.0, 0.25, 0.5, 1.0]))
@settings(max_examples=12)
def test_scores_with_many_ties_equal_mteb(result):
    results, positives = result
    expected = score_with_mteb(results, positives)
    scores = compute_retrieval_scores(rank_results(results, positives), K_VALUES)
    for name in expected:
        if not name.startswith("nauc"):
            assert scores[name] == pytest.approx(expected[name], abs=1e-5), name


def test_missing_queries_and_irrelevant_lists_are_misses():
    results = {"short": {"a": 1.0}, "empty": {}, "found": {"a": 1.0, "right": 0.5}}
    ranked = rank_results(results, dict.fromkeys(["short", "empty", "absent", "found"], "right"))
    assert ranked.ranks.tolist() == [0, 0, 0, 2]
    assert compute_retrieval_scores(ranked, K_VALUES)["recall_at_100"] == 0.25
    assert [values.tolist()[1:3] for values in ranked.confidence.values()] == [[0, 0]] * 3
    assert rank_results({}, {"q0": "right", "q1": "right"}).ranks.tolist() == [0, 0]


def test_nan_is_rejected_with_the_number_of_queries():
    results = {
        "q0": {"a": 0.5, "b": math.nan},
        "q1": {"a": 0.5},
        "q2": {"a": math.nan, "b": math.nan},
    }
    with pytest.raises(ScoreError, match="NaN scores for 2 of 3 queries"):
        rank_results(results, dict.fromkeys(results, "a"))
    hits = Hits(np.array([[0, 1], [1, 0]]), np.array([[0.5, math.nan], [0.5, 0.1]]), ["a", "b"])
    with pytest.raises(ScoreError, match="NaN scores for 1 of 2 queries"):
        rank_hits(hits, {"q0": "a", "q1": "a"})
