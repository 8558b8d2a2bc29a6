"""Alignment of a run as a system wrote it with the data's queries and documents; everything that
does not fit is counted.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest
from itertools import chain, islice
from typing import TypeAlias

import numpy as np

from posir_score.columns import RankedHits
from posir_score.document_names import DocumentNames, strip_chunks
from posir_score.hits import Hit
from posir_score.run_files import ANY_SUBSET, HitsByQuery, Run
from posir_tasks.base.errors import PosirError
from posir_tasks.base.wording import pluralize, sanitize
from posir_tasks.data.data import Judgments

logger = logging.getLogger(__name__)

#: A score by document id by query id.
Rankings: TypeAlias = dict[str, dict[str, float]]

#: Ids that a message names.
MAX_EXAMPLES = 3
#: Documents that are kept for each query, as tasks do, unless the main score of a task needs more.
DEPTH = 100
#: Between the id of a document and the number of its chunk.
SEPARATOR = "#"


#: For each count above 0, the words for one and for several, and a sentence.
QUERY_MISFITS = {
    "missing": ("judged query is", "judged queries are", "{} not in the run: scored 0."),
    "empty": ("query", "queries", "{} returned nothing: scored 0."),
    "unknown_queries": (
        "query of the run is",
        "queries of the run are",
        "{} not in the data: ignored.",
    ),
}
#: The same of what decides where a document ranks, and of hits that are or may be left out.
HIT_MISFITS = {
    "own_texts": ("retrieved document is", "retrieved documents are", "{} the query's own text."),
    "chunks": (
        "chunk was mapped to its document",
        "chunks were mapped to their documents",
        "{}; a document ranks where its best chunk does.",
    ),
    "tied": (
        "query",
        "queries",
        "In {} a relevant document has the score of another one: ties are ordered by id, as in "
        "trec_eval. --order rank keeps the order as it is stated.",
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
        "--ignore-identical-ids leaves such hits out.",
    ),
    "ignored_ids": ("hit has", "hits have", "{} the id of the query: left out."),
    "skipped_first": (
        "first hit is",
        "first hits are",
        "{} left out, as the task's own evaluation does.",
    ),
    "other_candidates": (
        "hit is",
        "hits are",
        "{} not among the documents that the task has reranked for the query: mteb ranks only "
        "those, so the scores are not comparable with mteb's.",
    ),
}


@dataclass(frozen=True)
class RunCounts:
    """Counts of what fits between a run and the data, and what does not; those of subsets add."""

    queries: int = 0
    with_position: int = 0
    """Judged queries whose evidence has a known position, or several; only these have position
    scores.
    """
    missing: int = 0
    """Judged queries that the run does not have."""
    unknown_queries: int = 0
    """Queries of the run that are not judged, which are ignored."""
    unknown_documents: int = 0
    """Documents of the run that are not in the corpus; they keep their rank and are not
    relevant.
    """
    first_unknown: str = ""
    """The first of these, and its query."""
    own_texts: int = 0
    """Those that are the query's own text."""
    short: int = 0
    """Judged queries of the run with some documents, but fewer than are kept, though the corpus has
    more.
    """
    empty: int = 0
    depth: int = 0
    """Documents of a complete ranking: as many as are kept, or the whole corpus; of several
    subsets, the most.
    """
    chunks: int = 0
    duplicates: int = 0
    """Rows of a file that repeat a query and a document; the highest score counts."""
    asked: int = 0
    """Hits that a retriever was asked for, if it returned the same smaller number for every query
    though the corpus has more; else 0.
    """
    most: int = 0
    """Hits that it returned for every query instead."""
    identical_ids: int = 0
    """Hits whose document has the id of its query, and is not judged relevant to it."""
    ignored_ids: int = 0
    """Hits whose document has the id of its query, and which are left out."""
    skipped_first: int = 0
    """First hits that are left out, as the owner of the data does."""
    other_candidates: int = 0
    """Hits that are not among the documents which the owner of the data has reranked for their
    query.
    """
    tied: int = 0
    """Queries with a relevant document whose score another document has, which is judged otherwise:
    the ids decide.
    """

    def __add__(self, other: RunCounts) -> RunCounts:
        sums = {name: value + getattr(other, name) for name, value in vars(self).items()}
        sums["depth"] = max(self.depth, other.depth)
        sums["first_unknown"] = self.first_unknown or other.first_unknown
        return RunCounts(**sums)

    def describe(self) -> Iterator[str]:
        """Yield a sentence for each kind of thing that did not fit."""
        yield from self._describe_counts(QUERY_MISFITS)
        if self.unknown_documents:
            unknown = pluralize(self.unknown_documents, "document is", "documents are")
            yield (
                f"{unknown} not in the corpus, first {self.first_unknown}: ranked as not relevant."
            )
        if self.asked:
            yield describe_own_number(self.most, self.asked)
        elif self.short:
            short = pluralize(self.short, "query has", "queries have")
            depth = pluralize(self.depth, "document")
            yield f"{short} fewer than {depth}: what comes later is not found."
        yield from self._describe_counts(HIT_MISFITS)

    def _describe_counts(self, sentences: Mapping[str, tuple[str, str, str]]) -> Iterator[str]:
        for name, (one, several, sentence) in sentences.items():
            count = getattr(self, name)
            if count:
                yield sentence.format(pluralize(count, one, several))


@dataclass(frozen=True)
class AlignmentRules:
    """The choices of a user: whether all queries are needed, and the mapping of ids that a system
    returns.

    A chunk's document is the longest known id that is left when the end from a separator on is
    removed, so ids of documents that contain the separator stay as they are. A document ranks where
    its best chunk does (max-chunk).
    """

    needs_all: bool = True
    """Whether a run that lacks judged queries is refused; else they have found nothing, as with
    `trec_eval -c`.
    """
    separator: str = SEPARATOR
    """Empty if no id is that of a chunk."""
    find_document: Callable[[str], str] | None = None
    """Finds the id of the document, instead of the separator."""
    ignore_identical_ids: bool = False
    """Whether a document with the id of the query is left out of its hits."""
    skip_first_result: bool = False
    """Whether the best hit of each query is left out."""
    depth: int = DEPTH
    """Documents that are kept for each query."""
    names: DocumentNames | None = None
    """Finds documents by their file names, as an index may name them; None if only ids count."""

    @property
    def asked(self) -> int:
        """Hits to ask a retriever for, so that as many are left as are kept."""
        return self.depth + self.ignore_identical_ids + self.skip_first_result

    def resolve(self, name: str, corpus: Collection[str]) -> str:
        """Find the id of a document by the id of a chunk; an unknown id stays as it is."""
        if self.find_document is not None:
            return self._translate(str(self.find_document(name)), corpus)
        name = self._translate(name, corpus)
        for document in strip_chunks(name, self.separator):
            if document in corpus:
                return document
        return name

    def resolve_hits(self, hits: Iterable[Hit], corpus: Collection[str]) -> list[Hit]:
        """Replace the ids of chunks in hits by those of their documents."""
        resolved = []
        for hit in hits:
            if hit.document in corpus and self.find_document is None:
                resolved.append(hit)
                continue
            document = self.resolve(hit.document, corpus)
            if document != hit.document:
                chunk = self._translate(hit.document, corpus)
                hit = hit._replace(document=document, chunk="" if chunk == document else chunk)
            resolved.append(hit)
        return resolved

    def _translate(self, name: str, corpus: Collection[str]) -> str:
        """Replace the name of a file in an id by the id of its document."""
        return self.names.translate(name, corpus, self.separator) if self.names else name


def merge_chunks(hits: Iterable[Hit]) -> dict[str, float]:
    """Find the highest score of each document's hits, best first."""
    merged: dict[str, float] = {}
    for hit in hits:
        score = hit.score or 0.0
        merged[hit.document] = max(score, merged.get(hit.document, score))
    return merged


def has_decisive_tie(scores: Mapping[str, float], grades: Mapping[str, float]) -> bool:
    """Tell whether documents with one score have different grades, so that their order changes the
    scores of the run.
    """
    graded = {(score, grades.get(name, 0)) for name, score in scores.items()}
    return len(graded) > len(set(scores.values()))


@dataclass(frozen=True)
class SubsetQueries:
    """A subset of a task as a run is compared with it."""

    name: str
    judgments: Judgments
    documents: Collection[str]
    with_position: int
    digest: str = ""
    has_corpus: bool = True
    """Whether `documents` are all that may be retrieved; else each may be one, and the corpus is
    not known.
    """
    copies: Mapping[str, str] = field(default_factory=dict)
    """The document that each copy counts as, by the id of the copy, which is not one of
    `documents`.
    """

    @property
    def ids(self) -> Collection[str]:
        """Ids that a run may have of documents."""
        return frozenset((*self.documents, *self.copies)) if self.copies else self.documents

    def merge_copies(self, hits: Sequence[Hit]) -> list[Hit]:
        """Replace copies in hits, best first, by their documents, and keep only the best of the
        whole texts of each document.
        """
        merged: list[Hit] = []
        whole: set[str] = set()
        for hit in hits:
            document = self.copies.get(hit.document, hit.document)
            if hit.chunk or document not in whole:
                merged.append(hit._replace(document=document))
            if not hit.chunk:
                whole.add(document)
        return merged


@dataclass
class AlignedRun:
    """A run on one task."""

    rankings: dict[str, Rankings] = field(default_factory=dict)
    """Rankings by subset, with at most `DEPTH` documents a query, best first."""
    hits: dict[str, HitsByQuery] = field(default_factory=dict)
    """Hits by subset, best first and one for each chunk, with the ids of documents."""
    counts: dict[str, RunCounts] = field(default_factory=dict)
    """Counts by subset; counts of the whole run are with the first."""

    @property
    def states_chunks(self) -> bool:
        """Whether the text or the place of a chunk is known."""
        rows = (hits for hits in self._list_hits() if not isinstance(hits, RankedHits))
        return any(hit.text or hit.start is not None for hits in rows for hit in hits)

    @property
    def has_chunks(self) -> bool:
        """Whether hits are parts of documents."""
        return bool(self.total.chunks) or any(
            len({hit.document for hit in hits}) < len(hits) for hits in self._list_hits()
        )

    def _list_hits(self) -> Iterator[Sequence[Hit]]:
        for by_query in self.hits.values():
            yield from by_query.values()

    @property
    def total(self) -> RunCounts:
        """The counts of all subsets."""
        return sum(self.counts.values(), RunCounts())


def align_run(run: Run, subsets: Collection[SubsetQueries], rules: AlignmentRules) -> AlignedRun:
    """Align a run with the data's queries and documents.

    If the run names only some of the subsets, only these are scored.
    """
    lacking = [subset.name for subset in subsets if subset.name not in run.by_subset]
    if rules.needs_all and ANY_SUBSET not in run.by_subset and 0 < len(lacking) < len(subsets):
        subsets = [subset for subset in subsets if subset.name in run.by_subset]
        logger.warning(
            "%s: %s scored, not in the run: %s. --missing zero scores what is not in it 0.",
            run.name,
            pluralize(len(subsets), "subset"),
            ", ".join(lacking),
        )
    divided, unknown = _divide_rankings(run, subsets)
    of_run = RunCounts(unknown_queries=unknown, duplicates=run.duplicates)
    fewest, most = run.returned
    smallest = min(len(subset.documents) for subset in subsets)
    if fewest == most < min(run.asked, smallest):
        of_run = replace(of_run, asked=run.asked, most=most)
    aligned = AlignedRun()
    for subset in subsets:
        hits, rankings, counts = _align_subset(divided[subset.name], subset, rules)
        aligned.hits[subset.name] = hits
        aligned.rankings[subset.name] = rankings
        aligned.counts[subset.name] = counts + of_run
        of_run = RunCounts()
    _refuse_misfit(run, subsets, aligned, rules)
    return aligned


def _refuse_misfit(
    run: Run, subsets: Collection[SubsetQueries], aligned: AlignedRun, rules: AlignmentRules
) -> None:
    """Raise PosirError if no query or no document of a run is one of the data's, or if a query is
    missing that is needed.
    """
    total = aligned.total
    judged = [(subset.name, query) for subset in subsets for query in subset.judgments.grades]
    if total.missing == total.queries:
        stated = _quote(chain(*run.by_subset.values()))
        known = _quote(query for _, query in judged)
        raise PosirError(
            f"{run.name}: no query is one of the data's; the run has {stated}, the data {known}. "
            "Check --data."
        )
    by_query = chain(*(rankings.values() for rankings in aligned.rankings.values()))
    retrieved = [*chain(*by_query)]
    if not retrieved:
        raise PosirError(describe_empty(run.name, total.queries - total.missing))
    if total.unknown_documents >= len(retrieved):
        corpora = chain(*(subset.documents for subset in subsets))
        raise PosirError(describe_foreign(run.name, retrieved, corpora))
    if total.missing and rules.needs_all:
        absent = _quote(query for name, query in judged if query not in aligned.rankings[name])
        queries = pluralize(total.missing, "judged query is", "judged queries are")
        raise PosirError(
            f"{run.name}: {queries} not in the run, first {absent}. --missing zero scores such "
            "queries 0."
        )


def _divide_rankings(
    run: Run, subsets: Collection[SubsetQueries]
) -> tuple[dict[str, HitsByQuery], int]:
    """Divide the rankings of a run by subset, and count the queries that are in none."""
    divided: dict[str, HitsByQuery] = {subset.name: {} for subset in subsets}
    unknown = 0
    for stated, rankings in run.by_subset.items():
        # The name of a subset of local data ends with its revision.
        name = next(iter(divided)) if stated and len(divided) == len(run.by_subset) == 1 else stated
        if name in divided:
            divided[name] = rankings
        elif name != ANY_SUBSET:
            unknown += len(rankings)
    # Some tools name queries by their texts; of several queries with one text, the hits are the
    # same.
    by_id: dict[str, list[tuple[str, str]]] = {}
    by_text: dict[str, list[tuple[str, str]]] = {}
    for subset in subsets:
        for query in subset.judgments.grades:
            text = subset.judgments.queries.get(query, "")
            by_id.setdefault(query, []).append((subset.name, query))
            by_text.setdefault(text, []).append((subset.name, query))
    for query, hits in run.by_subset.get(ANY_SUBSET, {}).items():
        places = by_id.get(query) or by_text.get(query, [])
        names = sorted({name for name, _ in places})
        if len(names) > 1:
            raise PosirError(
                f"{run.name}: query {sanitize(query)} is in several subsets of the data, "
                f"{', '.join(names)}. Give one as --data, or predictions of mteb, which name the "
                "subset."
            )
        unknown += not places
        for name, judged in places:
            divided[name][judged] = hits
    return divided, unknown


def _align_subset(
    stated: HitsByQuery, subset: SubsetQueries, rules: AlignmentRules
) -> tuple[HitsByQuery, Rankings, RunCounts]:
    judged = subset.judgments.grades
    depth = min(rules.depth, len(subset.documents)) if subset.has_corpus else 0
    hits: HitsByQuery = {}
    rankings: Rankings = {}
    counts: Counter[str] = Counter()
    first_unknown = ""
    # Only then may the hits of a run without chunks be taken as they are.
    is_direct = not (
        rules.find_document
        or rules.ignore_identical_ids
        or rules.skip_first_result
        or subset.copies
    )
    for query, grades in judged.items():
        if query not in stated:
            continue
        found = stated[query]
        if is_direct and isinstance(found, RankedHits):
            ranked = found.rank_distinct(subset.documents, rules.depth)
            if ranked is not None:
                hits[query] = found
                rankings[query] = ranked
                _count_ranked(counts, query, ranked, subset, depth)
                continue
        resolved = rules.resolve_hits(found, subset.ids)
        kept = resolved
        if rules.ignore_identical_ids:
            kept = [hit for hit in resolved if hit.document != query]
        ignored = len(resolved) - len(kept)
        skipped = int(rules.skip_first_result and len(kept) > 0)
        kept = kept[skipped:]
        counts["chunks"] += sum(bool(hit.chunk) for hit in kept)
        hits[query] = subset.merge_copies(kept) if subset.copies else kept
        merged = merge_chunks(hits[query])
        best = nlargest(rules.depth, merged.items(), key=lambda item: (item[1], item[0]))
        scores = rankings[query] = separate(best)
        unknown = [name for name in scores if subset.has_corpus and name not in subset.documents]
        if unknown and not first_unknown:
            first_unknown = f"{sanitize(unknown[0])} of query {sanitize(query)}"
        counts["unknown_documents"] += len(unknown)
        counts["own_texts"] += unknown.count(subset.judgments.queries.get(query, ""))
        counts["empty"] += not found
        counts["ignored_ids"] += ignored
        counts["skipped_first"] += skipped
        counts["tied"] += has_decisive_tie(merged, grades)
        _count_ranked(counts, query, scores, subset, depth - ignored - skipped)
    if counts["chunks"] and not subset.has_corpus and rules.find_document is None:
        raise PosirError(
            "The ids are those of chunks, and which documents they are of is not known without "
            "the corpus. Give --data with it, or --chunk-separator '' if they are documents."
        )
    aligned = RunCounts(
        queries=len(judged),
        with_position=subset.with_position,
        missing=len(judged) - len(rankings),
        unknown_queries=len(stated.keys() - judged.keys()),
        first_unknown=first_unknown,
        depth=depth,
        **counts,
    )
    return hits, rankings, aligned


def _count_ranked(
    counts: Counter[str],
    query: str,
    scores: Mapping[str, float],
    subset: SubsetQueries,
    complete: int,
) -> None:
    """Count what a ranking lacks or should not have; `complete` documents are a complete one."""
    judgments = subset.judgments
    counts["short"] += 0 < len(scores) < complete
    counts["identical_ids"] += query in scores and judgments.grades[query].get(query, 0) <= 0
    if query in judgments.candidates:
        counts["other_candidates"] += len(scores.keys() - judgments.candidates[query])


def separate(ranked: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Make scores keep their order in single precision, in which trec_eval compares them; ties stay
    ties.
    """
    distinct = sorted({score for _, score in ranked})
    with np.errstate(over="ignore"):
        single = np.array(distinct, np.float32)
    if np.isfinite(single).all() and len(np.unique(single)) == len(distinct):
        return dict(ranked)
    places = {score: float(place) for place, score in enumerate(distinct, start=1)}
    return {name: places[score] for name, score in ranked}


def describe_own_number(hits: int, asked: int) -> str:
    """Describe a retriever that returns as many hits for every query, fewer than it was asked for,
    and where to tell it.
    """
    return (
        f"The retriever returned {pluralize(hits, 'hit')} for every query, {asked:,} were asked "
        "for: it has a number of its own. Pass `k` on: `search_kwargs={'k': k}` in LangChain, "
        "`similarity_top_k=k` in LlamaIndex, `.limit(k)` in LanceDB."
    )


def describe_empty(name: str, queries: int) -> str:
    """Describe what is wrong with a run without any document."""
    return (
        f"{name}: {pluralize(queries, 'query', 'queries')} returned nothing, and no query returned "
        "a document. Check that the index holds the corpus."
    )


def describe_foreign(name: str, retrieved: Sequence[str], corpus: Iterable[str]) -> str:
    """Describe what is wrong with a run that has no document of the corpus."""
    first = _quote(dict.fromkeys(retrieved))
    return (
        f"{name}: no retrieved document is in the corpus, of {len(retrieved):,} that were "
        f"returned; first {first}, and the corpus has {_quote(corpus)}. If they are ids of chunks, "
        "give --chunk-separator, or a function from ids of chunks to documents; if hits have the "
        "document's id in another field, --document-field."
    )


def _quote(names: Iterable[str]) -> str:
    return ", ".join(map(sanitize, islice(names, MAX_EXAMPLES))) or "none"
