"""Copies: documents of one corpus with the same text under several ids.

A model that reads the texts cannot tell copies apart, and ties are ordered by id, so that scores
depend on the spelling of ids. Texts are the same if they have the same words between white space.
The text is what models are given: the title is no part of it, except in tasks of mteb's own, which
put it before the text.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from posir_tasks.base.digests import digest
from posir_tasks.base.wording import pluralize, sanitize
from posir_tasks.data.data import BATCH_ROWS, Judgments, PositionData, find_rows
from posir_tasks.data.formats.passages import RepeatedTexts
from posir_tasks.data.places import PlacedEvidence, merge_places
from posir_tasks.text.interventions import NO_SPAN
from posir_tasks.text.locating import Spelling, drop_space
from posir_tasks.text.spans import WHITESPACE, Span
from posir_tasks.values.evidence import Evidence, Place

if TYPE_CHECKING:
    from datasets import Dataset

#: The first characters of a text other than white space. They are compared before whole texts.
OPENING = rf"^(?:[{WHITESPACE}]*[^{WHITESPACE}]){{1,32}}"


def digest_words(text: str) -> bytes:
    """Return a digest of a text, equal for texts that differ in white space alone."""
    return digest(*text.split(), size=16)


@dataclass(frozen=True)
class Copies:
    """The copies of relevant documents in a corpus."""

    groups: tuple[tuple[str, ...], ...]
    """Ids of the documents of each text that several have, one of them relevant at least."""
    relevant: set[str]
    """Ids of all relevant documents."""

    def __bool__(self) -> bool:
        return bool(self.groups)

    def describe(self) -> str:
        """Return a sentence with the counts and what to do."""
        copied = sum(len(self.relevant & {*group}) for group in self.groups)
        surplus = sum(map(len, self.groups)) - len(self.groups)
        first = " and ".join(map(sanitize, self.groups[0][:2]))
        return (
            f"{copied:,} of {pluralize(len(self.relevant), 'relevant document')} "
            f"{'has' if copied == 1 else 'have'} the text of another document in the corpus, white "
            f"space aside ({pluralize(surplus, 'copy', 'copies')}, first {first}): no model can "
            "tell copies apart, and ties are ordered by id. --merge-copies of posir import and "
            "posir score makes copies one document."
        )


def list_relevant(judgments: Judgments) -> set[str]:
    """Return the ids of all relevant documents."""
    return {name for names in judgments.list_relevant().values() for name in names}


def find_copies(corpus: Dataset, relevant: Iterable[str]) -> Copies:
    """Find the copies of relevant documents, in one pass over the corpus; blank texts are no
    copies.
    """
    names = {*relevant}
    groups = [group for group in _group_texts(corpus, names) if not names.isdisjoint(group)]
    return Copies(tuple(groups), names)


def find_texts(corpus: Dataset, texts: Mapping[str, str]) -> list[str]:
    """Find the ids of texts that a document has, too, white space aside."""
    wanted: dict[bytes, list[str]] = defaultdict(list)
    for name, text in texts.items():
        if text.strip():
            wanted[digest_words(text)].append(name)
    longest = max((len(" ".join(text.split())) for text in texts.values()), default=0)
    found: set[bytes] = set()
    for text in _iterate_texts(corpus):
        # A longer one is no question; white space may make a text twice as long.
        if len(text) <= 2 * longest:
            found.add(digest_words(text))
    return [name for key, names in wanted.items() if key in found for name in names]


def _group_texts(corpus: Dataset, among: Collection[str]) -> list[tuple[str, ...]]:
    """Return the ids of documents with one text, where several have it; only texts that begin as
    one of `among` count.
    """
    if not among or not len(corpus):
        return []
    opening = pl.col("text").str.extract(OPENING, 0).str.replace_all(f"[{WHITESPACE}]", "")
    batches = corpus.select_columns(["id", "text"]).with_format("polars").iter(BATCH_ROWS)
    # A blank text has no opening.
    hashes = pl.when(opening.is_not_null()).then(opening.hash())
    frame = pl.concat(batch.select("id", opening=hashes) for batch in batches)
    openings = frame["opening"]
    shared = openings.filter(frame["id"].is_in(list(among))).drop_nulls().unique()
    rows = (openings.is_in(shared.implode()) & openings.is_duplicated()).arg_true()
    by_text: dict[bytes, list[str]] = defaultdict(list)
    for name, text in _select_texts(corpus, rows).items():
        by_text[digest_words(text)].append(name)
    return [tuple(group) for group in by_text.values() if len(group) > 1]


def _iterate_texts(corpus: Dataset) -> Iterator[str]:
    for batch in corpus.select_columns("text").iter(BATCH_ROWS):
        yield from (text or "" for text in batch["text"])


def _select_texts(corpus: Dataset, rows: Iterable[int]) -> dict[str, str]:
    selected = corpus.select(rows)
    return dict(zip(selected["id"][:], _iterate_texts(selected), strict=True))


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
    copies = pluralize(len(originals), "copy", "copies")
    documents = pluralize(len({*originals.values()}), "document")
    first = " into ".join(map(sanitize, next(iter(originals.items()))))
    return f"{copies} of {documents} merged, first {first}."


def merge_copies(
    data: PositionData, judgments: Judgments
) -> tuple[PositionData, Judgments, Mapping[str, str]]:
    """Make the copies in data one document each.

    Spans stay, at the same words. Places of one query that then overlap are one. A pair of query
    and document has the highest of its grades.

    Returns:
        Data and judgments, and the document of each copy by the id of the copy.
    """
    relevant = list_relevant(judgments) | {*data.evidence.document_ids}
    originals = choose_originals(data.corpus, relevant)
    if not originals:
        return data, judgments, originals
    rows = [row for row, name in enumerate(data.corpus["id"][:]) if name not in originals]
    evidence = _move_evidence(data, originals)
    merged = replace(data, corpus=data.corpus.select(rows), evidence=evidence)
    if data.places:
        merged = _join_places(merged)
    return merged, _merge_grades(judgments, originals), originals


def count_repeated(data: PositionData) -> RepeatedTexts:
    """Count the questions whose text is asked of several documents; a question with several places
    is one.
    """
    evidence = data.evidence
    questions = zip(evidence.query_ids, data.queries["text"][:], evidence.document_ids, strict=True)
    pairs = [
        (text, document)
        for name, text, document in questions
        if name not in data.places and name not in data.unsuited
    ]
    counted = count_repeated_texts(pairs, data.corpus)
    several = len({place.query for place in data.places.values()})
    return replace(counted, questions=counted.questions + several)


def count_repeated_texts(pairs: Iterable[tuple[str, str]], corpus: Dataset) -> RepeatedTexts:
    """Count the questions whose text is asked of documents with different texts, given text and
    document of each.
    """
    documents: dict[str, set[str]] = defaultdict(set)
    counts = Counter[str]()
    for text, document in pairs:
        folded = " ".join(text.split()).casefold()
        documents[folded].add(document)
        counts[folded] += 1
    several = {text: names for text, names in documents.items() if len(names) > 1}
    copies = find_copies(corpus, {name for names in several.values() for name in names})
    originals = {name: group[0] for group in copies.groups for name in group}
    repeated = 0
    for text, names in several.items():
        if len({originals.get(name, name) for name in names}) > 1:
            repeated += counts[text]
    return RepeatedTexts(counts.total(), repeated)


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
    moved = replace(evidence, document_ids=names)
    if evidence.clusters:
        titles = dict[str, str]()
        for name, title in zip(names, evidence.clusters, strict=True):
            titles[name] = titles.get(name) or title
        moved = replace(moved, clusters=tuple(titles[name] for name in names))
    if not data.has_spans or not len(evidence.characters):
        return moved
    copied = {name for name in evidence.document_ids if name in originals}
    needed = copied | {originals[name] for name in copied}
    rows = find_rows(data.corpus["id"][:], needed)
    texts = _select_texts(data.corpus, rows)
    starts = evidence.starts.copy()
    ends = evidence.ends.copy()
    characters = evidence.characters.copy()
    for row, name in enumerate(evidence.document_ids):
        # Places in a translation are those of the original's columns.
        if name not in originals or characters[row] != len(texts[name]):
            continue
        original = texts[originals[name]]
        if texts[name] != original:
            span = Span(int(starts[row]), int(ends[row]))
            starts[row], ends[row] = move_span(span, texts[name], original)
            characters[row] = len(original)
    return replace(moved, starts=starts, ends=ends, characters=characters)


def move_span(span: Span, text: str, other: str) -> Span:
    """Return where a span of a text is in another that differs from it in white space alone."""
    before = len("".join(text[: max(0, span.start)].split()))
    inside = len("".join(span.of(text).split()))
    if span == NO_SPAN or not inside:
        return span
    return Spelling.build(other, drop_space).restore(Span(before, before + inside))


def _join_places(data: PositionData) -> PositionData:
    """Join the places of one query that overlap in one document; a query with one place left is an
    ordinary one.
    """
    evidence = data.evidence
    names = [*evidence.query_ids]
    rows = {name: row for row, name in enumerate(names)}
    placed = []
    for name, row in rows.items():
        if name not in data.places:
            continue
        place = data.places[name]
        span = Span(int(evidence.starts[row]), int(evidence.ends[row]))
        document = evidence.document_ids[row]
        placed.append(PlacedEvidence(name, place.query, document, span, place.grade))
    places = dict[str, Place]()
    left = [row for row, name in enumerate(names) if name not in data.places]
    ends = evidence.ends.copy()
    for query, merged in merge_places(placed).items():
        for kept in merged:
            row = rows[kept.name]
            left.append(row)
            ends[row] = kept.span.end
            if len(merged) > 1:
                places[kept.name] = Place(query, kept.grade)
            else:
                names[row] = query
    queries = data.queries.remove_columns("id").add_column("id", names)
    evidence = replace(evidence, query_ids=names, ends=ends)
    joined = replace(data, queries=queries, evidence=evidence, places=places)
    return joined.select(sorted(left))
