"""Align a run with the queries and documents of the data, and count mismatches."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import nlargest
from itertools import chain, islice
from typing import TypeAlias

import numpy as np

from posir_score.columns import RankedHits
from posir_score.document_names import DocumentNames, strip_chunk_suffixes
from posir_score.hits import Hit
from posir_score.ranking_builder import ANY_SUBSET, HitsByQuery, Run
from posir_tasks.base.errors import PosirError
from posir_tasks.base.wording import pluralize, sanitize
from posir_tasks.data.data import Judgments

logger = logging.getLogger(__name__)

#: Scores by query id and document id.
Rankings: TypeAlias = dict[str, dict[str, float]]

#: Maximum number of ids listed in a message.
MAX_EXAMPLES = 3
#: Number of documents per query, as in mteb's tasks. A task's main score may need more.
DEPTH = 100
#: Separates document id and chunk number.
SEPARATOR = "#"
#: Singular, plural and sentence template for each mismatch in `RunCounts`. Templates may contain
#: the names of other counts.
MISMATCH_SENTENCES = {
    "missing": ("judged query is", "judged queries are", "{} not in the run: scored as 0."),
    "empty": ("query", "queries", "{} returned nothing: scored as 0."),
    "unknown_queries": (
        "query of the run is",
        "queries of the run are",
        "{} not in the data: ignored.",
    ),
    "unknown_documents": (
        "document is",
        "documents are",
        "{} not in the corpus, first {first_unknown}: ranked as not relevant.",
    ),
    "short": (
        "query has",
        "queries have",
        "{} fewer than {depth:,} documents: all other documents count as not found.",
    ),
    "own_texts": ("retrieved document is", "retrieved documents are", "{} the query's own text."),
    "chunks": (
        "chunk was mapped to its document",
        "chunks were mapped to their documents",
        "{}; a document gets the rank of its best chunk.",
    ),
    "tied": (
        "query",
        "queries",
        "In {} a relevant document is tied with another document: ties are ordered by id, as in "
        "trec_eval. --order rank keeps the order of the run.",
    ),
    "duplicates": (
        "row repeats",
        "rows repeat",
        "{} a query and a document, as chunks of one document do: the highest score counts.",
    ),
    "identical_ids": (
        "hit has",
        "hits have",
        "{} the id of the query. If the queries are documents of the corpus, "
        "--ignore-identical-ids excludes these hits.",
    ),
    "ignored_ids": ("hit has", "hits have", "{} the id of the query: excluded."),
    "skipped_first": (
        "first hit is",
        "first hits are",
        "{} excluded, as in the task's own evaluation.",
    ),
    "other_candidates": (
        "hit is",
        "hits are",
        "{} not among the documents that the task reranks for the query: mteb ranks only these "
        "candidates, so the scores are not comparable with mteb's.",
    ),
}


@dataclass(frozen=True)
class RunCounts:
    """Counts of matches and mismatches between a run and the data. Counts of subsets add up."""

    queries: int = 0
    """Judged queries."""
    with_position: int = 0
    """Judged queries with at least one known evidence position."""
    missing: int = 0
    """Judged queries that are not in the run."""
    unknown_queries: int = 0
    """Queries of the run without judgments. They are ignored."""
    unknown_documents: int = 0
    """Documents of the run that are not in the corpus. They keep their rank and count as not
    relevant.
    """
    first_unknown: str = ""
    """The first unknown document and its query."""
    own_texts: int = 0
    """Unknown documents whose id is the text of the query."""
    short: int = 0
    """Judged queries with at least one document, but fewer than `depth`."""
    empty: int = 0
    """Judged queries for which the run has no document."""
    depth: int = 0
    """Number of documents in a complete ranking, limited by the corpus; the maximum over
    subsets.
    """
    chunks: int = 0
    """Chunks that were mapped to their documents."""
    duplicates: int = 0
    """Rows of a file that repeat a query and a document. The highest score counts."""
    asked: int = 0
    """Number of requested hits, if the retriever always returns the same smaller number; else 0."""
    most: int = 0
    """Number of returned hits per query, if `asked` is above 0."""
    identical_ids: int = 0
    """Hits with the id of the query that are not judged relevant."""
    ignored_ids: int = 0
    """Excluded hits with the id of the query."""
    skipped_first: int = 0
    """Excluded first hits, as in the task's own evaluation."""
    other_candidates: int = 0
    """Hits that are not among the task's candidates for reranking."""
    tied: int = 0
    """Queries with a tie between documents of different grades. Ties are ordered by id."""

    def __add__(self, other: RunCounts) -> RunCounts:
        sums = {name: value + getattr(other, name) for name, value in vars(self).items()}
        sums["depth"] = max(self.depth, other.depth)
        sums["first_unknown"] = self.first_unknown or other.first_unknown
        return RunCounts(**sums)

    def describe(self) -> Iterator[str]:
        """Yield a sentence for each kind of mismatch."""
        for name, (singular, plural, sentence) in MISMATCH_SENTENCES.items():
            count = getattr(self, name)
            if name == "short" and self.asked:
                yield describe_fixed_k(self.most, self.asked)
            elif count:
                yield sentence.format(pluralize(count, singular, plural), **vars(self))


@dataclass(frozen=True)
class AlignmentRules:
    """How to treat incomplete runs, and how to map returned ids to documents.

    Suffixes are removed from a chunk id, the last one first, until a known document id remains, so
    document ids may contain the separator. A document gets the rank of its best chunk (max-chunk).
    """

    requires_all: bool = True
    """If true, a run that lacks judged queries is an error. Otherwise, these queries score 0, as
    with `trec_eval -c`.
    """
    separator: str = SEPARATOR
    """Separates document id and chunk number. Empty if hits are documents."""
    find_document: Callable[[str], str] | None = None
    """Function that returns the document id of a chunk id, used instead of the separator."""
    ignore_identical_ids: bool = False
    """If true, hits with the id of the query are excluded."""
    skip_first_result: bool = False
    """If true, the first hit of each query is excluded."""
    depth: int = DEPTH
    """Maximum number of documents per query."""
    document_names: DocumentNames | None = None
    """Matches hits to documents by file name; None to compare ids only."""

    @property
    def retrieval_depth(self) -> int:
        """Number of hits to retrieve, so that `depth` hits remain after exclusions."""
        return self.depth + self.ignore_identical_ids + self.skip_first_result

    @property
    def keeps_hits(self) -> bool:
        """True if hits that are documents of the corpus are used unchanged."""
        return not (self.find_document or self.ignore_identical_ids or self.skip_first_result)

    def resolve(self, name: str, corpus: Collection[str]) -> str:
        """Find the document id of a chunk id. An unknown id is returned unchanged."""
        if self.find_document is not None:
            return self._translate(str(self.find_document(name)), corpus)
        name = self._translate(name, corpus)
        for document in strip_chunk_suffixes(name, self.separator):
            if document in corpus:
                return document
        return name

    def resolve_hits(self, hits: Iterable[Hit], corpus: Collection[str]) -> list[Hit]:
        """Replace chunk ids by document ids."""
        resolved_hits = []
        for hit in hits:
            if hit.document in corpus and self.find_document is None:
                resolved_hits.append(hit)
                continue
            document = self.resolve(hit.document, corpus)
            if document != hit.document:
                chunk = self._translate(hit.document, corpus)
                hit = hit._replace(document=document, chunk="" if chunk == document else chunk)
            resolved_hits.append(hit)
        return resolved_hits

    def _translate(self, name: str, corpus: Collection[str]) -> str:
        return (
            self.document_names.translate(name, corpus, self.separator)
            if self.document_names
            else name
        )


def merge_chunks(hits: Iterable[Hit]) -> dict[str, float]:
    """Score each document by its best hit, in the order of the hits."""
    scores: dict[str, float] = {}
    for hit in hits:
        score = hit.score or 0.0
        scores[hit.document] = max(score, scores.get(hit.document, score))
    return scores


def has_decisive_tie(scores: Mapping[str, float], grades: Mapping[str, float]) -> bool:
    """Return True if tied documents have different grades: their order then affects the scores."""
    pairs = {(score, grades.get(name, 0)) for name, score in scores.items()}
    return len(pairs) > len(set(scores.values()))


@dataclass(frozen=True)
class SubsetQueries:
    """The judged queries and the documents of a task's subset."""

    name: str
    judgments: Judgments
    documents: Collection[str]
    """Document ids of the corpus or, if it is unknown, of the qrels."""
    with_position: int
    """Number of queries with a known evidence position."""
    digest: str = ""
    has_corpus: bool = True
    """False if the corpus is unknown. Hits may then be any document."""
    copies: Mapping[str, str] = field(default_factory=dict)
    """Original document id by id of each merged copy. `documents` contains no copies."""

    @cached_property
    def ids(self) -> Collection[str]:
        """All document ids that a run may contain, including copies."""
        return frozenset((*self.documents, *self.copies)) if self.copies else self.documents

    def find_full_depth(self, rules: AlignmentRules) -> int:
        """Return the length of a complete ranking; 0 if the corpus is unknown."""
        return min(rules.depth, len(self.documents)) if self.has_corpus else 0

    def merge_copies(self, hits: Sequence[Hit]) -> list[Hit]:
        """Replace copies by their originals, and drop repeated hits of whole documents."""
        kept_hits = []
        whole_documents = set()
        for hit in hits:
            document = self.copies.get(hit.document, hit.document)
            if hit.chunk or document not in whole_documents:
                kept_hits.append(hit._replace(document=document))
            if not hit.chunk:
                whole_documents.add(document)
        return kept_hits


@dataclass
class AlignedRun:
    """A run aligned with the data."""

    rankings: dict[str, Rankings] = field(default_factory=dict)
    """Document rankings by subset, best first, at most `AlignmentRules.depth` per query."""
    hits: dict[str, HitsByQuery] = field(default_factory=dict)
    """Hits by subset, best first, one per chunk, with document ids."""
    counts: dict[str, RunCounts] = field(default_factory=dict)
    """Counts by subset. The counts of the whole run are added to the first subset."""

    @property
    def has_locatable_chunks(self) -> bool:
        """True if any hit has the text or the offsets of a chunk."""
        rows = (hits for hits in self._list_hits() if not isinstance(hits, RankedHits))
        return any(hit.text or hit.start is not None for hits in rows for hit in hits)

    @property
    def has_chunks(self) -> bool:
        """True if hits are chunks of documents."""
        return bool(self.total.chunks) or any(
            len({hit.document for hit in hits}) < len(hits) for hits in self._list_hits()
        )

    def _list_hits(self) -> Iterator[Collection[Hit]]:
        for by_query in self.hits.values():
            yield from by_query.values()

    @property
    def total(self) -> RunCounts:
        """The sum of the counts of all subsets."""
        return sum(self.counts.values(), RunCounts())


def align_run(run: Run, subsets: Collection[SubsetQueries], rules: AlignmentRules) -> AlignedRun:
    """Align a run with the queries and documents of the data.

    If the run lacks some subsets, only the other subsets are scored.

    Raises:
        PosirError: The run does not match the data.
    """
    missing_subsets = [subset.name for subset in subsets if subset.name not in run.by_subset]
    has_subsets = ANY_SUBSET not in run.by_subset
    if rules.requires_all and has_subsets and 0 < len(missing_subsets) < len(subsets):
        subsets = [subset for subset in subsets if subset.name in run.by_subset]
        logger.warning(
            "%s: %s scored, not in the run: %s. --missing zero scores missing subsets as 0.",
            run.name,
            pluralize(len(subsets), "subset"),
            ", ".join(missing_subsets),
        )
    by_subset, unknown_queries = _split_rankings(run, subsets)
    run_counts = RunCounts(unknown_queries=unknown_queries, duplicates=run.duplicates)
    min_hits, max_hits = run.hit_range
    smallest_corpus = min(len(subset.documents) for subset in subsets)
    if min_hits == max_hits < min(run.requested_hits, smallest_corpus):
        run_counts = replace(run_counts, asked=run.requested_hits, most=max_hits)
    aligned_run = AlignedRun()
    for subset in subsets:
        hits, rankings, counts = _align_subset(by_subset[subset.name], subset, rules)
        aligned_run.hits[subset.name] = hits
        aligned_run.rankings[subset.name] = rankings
        aligned_run.counts[subset.name] = counts + run_counts
        run_counts = RunCounts()
    _raise_if_mismatched(run, subsets, aligned_run, rules)
    return aligned_run


def _raise_if_mismatched(
    run: Run, subsets: Collection[SubsetQueries], aligned_run: AlignedRun, rules: AlignmentRules
) -> None:
    """Raise PosirError if queries or documents do not match the data at all, or a query is
    missing.
    """
    total = aligned_run.total
    queries = [(subset.name, query) for subset in subsets for query in subset.judgments.grades]
    if total.missing == total.queries:
        run_ids = _quote(chain(*run.by_subset.values()))
        data_ids = _quote(query for _, query in queries)
        raise PosirError(
            f"{run.name}: no query of the run is in the data; the run has {run_ids}, the data has "
            f"{data_ids}. Check --data."
        )
    by_query = chain(*(rankings.values() for rankings in aligned_run.rankings.values()))
    documents = [*chain(*by_query)]
    if not documents:
        raise PosirError(describe_empty_run(run.name, total.queries - total.missing))
    if total.unknown_documents >= len(documents):
        corpora = chain(*(subset.documents for subset in subsets))
        raise PosirError(describe_unknown_documents(run.name, documents, corpora))
    if total.missing and rules.requires_all:
        missing = _quote(
            query for name, query in queries if query not in aligned_run.rankings[name]
        )
        subject = pluralize(total.missing, "judged query is", "judged queries are")
        raise PosirError(
            f"{run.name}: {subject} not in the run, first {missing}. --missing zero scores "
            "these queries as 0."
        )


def _split_rankings(
    run: Run, subsets: Collection[SubsetQueries]
) -> tuple[dict[str, HitsByQuery], int]:
    """Split a run's rankings by subset, and count the queries that are in no subset."""
    by_subset: dict[str, HitsByQuery] = {subset.name: {} for subset in subsets}
    unknown_queries = 0
    for name, rankings in run.by_subset.items():
        if name and len(by_subset) == len(run.by_subset) == 1:
            # Subset names of local data end with the revision, so they may differ.
            name = next(iter(by_subset))
        if name in by_subset:
            by_subset[name] = rankings
        elif name != ANY_SUBSET:
            unknown_queries += len(rankings)
    # Some tools use query texts as ids. Queries with the same text share their hits.
    by_id = defaultdict(list)
    by_text = defaultdict(list)
    for subset in subsets:
        for query in subset.judgments.grades:
            text = subset.judgments.queries.get(query, "")
            by_id[query].append((subset.name, query))
            by_text[text].append((subset.name, query))
    for run_query, hits in run.by_subset.get(ANY_SUBSET, {}).items():
        matches = by_id.get(run_query) or by_text.get(run_query, [])
        names = sorted({name for name, _ in matches})
        if len(names) > 1:
            raise PosirError(
                f"{run.name}: query {sanitize(run_query)} is in several subsets of the data, "
                f"{', '.join(names)}. Use --data with one subset, or score mteb's predictions, "
                "which name the subset."
            )
        unknown_queries += not matches
        for name, query in matches:
            by_subset[name][query] = hits
    return by_subset, unknown_queries


def _align_subset(
    run_hits: HitsByQuery, subset: SubsetQueries, rules: AlignmentRules
) -> tuple[HitsByQuery, Rankings, RunCounts]:
    grades = subset.judgments.grades
    hits: HitsByQuery = {}
    rankings = {}
    counts: Counter[str] = Counter()
    for query in grades:
        if query in run_hits:
            aligned = _align_query(query, run_hits[query], subset, rules, counts)
            hits[query], rankings[query] = aligned
    if counts["chunks"] and not subset.has_corpus and rules.find_document is None:
        raise PosirError(
            "The run has chunk ids, whose documents are unknown without the corpus. Use --data "
            "with the corpus, or --chunk-separator '' if the ids are document ids."
        )
    first_unknown = ""
    if counts["unknown_documents"]:
        pairs = ((name, query) for query, ranking in rankings.items() for name in ranking)
        name, query = next(pair for pair in pairs if pair[0] not in subset.documents)
        first_unknown = f"{sanitize(name)} of query {sanitize(query)}"
    subset_counts = RunCounts(
        queries=len(grades),
        with_position=subset.with_position,
        missing=len(grades) - len(rankings),
        unknown_queries=len(run_hits.keys() - grades.keys()),
        first_unknown=first_unknown,
        depth=subset.find_full_depth(rules),
        **counts,
    )
    return hits, rankings, subset_counts


def _align_query(
    query: str,
    run_hits: Collection[Hit],
    subset: SubsetQueries,
    rules: AlignmentRules,
    counts: Counter[str],
) -> tuple[Collection[Hit], dict[str, float]]:
    """Return the hits and the ranking of a query, and update `counts`."""
    full_depth = subset.find_full_depth(rules)
    if isinstance(run_hits, RankedHits) and rules.keeps_hits and not subset.copies:
        ranking = run_hits.get_top_scores(subset.documents, rules.depth)
        if ranking is not None:
            _count_ranking(counts, query, ranking, subset, full_depth)
            return run_hits, ranking
    hits = rules.resolve_hits(run_hits, subset.ids)
    if rules.ignore_identical_ids:
        hits = [hit for hit in hits if hit.document != query]
    ignored_count = len(run_hits) - len(hits)
    skipped_count = int(rules.skip_first_result and len(hits) > 0)
    hits = hits[skipped_count:]
    counts["chunks"] += sum(bool(hit.chunk) for hit in hits)
    if subset.copies:
        hits = subset.merge_copies(hits)
    scores = merge_chunks(hits)
    best = nlargest(rules.depth, scores.items(), key=lambda item: (item[1], item[0]))
    ranking = to_float32_safe_scores(best)
    unknown_names = [name for name in ranking if subset.has_corpus and name not in subset.documents]
    counts["unknown_documents"] += len(unknown_names)
    counts["own_texts"] += unknown_names.count(subset.judgments.queries.get(query, ""))
    counts["empty"] += not run_hits
    counts["ignored_ids"] += ignored_count
    counts["skipped_first"] += skipped_count
    counts["tied"] += has_decisive_tie(scores, subset.judgments.grades[query])
    _count_ranking(counts, query, ranking, subset, full_depth - ignored_count - skipped_count)
    return hits, ranking


def _count_ranking(
    counts: Counter[str],
    query: str,
    ranking: Mapping[str, float],
    subset: SubsetQueries,
    full_depth: int,
) -> None:
    """Count the mismatches of a ranking, which is complete with `full_depth` documents."""
    judgments = subset.judgments
    counts["short"] += 0 < len(ranking) < full_depth
    counts["identical_ids"] += query in ranking and judgments.grades[query].get(query, 0) <= 0
    if query in judgments.candidates:
        counts["other_candidates"] += len(ranking.keys() - judgments.candidates[query])


def to_float32_safe_scores(ranking: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Replace scores by ranks, higher is better, if float32 would tie different scores. trec_eval
    compares scores in float32. Ties remain ties.
    """
    distinct = sorted({score for _, score in ranking})
    with np.errstate(over="ignore"):
        single = np.array(distinct, np.float32)
    if np.isfinite(single).all() and len(np.unique(single)) == len(distinct):
        return dict(ranking)
    ranks = {score: float(rank) for rank, score in enumerate(distinct, start=1)}
    return {name: ranks[score] for name, score in ranking}


def describe_fixed_k(hits: int, requested: int) -> str:
    """Explain that a retriever always returns `hits` hits, and how to pass `k` to it."""
    return (
        f"The retriever returned {pluralize(hits, 'hit')} for every query instead of "
        f"{requested:,}: it has its own limit. Pass `k` to it: "
        "`search_kwargs={'k': k}` in LangChain, `similarity_top_k=k` in LlamaIndex, `.limit(k)` in "
        "LanceDB."
    )


def describe_empty_run(name: str, queries: int) -> str:
    """Return the error message for a run without documents."""
    return (
        f"{name}: {pluralize(queries, 'query', 'queries')} returned nothing, and no query returned "
        "a document. Check that the index contains the corpus."
    )


def describe_unknown_documents(name: str, retrieved: Sequence[str], corpus: Iterable[str]) -> str:
    """Return the error message for a run without documents from the corpus."""
    first = _quote(dict.fromkeys(retrieved))
    return (
        f"{name}: no retrieved document of {len(retrieved):,} is in the corpus; the run has "
        f"{first}, the corpus has {_quote(corpus)}. If the ids are chunk ids, use "
        "--chunk-separator, or a function from chunk ids to document ids. If another field "
        "contains the document id, use --document-field."
    )


def _quote(names: Iterable[str]) -> str:
    return ", ".join(map(sanitize, islice(names, MAX_EXAMPLES))) or "none"
