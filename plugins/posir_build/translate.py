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
from posir_build.records import Discarded, Document, Question, QuestionVerdict, StageResult
from posir_build.settings import TranslateSettings
from posir_tasks.language_models.asking import LanguageModel, Reply
from posir_tasks.language_models.chat_client import (
    REFUSAL,
    AnswerT,
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

#: What is wrong with a translation; the model is asked again, and then the text is discarded for
#: this reason.
MISSING, BLANK, REFUSED = "sentences are missing or added", "blank question", "refusal"
UNTRANSLATED, OTHER_LANGUAGE = "not translated", "another language"
FAULTS = {MISSING, BLANK, REFUSED, UNTRANSLATED, OTHER_LANGUAGE}
#: Faults that are suspected by rules, and decided by the judge if there is one.
SUSPECTED = {REFUSED, OTHER_LANGUAGE}
#: The fault by the judge's verdict.
VERDICTS = {"translation": "", "refusal": REFUSED, "other": OTHER_LANGUAGE}


#: A document in the other language, the length of the translation itself in tokens, and the places
#: of each sentence in the original and here. The document's `tokens` are the original's, so that
#: length buckets agree across languages (PosIR, 2.4).
TranslatedDocument = tuple[Document, int, list[tuple[Span, Span]]]


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
        translated, discarded, repaired = self._translate_documents(built.documents)
        outliers = find_outliers(
            [tokens for _, tokens, _ in translated.values()],
            self.settings.lower,
            self.settings.upper,
        )
        for name in [
            name for name, is_outlier in zip(translated, outliers, strict=True) if is_outlier
        ]:
            discarded.append(
                Discarded("length outlier", name, f"{translated.pop(name)[1]:,} tokens")
            )
        kept, dropped, prefixes = self._translate_questions(built.questions, translated)
        documents = tuple(document for document, *_ in translated.values())
        return StageResult(
            documents, kept, (*discarded, *dropped), (), {"prefixes removed": repaired + prefixes}
        )

    @property
    def _languages(self) -> dict[str, str]:
        return {"source": english_name(self.source), "target": english_name(self.target)}

    def _translate_documents(
        self, documents: Sequence[Document]
    ) -> tuple[dict[str, TranslatedDocument], list[Discarded], int]:
        sentences = [find_sentences(document.text, self.source) for document in documents]
        size = self.settings.sentences
        parts = [
            (row, spans[start : start + size])
            for row, spans in enumerate(sentences)
            for start in range(0, len(spans), size)
        ]

        def build(part: tuple[int, Sequence[Span]]) -> dict[str, str]:
            return {
                "sentences": number_sentences(documents[part[0]].text, part[1]),
                **self._languages,
            }

        def check(part: tuple[int, Sequence[Span]], answer: TranslatedSentences) -> None:
            if sorted(sentence.number for sentence in answer.sentences) != list(
                range(1, len(part[1]) + 1)
            ):
                raise UnusableAnswerError(MISSING)
            text = " ".join(sentence.text for sentence in answer.sentences)
            original = " ".join(sentence.of(documents[part[0]].text) for sentence in part[1])
            # A few sentences may be names alone, which are the same in both languages.
            if is_same_text(text, original) and detect_other_language(text, self.target):
                raise UnusableAnswerError(UNTRANSLATED)

        replies = self.model.ask(
            TRANSLATE_SENTENCES, parts, build, f"Translate into {self.target}", check
        )
        texts: list[list[str]] = [[] for _ in documents]
        repaired, problems = 0, dict[str, str]()
        for (row, spans), reply in zip(parts, replies, strict=True):
            if reply.answer is None:
                problems.setdefault(documents[row].id, _name_problem(reply))
                continue
            own = [
                sentence.text
                for sentence in sorted(reply.answer.sentences, key=lambda sentence: sentence.number)
            ]
            bare = remove_prefix(own[0], spans[0].of(documents[row].text))
            repaired += bare != own[0]
            texts[row] += [" ".join(text.split()) for text in (bare, *own[1:])]
        joined = dict[str, TranslatedDocument]()
        for document, spans, own in zip(documents, sentences, texts, strict=True):
            if not all(own):
                problems.setdefault(document.id, "a sentence is blank")
            if document.id not in problems:
                joined[document.id] = self._join(document, spans, own)
        originals = {document.id: document.text for document in documents}
        faults = self._find_faults(
            originals, {name: whole.text for name, (whole, *_) in joined.items()}, problems
        )
        translated = {name: whole for name, whole in joined.items() if not faults[name]}
        return (
            translated,
            [Discarded(fault, name) for name, fault in faults.items() if fault],
            repaired,
        )

    def _join(
        self, document: Document, original: Sequence[Span], texts: Sequence[str]
    ) -> TranslatedDocument:
        """Put translated sentences together with the white space between the original ones."""
        text, pairs = "", list[tuple[Span, Span]]()
        ends = [*(sentence.start for sentence in original[1:]), original[-1].end]
        for sentence, own, end in zip(original, texts, ends, strict=True):
            pairs.append((sentence, Span(len(text), len(text) + len(own))))
            text += own + document.text[sentence.end : end]
        return replace(document, text=text), self.count_tokens(text), pairs

    def _find_fault(self, text: str, original: str) -> str:
        """Return why a translation is discarded, or an empty text."""
        if REFUSAL.match(text) and not REFUSAL.match(original):
            return REFUSED
        if is_same_text(text, original):
            return UNTRANSLATED
        return OTHER_LANGUAGE if detect_other_language(text, self.target) else ""

    def _find_faults(
        self, originals: Mapping[str, str], texts: Mapping[str, str], problems: Mapping[str, str]
    ) -> dict[str, str]:
        """Return why each translation is discarded, by id, empty for none; a judge decides about
        those that rules suspect.
        """
        faults = {
            name: problems.get(name) or self._find_fault(texts[name], text)
            for name, text in originals.items()
        }
        suspects = [name for name, fault in faults.items() if fault in SUSPECTED and name in texts]
        if self.judge is None or not suspects:
            return faults

        def build(name: str) -> dict[str, str]:
            return {"text": texts[name][:JUDGED_CHARACTERS], **self._languages}

        replies = self.judge.ask(
            JUDGE_TRANSLATION, suspects, build, f"Judge translations into {self.target}"
        )
        answered = ((name, reply.answer) for name, reply in zip(suspects, replies, strict=True))
        return faults | {name: VERDICTS[answer.verdict] for name, answer in answered if answer}

    def _translate_questions(
        self, questions: Sequence[Question], documents: Mapping[str, TranslatedDocument]
    ) -> tuple[tuple[Question, ...], list[Discarded], int]:
        asked = [question for question in questions if question.document in documents]
        lost = (question for question in questions if question.document not in documents)
        discarded = [
            Discarded("its document is discarded", question.id, question=question)
            for question in lost
        ]

        def build(question: Question) -> dict[str, str]:
            return {"question": question.text, **self._languages}

        def check(question: Question, answer: TranslatedText) -> None:
            text = " ".join(remove_prefix(answer.text, question.text).split())
            problem = self._find_fault(text, question.text) if text else BLANK
            # A judge needs what was written; asked again, the model may write something else.
            if problem and not (self.judge and problem in SUSPECTED):
                raise UnusableAnswerError(problem)

        replies = self.model.ask(
            TRANSLATE_QUESTION, asked, build, f"Translate questions into {self.target}", check
        )
        repaired, texts, problems, kept = 0, dict[str, str](), dict[str, str](), list[Question]()
        for question, reply in zip(asked, replies, strict=True):
            if reply.answer is None:
                problems[question.id] = _name_problem(reply)
                continue
            bare = remove_prefix(reply.answer.text, question.text)
            repaired += bare != reply.answer.text
            texts[question.id] = " ".join(bare.split())
        faults = self._find_faults(
            {question.id: question.text for question in asked}, texts, problems
        )
        for question, reply in zip(asked, replies, strict=True):
            if faults[question.id]:
                discarded.append(Discarded(faults[question.id], question.id, question=question))
                continue
            verdict = QuestionVerdict(
                "translated", True, f"{reply.model} {reply.prompt}", {"original": question.text}
            )
            # The translations of all sentences that the span of the original overlaps.
            (*_, pairs), evidence = documents[question.document], question.evidence
            carried = [
                own
                for original, own in pairs
                if original.start < evidence.end and evidence.start < original.end
            ]
            span = Span(carried[0].start, carried[-1].end)
            kept.append(replace(question, text=texts[question.id], span=span).with_verdict(verdict))
        return tuple(kept), discarded, repaired


def _name_problem(reply: Reply[AnswerT]) -> str:
    return reply.problem if reply.problem in FAULTS else f"unusable answer: {reply.problem}"


def is_same_text(text: str, original: str) -> bool:
    """Return whether a translation is the original, which has letters: numbers alone may stay as
    they are.
    """
    return text.split() == original.split() and any(map(str.isalpha, text))


def remove_prefix(translation: str, original: str) -> str:
    """Return a translation without what a model put before it.

    An original that begins likewise is left alone, and so is a colon that the original has, too.
    """
    prefix = PREFIX.match(translation)
    if not prefix or PREFIX.match(original):
        return translation
    is_added = "\n" in prefix[0] or len(COLON.findall(translation)) > len(COLON.findall(original))
    return translation[prefix.end() :] if is_added else translation


def find_outliers(lengths: Sequence[int], lower: float, upper: float) -> list[bool]:
    """Return which lengths are below Q1 - lower x IQR or above Q3 + upper x IQR (PosIR, appendix B;
    a and b are lost there).
    """
    if not lengths:
        return []
    first, third = np.percentile(lengths, [25, 75])
    spread = third - first
    return [not first - lower * spread <= length <= third + upper * spread for length in lengths]
