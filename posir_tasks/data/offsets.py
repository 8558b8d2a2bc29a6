"""Recognize the offset unit of a file, and convert offsets to 0-based code points.

Java, JavaScript and C# count UTF-16 code units; byte-oriented tools count UTF-8 bytes. In ASCII
texts, both equal code points, so only answers in non-ASCII texts reveal the unit. Each file uses
one unit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product

from posir_tasks.base.wording import pluralize
from posir_tasks.data.formats.passages import Answer, Item, Passage, PassageQuestion

#: Minimum share of a file's answers that a unit must locate exactly.
MIN_EXACT = 0.95
#: Minimum number of answers for recognizing 1-based offsets or inclusive ends, since a single
#: answer may be off by one.
MIN_SHIFTED = 3
#: Characters that tools strip from the start of a text.
LEADING_SPACE = " \t\r\n\v\f\u00a0\u3000\ufeff"


@dataclass(frozen=True)
class Counting:
    """A way of counting offsets in a text."""

    title: str
    to_characters: Callable[[str, int], int]
    """Converts an offset in a text to code points; raises ValueError if it is outside the text."""
    first: int = 0
    """Offset of the first unit: 0 or 1."""
    included: int = 0
    """1 if ends are inclusive, else 0."""

    def convert(self, answer: Answer, document: str) -> Answer:
        """Convert the span of an answer to 0-based code points.

        Answers with an exact span or a span beyond the document are returned unchanged.
        """
        bounds = self._locate(answer, document)
        return replace(answer, start=bounds[0], end=bounds[1]) if bounds else answer

    def is_exact(self, answer: Answer, document: str) -> bool:
        """Return True if the span of an answer contains its text."""
        assert answer.text is not None
        bounds = self._locate(answer, document)
        if not bounds or bounds[0] < 0:
            return False
        start, end = bounds
        return document.startswith(answer.text, start) and end in (None, start + len(answer.text))

    def _locate(self, answer: Answer, document: str) -> tuple[int, int | None] | None:
        """Return the start and end in code points, or None if they cannot be converted."""
        if answer.start is None or answer.is_located:
            return None
        end = answer.end
        try:
            start = self.to_characters(document, answer.start - self.first)
            if end is not None:
                end = self.to_characters(document, end - self.first + self.included)
        except ValueError:
            return None
        return start, end


@lru_cache(maxsize=2)
def _encode(document: str, encoding: str) -> bytes:
    return document.encode(encoding, "surrogatepass")


def _from_units(document: str, offset: int, *, encoding: str, size: int) -> int:
    if document.isascii():
        return offset
    content = _encode(document, encoding)
    if not 0 <= offset * size <= len(content):
        raise ValueError("is outside the text")
    return len(content[: offset * size].decode(encoding))


def _from_lines(document: str, offset: int, *, end: str, length: int) -> int:
    """Convert an offset in a text whose line ends count as `length` characters."""
    start = 0
    for line in document.split(end):
        if 0 <= offset <= len(line):
            return start + offset
        offset -= len(line) + length
        start += len(line) + len(end)
    raise ValueError("is outside the text")


def _from_visible(document: str, offset: int) -> int:
    return offset + len(document) - len(document.lstrip(LEADING_SPACE))


CHARACTERS = Counting("Unicode code points", lambda _, offset: offset)
#: Units of programming languages, and offsets into texts whose white space was changed later.
UNITS = (
    CHARACTERS,
    Counting("UTF-16 code units", partial(_from_units, encoding="utf-16-le", size=2)),
    Counting("bytes of UTF-8", partial(_from_units, encoding="utf-8", size=1)),
    Counting(r"code points with \r\n as one", partial(_from_lines, end="\r\n", length=1)),
    Counting(r"code points with \n as two", partial(_from_lines, end="\n", length=2)),
    Counting("code points after leading white space", _from_visible),
)


def _list_countings() -> Iterator[Counting]:
    for first, included, unit in product((0, 1), (0, 1), UNITS):
        title = unit.title + " from 1" * first + ", with inclusive ends" * included
        is_plain = first == included == 0
        yield unit if is_plain else replace(unit, title=title, first=first, included=included)


#: In order of preference.
COUNTINGS = tuple(_list_countings())


def recognize_counting(answers: Sequence[tuple[Answer, str]]) -> tuple[Counting, int, int]:
    """Recognize how a file counts offsets from all of its answers with text and start.

    The result is 0-based code points unless another counting locates more answers exactly, and at
    least a share of `MIN_EXACT`.

    Returns:
        The counting, the number of answers that it locates exactly, and the number that code points
        locate exactly.
    """
    characters = sum(CHARACTERS.is_exact(*row) for row in answers)
    best = CHARACTERS
    exact = characters
    for counting in COUNTINGS[1:] if characters < len(answers) else ():
        if len(answers) < MIN_SHIFTED and (counting.first or counting.included):
            break
        max_misses = len(answers) - max(exact + 1, MIN_EXACT * len(answers))
        misses = 0
        for row in answers:
            misses += not counting.is_exact(*row)
            if misses > max_misses:
                break
        else:
            best = counting
            exact = len(answers) - misses
    return best, exact, characters


def convert_offsets(items: Sequence[Item]) -> tuple[list[Item], list[str]]:
    """Convert the offsets of all items to 0-based code points. Also return a sentence for each
    converted file.
    """
    by_file: dict[str, list[tuple[Answer, str]]] = defaultdict(list)
    for text, question in _iterate_questions(items):
        for answer in question.answers[:1]:
            # An answer that is not in its document cannot reveal the unit.
            quotation = answer.text or ""
            if answer.start is not None and quotation.strip() and quotation in text:
                by_file[question.file].append((answer, text))
    countings = {}
    notes = []
    for file, answers in by_file.items():
        counting, exact, characters = recognize_counting(answers)
        if counting is not CHARACTERS:
            countings[file] = counting
            notes.append(
                f"{file}: offsets are {counting.title}; converted to code points. {exact:,} "
                f"of {pluralize(len(answers), 'answer')} are where the file says, {characters:,} "
                "without the conversion. To keep the offsets, add --no-repair."
            )
    if countings:
        items = [_convert(item, countings) if isinstance(item, Passage) else item for item in items]
    return [*items], notes


def _iterate_questions(items: Iterable[Item]) -> Iterator[tuple[str, PassageQuestion]]:
    for item in items:
        if isinstance(item, Passage):
            yield from ((item.text, question) for question in item.questions)


def _convert(passage: Passage, countings: dict[str, Counting]) -> Passage:
    questions = []
    for question in passage.questions:
        counting = countings.get(question.file, CHARACTERS)
        answers = (counting.convert(answer, passage.text) for answer in question.answers)
        questions.append(replace(question, answers=tuple(answers)))
    return replace(passage, questions=questions)


def describe_unchecked(items: Iterable[Item]) -> str:
    """Return a warning about spans without an answer text, or an empty string."""
    answers = [
        answer for _, question in _iterate_questions(items) for answer in question.answers[:1]
    ]
    unchecked = sum(
        answer.text is None and answer.start is not None and not answer.is_located
        for answer in answers
    )
    if not unchecked:
        return ""
    spans = pluralize(len(answers), "span")
    return (
        f"{unchecked:,} of {spans} {'has' if unchecked == 1 else 'have'} no answer text and cannot "
        "be verified: they are taken as Unicode code points from 0, with an exclusive end."
    )
