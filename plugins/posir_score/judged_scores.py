"""Scores of rankings by judgments, as trec_eval computes them: several relevant documents, grades, unjudged documents.

The gain of a document is its grade and the ideal ranking is of all judged documents (trec_eval's `ndcg_cut`); a grade above 0
is relevant. A query without ranking scores 0, as with `trec_eval -c`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytrec_eval

#: mteb's name of a score by trec_eval's measure.
MEASURES = {"ndcg": "ndcg_cut", "map": "map_cut", "recall": "recall", "precision": "P", "hit_rate": "success"}


def score_rankings(
    rankings: Mapping[str, Mapping[str, float]], grades: Mapping[str, Mapping[str, int]], k_values: Sequence[int]
) -> dict[str, float]:
    """Return mteb's usual retrieval scores under its own names, in [0, 1], not rounded.

    Args:
        rankings: Query id to document id to score.
        grades: Query id to document id to grade; of at least one query.
        k_values: Cut-offs, among them 1. The mean reciprocal rank has one too, in trec_eval's order of documents.
    """
    cutoffs = ",".join(map(str, k_values))
    judge = pytrec_eval.RelevanceEvaluator(
        {query: dict(documents) for query, documents in grades.items()},
        {*(f"{measure}.{cutoffs}" for measure in MEASURES.values()), "recip_rank"},
    )
    ranked = {query: dict(scores) for query, scores in rankings.items() if query in grades and scores}
    by_query = list(judge.evaluate(ranked).values())

    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(grades)

    scores = {
        f"{name}_at_{k}": mean([row[f"{measure}_{k}"] for row in by_query])
        for name, measure in MEASURES.items()
        for k in k_values
    }
    reciprocal = [row["recip_rank"] for row in by_query]
    for k in k_values:
        # The reciprocal of a rank up to k is at least 1 / k, up to rounding.
        scores[f"mrr_at_{k}"] = mean([value if value * k > 1 - 1e-9 else 0.0 for value in reciprocal])
    return scores | {"accuracy": scores["recall_at_1"]}
