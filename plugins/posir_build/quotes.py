"""Locate a quote in a text; numbers and negations must not change."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from itertools import pairwise, takewhile

from rapidfuzz import fuzz

from posir_build.records import DiscardReason
from posir_tasks.data.questions import find_occurrences
from posir_tasks.language_models.chat_client import UnusableAnswerError
from posir_tasks.text.locating import align
from posir_tasks.text.spans import Span
from posir_tasks.text.words import UNSPACED_LETTER

#: A number with sign, thousands separators and decimals, or a numeric character such as 三, ½ or Ⅳ.
NUMBER = re.compile(
    r"(?:(?<![\w)])-)?(?:\d{1,3}(?:[.,٫٬]\d{3}(?!\d))+(?:[.,٫]\d+)?|\d+(?:[.,٫]\d+)?)|[〇零一二两兩三四五六七八九十百千万萬億亿]+|"
    r"[²³¹\u2070-\u2089\u00bc-\u00be\u2150-\u218b\u2460-\u24ff\u2776-\u2793]"
)


def load_patterns(name: str) -> re.Pattern[str]:
    """Compile a pattern from a file of this package with one alternative per line.

    Lines that begin with `# ` are comments.
    """
    lines = (files(__package__) / name).read_text(encoding="utf-8").splitlines()
    return re.compile("|".join(line for line in lines if not line.startswith("# ")), re.IGNORECASE)


#: Negating words. A quote and its match must contain equally many.
NEGATIONS = load_patterns("negations.txt")
#: Prefixes that negate a word.
NEGATING_PREFIX = re.compile(r"un|in|im|il|ir|dis|non|не|бес|без|nie")
#: Negations attached to the end of a word.
NEGATING_SUFFIX = re.compile(r"n?['’]t\b|not\b", re.IGNORECASE)
#: Maps typographic variants to one character.
TYPOGRAPHIC_VARIANTS = str.maketrans(
    "‘’‚“”„«»‐‑–—−\u00a0\u3000，。：；？！（）", '\'\'\'"""""-----  ,.:;?!()'
)
WORD = re.compile(r"\w")
#: A letter in a script with spaces between words.
LETTER = re.compile(rf"(?!{UNSPACED_LETTER.pattern})\w")
#: Maximum number of letters to add at either end of a match to complete a word.
MAX_EXTENSION = 30
#: Maximum number of characters to move either end of a fuzzy match by.
MAX_ADJUSTMENT = 12
#: Characters on each side of a match to search for numbers and negations that the match cuts off.
CONTEXT_CHARACTERS = 50


class QuoteError(UnusableAnswerError):
    """A quote that does not have exactly one match. The fault is a `DiscardReason`."""


def find_quote(quote: str, text: str, window: Span, similarity: float) -> Span:
    """Find the only match of a quote within a window of a text, as a span of the text.

    Exact matches are tried first, then matches that differ in case, white space, Unicode form,
    quotation marks or dashes, then a fuzzy match with at least the given similarity, in [0, 1]: one
    minus the number of inserted and deleted characters divided by the characters of both texts. A
    match must not change numbers or negations, or cut them off.

    Raises:
        QuoteError: There is no match, there are several, or the only match changes a number or
            negation.
    """
    passage = window.slice(text)
    quote = quote.strip()
    spans = _find_all(quote, passage) or _find_folded(quote, passage, similarity)
    unchanged_spans = [span for span in spans if not _find_change(quote, passage, span)]
    if not unchanged_spans:
        raise QuoteError(_find_change(quote, passage, spans[0]) or DiscardReason.QUOTE_NOT_FOUND)
    if len(unchanged_spans) > 1:
        raise QuoteError(DiscardReason.QUOTE_REPEATED)
    (span,) = unchanged_spans
    return Span(window.start + span.start, window.start + span.end)


def _find_all(needle: str, haystack: str) -> list[Span]:
    starts = find_occurrences(needle, haystack)
    return [Span(start, start + len(needle)) for start in starts]


def _find_folded(quote: str, text: str, similarity: float) -> list[Span]:
    """Find a folded quote in a folded text or, failing that, the only similar passage."""
    needle, _ = fold(quote)
    haystack, origins = fold(text)
    if not needle:
        raise QuoteError(DiscardReason.QUOTE_NOT_FOUND)
    spans = _find_all(needle, haystack)
    if not spans:
        match = _align(needle, haystack, similarity)
        if match is None:
            raise QuoteError(DiscardReason.QUOTE_NOT_FOUND)
        blank = "\0" * (match.end - match.start)
        remainder = haystack[: match.start] + blank + haystack[match.end :]
        if _align(needle, remainder, similarity) is not None:
            raise QuoteError(DiscardReason.QUOTE_AMBIGUOUS)
        spans = [match]
    return [Span(origins[span.start].start, origins[span.end - 1].end) for span in spans]


def fold(text: str) -> tuple[str, Sequence[Span]]:
    """Normalize a text for comparison. Also return the original span of each character.

    The text is converted to NFKC and lower case, with unified quotation marks, dashes and digits,
    and collapsed white space.
    """
    folded: list[str] = []
    origins: list[Span] = []
    # Combining marks, and Hangul vowels and finals, belong to the preceding character.
    starts = [
        index for index, character in enumerate(text) if index == 0 or not _is_combining(character)
    ]
    for start, end in pairwise([*starts, len(text)]):
        normalized = unicodedata.normalize("NFKC", text[start:end].translate(TYPOGRAPHIC_VARIANTS))
        for character in normalized.translate(TYPOGRAPHIC_VARIANTS).casefold():
            if unicodedata.category(character) == "Cf":
                continue
            if character.isspace() and folded and folded[-1] == " ":
                origins[-1] = Span(origins[-1].start, end)
                continue
            folded.append(" " if character.isspace() else unify_digits(character))
            origins.append(Span(start, end))
    return "".join(folded), origins


def _is_combining(character: str) -> bool:
    return bool(unicodedata.combining(character)) or "\u1160" <= character <= "\u11ff"


def _find_change(quote: str, text: str, span: Span) -> DiscardReason | None:
    """Return the reason to discard a quote whose numbers or negations differ from its match, or
    None.
    """
    first = max(0, span.start - CONTEXT_CHARACTERS)
    context = _unify(text[first : span.end + CONTEXT_CHARACTERS])
    match_span = Span(span.start - first, span.end - first)
    needle = _unify(quote)
    match = match_span.slice(context)
    if NUMBER.findall(match) != NUMBER.findall(needle):
        return DiscardReason.CHANGED_NUMBER
    if any(_find_fragments(NUMBER, context, match_span)):
        return DiscardReason.CHANGED_NUMBER
    if len(NEGATIONS.findall(match)) != len(NEGATIONS.findall(needle)):
        return DiscardReason.CHANGED_NEGATION
    quote_words = set(re.findall(r"\w+", needle.lower()))
    match_words = set(re.findall(r"\w+", match.lower()))
    if (
        _cuts_negation(context, match_span)
        or _has_negated_word(quote_words, match_words)
        or _has_negated_word(match_words, quote_words)
    ):
        return DiscardReason.CHANGED_NEGATION
    return None


def _find_fragments(pattern: re.Pattern[str], text: str, span: Span) -> Iterator[str]:
    """Yield the parts inside the span of pattern matches that cross its start or end."""
    for match in pattern.finditer(text):
        start, end = match.span()
        if start < span.start < end or start < span.end < end:
            yield text[max(start, span.start) : min(end, span.end)]


def _cuts_negation(text: str, span: Span) -> bool:
    """Return True if the span starts or ends within a negated word or a negation."""
    if any(not NEGATIONS.fullmatch(word) for word in _find_fragments(NEGATIONS, text, span)):
        return True
    before = re.search(r"\w*\Z", text[max(0, span.start - MAX_EXTENSION) : span.start])
    if before and WORD.match(text[span.start]) and NEGATING_PREFIX.fullmatch(before[0].lower()):
        return True
    return bool(WORD.match(text[span.end - 1]) and NEGATING_SUFFIX.match(text, span.end))


def _has_negated_word(words: set[str], reference: set[str]) -> bool:
    """Return True if a word consists of a negating prefix and a reference word. A prefix that is
    itself a reference word is the first part of a hyphenated word.
    """
    for word in words - reference:
        for stem in reference - words:
            prefix = word.removesuffix(stem)
            if prefix != word and prefix not in reference and NEGATING_PREFIX.fullmatch(prefix):
                return True
    return False


def _align(needle: str, haystack: str, similarity: float) -> Span | None:
    """Return the most similar passage, extended to whole words, or None if it is below the
    similarity.
    """
    span = Span(0, len(haystack))
    if len(needle) <= len(haystack):
        alignment = align(needle, haystack, 100 * similarity - 10)
        if alignment is None:
            return None
        start, end = _adjust(needle, haystack, alignment.dest_start, alignment.dest_end)
        span = _extend_to_words(Span(start, end), haystack)
    span = span.strip(haystack)
    passage = span.slice(haystack)
    return span if passage and fuzz.ratio(needle, passage) >= 100 * similarity else None


def _adjust(needle: str, haystack: str, start: int, end: int) -> tuple[int, int]:
    """Move the ends of an alignment to maximize the similarity; ties go to the smaller move."""
    ends = range(max(start + 1, end - MAX_ADJUSTMENT), min(len(haystack), end + MAX_ADJUSTMENT) + 1)
    new_end = max(
        ends, key=lambda index: (fuzz.ratio(needle, haystack[start:index]), -abs(index - end))
    )
    starts = range(max(0, start - MAX_ADJUSTMENT), min(new_end, start + MAX_ADJUSTMENT + 1))
    new_start = max(
        starts,
        key=lambda index: (fuzz.ratio(needle, haystack[index:new_end]), -abs(index - start)),
    )
    return new_start, new_end


def _extend_to_words(span: Span, text: str) -> Span:
    """Extend a span to whole words in scripts with spaces."""
    start, end = span
    letters_before = letters_after = 0
    if LETTER.match(text[start]):
        letters_before = _count_letters(reversed(text[max(0, start - MAX_EXTENSION) : start]))
    if LETTER.match(text[end - 1]):
        letters_after = _count_letters(text[end : end + MAX_EXTENSION])
    # Words that reach the limit are not completed.
    return Span(start - letters_before % MAX_EXTENSION, end + letters_after % MAX_EXTENSION)


def _count_letters(characters: Iterable[str]) -> int:
    return len(list(takewhile(LETTER.match, characters)))


def list_numbers(text: str) -> list[str]:
    """List the numbers in a text, in order and with ASCII digits."""
    return NUMBER.findall(_unify(text))


def _unify(text: str) -> str:
    """Unify digits, quotation marks and dashes without changing the length of the text."""
    return "".join(map(unify_digits, text.translate(TYPOGRAPHIC_VARIANTS)))


def unify_digits(character: str) -> str:
    """Convert a digit of any script to ASCII; return other characters unchanged."""
    return str(unicodedata.decimal(character, character))
