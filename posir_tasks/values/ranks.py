"""Rank relevant documents and compute mteb's retrieval scores from the ranks.

With one relevant document per query, every retrieval metric is a function of its rank. Scoring
document by document would take most of the time and memory of a large retrieval task.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pytrec_eval
from numpy.typing import NDArray

from posir_tasks.base.arrays import Booleans, Floats, Integers
from posir_tasks.base.batches import split_batches
from posir_tasks.base.errors import ScoreError

#: trec_eval's measures with binary relevance, by mteb's name.
MEASURES = {"map": "map_cut", "recall": "recall", "precision": "P", "hit_rate": "success"}
#: Number of queries per pytrec_eval batch.
BATCH_SIZE = 1_000
#: Shares of queries, the least confident first, that mteb's nAUC excludes in turn.
ABSTENTION_RATES = np.linspace(0, 1, 11)[:-1]

#: Scores by query id and document id.
Results: TypeAlias = Mapping[str, Mapping[str, float]]
SearchResults: TypeAlias = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Hits:
    """Search results as arrays, with k documents per query."""

    documents: Integers
    """Corpus rows, shape (queries, k)."""
    scores: NDArray[np.floating[Any]]
    """Scores of the documents, unsorted, shape (queries, k)."""
    document_ids: Sequence[str]
    """Document ids by corpus row."""


@dataclass(frozen=True, eq=False)
class HitsByQuery(Mapping[str, Mapping[str, float]]):
    """Hits as mteb's nested mapping of scores. Each query is converted on access."""

    hits: Hits
    rows: Mapping[str, int]
    """Row of each query in the hits."""

    def __getitem__(self, query: str) -> Mapping[str, float]:
        row = self.rows[query]
        names = (self.hits.document_ids[document] for document in self.hits.documents[row])
        return dict(zip(names, self.hits.scores[row].tolist(), strict=True))

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class RankedQueries:
    """The rank and three confidence measures of n queries."""

    ranks: Integers
    """Rank of the relevant document from 1, or 0 for a miss; shape (n,)."""
    confidence: Mapping[str, Floats]
    """mteb's confidence measures `max`, `std` and `diff1` for nAUC (arXiv 2402.12997), shape (n,)
    each.
    """


def rank_results(results: Results, positives: Mapping[str, str]) -> RankedQueries:
    """Rank each query's relevant document among its results.

    Documents are sorted as in pytrec_eval: by score in single precision, then by document id, both
    descending.

    Args:
        results: Scores by query id and document id. A query without results is a miss.
        positives: Id of the relevant document by query id.

    Raises:
        ScoreError: A score is NaN.
    """
    runs = [results.get(query, {}) for query in positives]
    relevant = list(positives.values())
    sizes = np.fromiter(map(len, runs), np.int64, len(runs))
    values = chain.from_iterable(run.values() for run in runs)
    scores = np.fromiter(values, np.float64, int(sizes.sum()))
    relevant_scores = np.array(
        [run.get(document, np.nan) for run, document in zip(runs, relevant, strict=True)],
        np.float64,
    )

    def count_ties_before(query: int) -> int:
        score = np.float32(relevant_scores[query])
        return sum(
            name > relevant[query]
            for name, other in runs[query].items()
            if np.float32(other) == score
        )

    return _rank(scores, sizes, relevant_scores, count_ties_before)


def rank_hits(hits: Hits, positives: Mapping[str, str]) -> RankedQueries:
    """Rank each query's relevant document among its hits, sorted as in `rank_results`.

    Raises:
        ScoreError: A score is NaN.
    """
    names = {*positives.values()}
    rows = {name: row for row, name in enumerate(hits.document_ids) if name in names}
    relevant = np.fromiter((rows[name] for name in positives.values()), np.int64, len(positives))
    scores = hits.scores.astype(np.float64)
    is_relevant = hits.documents == relevant[:, None]
    sums = np.sum(scores, axis=1, where=is_relevant)
    relevant_scores = np.where(is_relevant.any(axis=1), sums, np.nan)

    def count_ties_before(query: int) -> int:
        is_tied = scores[query].astype(np.float32) == np.float32(relevant_scores[query])
        name = hits.document_ids[relevant[query]]
        return sum(hits.document_ids[row] > name for row in hits.documents[query][is_tied])

    sizes = np.full(len(positives), scores.shape[1])
    return _rank(scores.ravel(), sizes, relevant_scores, count_ties_before)


def _rank(
    scores: Floats,
    sizes: Integers,
    relevant_scores: Floats,
    count_ties_before: Callable[[int], int],
) -> RankedQueries:
    """Rank each query's relevant document.

    Args:
        scores: Scores of all results, concatenated by query.
        sizes: Number of results per query.
        relevant_scores: Score of the relevant document per query, NaN for a miss.
        count_ties_before: Counts a query's documents that tie with the relevant document and rank
            before it.

    Raises:
        ScoreError: A score is NaN.
    """
    owners = np.repeat(np.arange(len(sizes)), sizes)
    nan_queries = np.unique(owners[np.isnan(scores)])
    if nan_queries.size:
        raise ScoreError(
            f"The model returned NaN scores for {nan_queries.size} of {len(sizes)} queries. NaN "
            "cannot be ranked, so nothing was scored. Common causes: overflow in half precision "
            "(try another dtype), a damaged checkpoint."
        )
    scores32 = scores.astype(np.float32)
    per_score = np.repeat(relevant_scores.astype(np.float32), sizes)
    ranks = np.where(
        np.isnan(relevant_scores), 0, _count_per_query(scores32 > per_score, sizes) + 1
    )
    for query in np.flatnonzero(_count_per_query(scores32 == per_score, sizes) > 1).tolist():
        ranks[query] += count_ties_before(query)
    return RankedQueries(ranks, _compute_confidence(scores, sizes))


def _count_per_query(flags: Booleans, sizes: Integers) -> Integers:
    """Count the true flags of each query, given the number of flags per query."""
    totals = np.concatenate([[0], np.cumsum(flags, dtype=np.int64)])
    ends = np.cumsum(sizes)
    counts: Integers = totals[ends] - totals[ends - sizes]
    return counts


def _compute_confidence(scores: Floats, sizes: Integers) -> dict[str, Floats]:
    """Vectorize `mteb._evaluators.retrieval_metrics.confidence_scores` over queries."""
    measures = {name: np.zeros(len(sizes)) for name in ("max", "std", "diff1")}
    nonempty = np.flatnonzero(sizes)
    if not nonempty.size:
        return measures
    lengths = sizes[nonempty]
    starts = np.cumsum(lengths) - lengths
    best = np.maximum.reduceat(scores, starts)
    is_best = scores == np.repeat(best, lengths)
    lower_scores = np.where(is_best, -np.inf, scores)
    second = np.maximum.reduceat(lower_scores, starts)
    best_counts = np.add.reduceat(is_best, starts, dtype=np.int64)
    second = np.where((best_counts > 1) | (lengths == 1), best, second)
    means = np.add.reduceat(scores, starts) / lengths
    deviations = scores - np.repeat(means, lengths)
    variances = np.add.reduceat(deviations**2, starts) / lengths
    measures["max"][nonempty] = best
    measures["std"][nonempty] = np.sqrt(variances)
    measures["diff1"][nonempty] = best - second
    return measures


def compute_retrieval_scores(queries: RankedQueries, k_values: Sequence[int]) -> dict[str, Any]:
    """Compute mteb's retrieval scores for one or more queries, under mteb's names, not rounded.

    `k_values` are cut-offs and include 1. With one relevant document per query, MAP@k is MRR@k,
    precision@k is recall@k / k, and the nAUC of precision is that of recall.
    """
    gains = {k: _compute_gains(queries.ranks, k) for k in k_values}

    def mean(name: str, metric: str) -> dict[str, float]:
        return {f"{name}_at_{k}": float(gains[k][metric].mean()) for k in k_values}

    naucs = {
        (metric, f"{k}_{measure}"): compute_nauc(confidence, gains[k][metric])
        for metric in ("ndcg", "recall", "mrr")
        for k in k_values
        for measure, confidence in queries.confidence.items()
    }

    def nauc(name: str, metric: str) -> dict[str, float]:
        return {
            f"nauc_{name}_at_{suffix}": area
            for (key, suffix), area in naucs.items()
            if key == metric
        }

    recall = mean("recall", "recall")
    return {
        **mean("ndcg", "ndcg"),
        **mean("map", "mrr"),
        **recall,
        "accuracy": recall["recall_at_1"],
        **{f"precision_at_{k}": recall[f"recall_at_{k}"] / k for k in k_values},
        **mean("mrr", "mrr"),
        **nauc("ndcg", "ndcg"),
        **nauc("map", "mrr"),
        **nauc("recall", "recall"),
        **nauc("precision", "recall"),
        **nauc("mrr", "mrr"),
        **mean("hit_rate", "recall"),
    }


def score_rankings(
    rankings: Results, grades: Mapping[str, Mapping[str, float]], k_values: Sequence[int]
) -> dict[str, float]:
    """Average the scores of `score_each_query` over queries."""
    by_query = score_each_query(rankings, grades, k_values)
    return {name: sum(values) / len(grades) for name, values in by_query.items()}


def score_each_query(
    rankings: Results, grades: Mapping[str, Mapping[str, float]], k_values: Sequence[int]
) -> dict[str, list[float]]:
    """Compute mteb's retrieval scores of each query with grades, under mteb's names, in [0, 1].

    Scores equal those of trec_eval. nDCG also accepts fractional and large grades, which trec_eval
    cannot parse. Documents with a grade above 0 are relevant. A query without a ranking scores 0.
    `k_values` are the cut-offs of all metrics, including MRR, and include 1.
    """
    cutoffs = ",".join(map(str, k_values))
    evaluator = pytrec_eval.RelevanceEvaluator(
        {
            query: {name: int(grade > 0) for name, grade in query_grades.items()}
            for query, query_grades in grades.items()
        },
        {*(f"{measure}.{cutoffs}" for measure in MEASURES.values()), "recip_rank"},
    )
    measures = {
        f"{name}_at_{k}": f"{measure}_{k}" for name, measure in MEASURES.items() for k in k_values
    }
    measures["mrr"] = "recip_rank"
    gains: list[Floats] = []
    rows: list[list[float]] = []
    for queries in split_batches(list(grades), BATCH_SIZE):
        runs = {query: dict(rankings[query]) for query in queries if rankings.get(query)}
        query_measures = evaluator.evaluate(runs)
        for query in queries:
            gains.append(compute_ndcg(runs.get(query, {}), grades[query], k_values))
            row = query_measures.get(query, {})
            rows.append([row.get(measure, 0.0) for measure in measures.values()])
    ndcg_names = [f"ndcg_at_{k}" for k in k_values]
    scores = dict(zip(ndcg_names, np.transpose(gains).tolist(), strict=True))
    scores |= dict(zip(measures, np.transpose(rows).tolist(), strict=True))
    reciprocal_ranks = scores.pop("mrr")
    for k in k_values:
        # Ranks up to k have a reciprocal of at least 1 / k, up to rounding.
        scores[f"mrr_at_{k}"] = [
            value if value * k > 1 - 1e-9 else 0.0 for value in reciprocal_ranks
        ]
    return scores | {"accuracy": scores["recall_at_1"]}


def list_score_names(k_values: Sequence[int]) -> list[str]:
    """List the score names of `score_each_query`."""
    return [
        *(f"{name}_at_{k}" for name in ("ndcg", *MEASURES, "mrr") for k in k_values),
        "accuracy",
    ]


def compute_ndcg(
    ranking: Mapping[str, float], grades: Mapping[str, float], k_values: Sequence[int]
) -> Floats:
    """Compute nDCG of one query at each cut-off as trec_eval does, in [0, 1], shape (cut-offs,).

    The gain of a document is its grade, or 0 if the grade is negative or missing. The discount of
    rank r is log2(r + 1). The ideal ranking contains all judged documents. Documents are sorted as
    in `rank_results`.
    """
    with np.errstate(over="ignore"):
        scores32 = np.array([*ranking.values()], np.float32)
    names = [*ranking]
    if not (scores32[1:] < scores32[:-1]).all():
        pairs = sorted(zip(scores32.tolist(), ranking, strict=True), reverse=True)
        names = [name for _, name in pairs]
    gains = [(rank, grades[name]) for rank, name in enumerate(names) if name in grades]
    dcg = _sum_discounted_gains(gains, k_values)
    ideal_dcg = _sum_discounted_gains(enumerate(sorted(grades.values(), reverse=True)), k_values)
    return np.divide(dcg, ideal_dcg, out=np.zeros(len(k_values)), where=ideal_dcg > 0)


def _sum_discounted_gains(gains: Iterable[tuple[int, float]], k_values: Sequence[int]) -> Floats:
    """Sum the discounted gains up to each cut-off. Ranks start at 0 and are sorted."""
    totals = np.zeros(len(k_values))
    for rank, gain in gains:
        if gain > 0:
            totals[np.greater(k_values, rank)] += gain / math.log2(rank + 2)
    return totals


def compute_query_scores(rank: int, k_values: Sequence[int]) -> dict[str, float]:
    """Compute the scores of one query under the names of pytrec_eval; `rank` is 0 for a miss."""
    scores: dict[str, float] = {}
    for k in k_values:
        ndcg, recall, mrr = (
            float(gain[0]) for gain in _compute_gains(np.array([rank]), k).values()
        )
        scores |= {
            f"ndcg_cut_{k}": ndcg,
            f"map_cut_{k}": mrr,
            f"recall_{k}": recall,
            f"P_{k}": recall / k,
            f"success_{k}": recall,
        }
    return scores


def compute_nauc(confidence: Floats, scores: Floats) -> float:
    """Compute the normalized area under the abstention curve as mteb does (arXiv 2402.12997).

    Returns:
        1 if confidence sorts the queries by score, 0 if abstention does not help, NaN if all scores
        are equal.
    """
    raw = _compute_abstention_curve(confidence, scores)
    oracle = _compute_abstention_curve(scores, scores)
    flat = oracle[0] * (ABSTENTION_RATES[-1] - ABSTENTION_RATES[0])
    best = _integrate(oracle)
    return np.nan if best == flat else float((_integrate(raw) - flat) / (best - flat))


def _compute_abstention_curve(confidence: Floats, scores: Floats) -> Floats:
    """Compute the mean score of the remaining queries at each abstention rate. Each query counts
    with the mean score of all queries of equal confidence.
    """
    order = np.argsort(confidence, kind="stable")
    sizes = np.diff([0, *np.flatnonzero(np.diff(confidence[order])) + 1, len(order)])
    means = np.add.reduceat(scores[order], np.cumsum(sizes) - sizes) / sizes
    smoothed_scores = np.repeat(means, sizes)
    starts = [min(round(rate * len(order)), len(order) - 1) for rate in ABSTENTION_RATES]
    return np.array([smoothed_scores[start:].mean() for start in starts])


def _integrate(curve: Floats) -> float:
    """Integrate an abstention curve with the trapezoidal rule."""
    return float((np.diff(ABSTENTION_RATES) * (curve[1:] + curve[:-1]) / 2).sum())


def _compute_gains(ranks: Integers, k: int) -> dict[str, Floats]:
    """Compute nDCG@k, recall@k and MRR@k of queries with one relevant document, shape (n,) each."""
    is_retrieved = (ranks >= 1) & (ranks <= k)
    rank = np.where(is_retrieved, ranks, 1)
    return {
        "ndcg": is_retrieved / np.log2(1 + rank),
        "recall": is_retrieved.astype(np.float64),
        "mrr": is_retrieved / rank,
    }
