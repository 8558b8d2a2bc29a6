"""Pseudo-questions: each question is a sentence of a text, and that text is the relevant document.

This is the inverse cloze task of Lee et al. 2019 (arXiv 1906.00300, section 4), with two
differences. Lee et al. remove the sentence from its text in 90% of the cases; here it always stays,
since it is the evidence whose position is tested. And a sentence has up to three wordings:
verbatim, which makes lexical matching easy; its rarest words; and a paraphrase (`other_words`).

A sentence shares its topic and words with the rest of its text, so a question about an unread
sentence can still retrieve the text. BM25 over the part within the window measures the effect of
shared words.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from datasets import Dataset
from mteb.timing import TimingStack

from posir_data.texts import TextCollection
from posir_tasks.base.arrays import Integers
from posir_tasks.base.digests import digest
from posir_tasks.data.data import PositionData, digest_data
from posir_tasks.data.posir import Target, read_domain, write_domain
from posir_tasks.data.repository import LOCAL, LocalRepository
from posir_tasks.data.task_metadata import build_metadata
from posir_tasks.language_models.other_words import (
    MAX_WORDS,
    MIN_WORDS,
    QuestionWriter,
    WritingRequest,
    count_texts_by_word,
    normalize,
)
from posir_tasks.models.embeddings.context import EncodingContext
from posir_tasks.models.references import to_file_name
from posir_tasks.models.request import SearchRequest
from posir_tasks.search.first_stage import load_first_stage
from posir_tasks.tasks.base import PositionTask
from posir_tasks.text.languages import PIVOT, suggest_codes
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import Tokenizer
from posir_tasks.text.words import TERM, find_terms, is_unspaced
from posir_tasks.values.evidence import TWELFTHS
from posir_tasks.values.profile import DEPTH, NDCG_AT_10, map_ranks_to_columns
from posir_tasks.values.read_part import ReadPart
from posir_tasks.values.result_schema import SPLIT
from posir_tasks.values.schemes import RelativePositions

#: Number of equal parts of a text. There is at most one question about each part.
QUESTION_BINS = 10
#: Share of a sentence's words to keep as keywords.
KEYWORD_SHARE = 0.5
MIN_KEYWORDS = 3
SEED = 14


class Wording(StrEnum):
    """The wording of a question about a sentence."""

    VERBATIM = "verbatim"
    """The sentence as it is."""
    RAREST_WORDS = "rarest-words"
    """The half of the words that occur in the fewest texts, in their original order."""
    OTHER_WORDS = "other-words"
    """A paraphrase by an embedder or a language model. Some sentences have no paraphrase."""

    @property
    def words(self) -> str:
        """The name with spaces, such as `rarest words`."""
        return self.value.replace("-", " ")


#: Wordings that need no model.
MODEL_FREE_WORDINGS = (Wording.VERBATIM, Wording.RAREST_WORDS)


@dataclass(frozen=True)
class PseudoQuestion:
    """A sentence and the questions about it, by wording."""

    id: str
    document: str
    sentence: Span
    wordings: Mapping[Wording, str]


@dataclass(frozen=True)
class QuestionSet:
    """Texts and the pseudo-questions about them."""

    documents: Mapping[str, str]
    """Texts by id."""
    tokens: Mapping[str, int]
    """Token counts of the texts, by id."""
    questions: tuple[PseudoQuestion, ...]
    languages: Mapping[str, str]
    """Language codes of the texts, by id."""

    def select_first(self, count: int) -> QuestionSet:
        """Select the first `count` texts and their questions."""
        documents = dict(islice(self.documents.items(), count))
        return replace(
            self,
            documents=documents,
            questions=tuple(item for item in self.questions if item.document in documents),
        )

    def select(self, ids: Collection[str]) -> QuestionSet:
        """Select questions by id, and keep all texts."""
        return replace(self, questions=tuple(item for item in self.questions if item.id in ids))

    @property
    def lengths(self) -> list[int]:
        """Lengths of the texts in tokens."""
        return [self.tokens[name] for name in self.documents]

    def select_wording(self, wording: Wording) -> tuple[PseudoQuestion, ...]:
        """Select the questions that have a wording."""
        return tuple(question for question in self.questions if wording in question.wordings)

    def write_in_other_words(self, writer: QuestionWriter) -> QuestionSet:
        """Add a paraphrase to every question that the writer can paraphrase."""
        requests = []
        for question in self.questions:
            text = self.documents[question.document]
            sentence = question.sentence.slice(text)
            requests.append(WritingRequest(sentence, (text,), self.languages[question.document]))
        questions = []
        for question, paraphrase in zip(self.questions, writer.write(requests), strict=True):
            wordings = dict(question.wordings)
            if paraphrase:
                wordings[Wording.OTHER_WORDS] = paraphrase
            questions.append(replace(question, wordings=wordings))
        return replace(self, questions=tuple(questions))

    def write(self, wording: Wording, folder: Path, source: str, language: str) -> Path:
        """Write the questions in one wording as a domain in the PosIR layout, unless the same
        domain exists.

        Returns:
            The folder of the domain.

        Raises:
            PosirError: The domain exists with different content.
        """
        data = self.build_data(wording)
        code = next(iter(suggest_codes(language)), PIVOT.code)
        domain = re.sub(r"[^a-z0-9]+", "_", f"{source}_{wording}".lower())
        target = Target(code, domain[-100:].strip("_"), folder)
        if target.folder.is_dir():
            existing = read_domain(LocalRepository(folder), code, code, target.domain)
            if digest_data(existing) == digest_data(data):
                return target.folder
        target.check()
        write_domain(data, target.folder)
        return target.folder

    def build_data(self, wording: Wording) -> PositionData:
        """Build the data of a position task from the questions in one wording."""
        questions = {
            question.id: (question.wordings[wording], question.document, question.sentence)
            for question in self.select_wording(wording)
        }
        return PositionData.from_questions(
            self.documents, questions, tokens=self.tokens, revision="pseudo-questions"
        )


def generate_questions(collection: TextCollection, tokens: Sequence[int]) -> QuestionSet:
    """Generate pseudo-questions, at most one per tenth of a text.

    A sentence is eligible if it has 5 to 80 words and occurs only once in all texts. For each
    tenth, one eligible sentence with its midpoint there is sampled, with a fixed seed. Texts keep
    their ids if all ids are unique.

    Args:
        collection: The texts.
        tokens: Length of each text in tokens.
    """
    names = [text.id for text in collection.texts]
    if len({*names} - {""}) < len(names):
        names = [f"d{number}" for number in range(len(names))]
    texts = dict(zip(names, collection.texts, strict=True))
    documents = {name: text.text for name, text in texts.items()}
    languages = {name: text.language for name, text in texts.items()}
    sentences = {name: find_sentences(text.text, text.language) for name, text in texts.items()}
    occurrences = Counter(
        normalize(span.slice(documents[name]))
        for name, spans in sentences.items()
        for span in spans
    )
    frequencies = count_texts_by_word(documents.values())
    questions = []
    for number, (name, content) in enumerate(documents.items()):
        rng = random.Random(f"{SEED} {number}")
        spans_by_part = defaultdict[int, list[Span]](list)
        for span in sentences[name]:
            sentence = span.slice(content)
            if (
                occurrences[normalize(sentence)] == 1
                and MIN_WORDS <= len(find_terms(sentence)) <= MAX_WORDS
            ):
                # Parts are closed on the right, like position bins.
                part = max(0, math.ceil(span.middle / len(content) * QUESTION_BINS) - 1)
                spans_by_part[part].append(span)
        for part in sorted(spans_by_part):
            span = rng.choice(spans_by_part[part])
            verbatim = span.slice(content)
            wordings = {
                Wording.VERBATIM: verbatim,
                Wording.RAREST_WORDS: keep_rarest_words(verbatim, frequencies),
            }
            questions.append(PseudoQuestion(f"{name}-{part}", name, span, wordings))
    counts = dict(zip(names, tokens, strict=True))
    return QuestionSet(documents, counts, tuple(questions), languages)


def keep_rarest_words(sentence: str, frequencies: Mapping[str, int]) -> str:
    """Keep the half of a sentence's words that occur in the fewest texts, but at least three.

    Among equally rare words, longer words are kept first.
    """
    words = TERM.findall(sentence)
    count = max(MIN_KEYWORDS, math.ceil(KEYWORD_SHARE * len(words)))
    rarest = sorted(
        range(len(words)),
        key=lambda row: (frequencies.get(words[row].casefold(), 0), -len(words[row]), row),
    )
    keywords = [words[row] for row in sorted(rarest[:count])]
    return ("" if is_unspaced(sentence) else " ").join(keywords)


class PseudoQuestionTask(PositionTask):
    """A task of pseudo-questions about a user's texts."""

    scheme = RelativePositions(bins=QUESTION_BINS)
    data: ClassVar[PositionData]

    def read_subset(self, subset: str) -> PositionData:  # noqa: ARG002
        """Return the data of the only subset."""
        return self.data


def build_question_task(
    source: str, language: str, questions: QuestionSet, wording: Wording
) -> PseudoQuestionTask:
    """Build a task from the questions in one wording.

    Args:
        source: Name of the texts, used in the task name.
        language: Language code of the texts, such as `en`.
        questions: The questions.
        wording: The wording.
    """
    name = f"Inspect-{to_file_name(source)}-{wording}"
    data = questions.build_data(wording)
    metadata = build_metadata(
        name,
        dataset=source,
        revision=f"{LOCAL}-{digest(*digest_data(data).values()).hex()}",
        languages=[next(iter(suggest_codes(language)), PIVOT.code)],
        description="Pseudo-questions generated from sentences of the texts (Lee et al. 2019, "
        "arXiv 1906.00300).",
    )
    attributes: dict[str, Any] = {"metadata": metadata, "data": data, "__module__": __name__}
    task: PseudoQuestionTask = type(name, (PseudoQuestionTask,), attributes)()
    return task


@dataclass(frozen=True)
class WordBaseline:
    """nDCG@10 of baselines that do not use the model, in [0, 1]."""

    shared_words: float
    """nDCG@10 of BM25. For questions about unread sentences, BM25 searches only the part of each
    text within the window.
    """
    chance: float
    """Expected nDCG@10 of a random ranking."""


def measure_unread_baseline(task: PseudoQuestionTask, part: ReadPart) -> WordBaseline | None:
    """Measure BM25 on questions about unread sentences, over the part of each text within the
    window. Return None if no sentence is unread or the window is unknown.
    """
    data = task.data
    unread_rows = np.flatnonzero(data.evidence.estimate_twelfths(part) >= TWELFTHS)
    if not len(unread_rows):
        return None
    tokens = dict(zip(data.evidence.document_ids, data.evidence.tokens.tolist(), strict=True))
    read_texts = []
    for name, text in zip(data.corpus["id"], data.corpus["text"], strict=True):
        # Assume that all tokens of a text have the same length.
        token_count = max(tokens.get(name, 0), part.tokens or 0, 1)
        tail = len(text) * part.tokens_at_end // token_count
        head = len(text) * ((part.tokens or 0) - part.tokens_at_end) // token_count
        read_texts.append(f"{text[:head]} {text[max(head, len(text) - tail) :]}")
    return _measure_bm25(task, read_texts, unread_rows)


def measure_word_baseline(task: PseudoQuestionTask) -> WordBaseline:
    """Measure BM25 on all questions, over whole texts."""
    return _measure_bm25(task, task.data.corpus["text"][:], np.arange(len(task.data.queries)))


def _measure_bm25(task: PseudoQuestionTask, texts: Sequence[str], rows: Integers) -> WordBaseline:
    """Measure BM25 on the questions in `rows`, shape (n,).

    `texts` replaces the corpus texts, in the same order.
    """
    data = task.data
    names = data.corpus["id"][:]
    (subset,) = task.metadata.hf_subsets_to_langscripts
    queries = data.queries.select(rows)
    positives = data.evidence.map_positives()
    request = SearchRequest(
        corpus=Dataset.from_dict({"id": names, "text": texts}),
        queries=queries,
        positives=positives,
        top_ranked=None,
        top_k=DEPTH,
        context=EncodingContext(task.metadata, SPLIT, subset),
        timer=TimingStack(),
    )
    hits, _ = load_first_stage(request)
    ranks = [
        hits[query].index(positives[query]) + 1 if positives[query] in hits[query] else 0
        for query in queries["id"][:]
    ]
    chance = float(NDCG_AT_10[: min(DEPTH, len(names))].sum()) / len(names)
    return WordBaseline(
        float(NDCG_AT_10[map_ranks_to_columns(np.array(ranks, np.int64))].mean()), chance
    )


def cut_excerpts(
    collection: TextCollection, tokenizer: Tokenizer, size: int, texts: int
) -> TextCollection:
    """Cut a random excerpt of `size` tokens from each of the first texts, with a fixed seed."""
    excerpts = []
    spans = tokenizer.find_tokens([text.text for text in collection.texts[:texts]])
    for number, (text, tokens) in enumerate(zip(collection.texts, spans, strict=False)):
        content = text.text
        if len(tokens) > size:
            first = random.Random(f"{SEED} {number}").randint(0, len(tokens) - size)
            content = content[tokens[first, 0] : tokens[first + size - 1, 1]]
        excerpts.append(replace(text, text=content))
    return replace(collection, texts=tuple(excerpts))
