"""Stage 3, Locate: the span of the document that answers a question.

As in PosIR (arXiv 2601.08363, section 2.2, appendix C.2), a language model reads document and
question, and a question is kept only if there is one unambiguous span. Beyond PosIR, the model
cites numbered sentences, and its quote must be found in them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.resources import files
from itertools import pairwise
from typing import Any

from rapidfuzz import fuzz

from posir_build.records import Discarded, Question, QuestionVerdict, StageResult
from posir_build.settings import LocateSettings
from posir_tasks.base.wording import pluralize
from posir_tasks.data.questions import find_occurrences
from posir_tasks.language_models.asking import LanguageModel
from posir_tasks.language_models.chat_client import ModelAnswer, UnusableAnswerError, load_prompt
from posir_tasks.text.locating import align
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span, find_third
from posir_tasks.text.words import UNSPACED_LETTER
from posir_tasks.values.evidence import POSITIONS


class CitedEvidence(ModelAnswer):
    """A passage that answers a question."""

    first_sentence: int
    last_sentence: int
    quote: str
    """Copied from these sentences, word for word."""


class Citations(ModelAnswer):
    """All passages of a document that answer a question by themselves; none if it has none."""

    evidence: list[CitedEvidence]


LOCATE = load_prompt("locate", Citations)
#: The check of the span that the data of a question states.
LABEL_CHECK = "labeled span"


class EvidenceError(Exception):
    """The model finds no single passage; the text is the reason."""


#: The text of a document, and its sentences.
NumberedDocument = tuple[str, Sequence[Span]]


def locate_evidence(
    asked: StageResult, settings: LocateSettings, model: LanguageModel, language: str
) -> StageResult:
    """Find the span of each question, and discard the questions that have no certain one;
    PosirError if no server answers.
    """
    texts = {document.id: document.text for document in asked.documents}
    needed = dict.fromkeys(question.document for question in asked.questions)
    numbered = {name: (texts[name], find_sentences(texts[name], language)) for name in needed}
    pairs = [(numbered[question.document], question) for question in asked.questions]

    def build(pair: tuple[NumberedDocument, Question]) -> dict[str, str]:
        return {"document": number_sentences(*pair[0]), "question": pair[1].text}

    def check(pair: tuple[NumberedDocument, Question], answer: Citations) -> None:
        # What is no QuoteError is the model's judgment, not a slip in its answer.
        with suppress(EvidenceError):
            if pair[1].span:
                compare_with_label(pair[1].span, answer, pair[0], settings)
            find_cited_span(answer, pair[0], settings)

    replies = model.ask(LOCATE, pairs, build, "Locate", check)
    kept, discarded = list[Question](), list[Discarded]()
    for question, reply in zip(asked.questions, replies, strict=True):
        if reply.answer is None:
            reason = (
                reply.problem
                if reply.problem.startswith("the quote")
                else f"unusable answer: {reply.problem}"
            )
            discarded.append(Discarded(reason, question.id, reply.prompt, question))
            continue
        document = numbered[question.document]
        judge = f"{reply.model} {reply.prompt}"
        try:
            if question.span:
                values = compare_with_label(question.span, reply.answer, document, settings)
                question = question.with_verdict(
                    QuestionVerdict(LABEL_CHECK, not values["reason"], judge, values)
                )
            span, quote = find_cited_span(reply.answer, document, settings)
        except EvidenceError as error:
            discarded.append(Discarded(str(error), question.id, question=question))
            continue
        thirds = {
            "requested": question.position,
            "found": POSITIONS[find_third(span, len(document[0]))],
        }
        span = (settings.keep_labels and question.span) or span
        kept.append(
            replace(question, span=span, quote=quote).with_verdict(
                QuestionVerdict("located", True, judge, thirds)
            )
        )
    moved = sum(question.position != question.verdicts[-1].values["found"] for question in kept)
    note = f"evidence in another third than the data states: {moved:,} of {len(kept):,}"
    notes = (note,) if any(question.span for question in asked.questions) else ()
    return StageResult(asked.documents, tuple(kept), tuple(discarded), notes)


def compare_with_label(
    label: Span, citations: Citations, document: NumberedDocument, settings: LocateSettings
) -> dict[str, Any]:
    """Return the passages that are cited beside the span that the data states, and why it is not
    the only evidence.

    Passages that share characters are one. QuoteError or EvidenceError is raised if one has no
    certain place.
    """
    places = sorted(_find_place(citation, document, settings) for citation in citations.evidence)
    others = [place for place in places if place.start >= label.end or place.end <= label.start]
    separate = [
        list(place) for last, place in pairwise([Span(0, 0), *others]) if place.start >= last.end
    ]
    reason = f"{pluralize(len(separate), 'other passage')} beside it" if others else ""
    if len(others) == len(places):
        reason = "another passage in its place" if others else "no evidence"
    return {"reason": reason, "others": separate}


def find_cited_span(
    citations: Citations, document: NumberedDocument, settings: LocateSettings
) -> tuple[Span, str]:
    """Return the span of the only citation, and its quote.

    EvidenceError is raised if there is none, or several, or it is too long; QuoteError without a
    certain place.
    """
    # A model may repeat itself; that is one passage.
    distinct = {
        (citation.first_sentence, citation.last_sentence, citation.quote.strip()): citation
        for citation in citations.evidence
    }
    if not distinct:
        raise EvidenceError("no evidence")
    if len(distinct) > 1:
        raise EvidenceError("several passages")
    (cited,) = distinct.values()
    span = _find_place(cited, document, settings)
    if span.end - span.start > settings.max_share * len(document[0]):
        raise EvidenceError("the evidence is most of the document")
    return span, cited.quote


def _find_place(cited: CitedEvidence, document: NumberedDocument, settings: LocateSettings) -> Span:
    text, sentences = document
    if not cited.quote.strip():
        raise EvidenceError("no quote")
    if not 1 <= cited.first_sentence <= cited.last_sentence <= len(sentences):
        raise QuoteError("the quote is of sentences that do not exist")
    window = Span(sentences[cited.first_sentence - 1].start, sentences[cited.last_sentence - 1].end)
    try:
        return find_quote(cited.quote, text, window, settings.similarity)
    except QuoteError as error:
        if find_occurrences(cited.quote.strip(), text) and "not in" in str(error):
            raise QuoteError("the quote is not in the cited sentences") from None
        raise


#: A number with its sign, groups of thousands and decimals; or one character that is a number, such
#: as 三, ½ or Ⅳ.
NUMBER = re.compile(
    r"(?:(?<![\w)])-)?(?:\d{1,3}(?:[.,٫٬]\d{3}(?!\d))+(?:[.,٫]\d+)?|\d+(?:[.,٫]\d+)?)|[〇零一二两兩三四五六七八九十百千万萬億亿]+|"
    r"[²³¹\u2070-\u2089\u00bc-\u00be\u2150-\u218b\u2460-\u24ff\u2776-\u2793]"
)


def load_patterns(name: str) -> re.Pattern[str]:
    """Return a pattern that finds any of those in a file of this package, one a line; comments name
    languages.
    """
    lines = (files(__package__) / name).read_text(encoding="utf-8").splitlines()
    return re.compile("|".join(line for line in lines if not line.startswith("# ")), re.IGNORECASE)


#: Words that negate; a quote must have as many as the text that it is matched with.
NEGATIONS = load_patterns("negations.txt")
#: What negates as the beginning of a word.
NEGATING_PREFIX = re.compile(r"un|in|im|il|ir|dis|non|не|бес|без|nie")
#: What negates a word that it is attached to.
ATTACHED = re.compile(r"n?['’]t\b|not\b", re.IGNORECASE)
#: Characters that are written in several ways, each in place of one other.
SAME = str.maketrans("‘’‚“”„«»‐‑–—−\u00a0\u3000，。：；？！（）", '\'\'\'"""""-----  ,.:;?!()')
WORD = re.compile(r"\w")
#: Longest word that a match is extended by.
MAX_WORD = 30
#: Characters by which an end of a similar match may be moved, since the match may have more or
#: fewer than the quote.
ADJUSTMENT = 12
#: Characters on both sides of a match in which a number or a negation that it cuts begins and ends.
CONTEXT = 50
CHANGED_NUMBER, CHANGED_NEGATION = "the quote changes a number", "the quote changes a negation"


class QuoteError(UnusableAnswerError):
    """A quote has no certain place; the text is the reason."""


def find_quote(quote: str, text: str, window: Span, similarity: float) -> Span:
    """Return the only place of a quote in a part of a text.

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
    spans = [Span(start, start + len(bare)) for start in find_occurrences(bare, part)]
    if not spans:
        needle, (haystack, origins) = fold(bare)[0], fold(part)
        if not needle:
            raise QuoteError("the quote is not in the text")
        folded = [Span(start, start + len(needle)) for start in find_occurrences(needle, haystack)]
        if not folded:
            similar = _align(needle, haystack, similarity)
            if similar is None:
                raise QuoteError("the quote is not in the text")
            rest = (
                haystack[: similar.start]
                + "\0" * (similar.end - similar.start)
                + haystack[similar.end :]
            )
            if _align(needle, rest, similarity) is not None:
                raise QuoteError("the quote resembles several passages")
            folded = [similar]
        spans = [Span(origins[span.start].start, origins[span.end - 1].end) for span in folded]
    fault, sound = "", list[Span]()
    for span in spans:
        change = _find_change(bare, part, span)
        fault = fault or change
        sound += [] if change else [span]
        if len(sound) > 1:
            raise QuoteError("the quote occurs several times")
    if not sound:
        raise QuoteError(fault)
    return Span(window.start + sound[0].start, window.start + sound[0].end)


def fold(text: str) -> tuple[str, Sequence[Span]]:
    """Return a text as it is compared, and the range of the original that each of its characters
    stands for.

    It is in Unicode form NFKC and in lower case, with one kind of quotation marks, dashes and
    digits, and one space for each white space.
    """
    folded, origins = list[str](), list[Span]()
    # Each character with the marks, or Hangul vowels and finals, that follow it.
    marks = {
        row
        for row, mark in enumerate(text)
        if unicodedata.combining(mark) or "\u1160" <= mark <= "\u11ff"
    }
    for start, end in pairwise(
        [0, *(row for row in range(1, len(text)) if row not in marks), len(text)] if text else ()
    ):
        plain = (
            unicodedata.normalize("NFKC", text[start:end].translate(SAME))
            .translate(SAME)
            .casefold()
        )
        for character in plain:
            if character.isspace():
                if folded and folded[-1] == " ":
                    origins[-1] = Span(origins[-1].start, end)
                    continue
                character = " "
            elif unicodedata.category(character) == "Cf":
                continue
            folded.append(str(unicodedata.decimal(character, character)))
            origins.append(Span(start, end))
    return "".join(folded), origins


def _find_change(quote: str, text: str, span: Span) -> str:
    """Return how the meaning of a quote differs from that of its match, or an empty text."""
    first = max(0, span.start - CONTEXT)
    plain, asked = _plain(text[first : span.end + CONTEXT]), _plain(quote)
    span = Span(span.start - first, span.end - first)
    quoted = span.of(plain)
    if NUMBER.findall(quoted) != NUMBER.findall(asked) or any(_find_cut(NUMBER, plain, span)):
        return CHANGED_NUMBER
    if len(NEGATIONS.findall(quoted)) != len(NEGATIONS.findall(asked)) or _cuts_negation(
        plain, span
    ):
        return CHANGED_NEGATION
    words, others = (set(re.findall(r"\w+", side.lower())) for side in (asked, quoted))
    return CHANGED_NEGATION if _negates_word(words, others) or _negates_word(others, words) else ""


def _find_cut(pattern: re.Pattern[str], text: str, span: Span) -> Iterator[str]:
    """Yield what a span has of each match that it has only a part of."""
    for match in pattern.finditer(text):
        if match.start() < span.start < match.end() or match.start() < span.end < match.end():
            yield text[max(match.start(), span.start) : min(match.end(), span.end)]


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


def _negates_word(words: set[str], others: set[str]) -> bool:
    """Return whether one of some words is one of the others after a prefix that negates; a prefix
    set apart is hyphenation.
    """
    return any(
        word.endswith(other)
        and (prefix := word.removesuffix(other)) not in others
        and NEGATING_PREFIX.fullmatch(prefix) is not None
        for word in words - others
        for other in others - words
    )


def _align(needle: str, haystack: str, similarity: float) -> Span | None:
    """Return the part of a text that is most similar to a quote, in whole words; None if it is not
    similar enough.
    """
    span = Span(0, len(haystack))
    if len(needle) <= len(haystack):
        alignment = align(needle, haystack, 100 * similarity - 10)
        if alignment is None:
            return None
        span = _to_words(
            _adjust(needle, haystack, Span(alignment.dest_start, alignment.dest_end)), haystack
        )
    span = span.stripped(haystack)
    aligned = span.of(haystack)
    return span if aligned and fuzz.ratio(needle, aligned) >= 100 * similarity else None


def _adjust(needle: str, haystack: str, span: Span) -> Span:
    """Return the most similar part of a text whose ends are near those of a span, which is as long
    as the quote.
    """
    near = range(-ADJUSTMENT, ADJUSTMENT + 1)
    ends = [span.end + shift for shift in near if span.start < span.end + shift <= len(haystack)]
    end = max(
        ends,
        key=lambda position: (
            fuzz.ratio(needle, haystack[span.start : position]),
            -abs(position - span.end),
        ),
    )
    starts = [span.start + shift for shift in near if 0 <= span.start + shift < end]
    start = max(
        starts,
        key=lambda position: (
            fuzz.ratio(needle, haystack[position:end]),
            -abs(position - span.start),
        ),
    )
    return Span(start, end)


def _to_words(span: Span, text: str) -> Span:
    """Return a span extended to whole words; scripts without spaces have none."""
    first, last = span.start, span.end
    while first > 0 and _joins(text, first) and span.start - first < MAX_WORD:
        first -= 1
    while 0 < last < len(text) and _joins(text, last) and last - span.end < MAX_WORD:
        last += 1
    return Span(
        first if span.start - first < MAX_WORD else span.start,
        last if last - span.end < MAX_WORD else span.end,
    )


def _joins(text: str, place: int) -> bool:
    """Return whether the characters on both sides of a place, which is within a text, are of one
    word.
    """
    sides = text[place - 1 : place + 1]
    return (
        all(WORD.match(side) and not UNSPACED_LETTER.match(side) for side in sides)
        and len(sides) == 2
    )


def list_numbers(text: str) -> list[str]:
    """Return the numbers in a text in order, with digits of any script as 0 to 9."""
    return NUMBER.findall(_plain(text))


def _plain(text: str) -> str:
    """Return a text of the same length with digits of any script as 0 to 9, and one kind of
    quotation mark and dash.
    """
    return "".join(
        str(unicodedata.decimal(character, character)) for character in text.translate(SAME)
    )


def number_sentences(text: str, sentences: Sequence[Span]) -> str:
    """Return a text with a line for each sentence, numbered from 1, white space within it as single
    spaces.
    """
    return "\n".join(
        f"[{number}] {' '.join(span.of(text).split())}" for number, span in enumerate(sentences, 1)
    )


def split_thirds(text: str, sentences: Sequence[Span]) -> tuple[Span, Span, Span]:
    """Return three parts of a text, cut between sentences as near to equal lengths in characters as
    possible.

    The papers (PosQ, arXiv 2505.13950; Built-in or Learned, arXiv 2605.26578) state no unit; no
    sentence is cut here, so that evidence is in one part. A text with fewer than three sentences is
    cut anywhere.
    """
    starts = [sentence.start for sentence in sentences[1:]]
    first, second = len(text) // 3, 2 * len(text) // 3
    if len(starts) >= 2:
        first = min(starts[:-1], key=lambda start: abs(start - first))
        second = min(
            (start for start in starts if start > first), key=lambda start: abs(start - second)
        )
    return Span(0, first), Span(first, second), Span(second, len(text))


def remove_span(text: str, span: Span) -> str:
    """Return a text without a span, with one space at the seam."""
    return f"{text[: span.start].rstrip()} {text[span.end :].lstrip()}".strip()
