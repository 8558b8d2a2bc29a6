"""The usual scores against definitions written out here, and against ranx where it is installed."""

import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_score.evaluation import score_rankings

DOCUMENTS = st.sampled_from([f"d{number}" for number in range(12)])
K_VALUES = (1, 3, 5, 10, 20, 100)


def order(scores: dict[str, float]) -> list[str]:
    """Return trec_eval's order: by score in single precision, then by id, both descending."""
    return sorted(scores, key=lambda name: (np.float32(scores[name]), name), reverse=True)


def ndcg(scores: dict[str, float], grades: dict[str, int], k: int) -> float:
    gains = [max(grades.get(name, 0), 0) for name in order(scores)[:k]]
    best = sorted((max(grade, 0) for grade in grades.values()), reverse=True)[:k]
    total, ideal = (sum(gain / math.log2(rank + 2) for rank, gain in enumerate(values)) for values in (gains, best))
    return total / ideal if ideal else 0.0


def reciprocal_rank(scores: dict[str, float], grades: dict[str, int], k: int) -> float:
    return next((1 / rank for rank, name in enumerate(order(scores)[:k], start=1) if grades.get(name, 0) > 0), 0.0)


def recall(scores: dict[str, float], grades: dict[str, int], k: int) -> float:
    relevant = {name for name, grade in grades.items() if grade > 0}
    return len(relevant & set(order(scores)[:k])) / len(relevant) if relevant else 0.0


@given(
    queries=st.lists(
        st.tuples(
            st.dictionaries(DOCUMENTS, st.sampled_from([0.0, 0.5, 0.5 + 1e-9, 1.0, 2.5]), max_size=12),
            st.dictionaries(DOCUMENTS, st.integers(-1, 3), min_size=1, max_size=8),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_scores_follow_the_definitions(queries: list[tuple[dict[str, float], dict[str, int]]]):
    rankings = {f"q{row}": scores for row, (scores, _) in enumerate(queries)}
    grades = {f"q{row}": judged for row, (_, judged) in enumerate(queries)}
    scores = score_rankings(rankings, grades, K_VALUES)
    for name, define in (("ndcg", ndcg), ("mrr", reciprocal_rank), ("recall", recall)):
        for k in K_VALUES:
            expected = sum(define(*query, k) for query in queries) / len(queries)
            assert scores[f"{name}_at_{k}"] == pytest.approx(expected, abs=1e-6)


def build_random_run() -> tuple[dict[str, dict[str, float]], dict[str, dict[str, int]]]:
    chosen = random.Random(0)
    names = [f"d{number}" for number in range(300)]
    rankings = {f"q{q}": {name: chosen.random() for name in chosen.sample(names, 100)} for q in range(50)}
    return rankings, {query: {name: chosen.randrange(3) for name in [*chosen.sample(names, 9), "d0"]} for query in rankings}


@pytest.mark.slow
def test_scores_are_those_of_ranx():
    ranx: Any = pytest.importorskip("ranx")
    rankings, grades = build_random_run()
    measures = {"ndcg@10": "ndcg_at_10", "mrr@10": "mrr_at_10", "recall@100": "recall_at_100", "map@100": "map_at_100"}
    theirs = ranx.evaluate(ranx.Qrels(grades), ranx.Run(rankings), list(measures))
    ours = score_rankings(rankings, grades, K_VALUES)
    for measure, name in measures.items():
        assert ours[name] == pytest.approx(theirs[measure], abs=1e-6)
