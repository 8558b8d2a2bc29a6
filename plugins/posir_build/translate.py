"""Stage 7, Translate: translate documents and questions, and map the evidence spans.

PosIR (arXiv 2601.08363, section 2.4, appendix B) translates English documents and queries, removes
prefixes, and filters refusals and length outliers. The paper does not state the prompt, how
documents are split, or how spans are mapped. Here documents are translated as numbered sentences,
and the translated span consists of the translations of the evidence sentences. PosIR treats texts
in another language as possible refusals, on which Qwen3-Max decides; without a judge, we discard
these texts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, Literal, TypeAlias

import numpy as np

from posir_build.locate import number_sentences
from posir_build.records import (
    Check,
    Discarded,
    DiscardReason,
    Document,
    Outcomes,
    PromptValues,
    Question,
    StageResult,
)
from posir_build.settings import TranslateSettings
from posir_tasks.base.batches import split_batches
from posir_tasks.language_models.asking import LanguageModel
from posir_tasks.language_models.chat_client import (
    REFUSAL,
    ModelAnswer,
    PromptTemplate,
    UnusableAnswerError,
    load_prompt,
)
from posir_tasks.text.languages import detect_other_language, find_english_name
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span


class TranslatedSentence(ModelAnswer):
    """A translated sentence with its number."""

    number: int
    text: str


class TranslatedSentences(ModelAnswer):
    """Translated sentences of a document."""

    sentences: list[TranslatedSentence]

    def sort_by_number(self) -> list[tuple[int, str]]:
        """Return numbers and texts, sorted by number."""
        return sorted((sentence.number, sentence.text) for sentence in self.sentences)


class TranslatedText(ModelAnswer):
    """A translated text."""

    text: str


class TranslationVerdict(ModelAnswer):
    """A judge's verdict on a suspected refusal (PosIR, appendix B)."""

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
#: Maximum number of characters that the judge reads (PosIR, appendix B).
JUDGED_CHARACTERS = 1500

#: The word "translation" in PosIR's languages, and phrases that announce a translation.
TRANSLATION = (
    r"(?:translat\w+|übersetz\w+|tradu[cçzt]\w+|перевод\w*|перевед\w+|翻译|翻譯|翻訳|번역\w*|"
    r"(?:ال)?ترجمة|अनुवाद|tłumaczeni\w+|অনুবাদ)"
)
ANNOUNCEMENT = (
    r"(?:here is|here['’]s|sure|certainly|of course|the following|below|hier "
    r"ist|nachfolgend|voici|aquí está|ecco|aqui está|"
    r"вот|以下|这是|다음은|فيما يلي|إليك|यहाँ|oto)"
)
#: Prefix that a model adds to a translation: a line about the translation, or a label or
#: announcement that ends with a colon. Sentences such as `Luther translated the Bible: ...` must
#: not match.
PREFIX = re.compile(
    rf"\s*(?:[^\n:：]{{0,60}}?{TRANSLATION}[^\n:：]{{0,60}}[:：]?[*_]*\s*\n\s*"
    rf"|{ANNOUNCEMENT}[^\n:：]{{0,120}}?{TRANSLATION}[^\n:：]{{0,120}}[:：][*_]*\s*"
    rf"|[^\w\s]*(?:\w+ )?{TRANSLATION}"
    r"(?: text| version| (?:into|to|ins?|nach|en|au|al|em|para|на)(?: "
    rf"\w+){{1,2}})?[^\w\s]{{0,3}}\s?[:：][*_]*\s*)",
    re.IGNORECASE,
)

#: Faults on which the judge decides.
UNCERTAIN_FAULTS = (DiscardReason.REFUSAL, DiscardReason.OTHER_LANGUAGE)
#: Fault by the judge's verdict.
VERDICT_FAULTS = {
    "translation": None,
    "refusal": DiscardReason.REFUSAL,
    "other": DiscardReason.OTHER_LANGUAGE,
}


#: Consecutive sentences of a document, translated in one call.
SentenceBlock: TypeAlias = tuple[Document, Sequence[Span]]


@dataclass(frozen=True)
class TranslatedDocument:
    """A translated document with aligned sentences."""

    document: Document
    """The translation; `tokens` is the length of the original, so that length buckets agree across
    languages (PosIR, 2.4).
    """
    sentences: Sequence[tuple[Span, Span]]
    """Span of each sentence in the original and in the translation."""


@dataclass(frozen=True)
class Translator:
    """Translates the result of a build into one language."""

    settings: TranslateSettings
    model: LanguageModel
    source: str
    """Language code of the originals, such as `eng-Latn`."""
    target: str
    """Language code of the translations, such as `deu-Latn`."""
    count_tokens: Callable[[str], int]
    judge: LanguageModel | None = None
    """Model that decides on possible refusals; None to discard them."""

    def translate(self, result: StageResult) -> StageResult:
        """Translate documents and questions, and discard the translations that fail a filter. A
        document is discarded with its questions. Ids do not change.
        """
        translations, discarded = self._translate_documents(result)
        documents = tuple(row.document for row in translations.values())
        translation = StageResult(documents, (), tuple(discarded))
        return translation.advance(self._translate_questions(result.questions, translations))

    @property
    def _languages(self) -> PromptValues:
        return {"source": find_english_name(self.source), "target": find_english_name(self.target)}

    def _translate_documents(
        self, result: StageResult
    ) -> tuple[dict[str, TranslatedDocument], list[Discarded]]:
        """Translate documents; return the kept translations by id and the discarded documents."""
        translations, faults = self._translate_sentences(result.documents)
        texts = {name: row.document.text for name, row in translations.items()}
        faults |= self._find_faults(result.documents, texts)
        kept = {name: row for name, row in translations.items() if name not in faults}
        lengths = [self.count_tokens(texts[name]) for name in kept]
        outliers = find_outliers(lengths, self.settings.lower, self.settings.upper)
        for name in compress(list(kept), outliers):
            faults[name] = DiscardReason.LENGTH_OUTLIER
            del kept[name]
        discarded = [Discarded(faults[name], name) for name in result.by_id if name in faults]
        return kept, discarded

    def _translate_sentences(
        self, documents: Sequence[Document]
    ) -> tuple[dict[str, TranslatedDocument], dict[str, str]]:
        """Translate documents in blocks of sentences; return translations and faults by id."""
        sentences = {row.id: find_sentences(row.text, self.source) for row in documents}
        blocks = [
            (document, spans)
            for document in documents
            for spans in split_batches(sentences[document.id], self.settings.sentences)
        ]

        def build(block: SentenceBlock) -> PromptValues:
            document, spans = block
            return {"sentences": number_sentences(document.text, spans), **self._languages}

        def check(block: SentenceBlock, answer: TranslatedSentences) -> None:
            document, spans = block
            rows = answer.sort_by_number()
            if [number for number, _ in rows] != list(range(1, len(spans) + 1)):
                raise UnusableAnswerError(DiscardReason.SENTENCES_CHANGED)
            text = " ".join(text for _, text in rows)
            # Sentences of names are the same in both languages.
            is_same = is_same_text(text, " ".join(span.slice(document.text) for span in spans))
            if is_same and detect_other_language(text, self.target):
                raise UnusableAnswerError(DiscardReason.UNTRANSLATED)

        title = f"Translate into {self.target}"
        replies = self.model.ask(TRANSLATE_SENTENCES, blocks, build, title, check)
        texts = defaultdict(list)
        faults: dict[str, str] = {}
        for (document, spans), reply in replies:
            if reply.answer is None:
                faults.setdefault(document.id, reply.fault)
                continue
            (_, first), *following = reply.answer.sort_by_number()
            # Only the first sentence can have a prefix.
            first = remove_prefix(first, spans[0].slice(document.text))
            translations = [first, *(" ".join(text.split()) for _, text in following)]
            texts[document.id].extend(translations)
            if not all(translations):
                faults.setdefault(document.id, DiscardReason.BLANK_SENTENCE)
        translated_documents = {
            row.id: join_sentences(row, sentences[row.id], texts[row.id])
            for row in documents
            if row.id not in faults
        }
        return translated_documents, faults

    def _find_fault(self, text: str, original: str) -> DiscardReason | None:
        """Return the first fault of a translation, or None."""
        if not text:
            return DiscardReason.BLANK_QUESTION
        if REFUSAL.match(text) and not REFUSAL.match(original):
            return DiscardReason.REFUSAL
        if is_same_text(text, original):
            return DiscardReason.UNTRANSLATED
        return DiscardReason.OTHER_LANGUAGE if detect_other_language(text, self.target) else None

    def _find_faults(
        self, originals: Iterable[Document | Question], texts: Mapping[str, str]
    ) -> dict[str, str]:
        """Find faults in translations, by id. The judge, if set, decides on uncertain faults."""
        faults = {
            row.id: self._find_fault(texts[row.id], row.text)
            for row in originals
            if row.id in texts
        }
        if self.judge is not None:
            uncertain = [name for name, fault in faults.items() if fault in UNCERTAIN_FAULTS]

            def build(name: str) -> PromptValues:
                return {"text": texts[name][:JUDGED_CHARACTERS], **self._languages}

            title = f"Judge translations into {self.target}"
            for name, reply in self.judge.ask(JUDGE_TRANSLATION, uncertain, build, title):
                if reply.answer:
                    faults[name] = VERDICT_FAULTS[reply.answer.verdict]
        return {name: fault for name, fault in faults.items() if fault}

    def _translate_questions(
        self, questions: Sequence[Question], documents: Mapping[str, TranslatedDocument]
    ) -> Outcomes:
        remaining = []
        for question in questions:
            if question.document in documents:
                remaining.append(question)
            else:
                yield question.discard(DiscardReason.DOCUMENT_DISCARDED)

        def build(question: Question) -> PromptValues:
            return {"question": question.text, **self._languages}

        def check(question: Question, answer: TranslatedText) -> None:
            fault = self._find_fault(remove_prefix(answer.text, question.text), question.text)
            # The judge decides on uncertain faults, so the model is not asked again.
            if fault and not (self.judge and fault in UNCERTAIN_FAULTS):
                raise UnusableAnswerError(fault)

        title = f"Translate questions into {self.target}"
        replies = self.model.ask(TRANSLATE_QUESTION, remaining, build, title, check)
        texts = {
            question.id: remove_prefix(reply.answer.text, question.text)
            for question, reply in replies
            if reply.answer
        }
        faults = self._find_faults(remaining, texts)
        for question, reply in replies:
            fault = reply.fault or faults.get(question.id)
            if fault:
                yield question.discard(fault)
                continue
            span = map_span(question.evidence, documents[question.document])
            values = {"original": question.text}
            translation = replace(question, text=texts[question.id], span=span)
            yield translation.conclude(Check.TRANSLATED, reply.model, values, prompt=reply.prompt)


def join_sentences(
    document: Document, original: Sequence[Span], texts: Sequence[str]
) -> TranslatedDocument:
    """Join translated sentences with the white space between the original sentences."""
    text = ""
    spans = []
    ends = [*(sentence.start for sentence in original[1:]), original[-1].end]
    for sentence, translation, end in zip(original, texts, ends, strict=True):
        start = len(text)
        text += translation
        spans.append((sentence, Span(start, len(text))))
        text += document.text[sentence.end : end]
    return TranslatedDocument(replace(document, text=text), spans)


def map_span(span: Span, document: TranslatedDocument) -> Span:
    """Map a span of the original to the translations of all sentences that it overlaps."""
    translations = [
        translation for original, translation in document.sentences if original.overlaps(span)
    ]
    return Span(translations[0].start, translations[-1].end)


def is_same_text(text: str, original: str) -> bool:
    """Return True if a translation is identical to an original that contains letters."""
    return text.split() == original.split() and any(map(str.isalpha, text))


def remove_prefix(translation: str, original: str) -> str:
    """Remove a model's prefix from a translation and collapse white space.

    A prefix is kept if the original starts with a prefix too, or if it is not on a separate line
    and the translation has no more colons than the original.
    """
    prefix = PREFIX.match(translation)
    if prefix and not PREFIX.match(original):
        colons = [len(re.findall("[:：]", text)) for text in (translation, original)]
        if "\n" in prefix[0] or colons[0] > colons[1]:
            translation = translation[prefix.end() :]
    return " ".join(translation.split())


def find_outliers(lengths: Sequence[int], lower: float, upper: float) -> list[bool]:
    """Flag lengths below Q1 - lower x IQR or above Q3 + upper x IQR (PosIR, appendix B; the paper
    does not state the factors).
    """
    if not lengths:
        return []
    first, third = np.percentile(lengths, [25, 75])
    spread = third - first
    return [not first - lower * spread <= length <= third + upper * spread for length in lengths]
