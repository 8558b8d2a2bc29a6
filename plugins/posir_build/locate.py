"""Stage 3, Locate: the span of the document that answers a question.

As in PosIR (arXiv 2601.08363, section 2.2, appendix C.2), a language model reads document and
question, and a question is kept only if there is one unambiguous span. Beyond PosIR, the model
cites numbered sentences, and its quote must be found in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from posir_build.quotes import QuoteError, find_quote
from posir_build.records import (
    Check,
    DiscardReason,
    PromptValues,
    Question,
    QuestionVerdict,
    StageResult,
)
from posir_build.settings import LocateSettings
from posir_tasks.language_models.asking import LanguageModel
from posir_tasks.language_models.chat_client import ModelAnswer, load_prompt
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span, find_third
from posir_tasks.values.evidence import POSITIONS


class CitedEvidence(ModelAnswer):
    """A passage that answers a question."""

    first_sentence: int
    last_sentence: int
    quote: str
    """Copied from these sentences, word for word."""


class Citations(ModelAnswer):
    """All passages of a document that answer a question by themselves."""

    evidence: list[CitedEvidence]


LOCATE = load_prompt("locate", Citations)


def locate_evidence(
    before: StageResult, settings: LocateSettings, model: LanguageModel, language: str
) -> StageResult:
    """Find the span of each question, and discard the questions without a certain one."""
    texts = {document.id: document.text for document in before.documents}
    names = {question.document for question in before.questions}
    sentences = {name: find_sentences(texts[name], language) for name in names}

    def build(question: Question) -> PromptValues:
        name = question.document
        numbered = number_sentences(texts[name], sentences[name])
        return {"document": numbered, "question": question.text}

    def find_spans(question: Question, answer: Citations) -> dict[Span, str]:
        """Find the distinct spans of an answer, with their quotes; raise QuoteError."""
        name = question.document
        return {
            find_span(cited, texts[name], sentences[name], settings.similarity): cited.quote
            for cited in answer.evidence
        }

    kept = []
    discarded = []
    replies = model.ask(LOCATE, before.questions, build, "Locate", find_spans)
    for question, reply in zip(before.questions, replies, strict=True):
        if reply.answer is None:
            discarded.append(question.discard(reply.fault, reply.detail))
            continue
        text = texts[question.document]
        spans = find_spans(question, reply.answer)
        judged = partial(QuestionVerdict, judge=reply.model, prompt=reply.prompt)
        located = question
        if question.span:
            values = compare_with_label(question.span, sorted(spans))
            verdict = judged(Check.LABELED_SPAN, not values["reason"], values=values)
            located = question.with_verdict(verdict)
        reason = find_problem(list(spans), settings.max_share * len(text))
        if reason:
            discarded.append(located.discard(reason))
            continue
        ((span, quote),) = spans.items()
        third = POSITIONS[find_third(span, len(text))]
        values = {"requested": question.position, "found": third}
        if question.span and settings.keep_labels:
            span = question.span
        located = replace(located, span=span, quote=quote)
        kept.append(located.with_verdict(judged(Check.LOCATED, True, values=values)))
    notes = []
    if any(question.span for question in before.questions):
        moved = sum(row.position != row.verdicts[-1].values["found"] for row in kept)
        notes.append(f"evidence in another third than the data states: {moved:,} of {len(kept):,}")
    return StageResult(before.documents, tuple(kept), tuple(discarded), tuple(notes))


def find_span(cited: CitedEvidence, text: str, sentences: Sequence[Span], similar: float) -> Span:
    """Find the span of a citation; raise QuoteError without a certain one."""
    quote = cited.quote.strip()
    if not quote:
        raise QuoteError(DiscardReason.NO_QUOTE)
    if not 1 <= cited.first_sentence <= cited.last_sentence <= len(sentences):
        raise QuoteError(DiscardReason.QUOTE_OF_NO_SENTENCE)
    start = sentences[cited.first_sentence - 1].start
    end = sentences[cited.last_sentence - 1].end
    try:
        return find_quote(quote, text, Span(start, end), similar)
    except QuoteError as error:
        if error.fault == DiscardReason.QUOTE_NOT_FOUND and quote in text:
            raise QuoteError(DiscardReason.QUOTE_OF_OTHER_SENTENCE) from None
        raise


def find_problem(spans: Sequence[Span], limit: float) -> DiscardReason | None:
    """Find why spans are not the evidence: it is a single span of at most so many characters."""
    if not spans:
        return DiscardReason.NO_EVIDENCE
    if len(spans) > 1:
        return DiscardReason.SEVERAL_PASSAGES
    return DiscardReason.LONG_EVIDENCE if spans[0].end - spans[0].start > limit else None


def compare_with_label(label: Span, spans: Sequence[Span]) -> dict[str, Any]:
    """Compare cited spans, in order, with the span that the data states.

    Returns `reason`, why the label is not the only evidence, or None; and `others`, the passages
    that share no character with it. Passages that share characters count as one.
    """
    others: list[Span] = []
    overlapping = 0
    for span in spans:
        if span.start < label.end and label.start < span.end:
            overlapping += 1
        elif others and span.start < others[-1].end:
            others[-1] = Span(others[-1].start, max(span.end, others[-1].end))
        else:
            others.append(span)
    reason = DiscardReason.FURTHER_PASSAGE if others else None
    if not overlapping:
        reason = DiscardReason.OTHER_PASSAGE if others else DiscardReason.NO_EVIDENCE
    return {"reason": reason, "others": [list(span) for span in others]}


def number_sentences(text: str, sentences: Sequence[Span]) -> str:
    """Write a line for each sentence, numbered from 1, with single spaces within it."""
    lines = [" ".join(span.of(text).split()) for span in sentences]
    return "\n".join(f"[{number}] {line}" for number, line in enumerate(lines, 1))


def split_thirds(text: str, sentences: Sequence[Span]) -> list[Span]:
    """Split a text into three parts of nearly equal lengths in characters, between sentences.

    The papers (PosQ, arXiv 2505.13950; Built-in or Learned, arXiv 2605.26578) state no unit; no
    sentence is cut here, so that evidence is in one part. A text with fewer than three sentences is
    cut anywhere.
    """
    first = len(text) // 3
    second = 2 * len(text) // 3
    starts = [sentence.start for sentence in sentences[1:]]
    if len(starts) >= 2:
        first = _find_nearest(starts[:-1], first)
        second = _find_nearest([start for start in starts if start > first], second)
    return [Span(0, first), Span(first, second), Span(second, len(text))]


def _find_nearest(numbers: Sequence[int], target: int) -> int:
    return min(numbers, key=lambda number: abs(number - target))


def remove_span(text: str, span: Span) -> str:
    """Remove a span from a text, with one space at the seam."""
    return f"{text[: span.start].rstrip()} {text[span.end :].lstrip()}".strip()
