"""Pseudo-questions: sentences of the texts as questions about the text that they are from, at controlled positions.

The inverse cloze task of Lee et al. 2019 (arXiv 1906.00300, section 4), with two differences. There, the sentence is mostly
removed from the text (in 90 % of the cases), so that what surrounds it is to be found; here it is kept, because it is the
evidence whose position is controlled. And it is asked in several ways: verbatim, which flatters every model that recognizes a
text's own words, by its rarest words alone, and, if there is a model that writes them, in other words (`other_words`).
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from datasets import Dataset

from posir_data.texts import TextCollection
from posir_inspect.other_words import QuestionWriter, WritingRequest, count_texts
from posir_tasks.evidence import Evidence
from posir_tasks.sources.data import PositionData
from posir_tasks.text.scripts import is_unspaced
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span
from posir_tasks.text.words import TERM, find_terms

#: Equal parts of a text in each of which a sentence is asked about.
PARTS = 10
#: Words of a sentence that is asked about: fewer are headings, more are lists or tables.
MIN_WORDS, MAX_WORDS = 5, 80
#: Share of a sentence's words that its keywords are, and the fewest of them.
KEYWORD_SHARE, MIN_KEYWORDS = 0.5, 3
SEED = 14


class Wording(StrEnum):
    """The wording in which a sentence is asked about."""

    VERBATIM = "verbatim"
    """The sentence as it is."""
    RAREST_WORDS = "rarest-words"
    """The half of its words that the fewest texts have, in their order."""
    OTHER_WORDS = "other-words"
    """A question by an embedder or a language model that has none of its words; not about every sentence."""


#: The wordings that need no model.
WITHOUT_MODEL = (Wording.VERBATIM, Wording.RAREST_WORDS)


@dataclass(frozen=True)
class PseudoQuestion:
    """A sentence that is asked about."""

    id: str
    document: str
    """Id of its text."""
    sentence: Span
    wordings: Mapping[Wording, str]
    """The question in each wording that it has."""


@dataclass(frozen=True)
class QuestionSet:
    """The pseudo-questions about some texts."""

    documents: Mapping[str, str]
    """Texts by id."""
    tokens: Mapping[str, int]
    """Length of each text in tokens, by its id."""
    questions: tuple[PseudoQuestion, ...]
    languages: Mapping[str, str]
    """Language of each text, by its id."""

    def first(self, texts: int) -> QuestionSet:
        """Return the first texts and the questions about them."""
        names = list(self.documents)[:texts]
        kept = set(names)
        return QuestionSet(
            {name: self.documents[name] for name in names},
            {name: self.tokens[name] for name in names},
            tuple(question for question in self.questions if question.document in kept),
            {name: self.languages[name] for name in names},
        )

    def asked_in(self, wording: Wording) -> tuple[PseudoQuestion, ...]:
        """Return the questions that have a wording."""
        return tuple(question for question in self.questions if wording in question.wordings)

    def write_in_other_words(self, writer: QuestionWriter) -> QuestionSet:
        """Return the questions in other words, too, where there are any."""
        requests = [
            WritingRequest(
                question.sentence.of(self.documents[question.document]),
                (self.documents[question.document],),
                self.languages[question.document],
            )
            for question in self.questions
        ]
        questions = (
            replace(question, wordings={**question.wordings, Wording.OTHER_WORDS: text}) if text else question
            for question, text in zip(self.questions, writer.write(requests), strict=True)
        )
        return replace(self, questions=tuple(questions))

    def build_data(self, wording: Wording) -> PositionData:
        """Return the questions that have a wording as data of a position task."""
        questions = self.asked_in(wording)
        documents = [question.document for question in questions]
        spans = np.array([question.sentence for question in questions], np.int64).reshape(-1, 2)
        return PositionData(
            corpus=Dataset.from_dict({"id": list(self.documents), "text": list(self.documents.values())}),
            queries=Dataset.from_dict(
                {
                    "id": [question.id for question in questions],
                    "text": [question.wordings[wording] for question in questions],
                }
            ),
            evidence=Evidence(
                query_ids=[question.id for question in questions],
                document_ids=documents,
                starts=spans[:, 0],
                ends=spans[:, 1],
                characters=np.array([len(self.documents[name]) for name in documents], np.int64),
                tokens=np.array([self.tokens[name] for name in documents], np.int64),
            ),
            revision="pseudo-questions",
        )


def ask_questions(collection: TextCollection, tokens: Sequence[int]) -> QuestionSet:
    """Make pseudo-questions, one in each tenth of every text that has a suitable sentence there.

    A sentence is asked about if it has 5 to 80 words and is in no other place of the texts. Of several sentences with their
    midpoint in the same tenth of a text, one is drawn at random, with a fixed seed.

    Args:
        collection: The texts.
        tokens: Length of each text in tokens.
    """
    names = [f"d{number}" for number in range(len(collection.texts))]
    documents = {name: text.text for name, text in zip(names, collection.texts, strict=True)}
    sentences = {name: find_sentences(text.text, text.language) for name, text in zip(names, collection.texts, strict=True)}
    repeated = Counter(normalize(span.of(documents[name])) for name, spans in sentences.items() for span in spans)
    frequencies = count_texts(documents.values())
    questions = [
        PseudoQuestion(f"{name}-{part}", name, sentence, build_wordings(sentence.of(documents[name]), frequencies))
        for number, (name, spans) in enumerate(sentences.items())
        for part, sentence in draw_sentences(
            documents[name],
            [span for span in spans if repeated[normalize(span.of(documents[name]))] == 1],
            random.Random(f"{SEED} {number}"),
        )
    ]
    languages = {name: text.language for name, text in zip(names, collection.texts, strict=True)}
    return QuestionSet(documents, dict(zip(names, tokens, strict=True)), tuple(questions), languages)


def normalize(sentence: str) -> str:
    """Return a sentence without differences in case and white space."""
    return " ".join(sentence.casefold().split())


def draw_sentences(text: str, sentences: Sequence[Span], rng: random.Random) -> Iterator[tuple[int, Span]]:
    """Yield a sentence of suitable length for each tenth of a text, where there is one."""
    suitable: dict[int, list[Span]] = {}
    for sentence in sentences:
        if MIN_WORDS <= len(find_terms(sentence.of(text))) <= MAX_WORDS:
            # Tenths are closed to the right, as the position bins are.
            suitable.setdefault(max(0, math.ceil(sentence.middle / len(text) * PARTS) - 1), []).append(sentence)
    for part in range(PARTS):
        if part in suitable:
            yield part, rng.choice(suitable[part])


def build_wordings(sentence: str, frequencies: Mapping[str, int]) -> dict[Wording, str]:
    """Return a question as it is worded without a model.

    `frequencies` are the numbers of texts that have each word, in lower case.
    """
    return {Wording.VERBATIM: sentence, Wording.RAREST_WORDS: keep_rarest_words(sentence, frequencies)}


def keep_rarest_words(sentence: str, frequencies: Mapping[str, int]) -> str:
    """Return the half of a sentence's words, at least three, that the fewest texts have; of equally rare ones the longest."""
    words = TERM.findall(sentence)
    count = max(MIN_KEYWORDS, math.ceil(KEYWORD_SHARE * len(words)))
    rarest = sorted(range(len(words)), key=lambda row: (frequencies.get(words[row].casefold(), 0), -len(words[row]), row))
    kept = [words[row] for row in sorted(rarest[:count])]
    return "".join(kept) if is_unspaced(sentence) else " ".join(kept)
