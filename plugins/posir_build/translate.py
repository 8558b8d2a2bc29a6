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
from typing import Any, Literal

import numpy as np

from posir_build.locate import number_sentences
from posir_build.records import (
    Check,
    Discarded,
    DiscardReason,
    Document,
    PromptValues,
    Question,
    QuestionVerdict,
    StageResult,
)
from posir_build.settings import TranslateSettings
from posir_tasks.language_models.asking import LanguageModel
from posir_tasks.language_models.chat_client import (
    REFUSAL,
    ModelAnswer,
    PromptTemplate,
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
PROMPTS: Sequence[PromptTemplate[Any]] = (
    TRANSLATE_SENTENCES,
    TRANSLATE_QUESTION,
    JUDGE_TRANSLATION,
)
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

#: Faults that are suspected by rules, and decided by the judge if there is one.
SUSPECTED = (DiscardReason.REFUSAL, DiscardReason.OTHER_LANGUAGE)
#: The fault by the judge's verdict.
JUDGED_FAULTS = {
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
    sentences: Sequence[tuple[Span, Span]]
    """The span of each sentence in the original and here."""


@dataclass(frozen=True)
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

    def translate(self, built: StageResult) -> StageResult:
        """Translate corpus and questions, and discard what fails a filter, a document with its
        questions; ids stay the same.
        """
        translated, discarded = self._translate_documents(built.documents)
        questions, failed = self._translate_questions(built.questions, translated)
        documents = tuple(row.document for row in translated.values())
        return StageResult(documents, tuple(questions), (*discarded, *failed))

    @property
    def _languages(self) -> PromptValues:
        return {"source": english_name(self.source), "target": english_name(self.target)}

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

        def build(part: DocumentPart) -> PromptValues:
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

        title = f"Translate into {self.target}"
        replies = self.model.ask(TRANSLATE_SENTENCES, parts, build, title, check)
        texts: dict[str, list[str]] = {document.id: [] for document in documents}
        faults: dict[str, str] = {}
        for part, reply in zip(parts, replies, strict=True):
            name = part.document.id
            if reply.answer is None:
                faults.setdefault(name, reply.fault)
                continue
            (_, first), *rest = reply.answer.by_number()
            # Only the first sentence may have a prefix.
            texts[name].append(clean(first, part.texts[0]))
            texts[name] += [" ".join(text.split()) for _, text in rest]
            if not all(texts[name]):
                faults.setdefault(name, DiscardReason.BLANK_SENTENCE)
        originals = {row.id: row for row in documents if row.id not in faults}
        translated = {
            name: join_sentences(row, sentences[name], texts[name])
            for name, row in originals.items()
        }
        pairs = {
            name: (row.text, translated[name].document.text) for name, row in originals.items()
        }
        faults |= self._find_faults(pairs)
        sound = [name for name in translated if name not in faults]
        lengths = [self.count_tokens(pairs[name][1]) for name in sound]
        outliers = find_outliers(lengths, self.settings.lower, self.settings.upper)
        for name, is_outlier in zip(sound, outliers, strict=True):
            if is_outlier:
                faults[name] = DiscardReason.LENGTH_OUTLIER
        discarded = [Discarded(faults[row.id], row.id) for row in documents if row.id in faults]
        kept = {name: row for name, row in translated.items() if name not in faults}
        return kept, discarded

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

            def build(name: str) -> PromptValues:
                return {"text": pairs[name][1][:JUDGED_CHARACTERS], **self._languages}

            title = f"Judge translations into {self.target}"
            replies = self.judge.ask(JUDGE_TRANSLATION, suspects, build, title)
            for name, reply in zip(suspects, replies, strict=True):
                if reply.answer:
                    found[name] = JUDGED_FAULTS[reply.answer.verdict]
        return {name: fault for name, fault in found.items() if fault}

    def _translate_questions(
        self, questions: Sequence[Question], documents: Mapping[str, TranslatedDocument]
    ) -> tuple[list[Question], list[Discarded]]:
        about = [question for question in questions if question.document in documents]

        def build(question: Question) -> PromptValues:
            return {"question": question.text, **self._languages}

        def check(question: Question, answer: TranslatedText) -> None:
            fault = self._find_fault(clean(answer.text, question.text), question.text)
            # A judge needs what was written; asked again, the model may write something else.
            if fault and not (self.judge and fault in SUSPECTED):
                raise UnusableAnswerError(fault)

        title = f"Translate questions into {self.target}"
        replies = self.model.ask(TRANSLATE_QUESTION, about, build, title, check)
        faults: dict[str, str] = {
            question.id: DiscardReason.DOCUMENT_DISCARDED
            for question in questions
            if question.document not in documents
        }
        translated = {}
        pairs = {}
        for question, reply in zip(about, replies, strict=True):
            if reply.answer is None:
                faults[question.id] = reply.fault
                continue
            text = clean(reply.answer.text, question.text)
            pairs[question.id] = (question.text, text)
            span = carry_over(question.evidence, documents[question.document])
            values = {"original": question.text}
            verdict = QuestionVerdict(
                Check.TRANSLATED, True, reply.model, values, prompt=reply.prompt
            )
            translated[question.id] = replace(question, text=text, span=span).with_verdict(verdict)
        faults |= self._find_faults(pairs)
        kept = [row for name, row in translated.items() if name not in faults]
        return kept, [row.discard(faults[row.id]) for row in questions if row.id in faults]


def join_sentences(
    document: Document, original: Sequence[Span], texts: Sequence[str]
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
    return TranslatedDocument(replace(document, text=text), spans)


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


def clean(translation: str, original: str) -> str:
    """Remove further white space, and what a model put before a translation.

    That stays if the original begins likewise, or has as many colons.
    """
    prefix = PREFIX.match(translation)
    if prefix and not PREFIX.match(original):
        colons = [len(re.findall("[:：]", text)) for text in (translation, original)]
        if "\n" in prefix[0] or colons[0] > colons[1]:
            translation = translation[prefix.end() :]
    return " ".join(translation.split())


def find_outliers(lengths: Sequence[int], lower: float, upper: float) -> list[bool]:
    """Find which lengths are below Q1 - lower x IQR or above Q3 + upper x IQR (PosIR, appendix B;
    a and b are lost there).
    """
    if not lengths:
        return []
    first, third = np.percentile(lengths, [25, 75])
    spread = third - first
    return [not first - lower * spread <= length <= third + upper * spread for length in lengths]
