"""The rank of each query's relevant document among its search results, and mteb's usual scores from
the ranks.

With one relevant document per query, every retrieval metric is a function of its rank, so runs need
no scoring document by document, which would take most of the time and memory of a large retrieval
task.
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

#: mteb's name of a score by trec_eval's measure, of those in which a document is relevant or not.
MEASURES = {"map": "map_cut", "recall": "recall", "precision": "P", "hit_rate": "success"}
#: Queries that pytrec_eval scores at a time.
BATCH_SIZE = 1_000
#: Shares of the queries that are left out for mteb's nAUC, those of least confidence.
ABSTENTION_RATES = np.linspace(0, 1, 11)[:-1]

#: Scores by query and document id, as read and as mteb's search models return them.
Results: TypeAlias = Mapping[str, Mapping[str, float]]
SearchResults: TypeAlias = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Hits:
    """Search results as arrays: every query has the same number of documents."""

    documents: Integers
    """Row of each document in the corpus, shape (queries, k)."""
    scores: NDArray[np.floating[Any]]
    """Shape (queries, k), in any order."""
    document_ids: Sequence[str]
    """Ids of the corpus, by row."""


@dataclass(frozen=True, eq=False)
class HitsByQuery(Mapping[str, Mapping[str, float]]):
    """Hits in the form of mteb's results; those of a query are converted on access."""

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
    """A rank and three measures of confidence per query, all of shape (n,)."""

    ranks: Integers
    """Rank of the relevant document from 1; 0 where it is not among the results."""
    confidence: Mapping[str, Floats]
    """mteb's confidence measures `max`, `std`, `diff1` of the scores, for its nAUC (arXiv
    2402.12997).
    """


def rank_results(results: Results, positives: Mapping[str, str]) -> RankedQueries:
    """Rank each query's relevant document among its results.

    The order is that of pytrec_eval: by score in single precision, then by document id, both
    descending.

    Args:
        results: Query id to document id to score; a query without results counts as a miss.
        positives: Query id to the id of its relevant document.

    Raises:
        ScoreError: A score is NaN.
    """
    runs = [results.get(query, {}) for query in positives]
    relevant = list(positives.values())
    sizes = np.fromiter(map(len, runs), np.int64, len(runs))
    values = chain.from_iterable(run.values() for run in runs)
    scores = np.fromiter(values, np.float64, int(sizes.sum()))
    of_relevant = (run.get(document, np.nan) for run, document in zip(runs, relevant, strict=True))
    relevant_scores = np.fromiter(of_relevant, np.float64, len(runs))

    def tied_before(query: int) -> int:
        score = np.float32(relevant_scores[query])
        return sum(
            name > relevant[query]
            for name, other in runs[query].items()
            if np.float32(other) == score
        )

    return _rank(scores, sizes, relevant_scores, tied_before)


def rank_hits(hits: Hits, positives: Mapping[str, str]) -> RankedQueries:
    """Rank each query's relevant document among its hits, in the order of `rank_results`; raise
    ScoreError for NaN scores.
    """
    rows = {name: row for row, name in enumerate(hits.document_ids)}
    relevant = np.fromiter((rows[name] for name in positives.values()), np.int64, len(positives))
    scores = hits.scores.astype(np.float64)
    is_relevant = hits.documents == relevant[:, None]
    sums = np.sum(scores, axis=1, where=is_relevant)
    relevant_scores = np.where(is_relevant.any(axis=1), sums, np.nan)

    def tied_before(query: int) -> int:
        is_tied = scores[query].astype(np.float32) == np.float32(relevant_scores[query])
        name = hits.document_ids[relevant[query]]
        return sum(hits.document_ids[row] > name for row in hits.documents[query][is_tied])

    sizes = np.full(len(positives), scores.shape[1])
    return _rank(scores.ravel(), sizes, relevant_scores, tied_before)


def _rank(
    scores: Floats,
    sizes: Integers,
    relevant_scores: Floats,
    tied_before: Callable[[int], int],
) -> RankedQueries:
    """Rank each query's relevant document; raise ScoreError if a score is NaN.

    `scores` are those of all results, query after query, and `sizes` their numbers;
    `relevant_scores` are NaN if the document is not among the results. `tied_before` returns how
    many documents with the same score rank before a query's relevant one.
    """
    owners = np.repeat(np.arange(len(sizes)), sizes)
    with_nan = np.unique(owners[np.isnan(scores)])
    if with_nan.size:
        raise ScoreError(
            f"The model returned NaN scores for {with_nan.size} of {len(sizes)} queries. NaN "
            "cannot be ranked, so nothing was scored. Common causes: overflow in half precision "
            "(try another dtype), a damaged checkpoint."
        )
    single = scores.astype(np.float32)
    per_score = np.repeat(relevant_scores.astype(np.float32), sizes)
    ranks = np.where(np.isnan(relevant_scores), 0, _count(single > per_score, sizes) + 1)
    for query in np.flatnonzero(_count(single == per_score, sizes) > 1).tolist():
        ranks[query] += tied_before(query)
    return RankedQueries(ranks, _confidence(scores, sizes))


def _count(flags: Booleans, sizes: Integers) -> Integers:
    totals = np.concatenate([[0], np.cumsum(flags, dtype=np.int64)])
    ends = np.cumsum(sizes)
    counts: Integers = totals[ends] - totals[ends - sizes]
    return counts


def _confidence(scores: Floats, sizes: Integers) -> dict[str, Floats]:
    """Return the measures of `mteb._evaluators.retrieval_metrics.confidence_scores` for all queries
    at once.
    """
    measures = {name: np.zeros(len(sizes)) for name in ("max", "std", "diff1")}
    answered = np.flatnonzero(sizes)
    if not answered.size:
        return measures
    lengths = sizes[answered]
    starts = np.cumsum(lengths) - lengths
    best = np.maximum.reduceat(scores, starts)
    at_best = scores == np.repeat(best, lengths)
    others = np.where(at_best, -np.inf, scores)
    second = np.maximum.reduceat(others, starts)
    best_hits = np.add.reduceat(at_best, starts, dtype=np.int64)
    second = np.where((best_hits > 1) | (lengths == 1), best, second)
    means = np.add.reduceat(scores, starts) / lengths
    deviations = scores - np.repeat(means, lengths)
    variances = np.add.reduceat(deviations**2, starts) / lengths
    measures["max"][answered] = best
    measures["std"][answered] = np.sqrt(variances)
    measures["diff1"][answered] = best - second
    return measures


def retrieval_scores(ranked: RankedQueries, k_values: Sequence[int]) -> dict[str, Any]:
    """Return mteb's usual retrieval scores of at least one query under its own names, not rounded;
    1 is a cut-off.

    With one relevant document per query, MAP@k is MRR@k, precision@k is recall@k / k, and precision
    has the nAUC of recall.
    """
    gains = {k: _gains(ranked.ranks, k) for k in k_values}
    means = {
        (metric, k): float(values.mean()) for k in k_values for metric, values in gains[k].items()
    }
    naucs = {
        (metric, k, measure): compute_nauc(confidence, gains[k][metric])
        for metric in ("ndcg", "recall", "mrr")
        for k in k_values
        for measure, confidence in ranked.confidence.items()
    }

    def mean(name: str, metric: str) -> dict[str, float]:
        return {f"{name}_at_{k}": means[metric, k] for k in k_values}

    def nauc(name: str, metric: str) -> dict[str, float]:
        return {
            f"nauc_{name}_at_{k}_{measure}": value
            for (of, k, measure), value in naucs.items()
            if of == metric
        }

    return {
        **mean("ndcg", "ndcg"),
        **mean("map", "mrr"),
        **mean("recall", "recall"),
        "accuracy": means["recall", 1],
        **{f"precision_at_{k}": means["recall", k] / k for k in k_values},
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
    """Return the means over queries of what `score_each_query` returns."""
    by_query = score_each_query(rankings, grades, k_values)
    return {name: sum(values) / len(grades) for name, values in by_query.items()}


def score_each_query(
    rankings: Results, grades: Mapping[str, Mapping[str, float]], k_values: Sequence[int]
) -> dict[str, list[float]]:
    """Return mteb's usual retrieval scores of each query under its own names, in [0, 1], of at
    least one query with grades.

    They are those of trec_eval, and its nDCG also has grades that it cannot read: fractions, and
    numbers that overflow in it. A grade above 0 is relevant. A query without ranking scores 0.
    `k_values` are cut-offs, among them 1. The mean reciprocal rank has one too, in trec_eval's
    order of documents.
    """
    cutoffs = ",".join(map(str, k_values))
    judge = pytrec_eval.RelevanceEvaluator(
        {
            query: {name: int(grade > 0) for name, grade in judged.items()}
            for query, judged in grades.items()
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
        ranked = {query: dict(rankings[query]) for query in queries if rankings.get(query)}
        evaluated = judge.evaluate(ranked)
        for query in queries:
            gains.append(compute_ndcg(ranked.get(query, {}), grades[query], k_values))
            row = evaluated.get(query, {})
            rows.append([row.get(measure, 0.0) for measure in measures.values()])
    ndcg_names = [f"ndcg_at_{k}" for k in k_values]
    scores = dict(zip(ndcg_names, np.transpose(gains).tolist(), strict=True))
    scores |= dict(zip(measures, np.transpose(rows).tolist(), strict=True))
    reciprocal = scores.pop("mrr")
    for k in k_values:
        # The reciprocal of a rank up to k is at least 1 / k, up to rounding.
        scores[f"mrr_at_{k}"] = [value if value * k > 1 - 1e-9 else 0.0 for value in reciprocal]
    return scores | {"accuracy": scores["recall_at_1"]}


def list_score_names(k_values: Sequence[int]) -> list[str]:
    """Return the names of the scores of `score_each_query`."""
    return [
        *(f"{name}_at_{k}" for name in ("ndcg", *MEASURES, "mrr") for k in k_values),
        "accuracy",
    ]


def compute_ndcg(
    ranking: Mapping[str, float], grades: Mapping[str, float], k_values: Sequence[int]
) -> Floats:
    """Compute nDCG of one query at each cut-off, as trec_eval does, in [0, 1], shape (cut-offs,).

    The gain of a document is its grade, or 0 below 0 and without judgment; the discount of a rank
    is the binary logarithm of the rank plus 1; the ideal ranking is of all judged documents.
    Documents are in the order of `rank_results`.
    """
    with np.errstate(over="ignore"):
        single = np.array([*ranking.values()], np.float32)
    ordered = [*ranking]
    if not (single[1:] < single[:-1]).all():
        pairs = sorted(zip(single.tolist(), ranking, strict=True), reverse=True)
        ordered = [name for _, name in pairs]
    gains = [(rank, grades[name]) for rank, name in enumerate(ordered) if name in grades]
    gained = _cumulate_gains(gains, k_values)
    ideal = _cumulate_gains(enumerate(sorted(grades.values(), reverse=True)), k_values)
    return np.divide(gained, ideal, out=np.zeros(len(k_values)), where=ideal > 0)


def _cumulate_gains(gains: Iterable[tuple[int, float]], k_values: Sequence[int]) -> Floats:
    """Return the discounted gains up to each cut-off; ranks count from 0, in ascending order."""
    totals = np.zeros(len(k_values))
    for rank, gain in gains:
        if gain > 0:
            totals[np.greater(k_values, rank)] += gain / math.log2(rank + 2)
    return totals


def query_scores(rank: int, k_values: Sequence[int]) -> dict[str, float]:
    """Return the scores of one query under the names of pytrec_eval, as mteb's tasks have them; 0
    is the rank of a miss.
    """
    scores: dict[str, float] = {}
    for k in k_values:
        ndcg, recall, mrr = (float(gain[0]) for gain in _gains(np.array([rank]), k).values())
        scores |= {
            f"ndcg_cut_{k}": ndcg,
            f"map_cut_{k}": mrr,
            f"recall_{k}": recall,
            f"P_{k}": recall / k,
            f"success_{k}": recall,
        }
    return scores


def compute_nauc(confidence: Floats, scores: Floats) -> float:
    """Return the normalized area under the abstention curve (arXiv 2402.12997) of queries, as mteb
    does; NaN for equal scores.

    1 is the area if confidence orders the queries as their scores do, 0 if leaving out queries
    changes nothing.
    """
    raw = _abstention_curve(confidence, scores)
    oracle = _abstention_curve(scores, scores)
    flat = oracle[0] * (ABSTENTION_RATES[-1] - ABSTENTION_RATES[0])
    best = _area(oracle)
    return np.nan if best == flat else float((_area(raw) - flat) / (best - flat))


def _abstention_curve(confidence: Floats, scores: Floats) -> Floats:
    """Return the mean score of the queries that are left at each rate; queries of the same
    confidence have their mean score.
    """
    order = np.argsort(confidence, kind="stable")
    ordered = confidence[order]
    sizes = np.diff([0, *np.flatnonzero(np.diff(confidence[order])) + 1, len(order)])
    means = np.add.reduceat(scores[order], np.cumsum(sizes) - sizes) / sizes
    kept = np.repeat(means, sizes)
    return np.array(
        [
            kept[min(round(rate * len(ordered)), len(ordered) - 1) :].mean()
            for rate in ABSTENTION_RATES
        ]
    )


def _area(curve: Floats) -> float:
    """Return the area under an abstention curve by the trapezoidal rule."""
    return float((np.diff(ABSTENTION_RATES) * (curve[1:] + curve[:-1]) / 2).sum())


def _gains(ranks: Integers, k: int) -> dict[str, Floats]:
    """Return each metric at `k` of each query, by the closed forms for one relevant document."""
    retrieved = (ranks >= 1) & (ranks <= k)
    rank = np.where(retrieved, ranks, 1)
    return {
        "ndcg": retrieved / np.log2(1 + rank),
        "recall": retrieved.astype(np.float64),
        "mrr": retrieved / rank,
    }
