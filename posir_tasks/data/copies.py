"""Find and merge copies: documents with the same text but different ids.

Models cannot distinguish copies, and ties are broken by id, so scores would depend on the spelling
of ids. Texts are compared without white space. Titles are ignored, except in mteb's own tasks,
which prepend them to the text.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import polars as pl

from posir_tasks.base.digests import digest
from posir_tasks.base.wording import pluralize, sanitize
from posir_tasks.data.data import Judgments, PositionData, list_texts
from posir_tasks.data.formats.passages import RepeatedTexts
from posir_tasks.data.places import QuerySpan, merge_places
from posir_tasks.text.interventions import NO_SPAN
from posir_tasks.text.locating import Spelling, drop_space
from posir_tasks.text.spans import WHITESPACE, Span
from posir_tasks.values.evidence import Evidence, Place

#: The first 32 non-space characters of a text, which are compared before whole texts.
OPENING = rf"^(?:[{WHITESPACE}]*[^{WHITESPACE}]){{1,32}}"


def digest_words(text: str) -> bytes:
    """Compute a digest of the words of a text."""
    return digest(*text.split(), size=16)


@dataclass(frozen=True)
class Copies:
    """Copies of relevant documents in a corpus."""

    groups: tuple[tuple[str, ...], ...]
    """Groups of ids of documents with the same text, of which at least one is relevant."""
    relevant: set[str]
    """Ids of all relevant documents."""

    def __bool__(self) -> bool:
        return bool(self.groups)

    def describe(self) -> str:
        """Describe the copies, with advice."""
        count = sum(len(self.relevant & {*group}) for group in self.groups)
        surplus = sum(map(len, self.groups)) - len(self.groups)
        first = " and ".join(map(sanitize, self.groups[0][:2]))
        return (
            f"{count:,} of {pluralize(len(self.relevant), 'relevant document')} "
            f"{'has' if count == 1 else 'have'} the text of another document in the corpus, up to "
            f"white space ({pluralize(surplus, 'copy', 'copies')}, first {first}): no model can "
            "distinguish copies, and ties are broken by id. Merge them with --merge-copies of "
            "posir import and posir score."
        )


def list_relevant(judgments: Judgments) -> set[str]:
    """Return the ids of all relevant documents."""
    return {name for names in judgments.list_relevant().values() for name in names}


def find_copies(corpus: pl.DataFrame, relevant: Iterable[str]) -> Copies:
    """Find the copies of relevant documents in one pass over the corpus, ignoring blank texts."""
    names = {*relevant}
    groups = [group for group in _group_texts(corpus, names) if not names.isdisjoint(group)]
    return Copies(tuple(groups), names)


def find_copied_texts(corpus: pl.DataFrame, texts: Mapping[str, str]) -> list[str]:
    """Return the ids of the texts that equal a document except for white space."""
    by_digest: dict[bytes, list[str]] = defaultdict(list)
    for name, text in texts.items():
        if text.strip():
            by_digest[digest_words(text)].append(name)
    longest = max((len(" ".join(text.split())) for text in texts.values()), default=0)
    documents = set()
    for text in corpus["text"].fill_null(""):
        # Skip documents that are too long even if white space doubles their length.
        if len(text) <= 2 * longest:
            documents.add(digest_words(text))
    return [name for key, names in by_digest.items() if key in documents for name in names]


def _group_texts(corpus: pl.DataFrame, candidates: Collection[str]) -> list[tuple[str, ...]]:
    """Group the ids of equal texts that start like a document in `candidates`."""
    if not candidates or not len(corpus):
        return []
    opening = pl.col("text").str.extract(OPENING, 0).str.replace_all(f"[{WHITESPACE}]", "")
    # A blank text has no opening.
    hashes = pl.when(pl.col("opening").is_not_null()).then(pl.col("opening").hash())
    openings = corpus.select(opening=opening).select(hashes).to_series()
    shared_openings = openings.filter(corpus["id"].is_in(list(candidates))).drop_nulls().unique()
    rows = (openings.is_in(shared_openings.implode()) & openings.is_duplicated()).arg_true()
    by_text: dict[bytes, list[str]] = defaultdict(list)
    for name, text in list_texts(corpus[rows].fill_null("")).items():
        by_text[digest_words(text)].append(name)
    return [tuple(group) for group in by_text.values() if len(group) > 1]


def choose_originals(corpus: pl.DataFrame, relevant: Collection[str]) -> dict[str, str]:
    """Map each copy to its original: the smallest id, preferably of a relevant document."""
    originals = dict[str, str]()
    for group in _group_texts(corpus, {*corpus["id"]}):
        original = min([name for name in group if name in relevant] or group)
        originals |= {name: original for name in group if name != original}
    return originals


def describe_merges(originals: Mapping[str, str]) -> str:
    """Describe the merged copies. `originals` maps copies to originals."""
    copies = pluralize(len(originals), "copy", "copies")
    documents = pluralize(len({*originals.values()}), "document")
    first = " into ".join(map(sanitize, next(iter(originals.items()))))
    return f"{copies} of {documents} merged, first {first}."


def merge_copies(
    data: PositionData, judgments: Judgments
) -> tuple[PositionData, Judgments, Mapping[str, str]]:
    """Merge the copies in a dataset.

    Spans are moved to the same words of the original. Overlapping spans of a query are merged. Each
    query-document pair gets its highest grade.

    Returns:
        The data, the judgments, and a mapping from copy to original.
    """
    relevant = list_relevant(judgments) | {*data.evidence.document_ids}
    originals = choose_originals(data.documents, relevant)
    if not originals:
        return data, judgments, originals
    documents = data.documents.filter(~pl.col("id").is_in([*originals]))
    evidence = _move_evidence(data, originals)
    merged_data = replace(data, documents=documents, evidence=evidence)
    if data.places:
        merged_data = _merge_spans(merged_data)
    return merged_data, _merge_grades(judgments, originals), originals


def count_repeated(data: PositionData) -> RepeatedTexts:
    """Count the questions that are repeated for several documents. A query with several evidence
    spans counts once and is not compared.
    """
    pairs = [
        (text, document)
        for name, text, document in data.iterate_queries()
        if name not in data.places and name not in data.unpositioned
    ]
    counts = count_repeated_texts(pairs, data.documents)
    multi_span_queries = len({place.query for place in data.places.values()})
    return replace(counts, questions=counts.questions + multi_span_queries)


def count_repeated_texts(pairs: Iterable[tuple[str, str]], corpus: pl.DataFrame) -> RepeatedTexts:
    """Count the questions that are repeated for documents with different texts.

    Args:
        pairs: Text and document id of each question.
        corpus: The documents.
    """
    documents: dict[str, set[str]] = defaultdict(set)
    counts = Counter[str]()
    for text, document in pairs:
        folded = " ".join(text.split()).casefold()
        documents[folded].add(document)
        counts[folded] += 1
    candidates = {text: names for text, names in documents.items() if len(names) > 1}
    copies = find_copies(corpus, {name for names in candidates.values() for name in names})
    originals = {name: group[0] for group in copies.groups for name in group}
    repeated_count = 0
    for text, names in candidates.items():
        if len({originals.get(name, name) for name in names}) > 1:
            repeated_count += counts[text]
    return RepeatedTexts(counts.total(), repeated_count)


def _merge_grades(judgments: Judgments, originals: Mapping[str, str]) -> Judgments:
    merged_grades = {}
    for query, row in judgments.grades.items():
        grades = merged_grades[query] = dict[str, float]()
        for name, grade in row.items():
            document = originals.get(name, name)
            grades[document] = max(grade, grades.get(document, grade))
    return replace(judgments, grades=merged_grades)


def _move_evidence(data: PositionData, originals: Mapping[str, str]) -> Evidence:
    """Move the evidence to the originals, each with the first title among its copies."""
    evidence = data.evidence
    names = [originals.get(name, name) for name in evidence.document_ids]
    moved_evidence = replace(evidence, document_ids=names)
    if evidence.clusters:
        titles = dict[str, str]()
        for name, title in zip(names, evidence.clusters, strict=True):
            titles[name] = titles.get(name) or title
        moved_evidence = replace(moved_evidence, clusters=tuple(titles[name] for name in names))
    if not data.has_spans or not len(evidence.characters):
        return moved_evidence
    copies = {name for name in evidence.document_ids if name in originals}
    affected = [*copies, *{originals[name] for name in copies}]
    texts = list_texts(data.documents.filter(pl.col("id").is_in(affected)))
    starts = evidence.starts.copy()
    ends = evidence.ends.copy()
    characters = evidence.characters.copy()
    for row, name in enumerate(evidence.document_ids):
        # Spans of translations may refer to the English text.
        if name not in originals or characters[row] != len(texts[name]):
            continue
        original = texts[originals[name]]
        if texts[name] != original:
            span = Span(int(starts[row]), int(ends[row]))
            starts[row], ends[row] = move_span(span, texts[name], original)
            characters[row] = len(original)
    return replace(moved_evidence, starts=starts, ends=ends, characters=characters)


def move_span(span: Span, text: str, other: str) -> Span:
    """Return the span of the same words in a text with different white space."""
    before = len("".join(text[: max(0, span.start)].split()))
    inside = len("".join(span.slice(text).split()))
    if span == NO_SPAN or not inside:
        return span
    return Spelling.build(other, drop_space).restore(Span(before, before + inside))


def _merge_spans(data: PositionData) -> PositionData:
    """Merge overlapping spans of each query. Queries with one remaining span become ordinary."""
    evidence = data.evidence
    names = [*evidence.query_ids]
    rows = {name: row for row, name in enumerate(names)}
    spans = []
    for name, row in rows.items():
        if name not in data.places:
            continue
        source = data.places[name]
        span = Span(int(evidence.starts[row]), int(evidence.ends[row]))
        document = evidence.document_ids[row]
        spans.append(QuerySpan(name, source.query, document, span, source.grade))
    places = {}
    selection = [row for row, name in enumerate(names) if name not in data.places]
    ends = evidence.ends.copy()
    for query, merged_places in merge_places(spans).items():
        for place in merged_places:
            row = rows[place.name]
            selection.append(row)
            ends[row] = place.span.end
            if len(merged_places) > 1:
                places[place.name] = Place(query, place.grade)
            else:
                names[row] = query
    questions = data.questions.with_columns(id=pl.Series(names, dtype=pl.String))
    evidence = replace(evidence, query_ids=names, ends=ends)
    joined_data = replace(data, questions=questions, evidence=evidence, places=places)
    return joined_data.select(sorted(selection))
