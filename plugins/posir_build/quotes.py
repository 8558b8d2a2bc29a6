"""The place of a quote in a text, whose numbers and negations it may not change."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from itertools import islice, pairwise, takewhile

from rapidfuzz import fuzz

from posir_build.records import DiscardReason
from posir_tasks.data.questions import find_occurrences
from posir_tasks.language_models.chat_client import UnusableAnswerError
from posir_tasks.text.locating import align
from posir_tasks.text.spans import Span
from posir_tasks.text.words import UNSPACED_LETTER

#: A number with its sign, groups of thousands and decimals; or one character that is a number, such
#: as 三, ½ or Ⅳ.
NUMBER = re.compile(
    r"(?:(?<![\w)])-)?(?:\d{1,3}(?:[.,٫٬]\d{3}(?!\d))+(?:[.,٫]\d+)?|\d+(?:[.,٫]\d+)?)|[〇零一二两兩三四五六七八九十百千万萬億亿]+|"
    r"[²³¹\u2070-\u2089\u00bc-\u00be\u2150-\u218b\u2460-\u24ff\u2776-\u2793]"
)


def load_patterns(name: str) -> re.Pattern[str]:
    """Load a pattern that finds any of those in a file of this package, one a line.

    Lines that begin with `# ` name the language of the lines below.
    """
    lines = (files(__package__) / name).read_text(encoding="utf-8").splitlines()
    return re.compile("|".join(line for line in lines if not line.startswith("# ")), re.IGNORECASE)


#: Words that negate; a quote must have as many as the text that it is matched with.
NEGATIONS = load_patterns("negations.txt")
#: What negates as the beginning of a word.
NEGATING_PREFIX = re.compile(r"un|in|im|il|ir|dis|non|не|бес|без|nie")
#: What negates a word that it is attached to.
ATTACHED = re.compile(r"n?['’]t\b|not\b", re.IGNORECASE)
#: Characters that are written in several ways, each replaced by one of them.
SAME = str.maketrans("‘’‚“”„«»‐‑–—−\u00a0\u3000，。：；？！（）", '\'\'\'"""""-----  ,.:;?!()')
WORD = re.compile(r"\w")
#: A letter of a word in a script with spaces.
LETTER = re.compile(rf"(?!{UNSPACED_LETTER.pattern})\w")
#: Maximum number of letters by which a match is extended to a whole word.
MAX_WORD = 30
#: Characters by which an end of a similar match may be moved, since the match may have more or
#: fewer than the quote.
ADJUSTMENT = 12
#: Characters on both sides of a match in which a number or a negation that it cuts begins and ends.
CONTEXT = 50


class QuoteError(UnusableAnswerError):
    """A quote has no certain place; the fault is a `DiscardReason`."""


def find_quote(quote: str, text: str, window: Span, similarity: float) -> Span:
    """Find the only place of a quote in a part of a text.

    Exact matches come first, then those that differ in case, white space, Unicode form, quotation
    marks or dashes, then those with a similarity, from 0 to 1: one minus the edits (insertions,
    deletions) per character of both. Offsets are those of the text as it is. No match changes
    digits or words that negate, or cuts one of them off.

    Raises:
        QuoteError: There is no match, or there are several, or the only one changes a number or
            negation.
    """
    part = window.of(text)
    bare = quote.strip()
    spans = _find_all(bare, part) or _find_folded(bare, part, similarity)
    sound = list(islice((span for span in spans if not _find_change(bare, part, span)), 2))
    if not sound:
        raise QuoteError(_find_change(bare, part, spans[0]) or DiscardReason.QUOTE_NOT_FOUND)
    if len(sound) > 1:
        raise QuoteError(DiscardReason.QUOTE_REPEATED)
    (span,) = sound
    return Span(window.start + span.start, window.start + span.end)


def _find_all(needle: str, haystack: str) -> list[Span]:
    starts = find_occurrences(needle, haystack)
    return [Span(start, start + len(needle)) for start in starts]


def _find_folded(quote: str, text: str, similarity: float) -> list[Span]:
    """Find a quote as texts are compared, or else the only passage that is similar enough."""
    needle, _ = fold(quote)
    haystack, origins = fold(text)
    spans = _find_all(needle, haystack) if needle else []
    if not spans:
        similar = _align(needle, haystack, similarity) if needle else None
        if similar is None:
            raise QuoteError(DiscardReason.QUOTE_NOT_FOUND)
        blank = "\0" * (similar.end - similar.start)
        rest = haystack[: similar.start] + blank + haystack[similar.end :]
        if _align(needle, rest, similarity) is not None:
            raise QuoteError(DiscardReason.QUOTE_AMBIGUOUS)
        spans = [similar]
    return [Span(origins[span.start].start, origins[span.end - 1].end) for span in spans]


def fold(text: str) -> tuple[str, Sequence[Span]]:
    """Spell a text as it is compared; return also the range of the original of each character.

    It is in Unicode form NFKC and in lower case, with one kind of quotation marks, dashes and
    digits, and one space for each white space.
    """
    folded: list[str] = []
    origins: list[Span] = []
    # Each character with the marks, or Hangul vowels and finals, that follow it.
    starts = [row for row, mark in enumerate(text) if row == 0 or not _is_mark(mark)]
    for start, end in pairwise([*starts, len(text)]):
        composed = unicodedata.normalize("NFKC", text[start:end].translate(SAME))
        for character in composed.translate(SAME).casefold():
            if unicodedata.category(character) == "Cf":
                continue
            if character.isspace() and folded and folded[-1] == " ":
                origins[-1] = Span(origins[-1].start, end)
                continue
            folded.append(" " if character.isspace() else unify_digits(character))
            origins.append(Span(start, end))
    return "".join(folded), origins


def _is_mark(character: str) -> bool:
    return bool(unicodedata.combining(character)) or "\u1160" <= character <= "\u11ff"


def _find_change(quote: str, text: str, span: Span) -> DiscardReason | None:
    """Find how the meaning of a quote differs from that of its match."""
    first = max(0, span.start - CONTEXT)
    plain = _unify(text[first : span.end + CONTEXT])
    place = Span(span.start - first, span.end - first)
    needle = _unify(quote)
    matched = place.of(plain)
    if NUMBER.findall(matched) != NUMBER.findall(needle) or any(_find_cut(NUMBER, plain, place)):
        return DiscardReason.CHANGED_NUMBER
    if len(NEGATIONS.findall(matched)) != len(NEGATIONS.findall(needle)):
        return DiscardReason.CHANGED_NEGATION
    words = set(re.findall(r"\w+", needle.lower()))
    others = set(re.findall(r"\w+", matched.lower()))
    if _cuts_negation(plain, place) or _negates(words, others) or _negates(others, words):
        return DiscardReason.CHANGED_NEGATION
    return None


def _find_cut(pattern: re.Pattern[str], text: str, span: Span) -> Iterator[str]:
    """Yield what a span has of each match that it has only a part of."""
    for match in pattern.finditer(text):
        start, end = match.span()
        if start < span.start < end or start < span.end < end:
            yield text[max(start, span.start) : min(end, span.end)]


def _cuts_negation(text: str, span: Span) -> bool:
    """Return whether a span cuts a negation off: a word that negates, or what negates its first or
    last word.
    """
    if any(not NEGATIONS.fullmatch(word) for word in _find_cut(NEGATIONS, text, span)):
        return True
    before = re.search(r"\w*\Z", text[max(0, span.start - MAX_WORD) : span.start])
    if before and WORD.match(text[span.start]) and NEGATING_PREFIX.fullmatch(before[0].lower()):
        return True
    return bool(WORD.match(text[span.end - 1]) and ATTACHED.match(text, span.end))


def _negates(words: set[str], others: set[str]) -> bool:
    """Return whether a word is one of the others after a prefix that negates; a prefix set apart
    is hyphenation.
    """
    for word in words - others:
        for other in others - words:
            prefix = word.removesuffix(other)
            if prefix != word and prefix not in others and NEGATING_PREFIX.fullmatch(prefix):
                return True
    return False


def _align(needle: str, haystack: str, similarity: float) -> Span | None:
    """Find the part of a text that is most similar to a quote, in whole words; None if it is not
    similar enough.
    """
    span = Span(0, len(haystack))
    if len(needle) <= len(haystack):
        alignment = align(needle, haystack, 100 * similarity - 10)
        if alignment is None:
            return None
        near = Span(alignment.dest_start, alignment.dest_end)
        span = _extend_to_words(_adjust(needle, haystack, near), haystack)
    span = span.stripped(haystack)
    aligned = span.of(haystack)
    return span if aligned and fuzz.ratio(needle, aligned) >= 100 * similarity else None


def _adjust(needle: str, haystack: str, span: Span) -> Span:
    """Move the ends of a span, which is as long as the quote, to those of the most similar part."""
    start, end = span
    ends = range(max(start + 1, end - ADJUSTMENT), min(len(haystack), end + ADJUSTMENT) + 1)
    end = max(ends, key=lambda to: (fuzz.ratio(needle, haystack[start:to]), -abs(to - span.end)))
    starts = range(max(0, start - ADJUSTMENT), min(end, start + ADJUSTMENT + 1))
    start = max(
        starts, key=lambda at: (fuzz.ratio(needle, haystack[at:end]), -abs(at - span.start))
    )
    return Span(start, end)


def _extend_to_words(span: Span, text: str) -> Span:
    """Extend a span to whole words; scripts without spaces have none."""
    start, end = span
    before = after = 0
    if LETTER.match(text[start]):
        before = _count_letters(reversed(text[max(0, start - MAX_WORD) : start]))
    if LETTER.match(text[end - 1]):
        after = _count_letters(text[end : end + MAX_WORD])
    return Span(start - before % MAX_WORD, end + after % MAX_WORD)


def _count_letters(characters: Iterable[str]) -> int:
    return len(list(takewhile(LETTER.match, characters)))


def list_numbers(text: str) -> list[str]:
    """List the numbers in a text in order, with digits of any script as 0 to 9."""
    return NUMBER.findall(_unify(text))


def _unify(text: str) -> str:
    """Spell a text with digits 0 to 9 and one kind of quotation mark and dash, as long as it is."""
    return "".join(map(unify_digits, text.translate(SAME)))


def unify_digits(character: str) -> str:
    """Spell a digit of any script as 0 to 9; other characters are themselves."""
    return str(unicodedata.decimal(character, character))
