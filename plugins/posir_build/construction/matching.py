"""A quote in its document: exact, or with small differences that do not change numbers or negation."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

from rapidfuzz import fuzz

from posir_build.spans import Span, find_occurrences

NUMBER = re.compile(r"\d+(?:[.,٫]\d+)*")
#: Words that negate, in the languages of PosIR; a quote must have as many as the text that it is matched with.
NEGATIONS = re.compile(
    r"\b(?:not|no|never|none|nor|neither|without|cannot|nicht|kein\w*|nie|niemals|ohne|weder|ne|pas|jamais|sans|aucune?|ni|"
    r"non|mai|nessun\w*|senza|não|nunca|sem|nenhuma?|nem|sin|ningun[oa]?|ningún|jamás|не|нет|ни|никогда|без|nie|nigdy|bez)\b"
    r"|n['’]t\b|[不没沒未無无非别莫]|ない|ません|なかった|ず(?=[、。に])|않|없|못|아니|(?:^|\s)(?:안|لا|لم|لن|ليس\w*|غير|بدون)(?=\s|$)"
    r"|नहीं|बिना|নয়|না(?=[\s।]|$)|নেই",
    re.IGNORECASE,
)
#: Characters that are written in several ways, each in place of one other.
SAME = str.maketrans("‘’‚“”„«»‐‑–—−\u00a0\u3000，。：；？！（）", '\'\'\'"""""-----  ,.:;?!()')
WORD = re.compile(r"\w")
#: Scripts that separate words by spaces are matched in whole words.
MAX_WORD = 30


class QuoteError(Exception):
    """A quote has no certain place; the text is the reason."""


def find_quote(quote: str, text: str, window: Span, similarity: float) -> Span:
    """Return the only place of a quote in a part of a text.

    Exact matches come first, then those that differ in case, white space, quotation marks or dashes, then similar ones. Offsets
    are those of the text as it is.

    Args:
        quote: Not blank.
        text: The document.
        window: Where to look.
        similarity: Least similarity, from 0 to 1: one minus the edits (insertions, deletions) per character of both.

    Raises:
        QuoteError: There is no match, or there are several, or the only one changes a number or negation.
    """
    part = text[window.start : window.end]
    bare = quote.strip()
    for needle, haystack in ((bare, part), (_fold(bare), _fold(part))):
        starts = find_occurrences(needle, haystack)
        if len(starts) > 1:
            raise QuoteError("the quote occurs several times")
        if starts:
            start = window.start + starts[0]
            return Span(start, start + len(needle))
    return _find_similar(bare, text, window, similarity)


def _fold(text: str) -> str:
    """Return a text of the same length without differences of case, white space, quotation marks and dashes."""
    return "".join(_fold_character(one) for one in text.translate(SAME))


def _fold_character(character: str) -> str:
    lower = character.lower()
    return " " if character.isspace() else lower if len(lower) == 1 else character


def _find_similar(quote: str, text: str, window: Span, similarity: float) -> Span:
    needle, haystack = _fold(quote), _fold(text[window.start : window.end])
    found = _align(needle, haystack, similarity)
    if found is None:
        raise QuoteError("the quote is not in the text")
    rest = haystack[: found.start] + "\0" * (found.end - found.start) + haystack[found.end :]
    if _align(needle, rest, similarity) is not None:
        raise QuoteError("the quote resembles several passages")
    span = Span(window.start + found.start, window.start + found.end)
    matched = text[span.start : span.end]
    if count_numbers(matched) != count_numbers(quote):
        raise QuoteError("the quote changes a number")
    if len(NEGATIONS.findall(_fold(matched))) != len(NEGATIONS.findall(_fold(quote))):
        raise QuoteError("the quote changes a negation")
    return span


def _align(needle: str, haystack: str, similarity: float) -> Span | None:
    """Return the part of a text that is most similar to a quote, in whole words; None if it is not similar enough."""
    if len(needle) > len(haystack):
        span = Span(0, len(haystack))
    else:
        alignment = fuzz.partial_ratio_alignment(needle, haystack, score_cutoff=100 * similarity - 10)
        if alignment is None:
            return None
        span = _to_words(Span(alignment.dest_start, alignment.dest_end), haystack)
    return span if fuzz.ratio(needle, haystack[span.start : span.end]) >= 100 * similarity else None


def _to_words(span: Span, text: str) -> Span:
    """Return a span without white space at its ends, extended to whole words where words are short."""
    start, end = span.start, span.end
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    first, last = start, end
    while first > 0 and WORD.match(text[first]) and WORD.match(text[first - 1]) and start - first < MAX_WORD:
        first -= 1
    while 0 < last < len(text) and WORD.match(text[last - 1]) and WORD.match(text[last]) and last - end < MAX_WORD:
        last += 1
    return Span(first if start - first < MAX_WORD else start, last if last - end < MAX_WORD else end)


def count_numbers(text: str) -> Counter[str]:
    """Return the numbers in a text, with digits of any script as 0 to 9."""
    plain = "".join(str(unicodedata.digit(one, one)) if one.isdigit() else one for one in text)
    return Counter(NUMBER.findall(plain))
