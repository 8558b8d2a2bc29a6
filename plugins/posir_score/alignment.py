"""Alignment of a run as a system wrote it with the data's queries and documents; everything that does not fit is counted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from heapq import nlargest

import numpy as np

from posir_score.run_files import Rankings, Run
from posir_tasks.display.wording import pluralize, sanitized
from posir_tasks.errors import PosirError
from posir_tasks.sources.data import Judgments

#: Ids that a message names.
EXAMPLES = 3
#: Documents that are kept for each query, as tasks do.
DEPTH = 100
#: Where frameworks take the number of hits.
CURES = "`search_kwargs={'k': k}` in LangChain, `similarity_top_k=k` in LlamaIndex, `.limit(k)` in LanceDB"
#: Between the id of a document and the number of its chunk.
SEPARATOR = "#"


class Missing(StrEnum):
    """The treatment of judged queries that a run does not have."""

    ERROR = "error"
    """The run is refused."""
    ZERO = "zero"
    """They have found nothing, as with `trec_eval -c`."""


@dataclass(frozen=True)
class RunCounts:
    """Counts of what fits between a run and the data, and what does not; those of subsets add."""

    queries: int = 0
    """Judged queries."""
    with_position: int = 0
    """Judged queries whose evidence has one position, which alone the position scores are of."""
    missing: int = 0
    """Judged queries that the run does not have."""
    unknown_queries: int = 0
    """Queries of the run that are not judged, which are ignored."""
    unknown_documents: int = 0
    """Documents of the run that are not in the corpus; they keep their rank and are not relevant."""
    short: int = 0
    """Judged queries of the run with some documents, but fewer than are kept, though the corpus has more."""
    empty: int = 0
    """Judged queries of the run without any document."""
    depth: int = 0
    """Documents of a complete ranking: as many as are kept, or the whole corpus; of several subsets, the most."""
    chunks: int = 0
    """Ids of chunks that became their document."""
    duplicates: int = 0
    """Rows of a file that repeat a query and a document; the highest score counts."""
    asked: int = 0
    """Hits that a retriever was asked for, if it returned fewer for every query though the corpus has more; else 0."""
    fewest: int = 0
    """Fewest hits that such a retriever returned for a query."""
    most: int = 0

    def __add__(self, other: RunCounts) -> RunCounts:
        sums = RunCounts(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))
        return replace(sums, depth=max(self.depth, other.depth))

    def to_json(self) -> dict[str, int]:
        """Return the counts by name."""
        return asdict(self)

    def describe(self) -> Iterator[str]:
        """Yield a sentence for each kind of thing that did not fit."""
        if self.missing:
            verb = "is" if self.missing == 1 else "are"
            yield f"{self.missing:,} of {pluralize(self.queries, 'query', 'queries')} {verb} not in the run: scored 0."
        if self.empty:
            yield f"{pluralize(self.empty, 'query', 'queries')} returned nothing: scored 0."
        if self.unknown_queries:
            unknown = pluralize(self.unknown_queries, "query of the run is", "queries of the run are")
            yield f"{unknown} not in the data: ignored."
        if self.unknown_documents:
            unknown = pluralize(self.unknown_documents, "document is", "documents are")
            keeps = "it keeps its" if self.unknown_documents == 1 else "they keep their"
            yield f"{unknown} not in the corpus: {keeps} rank, as not relevant."
        if self.asked:
            yield self._describe_limit()
        elif self.short:
            short = pluralize(self.short, "query has", "queries have")
            yield f"{short} fewer than {pluralize(self.depth, 'document')}: what comes later is not found."
        if self.chunks:
            chunks = pluralize(self.chunks, "chunk was mapped to its document", "chunks were mapped to their documents")
            yield f"{chunks}; a document ranks where its best chunk does."
        if self.duplicates:
            rows = pluralize(self.duplicates, "row repeats", "rows repeat")
            yield f"{rows} a query and a document: the highest score counts."

    def _describe_limit(self) -> str:
        if self.fewest < self.most:
            return f"Asked for {self.asked:,} hits a query, the retriever returned at most {self.most:,}."
        return (
            f"The retriever returned {pluralize(self.most, 'hit')} for every query, {self.asked:,} were asked for: it has a "
            f"number of its own. Pass `k` on: {CURES}."
        )


@dataclass(frozen=True)
class DocumentIds:
    """Maps the ids that a system returns to documents of the corpus.

    A chunk's document is the longest known id that is left when the end from a separator on is removed, so ids of documents
    that contain the separator stay as they are. A document ranks where its best chunk does (max-chunk).
    """

    corpus: Collection[str]
    separator: str = SEPARATOR
    """Empty if no id is that of a chunk."""
    find: Callable[[str], str] | None = None
    """Returns the id of the document, in place of the separator."""

    def resolve(self, name: str) -> str:
        """Return the id of a document, or the same id if no document is known by it."""
        if self.find is not None:
            return str(self.find(name))
        if name in self.corpus or not self.separator:
            return name
        document = name
        while self.separator in document:
            document = document.rpartition(self.separator)[0]
            if document in self.corpus:
                return document
        return name

    def merge_chunks(self, scores: Mapping[str, float]) -> tuple[dict[str, float], int]:
        """Return the highest score of each document's chunks, and the number of ids that are those of chunks."""
        merged: dict[str, float] = {}
        chunks = 0
        for name, score in scores.items():
            document = self.resolve(name)
            chunks += document != name
            merged[document] = max(score, merged.get(document, score))
        return merged, chunks


@dataclass(frozen=True)
class SubsetQueries:
    """A subset of a task as a run is compared with it."""

    name: str
    judgments: Judgments
    documents: Collection[str]
    """Ids of the corpus."""
    with_position: int
    """Judged queries whose evidence has one position."""
    digest: str = ""
    """A digest of queries, documents and judgments."""


@dataclass
class AlignedRun:
    """A run on one task."""

    rankings: dict[str, Rankings] = field(default_factory=dict)
    """Rankings by subset, with at most `DEPTH` documents a query, best first."""
    counts: dict[str, RunCounts] = field(default_factory=dict)
    """Counts by subset; what is known of the whole run alone is with the first."""

    @property
    def total(self) -> RunCounts:
        """The counts of all subsets."""
        return sum(self.counts.values(), RunCounts())


@dataclass(frozen=True)
class AlignmentRules:
    """The choices of a user: the mapping of ids, and the treatment of queries that a run lacks."""

    missing: Missing = Missing.ERROR
    separator: str = SEPARATOR
    find_document: Callable[[str], str] | None = None

    def ids(self, corpus: Collection[str]) -> DocumentIds:
        """Return the mapping of ids to a corpus."""
        return DocumentIds(corpus, self.separator, self.find_document)


def align_run(run: Run, subsets: Collection[SubsetQueries], rules: AlignmentRules) -> AlignedRun:
    """Return the rankings of the data's queries and documents.

    Raises:
        PosirError: The run has no query or no document of the data, a query id is in several subsets, or judged queries are
            missing and that is refused.
    """
    divided, unknown = divide_rankings(run, subsets)
    aligned = AlignedRun()
    for number, subset in enumerate(subsets):
        rankings, counts = _align_subset(divided[subset.name], subset, rules)
        of_run = RunCounts(unknown_queries=unknown, duplicates=run.duplicates, **_find_limit(run, subsets))
        aligned.rankings[subset.name] = rankings
        aligned.counts[subset.name] = counts if number else counts + of_run
    total = aligned.total
    if total.missing == total.queries:
        raise PosirError(f"{run.name}: {_describe_strangers(run, subsets)}")
    retrieved = sum(len(scores) for rankings in aligned.rankings.values() for scores in rankings.values())
    if not retrieved:
        answered = total.queries - total.missing
        raise PosirError(
            f"{run.name}: {pluralize(answered, 'query', 'queries')} returned nothing, and no query returned a document. Check "
            "that the index holds the corpus."
        )
    if total.unknown_documents >= retrieved:
        names = [name for rankings in aligned.rankings.values() for scores in rankings.values() for name in scores][:EXAMPLES]
        raise PosirError(
            f"{run.name}: no retrieved document is in the corpus; first {_quote(names)}, and the corpus has "
            f"{_quote(_first(name for subset in subsets for name in subset.documents))}. If they are ids of chunks, give "
            "--chunk-separator, or a function from ids of chunks to documents."
        )
    if total.missing and rules.missing is Missing.ERROR:
        absent = _first(
            query for subset in subsets for query in subset.judgments.grades if query not in aligned.rankings[subset.name]
        )
        raise PosirError(
            f"{run.name}: {total.missing:,} of {pluralize(total.queries, 'judged query', 'judged queries')} "
            f"{'is' if total.missing == 1 else 'are'} not in the run, first {_quote(absent)}. --missing zero scores "
            f"{'it' if total.missing == 1 else 'them'} 0."
        )
    return aligned


def _find_limit(run: Run, subsets: Collection[SubsetQueries]) -> dict[str, int]:
    """Return numbers of hits if a retriever returned fewer than asked for, and than there are documents, for every query."""
    fewest, most = run.returned
    if most < min(run.asked, *(len(subset.documents) for subset in subsets)):
        return {"asked": run.asked, "fewest": fewest, "most": most}
    return {}


def divide_rankings(run: Run, subsets: Collection[SubsetQueries]) -> tuple[dict[str, Rankings], int]:
    """Return the rankings by subset, and the number of queries that are in none.

    Raises:
        PosirError: A query id is in several subsets, and the run does not say which is meant.
    """
    divided: dict[str, Rankings] = {subset.name: {} for subset in subsets}
    names = list(divided)
    unknown = 0
    for stated, rankings in run.by_subset.items():
        # The name of a subset of local data ends with its revision.
        name = stated if stated in divided else names[0] if len(names) == len(run.by_subset) == 1 else None
        if name is None:
            unknown += len(rankings)
        else:
            divided[name] = rankings
    for query, scores in run.rankings.items():
        places = [subset.name for subset in subsets if query in subset.judgments.grades]
        if len(places) > 1:
            raise PosirError(
                f"{run.name}: query {sanitized(query)} is in several subsets of the data, {', '.join(places)}. Give one "
                "as --data, or predictions of mteb, which name the subset."
            )
        if places:
            divided[places[0]][query] = scores
        else:
            unknown += 1
    return divided, unknown


def _align_subset(stated: Rankings, subset: SubsetQueries, rules: AlignmentRules) -> tuple[Rankings, RunCounts]:
    ids = rules.ids(subset.documents)
    rankings: Rankings = {}
    chunks = unknown = 0
    for query in subset.judgments.grades:
        if query not in stated:
            continue
        merged, mapped = ids.merge_chunks(stated[query])
        rankings[query] = separate(nlargest(DEPTH, merged.items(), key=lambda item: (item[1], item[0])))
        chunks += mapped
        unknown += sum(name not in subset.documents for name in rankings[query])
    judged, depth = subset.judgments.grades, min(DEPTH, len(subset.documents))
    counts = RunCounts(
        queries=len(judged),
        with_position=subset.with_position,
        missing=len(judged) - len(rankings),
        unknown_queries=len(stated.keys() - judged.keys()),
        unknown_documents=unknown,
        short=sum(0 < len(scores) < depth for scores in rankings.values()),
        empty=sum(not scores for scores in rankings.values()),
        depth=depth,
        chunks=chunks,
    )
    return rankings, counts


def separate(ranked: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Return scores that have the same order in single precision, in which trec_eval compares them; ties stay ties.

    Args:
        ranked: Documents and scores, best first.
    """
    with np.errstate(over="ignore"):
        single = np.array([score for _, score in ranked], np.float32)
    if np.isfinite(single).all() and len(np.unique(single)) == len({score for _, score in ranked}):
        return dict(ranked)
    places = {score: float(place) for place, score in enumerate(sorted({score for _, score in ranked}), start=1)}
    return {name: places[score] for name, score in ranked}


def _describe_strangers(run: Run, subsets: Collection[SubsetQueries]) -> str:
    stated = [query for rankings in (run.rankings, *run.by_subset.values()) for query in rankings][:EXAMPLES]
    known = _first(query for subset in subsets for query in subset.judgments.grades)
    return f"no query is one of the data's; the run has {_quote(stated)}, the data {_quote(known)}. Check --data."


def _first(names: Iterator[str]) -> list[str]:
    return [name for name, _ in zip(names, range(EXAMPLES), strict=False)]


def _quote(names: Collection[str]) -> str:
    return ", ".join(map(sanitized, names)) or "none"
