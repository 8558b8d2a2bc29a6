"""Split texts into sentences, in any language or as in a paper's code."""

import re
from collections.abc import Iterator
from itertools import pairwise

from posir_tasks.text.languages import find_two_letter_code
from posir_tasks.text.spans import Span
from posir_tasks.text.words import CHARACTER

#: Non-ASCII white space.
WIDE_SPACE = re.compile(r"[^\S\x00-\x7f]")
#: Maximum length of a sentence in characters. Longer sentences are split at white space; they occur
#: in scripts without full stops.
MAX_SENTENCE = 400
BOUNDARY = re.compile(r"\s+")
#: Thai and Lao letters. In these scripts, a space ends a sentence or a clause.
SPACE_ENDS = re.compile(r"[\u0e00-\u0eff]")
#: Minimum length of a Thai or Lao clause in characters. Numbers, names and other short clauses are
#: joined with the next clause.
MIN_CLAUSE = 40
#: Khmer and Tibetan sentence ends, which sentencex does not recognize.
OTHER_ENDS = re.compile(r"[\u17d4\u17d5\u0f0d\u0f0e]+\s*")


def find_sentences(text: str, language: str) -> list[Span]:
    """Find the sentences of a text, including headings and list items, without surrounding white
    space.

    Args:
        text: Any text.
        language: Code such as `en` or `eng-Latn`. Languages without rules are split by general
            rules. Texts with mostly Thai or Lao letters are split at spaces.
    """
    from sentencex import get_sentence_boundaries

    if 2 * len(SPACE_ENDS.findall(text)) > len(CHARACTER.findall(text)):
        bounds = list(_divide_at_spaces(text))
    else:
        # sentencex 1.0.32 aborts on a wide space after an initial (`B\u3000.`).
        boundaries = get_sentence_boundaries(
            find_two_letter_code(language), WIDE_SPACE.sub(" ", text)
        )
        bounds = [Span(boundary["start_index"], boundary["end_index"]) for boundary in boundaries]
    pieces: list[Span] = []
    for bound in bounds:
        ends = [end.end() for end in OTHER_ENDS.finditer(text, *bound)]
        for start, end in pairwise([bound.start, *ends, bound.end]):
            pieces += _cut(text, start, end)
    return [span for span in (piece.strip(text) for piece in pieces) if span.slice(text)]


def _divide_at_spaces(text: str) -> Iterator[Span]:
    """Split a text at line breaks, and at spaces into clauses of at least `MIN_CLAUSE`."""
    start = 0
    for space in BOUNDARY.finditer(text):
        if "\n" in space.group() or space.start() - start >= MIN_CLAUSE:
            yield Span(start, space.end())
            start = space.end()
    yield Span(start, len(text))


def _cut(text: str, start: int, end: int) -> Iterator[Span]:
    """Split a sentence at white space into pieces of at most `MAX_SENTENCE`."""
    while end - start > MAX_SENTENCE:
        spaces = [match.end() for match in BOUNDARY.finditer(text, start + 1, start + MAX_SENTENCE)]
        middle = spaces[-1] if spaces else start + MAX_SENTENCE
        yield Span(start, middle)
        start = middle
    yield Span(start, end)


def split_at_periods(text: str) -> list[str]:
    """Split a text as in Bias Learning (OpenReview 4GD7a9Bo9A): at line breaks, then at `. `.

    Empty sentences and single periods are dropped. A period is appended to each sentence, even if
    it already ends with one.
    """
    sentences = (sentence.strip() for line in text.split("\n") for sentence in line.split(". "))
    return [f"{sentence}." for sentence in sentences if sentence and sentence != "."]


def find_at_periods(text: str) -> list[Span]:
    """Locate the sentences of `split_at_periods`, without the appended periods."""
    spans = []
    end = 0
    for sentence in split_at_periods(text):
        start = text.index(sentence[:-1], end)
        end = start + len(sentence) - 1
        spans.append(Span(start, end))
    return spans
