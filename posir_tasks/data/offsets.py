"""Recognize the offset convention of a file, and convert offsets to 0-based code points.

Java, JavaScript and C# count UTF-16 code units; byte-oriented tools count UTF-8 bytes. In ASCII
texts, both equal code points, so only answers in non-ASCII texts reveal the unit. A file is assumed
to have one convention.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product

from posir_tasks.base.wording import pluralize
from posir_tasks.data.formats.passages import Answer, Item, Passage, PassageQuestion

#: Minimum share of a file's answers that a convention must locate exactly.
MIN_EXACT = 0.95
#: Minimum number of answers to recognize 1-based offsets or inclusive ends, since single answers
#: may be off by one.
MIN_SHIFTED = 3
#: Characters that tools strip from the start of a text.
LEADING_SPACE = " \t\r\n\v\f\u00a0\u3000\ufeff"


@dataclass(frozen=True)
class OffsetConvention:
    """The unit, base and end of offsets."""

    title: str
    to_characters: Callable[[str, int], int]
    """Converts an offset in a text to code points; raises ValueError outside the text."""
    first: int = 0
    """Offset of the first unit, 0 or 1."""
    end_shift: int = 0
    """1 for inclusive ends, else 0."""

    def convert(self, answer: Answer, document: str) -> Answer:
        """Convert the span of an answer to 0-based code points.

        Answers with an exact span, or a span outside the document, are returned unchanged.
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
        """Return start and end in code points, or None if they cannot be converted."""
        if answer.start is None or answer.is_located:
            return None
        end = answer.end
        try:
            start = self.to_characters(document, answer.start - self.first)
            if end is not None:
                end = self.to_characters(document, end - self.first + self.end_shift)
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
    """Convert an offset that counts each line end as `length` characters."""
    start = 0
    for line in document.split(end):
        if 0 <= offset <= len(line):
            return start + offset
        offset -= len(line) + length
        start += len(line) + len(end)
    raise ValueError("is outside the text")


def _from_visible(document: str, offset: int) -> int:
    return offset + len(document) - len(document.lstrip(LEADING_SPACE))


CHARACTERS = OffsetConvention("Unicode code points", lambda _, offset: offset)
#: Units of programming languages, and of texts whose white space has changed.
UNITS = (
    CHARACTERS,
    OffsetConvention("UTF-16 code units", partial(_from_units, encoding="utf-16-le", size=2)),
    OffsetConvention("bytes of UTF-8", partial(_from_units, encoding="utf-8", size=1)),
    OffsetConvention(r"code points with \r\n as one", partial(_from_lines, end="\r\n", length=1)),
    OffsetConvention(r"code points with \n as two", partial(_from_lines, end="\n", length=2)),
    OffsetConvention("code points after leading white space", _from_visible),
)


def _list_conventions() -> Iterator[OffsetConvention]:
    for first, end_shift, unit in product((0, 1), (0, 1), UNITS):
        title = unit.title + " from 1" * first + ", with inclusive ends" * end_shift
        is_plain = first == end_shift == 0
        yield unit if is_plain else replace(unit, title=title, first=first, end_shift=end_shift)


#: All conventions in order of preference.
CONVENTIONS = tuple(_list_conventions())


def recognize_convention(
    answers: Sequence[tuple[Answer, str]],
) -> tuple[OffsetConvention, int, int]:
    """Recognize the offset convention of a file from pairs of answer and document.

    The default, 0-based code points, applies unless another convention locates more answers
    exactly, and at least a share of `MIN_EXACT`.

    Args:
        answers: All answers of the file with text and start, each with the text of its document.

    Returns:
        The convention, the number of answers that it locates exactly, and the number that code
        points locate exactly.
    """
    default_count = sum(CHARACTERS.is_exact(*row) for row in answers)
    best = CHARACTERS
    exact_count = default_count
    for convention in CONVENTIONS[1:] if default_count < len(answers) else ():
        if len(answers) < MIN_SHIFTED and (convention.first or convention.end_shift):
            break
        max_misses = len(answers) - max(exact_count + 1, MIN_EXACT * len(answers))
        misses = 0
        for row in answers:
            misses += not convention.is_exact(*row)
            if misses > max_misses:
                break
        else:
            best = convention
            exact_count = len(answers) - misses
    return best, exact_count, default_count


def convert_offsets(items: Sequence[Item]) -> tuple[list[Item], list[str]]:
    """Convert all offsets to 0-based code points. Also return a note for each converted file."""
    by_file: dict[str, list[tuple[Answer, str]]] = defaultdict(list)
    for text, question in _iterate_questions(items):
        for answer in question.answers[:1]:
            # An answer that is not in its document cannot reveal the convention.
            quotation = answer.text or ""
            if answer.start is not None and quotation.strip() and quotation in text:
                by_file[question.file].append((answer, text))
    conventions = {}
    notes = []
    for file, answers in by_file.items():
        convention, exact_count, default_count = recognize_convention(answers)
        if convention is not CHARACTERS:
            conventions[file] = convention
            notes.append(
                f"{file}: offsets are {convention.title}; converted to code points. "
                f"{exact_count:,} of {pluralize(len(answers), 'answer')} are where the file says, "
                f"{default_count:,} without the conversion. To keep the offsets, add --no-repair."
            )
    if conventions:
        items = [
            _convert(item, conventions) if isinstance(item, Passage) else item for item in items
        ]
    return [*items], notes


def _iterate_questions(items: Iterable[Item]) -> Iterator[tuple[str, PassageQuestion]]:
    for item in items:
        if isinstance(item, Passage):
            yield from ((item.text, question) for question in item.questions)


def _convert(passage: Passage, conventions: dict[str, OffsetConvention]) -> Passage:
    questions = []
    for question in passage.questions:
        convention = conventions.get(question.file, CHARACTERS)
        answers = (convention.convert(answer, passage.text) for answer in question.answers)
        questions.append(replace(question, answers=tuple(answers)))
    return replace(passage, questions=questions)


def describe_unverified(items: Iterable[Item]) -> str:
    """Return a warning about spans without an answer text, or an empty string."""
    answers = [
        answer for _, question in _iterate_questions(items) for answer in question.answers[:1]
    ]
    unverified = sum(
        answer.text is None and answer.start is not None and not answer.is_located
        for answer in answers
    )
    if not unverified:
        return ""
    spans = pluralize(len(answers), "span")
    return (
        f"{unverified:,} of {spans} {'has' if unverified == 1 else 'have'} no answer text and "
        "cannot be verified: they are taken as Unicode code points from 0, with an exclusive end."
    )
