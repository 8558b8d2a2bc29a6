"""Stage 3, Locate: find the span of the document that answers a question.

As in PosIR (arXiv 2601.08363, section 2.2, appendix C.2), a language model reads the document and
the question, and only questions with exactly one unambiguous span are kept. Unlike in PosIR, the
model cites numbered sentences, and its quote must occur in these sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import starmap
from typing import Any

from posir_build.quotes import QuoteError, find_quote
from posir_build.records import (
    Check,
    Discarded,
    DiscardReason,
    PromptValues,
    Question,
    QuestionVerdict,
    StageResult,
)
from posir_build.settings import LocateSettings
from posir_tasks.language_models.asking import LanguageModel, Reply
from posir_tasks.language_models.chat_client import ModelAnswer, load_prompt
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span, find_third
from posir_tasks.values.evidence import POSITIONS


class CitedEvidence(ModelAnswer):
    """A passage that answers a question."""

    first_sentence: int
    last_sentence: int
    quote: str
    """Text copied from these sentences, word for word."""


class Citations(ModelAnswer):
    """All passages of a document that each answer a question."""

    evidence: list[CitedEvidence]


LOCATE = load_prompt("locate", Citations)


def locate_evidence(
    previous: StageResult, settings: LocateSettings, model: LanguageModel, language: str
) -> StageResult:
    """Find the evidence span of each question; discard questions without exactly one span."""
    split = cache(partial(find_sentences, language=language))

    def build(question: Question) -> PromptValues:
        text = previous.by_id[question.document].text
        return {"document": number_sentences(text, split(text)), "question": question.text}

    def find_spans(question: Question, answer: Citations) -> dict[Span, str]:
        """Map the spans of an answer to their quotes. Raise QuoteError if a quote does not have
        exactly one match.
        """
        text = previous.by_id[question.document].text
        return {
            find_span(citation, text, split(text), settings.similarity): citation.quote
            for citation in answer.evidence
        }

    def check_reply(question: Question, reply: Reply[Citations]) -> Question | Discarded:
        if reply.answer is None:
            return question.discard(reply.fault, reply.detail)
        text = previous.by_id[question.document].text
        spans = find_spans(question, reply.answer)
        label = question.span
        if label:
            values = compare_with_label(label, sorted(spans))
            verdict = QuestionVerdict(
                Check.LABELED_SPAN, not values["reason"], reply.model, values, prompt=reply.prompt
            )
            question = question.add_verdict(verdict)
        if len(spans) != 1:
            reason = DiscardReason.SEVERAL_PASSAGES if spans else DiscardReason.NO_EVIDENCE
            return question.discard(reason)
        ((span, quote),) = spans.items()
        if span.end - span.start > settings.max_share * len(text):
            return question.discard(DiscardReason.LONG_EVIDENCE)
        values = {"requested": question.position, "found": POSITIONS[find_third(span, len(text))]}
        if label and settings.keep_labels:
            span = label
        question = replace(question, span=span, quote=quote)
        return question.conclude(Check.LOCATED, reply.model, values, prompt=reply.prompt)

    replies = model.ask(LOCATE, previous.questions, build, "Locate", find_spans)
    result = previous.advance(starmap(check_reply, replies))
    if not any(question.span for question in previous.questions):
        return result
    moved_count = sum(row.position != row.verdicts[-1].values["found"] for row in result.questions)
    note = (
        f"evidence in a different third than the data states: {moved_count:,} of "
        f"{len(result.questions):,}"
    )
    return replace(result, notes=(note,))


def find_span(
    citation: CitedEvidence, text: str, sentences: Sequence[Span], similarity: float
) -> Span:
    """Find the span of a citation. Raise QuoteError if it is missing or ambiguous."""
    quote = citation.quote.strip()
    if not quote:
        raise QuoteError(DiscardReason.NO_QUOTE)
    if not 1 <= citation.first_sentence <= citation.last_sentence <= len(sentences):
        raise QuoteError(DiscardReason.MISSING_SENTENCES)
    start = sentences[citation.first_sentence - 1].start
    end = sentences[citation.last_sentence - 1].end
    try:
        return find_quote(quote, text, Span(start, end), similarity)
    except QuoteError as error:
        if error.fault == DiscardReason.QUOTE_NOT_FOUND and quote in text:
            raise QuoteError(DiscardReason.OTHER_SENTENCES) from None
        raise


def compare_with_label(label: Span, spans: Sequence[Span]) -> dict[str, Any]:
    """Compare cited spans, sorted by start, with the labeled span.

    Returns:
        `reason`, the reason why the label is not the only evidence, or None; and `others`, the
        passages outside the label, with overlapping spans merged.
    """
    passages: list[Span] = []
    overlaps_label = False
    for span in spans:
        if span.overlaps(label):
            overlaps_label = True
        elif passages and span.start < passages[-1].end:
            passages[-1] = Span(passages[-1].start, max(span.end, passages[-1].end))
        else:
            passages.append(span)
    reason = DiscardReason.ADDITIONAL_PASSAGE if passages else None
    if not overlaps_label:
        reason = DiscardReason.OTHER_PASSAGE if passages else DiscardReason.NO_EVIDENCE
    return {"reason": reason, "others": [list(span) for span in passages]}


def number_sentences(text: str, sentences: Sequence[Span]) -> str:
    """Write one numbered sentence per line, starting at 1, with white space collapsed."""
    lines = [" ".join(span.slice(text).split()) for span in sentences]
    return "\n".join(f"[{number}] {line}" for number, line in enumerate(lines, 1))


def split_thirds(text: str, sentences: Sequence[Span]) -> list[Span]:
    """Split a text at sentence boundaries into three segments of similar length in characters.

    PosQ (arXiv 2505.13950) and Built-in or Learned (arXiv 2605.26578) do not state the unit.
    Segments end between sentences to keep evidence within one segment, except in texts with fewer
    than three sentences.
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
    """Replace a span with a single space."""
    return f"{text[: span.start].rstrip()} {text[span.end :].lstrip()}".strip()
