"""Check the ids, documents and spans of questions, and repair wrong spans with a unique match."""

from __future__ import annotations

import logging
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from reprlib import repr as short_repr

from posir_tasks.base.digests import digest
from posir_tasks.base.errors import DataError
from posir_tasks.base.progress import track_items
from posir_tasks.base.wording import pluralize, sanitize
from posir_tasks.data.checks import DOCUMENTS_WITHOUT_TEXT, MAX_EXAMPLES
from posir_tasks.data.copies import count_repeated
from posir_tasks.data.data import PositionData, list_texts
from posir_tasks.data.formats.passages import (
    Answer,
    Cause,
    Item,
    Passage,
    PassageQuestion,
    SkippedItem,
    UnusableError,
    derive_document_ids,
    skip_question,
)
from posir_tasks.data.markers import select_answers
from posir_tasks.data.offsets import convert_offsets, describe_unverified
from posir_tasks.data.places import QuerySpan, merge_places
from posir_tasks.text.interventions import NO_SPAN
from posir_tasks.text.locating import Spelling
from posir_tasks.text.spans import Span
from posir_tasks.text.words import estimate_tokens
from posir_tasks.values.evidence import Place

logger = logging.getLogger(__name__)

#: Maximum distance of a repair in characters. Trimmed white space, byte-order marks and stray title
#: lines shift spans by a few characters. Within 5 characters, 0.08% of the questions of JaQuAD have
#: a wrong match, and at most 0.34% of an XQuAD language (Chinese); within 32 characters, 6%.
REPAIR_DISTANCE = 5
OTHER_FORM_ADVICE = (
    "; its document has it in another Unicode form (NFC, NFD): normalize both to the same form"
)
NON_JOINER = "\u200c"
#: Interchangeable characters: Arabic and Persian letters and digits, cedilla and comma below.
SAME_LETTERS = str.maketrans("\u064a\u0649\u0643şţŞŢ٠١٢٣٤٥٦٧٨٩", "\u06cc\u06cc\u06a9șțȘȚ۰۱۲۳۴۵۶۷۸۹")


def find_span(answer: Answer, document: str, *, repair: bool) -> tuple[Span, bool]:
    """Find the span of an answer. Also return True if it was repaired; raise UnusableError if the
    document does not contain the answer.
    """
    try:
        return resolve_span(answer, document), False
    except ValueError:
        if not repair or answer.start is None or not (answer.text and answer.text.strip()):
            raise
    return repair_span(answer.text, answer.start, document), True


@dataclass(frozen=True)
class LocatedAnswer:
    """The answer of a question and its span in the document."""

    answer: Answer
    span: Span
    is_moved: bool = False
    """If true, the span was repaired."""
    is_alternative: bool = False
    """If true, the document does not contain any earlier answer."""


def find_answer(question: PassageQuestion, document: str, *, repair: bool) -> LocatedAnswer:
    """Find the first answer of a question that occurs in the document.

    Raises:
        UnusableError: The document contains no answer. The message describes the first problem.
    """
    answers = select_answers(question.answers, document)
    if not answers:
        raise UnusableError(Cause.UNANSWERABLE)
    problems = list[ValueError]()
    for answer in answers:
        try:
            span, is_moved = find_span(answer, document, repair=repair)
            return LocatedAnswer(answer, span, is_moved, is_alternative=bool(problems))
        except ValueError as error:
            problems.append(error)
    raise problems[0]


def resolve_span(answer: Answer, document: str) -> Span:
    """Return the declared span of an answer or, without a start, its only occurrence; raise
    UnusableError if the span is wrong or the answer is not unique.
    """
    text = answer.text
    start = answer.start
    end = answer.end
    if text is None:
        if start is None or end is None:
            raise UnusableError(Cause.NO_POSITION)
        span = Span(start, end)
        if not 0 <= start < end <= len(document) or not span.slice(document).strip():
            bounds = f"its document of {len(document)} characters"
            problem = f"its span {start} to {end} is blank or not within {bounds}"
            raise UnusableError(Cause.OUTSIDE, problem)
        return span
    if not text.strip():
        raise UnusableError(Cause.UNANSWERABLE)
    if start is None:
        if end is not None:
            raise UnusableError(Cause.NO_POSITION)
        starts = find_occurrences(text, document)
        if len(starts) != 1:
            times = f"its answer {short_repr(text)} occurs {len(starts)} times in its document"
            is_in_other_form = not starts and _has_other_unicode_form(text, document)
            advice = OTHER_FORM_ADVICE if is_in_other_form else "; add its start"
            raise UnusableError(Cause.AMBIGUOUS, times + advice)
        start = starts[0]
    span = Span(start, start + len(text))
    if end not in (None, span.end):
        problem = f"its span {start} to {end} is not as long as its answer {short_repr(text)}"
        raise UnusableError(Cause.OUTSIDE, problem)
    if start < 0 or span.slice(document) != text:
        raise _describe_mismatch(text, start, document)
    return span


def repair_span(answer: str, start: int, document: str) -> Span:
    """Return the only match of a nonblank answer within `REPAIR_DISTANCE` characters of its start.

    The exact text is tried first, then the text without surrounding white space, then the text with
    normalized `SAME_LETTERS` and white space and without invisible characters, such as the
    zero-width non-joiner in Persian. Case, punctuation and Unicode form must match.

    Raises:
        UnusableError: There is no match, or more than one.
    """
    bare = answer.strip()
    for text, first in ((answer, start), (bare, start + answer.index(bare))):
        starts = find_occurrences(
            text, document, max(0, first - REPAIR_DISTANCE), first + REPAIR_DISTANCE
        )
        if len(starts) > 1:
            raise UnusableError(
                Cause.AMBIGUOUS,
                f"its answer {short_repr(text)} occurs {len(starts)} times near character {first}",
            )
        if starts:
            return Span(starts[0], starts[0] + len(text))
    spans = _find_spellings(answer, start, document)
    if len(spans) != 1:
        raise _describe_mismatch(answer, start, document)
    return spans[0]


def _find_spellings(answer: str, start: int, document: str) -> list[Span]:
    first = max(0, start - REPAIR_DISTANCE)
    # Invisible characters may double the length of an answer.
    part = document[first : max(0, start + REPAIR_DISTANCE) + 2 * len(answer)]
    spans = set()
    for joiner in ("", " "):
        normalize = partial(_normalize, joiner=joiner)
        letters = Spelling.build(part, normalize)
        bare = "".join(map(normalize, answer))
        for match in find_occurrences(bare, letters.text) if bare else ():
            span = letters.restore(Span(match, match + len(bare)))
            spans.add(Span(first + span.start, first + span.end))
    return [span for span in spans if abs(span.start - start) <= REPAIR_DISTANCE]


def _normalize(character: str, joiner: str) -> str:
    """Normalize `SAME_LETTERS` and white space, and drop invisible characters.

    `joiner` replaces the zero-width non-joiner. Persian texts often omit it or use a space.
    """
    if character.isspace():
        letter = " "
    else:
        letter = joiner if character == NON_JOINER else character.translate(SAME_LETTERS)
    return letter if letter and unicodedata.category(letter) != "Cf" else ""


def find_occurrences(
    text: str, document: str, first: int = 0, last: int | None = None
) -> list[int]:
    """Return the starts of all occurrences with `first` <= start <= `last`, which may overlap."""
    # `str.find` counts negative ends from the back.
    end = len(document) if last is None else max(0, last + len(text))
    starts = []
    start = first - 1
    while (start := document.find(text, start + 1, end)) >= 0:
        starts.append(start)
    return starts


def _has_other_unicode_form(text: str, document: str) -> bool:
    return unicodedata.normalize("NFC", text) in unicodedata.normalize("NFC", document)


def _describe_mismatch(text: str, start: int, document: str) -> UnusableError:
    starts = find_occurrences(text, document)
    nearest = min(starts, key=lambda match: abs(match - start), default=None)
    if nearest is not None:
        elsewhere = f"; the nearest match is at {nearest}"
    elif _has_other_unicode_form(text, document):
        elsewhere = OTHER_FORM_ADVICE
    else:
        elsewhere = " or anywhere else in its document"
    problem = f"its answer {short_repr(text)} is not at character {start}{elsewhere}"
    return UnusableError(Cause.ELSEWHERE, problem)


@dataclass
class ImportedData:
    """Checked documents and questions, with skipped items and repairs."""

    documents: dict[str, str] = field(default_factory=dict)
    """Document id to text."""
    questions: dict[str, tuple[str, str, Span]] = field(default_factory=dict)
    """Question id to text, id of the relevant document, and span (`NO_SPAN` if unknown)."""
    places: dict[str, Place] = field(default_factory=dict)
    """Question id to query and grade, for queries with several evidence spans."""
    unpositioned: dict[str, SkippedItem] = field(default_factory=dict)
    """Question id to the skipped item that explains a missing position."""
    skipped: list[SkippedItem] = field(default_factory=list)
    """Skipped texts and questions in file order."""
    repaired: list[tuple[PassageQuestion, Answer, Span]] = field(default_factory=list)
    """Repaired questions with the declared answer and the new span."""
    unverified: list[str] = field(default_factory=list)
    """Names of questions with a span but without an answer text to verify it."""
    titles: dict[str, str] = field(default_factory=dict)
    """Document id to the title of its article."""
    alternatives: int = 0
    """Number of questions with a later answer instead of the first."""
    notes: tuple[str, ...] = ()
    """Notes on the data as a whole."""

    @property
    def query_count(self) -> int:
        """Number of queries. A query with several evidence spans counts once."""
        queries = {place.query for place in self.places.values()}
        return len(self.questions) - len(self.places) + len(queries)

    def use_merged(self, data: PositionData) -> ImportedData:
        """Replace documents, questions and spans with `data`, in which copies are merged."""
        corpus = list_texts(data.documents)
        rows = data.list_questions()
        questions = {name: (text, document, span or NO_SPAN) for name, text, document, span in rows}
        titles = {name: title for name, title in self.titles.items() if name in corpus}
        return replace(
            self, documents=corpus, questions=questions, places=dict(data.places), titles=titles
        )

    def split_skipped(self) -> tuple[list[SkippedItem], list[SkippedItem]]:
        """Split the skipped items into questions and texts."""
        questions = [skipped for skipped in self.skipped if skipped.cause]
        return questions, [skipped for skipped in self.skipped if not skipped.cause]

    def to_position_data(
        self, revision: str, count_tokens: Callable[[str], int] = estimate_tokens
    ) -> PositionData:
        """Build the data of a subset, with warnings."""
        relevant = dict.fromkeys(document for _, document, _ in self.questions.values())
        tokens = {
            document: max(1, count_tokens(self.documents[document]))
            for document in track_items([*relevant], "Counting tokens")
        }
        data = PositionData.from_questions(
            self.documents, self.questions, revision=revision, titles=self.titles, tokens=tokens
        )
        data = replace(
            data,
            skipped=tuple(self.skipped),
            unpositioned={name: skipped.detail for name, skipped in self.unpositioned.items()},
            places=self.places,
            moved=[question.name for question, _, _ in self.repaired],
            unverified=self.unverified,
        )
        warnings = []
        if self.repaired:
            questions = pluralize(len(self.questions), "question")
            warnings.append(
                f"Answers to {len(self.repaired):,} of {questions} are not where the file says: "
                f"moved to the only match within {REPAIR_DISTANCE} characters."
            )
        blank = [name for name, text in self.documents.items() if not text.strip()]
        if blank:
            documents = pluralize(len(blank), "document has", "documents have")
            warnings.append(
                f"{documents} no text (first {sanitize(blank[0])}): kept in the corpus."
            )
            data = replace(data, tolerated={DOCUMENTS_WITHOUT_TEXT: len(blank)})
        repeated = count_repeated(data)
        warnings += [*self.notes, repeated.warning]
        # Notes may duplicate warnings.
        sentences = tuple(dict.fromkeys(filter(None, warnings)))
        return replace(data, warnings=sentences, repeated=repeated)


def collect_questions(items: Iterable[Item], domain: str, *, repair: bool) -> ImportedData:
    """Assign ids and spans to all questions; raise DataError if an id is ambiguous.

    Blank documents stay in the corpus, as in the PosIR layout; their questions are skipped.
    """
    imported = ImportedData()
    by_id = {}
    items, notes = prepare_offsets(items, repair=repair)
    passages = [item for item in items if isinstance(item, Passage)]
    repeated = _find_repeated_ids(passages)
    derived = derive_document_ids(passages, domain)
    for passage in items:
        if isinstance(passage, SkippedItem):
            imported.skipped.append(passage)
            continue
        document = passage.id or derived[passage.text]
        if imported.documents.setdefault(document, passage.text) != passage.text:
            raise DataError(
                f"{passage.source}: another document has the same id, {document!r}; ids must be "
                "unique."
            )
        if passage.title.strip():
            # A text in several articles belongs to the first.
            imported.titles.setdefault(document, passage.title.strip())
        for question in passage.questions:
            try:
                candidate = replace(question, id=None) if question.id in repeated else question
                by_id[_add_question(imported, candidate, document, repair=repair)] = candidate
            except ValueError as error:
                imported.skipped.append(skip_question(question.file, question.name, error))
    _merge_spans(imported, by_id)
    if imported.alternatives:
        questions = pluralize(imported.alternatives, "question")
        notes.append(
            f"{questions} of {len(imported.questions):,}: the first answer is not where the file "
            "says; a later answer is used instead."
        )
    return replace(imported, notes=tuple(notes))


def prepare_offsets(items: Iterable[Item], *, repair: bool) -> tuple[list[Item], list[str]]:
    """Convert offsets to code points if `repair` is true. Return items and notes on offsets."""
    originals = [*items]
    converted, notes = convert_offsets(originals) if repair else (originals, [])
    return converted, [*notes, *filter(None, [describe_unverified(originals)])]


def _merge_spans(imported: ImportedData, by_id: Mapping[str, PassageQuestion]) -> None:
    """Merge the overlapping evidence spans of each query.

    If a span is skipped or unknown, the query has no position.
    """
    lost = {
        (item.file, item.name) for item in imported.skipped if item.cause is not Cause.DUPLICATE
    }
    by_query: dict[str, list[str]] = defaultdict(list)
    for name, question in by_id.items():
        if question.query is not None:
            by_query[question.query].append(name)
    for query, names in by_query.items():
        questions = [by_id[name] for name in names]
        if len({question.text for question in questions}) > 1:
            raise DataError(
                f"{questions[0].file}: query {query}: its places have different texts; ids must be "
                "unique."
            )
        is_lost = any((question.file, question.name) in lost for question in questions)
        if is_lost or (len(names) > 1 and not imported.unpositioned.keys().isdisjoint(names)):
            for name in names:
                item = skip_question(by_id[name].file, by_id[name].name, Cause.PLACE_UNKNOWN)
                imported.unpositioned[name] = item
        else:
            _merge_query(imported, query, {name: by_id[name].grade for name in names})


def _merge_query(imported: ImportedData, query: str, grades: Mapping[str, float]) -> None:
    text = ""
    places = []
    for name, grade in grades.items():
        text, document, span = imported.questions[name]
        places.append(QuerySpan(name, query, document, span, grade))
    merged = merge_places(places)[query]
    for name in grades.keys() - {place.name for place in merged}:
        del imported.questions[name]
    for place in merged:
        imported.questions[place.name] = (text, place.document, place.span)
        if len(merged) > 1:
            imported.places[place.name] = Place(query, place.grade)
    if len(merged) == 1 and query not in imported.questions:
        imported.questions[query] = imported.questions.pop(merged[0].name)


def _find_repeated_ids(passages: list[Passage]) -> set[str]:
    """Return the ids of several different questions, such as translations, and log a warning."""
    counts = Counter(question.id for passage in passages for question in passage.questions)
    contents: dict[str, set[tuple[str, str, tuple[Answer, ...]]]] = defaultdict(set)
    for passage in passages:
        for question in passage.questions:
            if question.id and counts[question.id] > 1:
                content = (passage.id or passage.text, question.text, question.answers[:1])
                contents[question.id].add(content)
    repeated = {name for name, variants in contents.items() if len(variants) > 1}
    if repeated:
        logger.warning(
            "%s several questions (first %s): these questions get ids derived from their content",
            pluralize(len(repeated), "id belongs to", "ids belong to"),
            ", ".join(sorted(repeated)[:MAX_EXAMPLES]),
        )
    return repeated


def _add_question(
    imported: ImportedData, question: PassageQuestion, document: str, *, repair: bool
) -> str:
    """Add a question, and return its id.

    Raises:
        UnusableError: The question cannot be used.
        DataError: Another question has the same id.
    """
    if not question.text.strip():
        raise UnusableError(Cause.NO_TEXT, "its text is empty")
    text = imported.documents[document]
    if not text.strip():
        raise UnusableError(Cause.BLANK_DOCUMENT)
    match = find_answer(question, text, repair=repair) if question.answers else None
    span = match.span if match else NO_SPAN
    name = question.id or digest(document, question.name, question.text, *span, size=16).hex()
    content = (question.text, document, span)
    if imported.questions.setdefault(name, content) is not content:
        if imported.questions[name] == content:
            raise UnusableError(Cause.DUPLICATE)
        raise DataError(
            f"{question.file}: question {question.name}: another question has the same id; ids "
            "must be unique."
        )
    if match is None:
        imported.unpositioned[name] = skip_question(question.file, question.name, Cause.NO_POSITION)
        return name
    answer = match.answer
    if match.is_moved:
        imported.repaired.append((question, answer, span))
    if answer.text is None and not answer.is_located:
        imported.unverified.append(question.name)
    imported.alternatives += match.is_alternative
    return name
