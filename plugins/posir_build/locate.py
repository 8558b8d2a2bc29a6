"""Stage 3, Locate: the span of the document that answers a question.

As in PosIR (arXiv 2601.08363, section 2.2, appendix C.2), a language model reads document and question, and a question is
kept only if there is one unambiguous span. Beyond PosIR, the model cites numbered sentences, and its quote must be found in
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from posir_build import answers
from posir_build.matching import QuoteError, find_quote, number_sentences
from posir_build.records import POSITIONS, Discarded, Document, Question, QuestionVerdict, StageResult, by_id
from posir_build.settings import LocateSettings
from posir_tasks.language_models.asking import BuiltValues, LanguageModel
from posir_tasks.language_models.prompt import UnusableAnswerError, load_prompt
from posir_tasks.sources.spans import find_occurrences
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span, find_third

LOCATE = load_prompt("locate", answers.Citations)


class EvidenceError(Exception):
    """The model finds no single passage; the text is the reason."""


@dataclass(frozen=True)
class NumberedDocument:
    """A document with its sentences."""

    text: str
    sentences: Sequence[Span]

    @property
    def numbered(self) -> str:
        """One numbered sentence a line."""
        return number_sentences(self.text, self.sentences)


def locate_evidence(
    documents: Sequence[Document], questions: Sequence[Question], settings: LocateSettings, model: LanguageModel, language: str
) -> StageResult:
    """Find the span of each question, and discard the questions that have no certain one.

    Raises:
        PosirError: The language model cannot be asked.
    """
    texts = {name: document.text for name, document in by_id(documents).items()}
    needed = dict.fromkeys(question.document for question in questions)
    numbered = {name: NumberedDocument(texts[name], find_sentences(texts[name], language)) for name in needed}
    pairs = [(numbered[question.document], question) for question in questions]

    def check_quote(number: int, answer: answers.Citations) -> None:
        try:
            find_span(answer, pairs[number][0], settings)
        except QuoteError as error:
            raise UnusableAnswerError(str(error)) from None
        except EvidenceError:
            # The model's judgment, not a slip in its answer.
            return

    replies = model.ask(LOCATE, BuiltValues(pairs, _build_values), "Locate", check_quote)
    kept: list[Question] = []
    discarded: list[Discarded] = []
    for question, reply in zip(questions, replies, strict=True):
        if reply.answer is None:
            reason = reply.problem if reply.problem.startswith("the quote") else f"unusable answer: {reply.problem}"
            discarded.append(Discarded(reason, question.id, reply.prompt, question))
            continue
        document = numbered[question.document]
        try:
            span, quote = find_span(reply.answer, document, settings)
        except EvidenceError as error:
            discarded.append(Discarded(str(error), question.id, question=question))
            continue
        third = find_third(span, len(document.text))
        values_found = {"requested": question.position, "found": POSITIONS[third]}
        verdict = QuestionVerdict("located", True, f"{reply.model} {reply.prompt}", values_found)
        kept.append(replace(question, span=span, quote=quote).with_verdict(verdict))
    moved = sum(question.position != question.verdicts[-1].values["found"] for question in kept)
    return StageResult(tuple(documents), tuple(kept), tuple(discarded), (), {"evidence in another third than asked for": moved})


def _build_values(pair: tuple[NumberedDocument, Question]) -> dict[str, str]:
    document, question = pair
    return {"document": document.numbered, "question": question.text}


def find_span(citations: answers.Citations, document: NumberedDocument, settings: LocateSettings) -> tuple[Span, str]:
    """Return the span of the only citation, and its quote.

    Raises:
        EvidenceError: There is no citation, or several, or it is too long.
        QuoteError: The quote has no certain place in the sentences that are cited.
    """
    # A model may repeat itself; that is one passage.
    distinct = {
        (citation.first_sentence, citation.last_sentence, citation.quote.strip()): citation for citation in citations.evidence
    }
    if not distinct:
        raise EvidenceError("no evidence")
    if len(distinct) > 1:
        raise EvidenceError("several passages")
    (cited,) = distinct.values()
    if not cited.quote.strip():
        raise EvidenceError("no quote")
    if not 1 <= cited.first_sentence <= cited.last_sentence <= len(document.sentences):
        raise QuoteError("the quote is of sentences that do not exist")
    window = Span(document.sentences[cited.first_sentence - 1].start, document.sentences[cited.last_sentence - 1].end)
    try:
        span = find_quote(cited.quote, document.text, window, settings.similarity)
    except QuoteError as error:
        if find_occurrences(cited.quote.strip(), document.text) and "not in" in str(error):
            raise QuoteError("the quote is not in the cited sentences") from None
        raise
    if span.end - span.start > settings.max_share * len(document.text):
        raise EvidenceError("the evidence is most of the document")
    return span, cited.quote
