"""From a model's results to the rank of each query's relevant document, and mteb's usual scores from the ranks.

With one relevant document a query, every retrieval metric is a function of its rank; so no run is scored document by
document, which is what takes most of the time and memory of a large retrieval task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posir_tasks.errors import ScoreError
from posir_tasks.evidence import Integers

Results = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class RankedQueries:
    """What is kept of a run: a rank and three measures of confidence per query, all of shape (n,)."""

    ranks: Integers
    """Rank of the relevant document from 1; 0 where it is not among the results."""
    confidence: Mapping[str, NDArray[np.float64]]
    """mteb's confidence measures `max`, `std`, `diff1` of the scores, for its nAUC (arXiv 2402.12997)."""


def rank_positives(results: Results, positives: Mapping[str, str]) -> RankedQueries:
    """Rank each query's relevant document among its results.

    Order is that of pytrec_eval: by score, held in single precision, then by document id, both descending.

    Args:
        results: Query id to document id to score; a query without results counts as a miss.
        positives: Query id to the id of its relevant document.

    Raises:
        ScoreError: A score is NaN.
    """
    runs = [results.get(query, {}) for query in positives]
    sizes = np.fromiter(map(len, runs), np.int64, len(runs))
    scores = np.fromiter(chain.from_iterable(run.values() for run in runs), np.float64, int(sizes.sum()))
    nan_queries = np.unique(np.repeat(np.arange(len(runs)), sizes)[np.isnan(scores)])
    if nan_queries.size:
        raise ScoreError(
            f"The model returned NaN scores for {nan_queries.size} of {len(runs)} queries, first '"
            f"{list(positives)[nan_queries[0]]}'. A ranking by NaN means nothing, so nothing was scored. Common causes: "
            "half precision overflow (try another dtype), empty inputs, a damaged checkpoint."
        )
    return RankedQueries(_ranks(runs, scores.astype(np.float32), sizes, positives), _confidence(scores, sizes))


def _ranks(
    runs: Sequence[Mapping[str, float]], scores: NDArray[np.float32], sizes: Integers, positives: Mapping[str, str]
) -> Integers:
    own = np.fromiter(
        (run.get(positive, np.nan) for run, positive in zip(runs, positives.values(), strict=True)), np.float32, len(runs)
    )
    per_result = np.repeat(own, sizes)
    above = _sum_by_query(scores > per_result, sizes)
    tied = _sum_by_query(scores == per_result, sizes)
    ranks = np.where(np.isnan(own), 0, above + 1)
    documents = list(positives.values())
    for query in np.flatnonzero(tied > 1).tolist():
        ranks[query] += sum(
            document > documents[query] and np.float32(score) == own[query] for document, score in runs[query].items()
        )
    return ranks


def _sum_by_query(flags: NDArray[np.bool_], sizes: Integers) -> Integers:
    totals = np.concatenate([[0], np.cumsum(flags, dtype=np.int64)])
    ends = np.cumsum(sizes)
    summed: Integers = totals[ends] - totals[ends - sizes]
    return summed


def _confidence(scores: NDArray[np.float64], sizes: Integers) -> dict[str, NDArray[np.float64]]:
    """Return the measures of `mteb._evaluators.retrieval_metrics.confidence_scores` for all queries at once."""
    measures = {name: np.zeros(len(sizes)) for name in ("max", "std", "diff1")}
    full = np.flatnonzero(sizes)
    if not full.size:
        return measures
    lengths = sizes[full]
    starts = np.cumsum(lengths) - lengths
    best = np.maximum.reduceat(scores, starts)
    at_best = scores == np.repeat(best, lengths)
    second = np.maximum.reduceat(np.where(at_best, -np.inf, scores), starts)
    second = np.where((np.add.reduceat(at_best, starts, dtype=np.int64) > 1) | (lengths == 1), best, second)
    deviations = scores - np.repeat(np.add.reduceat(scores, starts) / lengths, lengths)
    measures["max"][full] = best
    measures["std"][full] = np.sqrt(np.add.reduceat(deviations**2, starts) / lengths)
    measures["diff1"][full] = best - second
    return measures


def retrieval_scores(ranked: RankedQueries, k_values: Sequence[int]) -> dict[str, Any]:
    """Return mteb's usual retrieval scores under its own names, not rounded.

    Args:
        ranked: Of at least one query.
        k_values: Cut-offs.
    """
    from mteb._evaluators.retrieval_metrics import make_score_dict, nauc

    per_query = {
        f"{metric}@{k}": gains for k in k_values for metric, gains in _gains(ranked.ranks.astype(np.float64), k).items()
    }

    def means(metric: str) -> dict[str, float]:
        return {f"{metric}@{k}": float(per_query[f"{metric}@{k}"].mean()) for k in k_values}

    def naucs(*metrics: str) -> dict[str, float]:
        return {
            f"nAUC_{metric}@{k}_{name}": float(nauc(confidence, per_query[f"{metric}@{k}"]))
            for metric in metrics
            for k in k_values
            for name, confidence in ranked.confidence.items()
        }

    scores: dict[str, Any] = make_score_dict(
        ndcg=means("NDCG"),
        _map=means("MAP"),
        recall=means("Recall"),
        precision=means("P"),
        mrr=means("MRR"),
        naucs=naucs("NDCG", "MAP", "Recall", "P"),
        naucs_mrr=naucs("MRR"),
        hit_rate={f"HitRate@{k}": value for k, value in zip(k_values, means("Recall").values(), strict=True)},
        task_scores={},
    )
    return scores


def _gains(ranks: NDArray[np.float64], k: int) -> dict[str, NDArray[np.float64]]:
    """Return each metric at `k` of each query, by the closed forms for one relevant document."""
    found = (ranks >= 1) & (ranks <= k)
    rank = np.where(found, ranks, 1.0)
    return {
        "NDCG": found / np.log2(1 + rank),
        "MAP": found / rank,
        "Recall": found.astype(np.float64),
        "P": found / k,
        "MRR": found / rank,
    }
