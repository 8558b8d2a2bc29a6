"""Stage 7, Translate: corpus and questions in other languages, with the spans carried over.

PosIR (arXiv 2601.08363, section 2.4, appendix B) translates English corpora and queries, and
filters prefixes, refusals and outliers of length; its prompt, how documents were split, and how
spans were carried over are not stated. Here documents are translated in numbered sentences, so the
span of a translation is the translation of the sentences with the evidence. In PosIR a text in
another language is only suspected of being a refusal, and Qwen3-Max decides; without a judge, it is
discarded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from posir_build.locate import number_sentences
from posir_build.records import (
    Check,
    Discarded,
    DiscardReason,
    Document,
    Question,
    QuestionVerdict,
    StageResult,
)
from posir_build.settings import TranslateSettings
from posir_tasks.language_models.asking import LanguageModel
from posir_tasks.language_models.chat_client import (
    REFUSAL,
    ModelAnswer,
    UnusableAnswerError,
    load_prompt,
)
from posir_tasks.text.languages import detect_other_language, english_name
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span


class TranslatedSentence(ModelAnswer):
    """A sentence in the other language."""

    number: int
    text: str


class TranslatedSentences(ModelAnswer):
    """Sentences of a document in the other language."""

    sentences: list[TranslatedSentence]

    def by_number(self) -> list[tuple[int, str]]:
        """Order numbers and texts by number."""
        return sorted((sentence.number, sentence.text) for sentence in self.sentences)


class TranslatedText(ModelAnswer):
    """A text in the other language."""

    text: str


class TranslationVerdict(ModelAnswer):
    """A judgment on a text that should be a translation (PosIR, appendix B)."""

    reasoning: str
    verdict: Literal["translation", "refusal", "other"]


TRANSLATE_SENTENCES = load_prompt("translate_sentences", TranslatedSentences)
TRANSLATE_QUESTION = load_prompt("translate_question", TranslatedText)
JUDGE_TRANSLATION = load_prompt("judge_translation", TranslationVerdict)
#: Characters of a text that the judge of refusals reads (PosIR, appendix B).
JUDGED_CHARACTERS = 1500

#: The word in PosIR's languages, and how a sentence begins that announces a translation.
TRANSLATION = (
    r"(?:translat\w+|übersetz\w+|tradu[cçzt]\w+|перевод\w*|перевед\w+|翻译|翻譯|翻訳|번역\w*|"
    r"(?:ال)?ترجمة|अनुवाद|tłumaczeni\w+|অনুবাদ)"
)
ANNOUNCED = (
    r"(?:here is|here['’]s|sure|certainly|of course|the following|below|hier "
    r"ist|nachfolgend|voici|aquí está|ecco|aqui está|"
    r"вот|以下|这是|다음은|فيما يلي|إليك|यहाँ|oto)"
)
#: What models put before a translation: a line about it, or up to a colon a label or an
#: announcement. A sentence of the text itself, such as `Luther translated the Bible: ...`, is none
#: of these.
PREFIX = re.compile(
    rf"\s*(?:[^\n:：]{{0,60}}?{TRANSLATION}[^\n:：]{{0,60}}[:：]?[*_]*\s*\n\s*"
    rf"|{ANNOUNCED}[^\n:：]{{0,120}}?{TRANSLATION}[^\n:：]{{0,120}}[:：][*_]*\s*"
    rf"|[^\w\s]*(?:\w+ )?{TRANSLATION}"
    r"(?: text| version| (?:into|to|ins?|nach|en|au|al|em|para|на)(?: "
    rf"\w+){{1,2}})?[^\w\s]{{0,3}}\s?[:：][*_]*\s*)",
    re.IGNORECASE,
)


COLON = re.compile("[:：]")

#: Faults that are suspected by rules, and decided by the judge if there is one.
SUSPECTED = (DiscardReason.REFUSAL, DiscardReason.OTHER_LANGUAGE)
#: The fault by the judge's verdict.
JUDGED_FAULTS: Mapping[str, DiscardReason | None] = {
    "translation": None,
    "refusal": DiscardReason.REFUSAL,
    "other": DiscardReason.OTHER_LANGUAGE,
}


@dataclass(frozen=True)
class DocumentPart:
    """Consecutive sentences of a document."""

    document: Document
    sentences: Sequence[Span]

    @property
    def texts(self) -> list[str]:
        """The sentences."""
        return [sentence.of(self.document.text) for sentence in self.sentences]


@dataclass(frozen=True)
class TranslatedDocument:
    """A document in the other language."""

    document: Document
    """Its `tokens` are the original's, so that length buckets agree across languages (PosIR,
    2.4).
    """
    tokens: int
    """Length of the translation."""
    sentences: Sequence[tuple[Span, Span]]
    """The span of each sentence in the original and here."""


@dataclass
class Translator:
    """Translates the result of a build into one language."""

    settings: TranslateSettings
    model: LanguageModel
    source: str
    target: str
    """Codes such as `deu-Latn`."""
    count_tokens: Callable[[str], int]
    judge: LanguageModel | None = None
    """Decides about suspected refusals; None to discard them."""
    prefixes: int = 0
    """Number of texts from which a prefix was removed."""

    def translate(self, built: StageResult) -> StageResult:
        """Translate corpus and questions, and discard what fails a filter, a document with its
        questions; ids stay the same.
        """
        self.prefixes = 0
        translated, discarded = self._translate_documents(built.documents)
        lengths = [document.tokens for document in translated.values()]
        outliers = find_outliers(lengths, self.settings.lower, self.settings.upper)
        for name, is_outlier in zip(list(translated), outliers, strict=True):
            if is_outlier:
                detail = f"{translated.pop(name).tokens:,} tokens"
                discarded.append(Discarded(DiscardReason.LENGTH_OUTLIER, name, detail))
        questions, failed = self._translate_questions(built.questions, translated)
        documents = tuple(document.document for document in translated.values())
        counts = {"prefixes removed": self.prefixes}
        return StageResult(documents, tuple(questions), (*discarded, *failed), (), counts)

    @property
    def _languages(self) -> dict[str, str]:
        return {"source": english_name(self.source), "target": english_name(self.target)}

    def _clean(self, text: str, original: str) -> str:
        """Remove prefix and further white space of a translation."""
        bare = remove_prefix(text, original)
        self.prefixes += bare != text
        return " ".join(bare.split())

    def _translate_documents(
        self, documents: Sequence[Document]
    ) -> tuple[dict[str, TranslatedDocument], list[Discarded]]:
        sentences = {row.id: find_sentences(row.text, self.source) for row in documents}
        size = self.settings.sentences
        parts = [
            DocumentPart(document, sentences[document.id][start : start + size])
            for document in documents
            for start in range(0, len(sentences[document.id]), size)
        ]

        def build(part: DocumentPart) -> dict[str, str]:
            numbered = number_sentences(part.document.text, part.sentences)
            return {"sentences": numbered, **self._languages}

        def check(part: DocumentPart, answer: TranslatedSentences) -> None:
            rows = answer.by_number()
            if [number for number, _ in rows] != list(range(1, len(part.sentences) + 1)):
                raise UnusableAnswerError(DiscardReason.SENTENCES_CHANGED)
            text = " ".join(text for _, text in rows)
            # A few sentences may be names alone, which are the same in both languages.
            is_same = is_same_text(text, " ".join(part.texts))
            if is_same and detect_other_language(text, self.target):
                raise UnusableAnswerError(DiscardReason.UNTRANSLATED)

        replies = self.model.ask(
            TRANSLATE_SENTENCES, parts, build, f"Translate into {self.target}", check
        )
        texts: dict[str, list[str]] = {document.id: [] for document in documents}
        faults: dict[str, str] = {}
        for part, reply in zip(parts, replies, strict=True):
            name = part.document.id
            if reply.answer is None:
                faults.setdefault(name, reply.fault)
                continue
            for number, text in reply.answer.by_number():
                # Only the first sentence may have a prefix.
                original = part.texts[0] if number == 1 else text
                texts[name].append(self._clean(text, original))
            if not all(texts[name]):
                faults.setdefault(name, DiscardReason.BLANK_SENTENCE)
        translated = {
            document.id: self._join(document, sentences[document.id], texts[document.id])
            for document in documents
            if document.id not in faults
        }
        pairs = {
            row.id: (row.text, translated[row.id].document.text)
            for row in documents
            if row.id in translated
        }
        faults |= self._find_faults(pairs)
        discarded = [Discarded(faults[row.id], row.id) for row in documents if row.id in faults]
        sound = {name: whole for name, whole in translated.items() if name not in faults}
        return sound, discarded

    def _join(
        self, document: Document, original: Sequence[Span], texts: Sequence[str]
    ) -> TranslatedDocument:
        """Put translated sentences together with the white space between the original ones."""
        text = ""
        spans = []
        ends = [*(sentence.start for sentence in original[1:]), original[-1].end]
        for sentence, translation, end in zip(original, texts, ends, strict=True):
            start = len(text)
            text += translation
            spans.append((sentence, Span(start, len(text))))
            text += document.text[sentence.end : end]
        return TranslatedDocument(replace(document, text=text), self.count_tokens(text), spans)

    def _find_fault(self, text: str, original: str) -> DiscardReason | None:
        """Find why a translation is discarded."""
        if not text:
            return DiscardReason.BLANK_QUESTION
        if REFUSAL.match(text) and not REFUSAL.match(original):
            return DiscardReason.REFUSAL
        if is_same_text(text, original):
            return DiscardReason.UNTRANSLATED
        return DiscardReason.OTHER_LANGUAGE if detect_other_language(text, self.target) else None

    def _find_faults(self, pairs: Mapping[str, tuple[str, str]]) -> dict[str, str]:
        """Find why translations are discarded, by id, from their originals and texts; a judge
        decides about those that rules suspect.
        """
        found = {name: self._find_fault(text, original) for name, (original, text) in pairs.items()}
        if self.judge is not None:
            suspects = [name for name, fault in found.items() if fault in SUSPECTED]

            def build(name: str) -> dict[str, str]:
                return {"text": pairs[name][1][:JUDGED_CHARACTERS], **self._languages}

            replies = self.judge.ask(
                JUDGE_TRANSLATION, suspects, build, f"Judge translations into {self.target}"
            )
            for name, reply in zip(suspects, replies, strict=True):
                if reply.answer:
                    found[name] = JUDGED_FAULTS[reply.answer.verdict]
        return {name: fault for name, fault in found.items() if fault}

    def _translate_questions(
        self, questions: Sequence[Question], documents: Mapping[str, TranslatedDocument]
    ) -> tuple[list[Question], list[Discarded]]:
        about = [question for question in questions if question.document in documents]

        def build(question: Question) -> dict[str, str]:
            return {"question": question.text, **self._languages}

        def check(question: Question, answer: TranslatedText) -> None:
            text = " ".join(remove_prefix(answer.text, question.text).split())
            fault = self._find_fault(text, question.text)
            # A judge needs what was written; asked again, the model may write something else.
            if fault and not (self.judge and fault in SUSPECTED):
                raise UnusableAnswerError(fault)

        replies = self.model.ask(
            TRANSLATE_QUESTION, about, build, f"Translate questions into {self.target}", check
        )
        pairs = {}
        faults: dict[str, str] = {
            question.id: DiscardReason.DOCUMENT_DISCARDED
            for question in questions
            if question.document not in documents
        }
        verdicts = {}
        for question, reply in zip(about, replies, strict=True):
            if reply.answer is None:
                faults[question.id] = reply.fault
                continue
            pairs[question.id] = (question.text, self._clean(reply.answer.text, question.text))
            values = {"original": question.text}
            verdicts[question.id] = QuestionVerdict(
                Check.TRANSLATED, True, reply.model, values, prompt=reply.prompt
            )
        faults |= self._find_faults(pairs)
        kept = [
            replace(
                question,
                text=pairs[question.id][1],
                span=carry_over(question.evidence, documents[question.document]),
            ).with_verdict(verdicts[question.id])
            for question in about
            if question.id not in faults
        ]
        discarded = [
            Discarded(faults[question.id], question.id, question=question)
            for question in questions
            if question.id in faults
        ]
        return kept, discarded


def carry_over(span: Span, document: TranslatedDocument) -> Span:
    """Find the translations of all sentences that a span of the original overlaps."""
    carried = [
        translation
        for original, translation in document.sentences
        if original.start < span.end and span.start < original.end
    ]
    return Span(carried[0].start, carried[-1].end)


def is_same_text(text: str, original: str) -> bool:
    """Return whether a translation is the original; without letters it may be."""
    return text.split() == original.split() and any(map(str.isalpha, text))


def remove_prefix(translation: str, original: str) -> str:
    """Remove what a model put before a translation.

    It stays if the original begins likewise, or has as many colons.
    """
    prefix = PREFIX.match(translation)
    if not prefix or PREFIX.match(original):
        return translation
    is_added = "\n" in prefix[0] or len(COLON.findall(translation)) > len(COLON.findall(original))
    return translation[prefix.end() :] if is_added else translation


def find_outliers(lengths: Sequence[int], lower: float, upper: float) -> list[bool]:
    """Find which lengths are below Q1 - lower x IQR or above Q3 + upper x IQR (PosIR, appendix B;
    a and b are lost there).
    """
    if not lengths:
        return []
    first, third = np.percentile(lengths, [25, 75])
    spread = third - first
    return [not first - lower * spread <= length <= third + upper * spread for length in lengths]
