"""Sentences of a text: in any language, and as one paper's code has them."""

import re
from collections.abc import Iterator
from itertools import pairwise

from posir_tasks.text.languages import two_letter_code
from posir_tasks.text.spans import Span
from posir_tasks.text.words import CHARACTER

#: White space of more than one byte in UTF-8.
WIDE_SPACE = re.compile(r"[^\S\x00-\x7f]")
#: Longest sentence in characters; longer ones, which occur in scripts without full stops, are cut
#: at white space.
MAX_SENTENCE = 400
BOUNDARY = re.compile(r"\s+")
#: Letters of Thai and Lao, which have no full stop: a space ends a sentence or a clause.
SPACE_ENDS = re.compile(r"[\u0e00-\u0eff]")
#: Fewest characters of such a clause; a shorter one, such as a number or a name between spaces,
#: stays with what follows.
FEWEST_CHARACTERS = 40
#: Ends of sentences that sentencex does not know: Khmer and Tibetan.
FURTHER_ENDS = re.compile(r"[\u17d4\u17d5\u0f0d\u0f0e]+\s*")


def find_sentences(text: str, language: str) -> list[Span]:
    """Return the sentences of a text in order, without the white space around them; headings and
    list items are sentences.

    Args:
        text: Any text.
        language: Its code, such as `en` or `eng-Latn`; for an unknown one and languages without
            rules, general ones apply. Thai and Lao, most of whose text has their letters, are
            divided at spaces.
    """
    from sentencex import get_sentence_boundaries

    if 2 * len(SPACE_ENDS.findall(text)) > len(CHARACTER.findall(text)):
        bounds = list(_divide_at_spaces(text))
    else:
        # sentencex 1.0.32 aborts where a wide space follows an initial (`B\u3000.`). A plain space
        # has the same length.
        boundaries = get_sentence_boundaries(two_letter_code(language), WIDE_SPACE.sub(" ", text))
        bounds = [Span(boundary["start_index"], boundary["end_index"]) for boundary in boundaries]
    pieces = list[Span]()
    for bound in bounds:
        ends = [end.end() for end in FURTHER_ENDS.finditer(text, *bound)]
        for start, end in pairwise([bound.start, *ends, bound.end]):
            pieces += _cut(text, start, end)
    return [span for span in (piece.stripped(text) for piece in pieces) if span.of(text)]


def _divide_at_spaces(text: str) -> Iterator[Span]:
    """Yield the lines of a text, divided at spaces into parts that are not too short."""
    start = 0
    for space in BOUNDARY.finditer(text):
        if "\n" in space.group() or space.start() - start >= FEWEST_CHARACTERS:
            yield Span(start, space.end())
            start = space.end()
    yield Span(start, len(text))


def _cut(text: str, start: int, end: int) -> Iterator[Span]:
    while end - start > MAX_SENTENCE:
        spaces = [match.end() for match in BOUNDARY.finditer(text, start + 1, start + MAX_SENTENCE)]
        middle = spaces[-1] if spaces else start + MAX_SENTENCE
        yield Span(start, middle)
        start = middle
    yield Span(start, end)


def split_at_periods(text: str) -> list[str]:
    """Split as Bias Learning (OpenReview 4GD7a9Bo9A) does: at line breaks, then at `. `.

    Empty sentences and single periods are dropped, and `.` is appended to each, which doubles a
    final one.
    """
    sentences = (sentence.strip() for line in text.split("\n") for sentence in line.split(". "))
    return [f"{sentence}." for sentence in sentences if sentence and sentence != "."]


def find_at_periods(text: str) -> list[Span]:
    """Return where the sentences of `split_at_periods` are in the text, without what it appends."""
    spans = list[Span]()
    end = 0
    for sentence in split_at_periods(text):
        start = text.index(sentence[:-1], end)
        end = start + len(sentence) - 1
        spans.append(Span(start, end))
    return spans
