"""Copies: documents of one corpus with the same text under several ids.

A model that reads the texts cannot tell copies apart, and ties are ordered by id, so that scores
depend on the spelling of ids. Texts are the same if they have the same words between white space.
The text is what models are given: the title is no part of it, except in tasks of mteb's own, which
put it before the text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from posir_tasks.base.digests import digest
from posir_tasks.base.wording import pluralize, sanitized
from posir_tasks.data.data import BATCH_ROWS, Judgments, PositionData
from posir_tasks.data.formats.passages import RepeatedTexts
from posir_tasks.text.interventions import NO_SPAN
from posir_tasks.text.locating import Spelling
from posir_tasks.text.spans import Span
from posir_tasks.values.evidence import Evidence, Place

if TYPE_CHECKING:
    from datasets import Dataset

#: Words at the start of a text that are compared before the whole text is read.
OPENING_WORDS = 4
#: In place of the hash of a blank text's opening.
BLANK = 0


def digest_words(text: str) -> bytes:
    """Return a digest of a text, equal for texts that differ in white space alone."""
    return digest(*text.split(), size=16)


@dataclass(frozen=True)
class Copies:
    """The copies of relevant documents in a corpus."""

    groups: tuple[tuple[str, ...], ...]
    """Ids of the documents of each text that several have, one of them relevant at least."""
    relevant: Collection[str]
    """Ids of all relevant documents."""

    def __bool__(self) -> bool:
        return bool(self.groups)

    def describe(self) -> str:
        """Return a sentence with the counts and what to do."""
        copied = sum(name in self.relevant for group in self.groups for name in group)
        surplus = sum(len(group) - 1 for group in self.groups)
        first = " and ".join(sanitized(name) for name in self.groups[0][:2])
        return (
            f"{copied:,} of {pluralize(len(self.relevant), 'relevant document')} "
            f"{'has' if copied == 1 else 'have'} the text "
            "of another document in the corpus, white space aside "
            f"({pluralize(surplus, 'copy', 'copies')}, first {first}): no "
            "model can tell copies apart, and ties are ordered by id. --merge-copies of posir "
            "import and posir score makes "
            "copies one document."
        )


def list_relevant(judgments: Judgments) -> set[str]:
    """Return the ids of all relevant documents."""
    return {name for row in judgments.grades.values() for name, grade in row.items() if grade > 0}


def find_copies(corpus: Dataset, relevant: Iterable[str]) -> Copies:
    """Find the copies of relevant documents, in one pass over the corpus; blank texts are no
    copies.
    """
    wanted = {*relevant}
    groups = [group for group in _group_texts(corpus, wanted) if not wanted.isdisjoint(group)]
    return Copies(tuple(groups), wanted)


def _group_texts(corpus: Dataset, among: Collection[str]) -> list[tuple[str, ...]]:
    """Return the ids of documents with one text, where several have it; only texts that begin as
    one of `among` count.
    """
    names = corpus["id"][:]
    openings = np.fromiter(map(_hash_opening, _iterate_texts(corpus)), np.int64, len(names))
    values, numbers, counts = np.unique(openings, return_inverse=True, return_counts=True)
    is_wanted = np.zeros(len(values), np.bool_)
    is_wanted[numbers[[row for row, name in enumerate(names) if name in among]]] = True
    rows = np.flatnonzero((is_wanted & (counts > 1) & (values != BLANK))[numbers])
    by_text: dict[bytes, list[str]] = defaultdict(list)
    for row, text in zip(rows.tolist(), _iterate_texts(corpus.select(rows)), strict=True):
        by_text[digest_words(text)].append(names[row])
    return [tuple(group) for group in by_text.values() if len(group) > 1]


def _iterate_texts(corpus: Dataset) -> Iterator[str]:
    for batch in corpus.select_columns("text").iter(BATCH_ROWS):
        yield from (text or "" for text in batch["text"])


def _hash_opening(text: str) -> int:
    """Return a hash of the first words of a text, which differs between processes."""
    words = text.split(None, OPENING_WORDS)[:OPENING_WORDS]
    return hash(tuple(words)) if words else BLANK


def choose_originals(corpus: Dataset, relevant: Collection[str]) -> dict[str, str]:
    """Return for each copy in a corpus the document that stands for it: the smallest id of the
    relevant ones, else of all.
    """
    originals = dict[str, str]()
    for group in _group_texts(corpus, {*corpus["id"][:]}):
        original = min([name for name in group if name in relevant] or group)
        originals |= {name: original for name in group if name != original}
    return originals


def describe_merged(originals: Mapping[str, str]) -> str:
    """Return how many copies became one document with another, given the document of each."""
    copy, document = next(iter(originals.items()))
    documents = pluralize(len({*originals.values()}), "document")
    return (
        f"{pluralize(len(originals), 'copy', 'copies')} of {documents} merged, first "
        f"{sanitized(copy)} into "
        f"{sanitized(document)}."
    )


def merge_copies(
    data: PositionData, judgments: Judgments
) -> tuple[PositionData, Judgments, Mapping[str, str]]:
    """Make the copies in data one document each.

    Spans stay, at the same words. Places of one query that then overlap are one. A pair of query
    and document has the highest of its grades.

    Returns:
        Data and judgments, and the document of each copy by the id of the copy.
    """
    originals = choose_originals(
        data.corpus, list_relevant(judgments) | {*data.evidence.document_ids}
    )
    if not originals:
        return data, judgments, originals
    rows = [row for row, name in enumerate(data.corpus["id"][:]) if name not in originals]
    evidence = _move_evidence(data, originals)
    merged = _join_places(replace(data, corpus=data.corpus.select(rows), evidence=evidence))
    return merged, _merge_grades(judgments, originals), originals


def count_repeated(data: PositionData) -> RepeatedTexts:
    """Count the questions whose text is asked of several documents; a question with several places
    is one.
    """
    rows = zip(
        data.evidence.query_ids, data.queries["text"][:], data.evidence.document_ids, strict=True
    )
    asked = [
        (text, document)
        for name, text, document in rows
        if name not in data.places and name not in data.unsuited
    ]
    counted = count_repeated_texts(asked, data.corpus)
    several = len({place.query for place in data.places.values()})
    return replace(counted, questions=counted.questions + several)


def count_repeated_texts(asked: Iterable[tuple[str, str]], corpus: Dataset) -> RepeatedTexts:
    """Count the questions whose text is asked of documents with different texts, given text and
    document of each.
    """
    rows = [(" ".join(text.split()).casefold(), document) for text, document in asked]
    documents: dict[str, set[str]] = defaultdict(set)
    for text, document in rows:
        documents[text].add(document)
    several = {document for names in documents.values() if len(names) > 1 for document in names}
    groups = find_copies(corpus, several).groups if several else ()
    originals = {name: group[0] for group in groups for name in group}
    repeated = {
        text
        for text, names in documents.items()
        if len({originals.get(name, name) for name in names}) > 1
    }
    return RepeatedTexts(len(rows), sum(text in repeated for text, _ in rows))


def _merge_grades(judgments: Judgments, originals: Mapping[str, str]) -> Judgments:
    merged = dict[str, dict[str, float]]()
    for query, row in judgments.grades.items():
        grades = merged[query] = dict[str, float]()
        for name, grade in row.items():
            document = originals.get(name, name)
            grades[document] = max(grade, grades.get(document, grade))
    return replace(judgments, grades=merged)


def _move_evidence(data: PositionData, originals: Mapping[str, str]) -> Evidence:
    """Return the evidence in the documents that stand for copies; a document has the first title
    that is stated for it.
    """
    evidence = data.evidence
    names = [originals.get(name, name) for name in evidence.document_ids]
    starts, ends, characters = (
        evidence.starts.copy(),
        evidence.ends.copy(),
        evidence.characters.copy(),
    )
    moved = [row for row, name in enumerate(evidence.document_ids) if name in originals]
    texts = _select_texts(
        data.corpus, {name for row in moved for name in (names[row], evidence.document_ids[row])}
    )
    for row in moved if data.has_spans else ():
        text, original = texts[evidence.document_ids[row]], texts[names[row]]
        # Places in a translation are those of the original's columns.
        if text != original and len(characters) and characters[row] == len(text):
            span = move_span(Span(int(starts[row]), int(ends[row])), text, original)
            starts[row], ends[row], characters[row] = *span, len(original)
    titles = dict[str, str]()
    for name, title in zip(names, evidence.clusters, strict=False):
        titles[name] = titles.get(name) or title
    clusters = tuple(titles[name] for name in names) if evidence.clusters else ()
    return replace(
        evidence,
        document_ids=names,
        starts=starts,
        ends=ends,
        characters=characters,
        clusters=clusters,
    )


def _select_texts(corpus: Dataset, names: Collection[str]) -> dict[str, str]:
    rows = [row for row, name in enumerate(corpus["id"][:]) if name in names]
    selected = corpus.select(rows)
    return dict(zip(selected["id"][:], _iterate_texts(selected), strict=True))


def move_span(span: Span, text: str, other: str) -> Span:
    """Return where a span of a text is in another that differs from it in white space alone."""
    before, inside = (
        len("".join(part.split())) for part in (text[: max(0, span.start)], span.of(text))
    )
    if span == NO_SPAN or not inside:
        return span
    return Spelling.build(other, lambda letter: "" if letter.isspace() else letter).restore(
        Span(before, before + inside)
    )


def _join_places(data: PositionData) -> PositionData:
    """Join the places of one query that overlap in one document; a query with one place left is an
    ordinary one.
    """
    if not data.places:
        return data
    evidence, places = data.evidence, dict(data.places)
    names, starts, ends = [*evidence.query_ids], evidence.starts.copy(), evidence.ends.copy()
    grades: dict[tuple[str, str], float] = defaultdict(float)
    by_query: dict[str, list[int]] = defaultdict(list)
    rows = [row for row, name in enumerate(names) if name in places]
    for row in sorted(
        rows, key=lambda row: (evidence.document_ids[row], starts[row], ends[row], row)
    ):
        place, document, kept = (
            places[names[row]],
            evidence.document_ids[row],
            by_query[places[names[row]].query],
        )
        grades[place.query, document] = max(grades[place.query, document], place.grade)
        last = kept[-1] if kept and evidence.document_ids[kept[-1]] == document else None
        if last is not None and (
            starts[row] < ends[last] or (starts[row], ends[row]) == (starts[last], ends[last])
        ):
            ends[last] = max(ends[last], ends[row])
            del places[names[row]]
        else:
            kept.append(row)
    for query, kept in by_query.items():
        for row in kept:
            places[names[row]] = Place(query, grades[query, evidence.document_ids[row]])
        if len(kept) == 1:
            del places[names[kept[0]]]
            names[kept[0]] = query
    left = sorted(
        {*range(len(names))} - {*rows} | {row for kept in by_query.values() for row in kept}
    )
    renamed = data.queries.remove_columns("id").add_column("id", names)
    evidence = replace(evidence, query_ids=names, starts=np.asarray(starts), ends=np.asarray(ends))
    return replace(data, queries=renamed, evidence=evidence, places=places).select(left)
