"""Pseudo-questions: sentences of the texts as questions about the text that they are from, at
controlled positions.

The inverse cloze task of Lee et al. 2019 (arXiv 1906.00300, section 4), with two differences.
There, the sentence is mostly removed from the text (in 90% of the cases), so that what surrounds it
is to be found; here it is kept, because it is the evidence whose position is controlled. And it is
asked in several ways: verbatim, which flatters every model that recognizes a text's own words, by
its rarest words alone, and, if there is a model that writes them, in other words (`other_words`).

The sentences of a text share its topic and its words, so an unread sentence can lead to its text:
BM25 over the part of the texts that is read says how far words alone go.
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
    count_texts,
    normalize,
)
from posir_tasks.models.embeddings.context import EncodingContext
from posir_tasks.models.references import legible_name
from posir_tasks.models.request import SearchRequest
from posir_tasks.search.first_stage import load_first_stage
from posir_tasks.tasks.base import PositionTask
from posir_tasks.text.languages import PIVOT, suggest_codes
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import Tokenizer
from posir_tasks.text.words import TERM, find_terms, is_unspaced
from posir_tasks.values.evidence import TWELFTHS
from posir_tasks.values.profile import DEPTH, NDCG_AT_10, rank_columns
from posir_tasks.values.read_part import ReadPart
from posir_tasks.values.result_schema import SPLIT
from posir_tasks.values.schemes import RelativePositions

#: Equal parts of a text in each of which a sentence is asked about.
PARTS = 10
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
    """A question by an embedder or a language model that has none of its words; not about every
    sentence.
    """

    @property
    def words(self) -> str:
        """Its name in words: `rarest words`."""
        return self.value.replace("-", " ")


#: The wordings that need no model.
WITHOUT_MODEL = (Wording.VERBATIM, Wording.RAREST_WORDS)


@dataclass(frozen=True)
class PseudoQuestion:
    """A sentence that is asked about."""

    id: str
    document: str
    sentence: Span
    wordings: Mapping[Wording, str]


@dataclass(frozen=True)
class QuestionSet:
    """The pseudo-questions about some texts."""

    documents: Mapping[str, str]
    """Texts by id."""
    tokens: Mapping[str, int]
    questions: tuple[PseudoQuestion, ...]
    languages: Mapping[str, str]

    def first(self, texts: int) -> QuestionSet:
        """Keep the first texts and the questions about them."""
        documents = dict(islice(self.documents.items(), texts))
        questions = tuple(item for item in self.questions if item.document in documents)
        return replace(self, documents=documents, questions=questions)

    def select(self, ids: Collection[str]) -> QuestionSet:
        """Keep the questions of these ids, and all texts."""
        return replace(self, questions=tuple(item for item in self.questions if item.id in ids))

    @property
    def lengths(self) -> list[int]:
        """Tokens of each text."""
        return [self.tokens[name] for name in self.documents]

    def asked_in(self, wording: Wording) -> tuple[PseudoQuestion, ...]:
        """List the questions that have a wording."""
        return tuple(question for question in self.questions if wording in question.wordings)

    def write_in_other_words(self, writer: QuestionWriter) -> QuestionSet:
        """Add the questions in other words, where there are any."""
        requests = []
        for question in self.questions:
            text = self.documents[question.document]
            sentence = question.sentence.of(text)
            requests.append(WritingRequest(sentence, (text,), self.languages[question.document]))
        questions = list(self.questions)
        for row, written in enumerate(writer.write(requests)):
            if written:
                wordings = {**questions[row].wordings, Wording.OTHER_WORDS: written}
                questions[row] = replace(questions[row], wordings=wordings)
        return replace(self, questions=tuple(questions))

    def write(self, wording: Wording, folder: Path, source: str, language: str) -> Path:
        """Write the questions that have a wording in the PosIR layout, and return the domain's
        folder.

        It may have been written before. PosirError is raised if it has other questions.
        """
        data = self.build_data(wording)
        code = next(iter(suggest_codes(language)), PIVOT.code)
        domain = re.sub(r"[^a-z0-9]+", "_", f"{source}_{wording}".lower())
        target = Target(code, domain[-100:].strip("_"), folder)
        if target.folder.is_dir():
            old = read_domain(LocalRepository(folder), code, code, target.domain)
            if digest_data(old) == digest_data(data):
                return target.folder
        target.check()
        write_domain(data, target.folder)
        return target.folder

    def build_data(self, wording: Wording) -> PositionData:
        """Build the data of a position task from the questions that have a wording."""
        questions = {
            question.id: (question.wordings[wording], question.document, question.sentence)
            for question in self.asked_in(wording)
        }
        tokens = dict(zip(self.documents, self.lengths, strict=True))
        return PositionData.from_questions(
            self.documents, questions, tokens=tokens, revision="pseudo-questions"
        )


def ask_questions(collection: TextCollection, tokens: Sequence[int]) -> QuestionSet:
    """Make pseudo-questions, one in each tenth of every text that has a suitable sentence there.

    A sentence is asked about if it has 5 to 80 words and is in no other place of the texts. Of
    several sentences with their midpoint in the same tenth of a text, one is drawn at random, with
    a fixed seed. `tokens` are the lengths of the texts. Documents have their own ids, if these
    differ.
    """
    names = [text.id for text in collection.texts]
    if len({*names} - {""}) < len(names):
        names = [f"d{number}" for number in range(len(names))]
    documents: dict[str, str] = {}
    languages: dict[str, str] = {}
    sentences: dict[str, list[Span]] = {}
    repeated = Counter[str]()
    for name, text in zip(names, collection.texts, strict=True):
        documents[name] = text.text
        languages[name] = text.language
        sentences[name] = list(find_sentences(text.text, text.language))
        repeated.update(normalize(span.of(text.text)) for span in sentences[name])
    frequencies = count_texts(documents.values())
    questions = []
    for number, (name, content) in enumerate(documents.items()):
        rng = random.Random(f"{SEED} {number}")
        suitable = defaultdict[int, list[Span]](list)
        for span in sentences[name]:
            sentence = span.of(content)
            words = len(find_terms(sentence))
            if repeated[normalize(sentence)] == 1 and MIN_WORDS <= words <= MAX_WORDS:
                # Tenths are closed to the right, as the position bins are.
                part = max(0, math.ceil(span.middle / len(content) * PARTS) - 1)
                suitable[part].append(span)
        for part in sorted(suitable):
            span = rng.choice(suitable[part])
            verbatim = span.of(content)
            wordings = {
                Wording.VERBATIM: verbatim,
                Wording.RAREST_WORDS: keep_rarest_words(verbatim, frequencies),
            }
            questions.append(PseudoQuestion(f"{name}-{part}", name, span, wordings))
    counts = dict(zip(names, tokens, strict=True))
    return QuestionSet(documents, counts, tuple(questions), languages)


def keep_rarest_words(sentence: str, frequencies: Mapping[str, int]) -> str:
    """Keep the half of a sentence's words, at least three, that the fewest texts have; of equally
    rare ones the longest.
    """
    words = TERM.findall(sentence)
    count = max(MIN_KEYWORDS, math.ceil(KEYWORD_SHARE * len(words)))
    rarest = sorted(
        range(len(words)),
        key=lambda row: (frequencies.get(words[row].casefold(), 0), -len(words[row]), row),
    )
    kept = [words[row] for row in sorted(rarest[:count])]
    return "".join(kept) if is_unspaced(sentence) else " ".join(kept)


class PseudoQuestionTask(PositionTask):
    """Pseudo-questions about the texts of a user."""

    scheme = RelativePositions(bins=PARTS)
    data: ClassVar[PositionData]

    def read_subset(self, subset: str) -> PositionData:  # noqa: ARG002
        """Read the questions."""
        return self.data


def build_question_task(
    source: str, language: str, questions: QuestionSet, wording: Wording
) -> PseudoQuestionTask:
    """Build the task of the questions in one wording, named after the source of the texts; the
    language is as in `en`.
    """
    name = f"Inspect-{legible_name(source)}-{wording}"
    asked = questions.asked_in(wording)
    contents = [part for item in asked for part in (item.id, item.wordings[wording])]
    metadata = build_metadata(
        name,
        dataset=source,
        revision=f"{LOCAL}-{digest(*questions.documents.values(), *contents).hex()}",
        languages=[next(iter(suggest_codes(language)), PIVOT.code)],
        description="Pseudo-questions: sentences of texts, to be found by position (Lee et al. "
        "2019, arXiv 1906.00300).",
    )
    attributes: dict[str, Any] = {
        "metadata": metadata,
        "data": questions.build_data(wording),
        "__module__": __name__,
    }
    task: PseudoQuestionTask = type(name, (PseudoQuestionTask,), attributes)()
    return task


@dataclass(frozen=True)
class WordBaseline:
    """nDCG@10 of questions without the model."""

    shared_words: float
    """Score of BM25; of questions about unread sentences, with the part of each text that is
    read.
    """
    chance: float
    """Expected if texts are ranked at random."""


def measure_unread_baseline(task: PseudoQuestionTask, part: ReadPart) -> WordBaseline | None:
    """Search for the texts of unread sentences in what is read of all texts; None if all is read,
    or it is unknown what.
    """
    data = task.data
    beyond = np.flatnonzero(data.evidence.estimate_twelfths(part) >= TWELFTHS)
    if not len(beyond):
        return None
    tokens = dict(zip(data.evidence.document_ids, data.evidence.tokens.tolist(), strict=True))
    read = []
    for name, text in zip(data.corpus["id"], data.corpus["text"], strict=True):
        # A character's place in tokens is taken to be its share of the text.
        size = max(tokens.get(name, 0), part.tokens or 0, 1)
        tail = len(text) * part.tokens_at_end // size
        head = len(text) * ((part.tokens or 0) - part.tokens_at_end) // size
        read.append(f"{text[:head]} {text[max(head, len(text) - tail) :]}")
    return _search_words(task, read, beyond)


def measure_word_baseline(task: PseudoQuestionTask) -> WordBaseline:
    """Search for the texts of all questions of a task by their words alone."""
    return _search_words(task, task.data.corpus["text"][:], np.arange(len(task.data.queries)))


def _search_words(task: PseudoQuestionTask, texts: Sequence[str], rows: Integers) -> WordBaseline:
    """Search for the texts of some questions, shape (n,), with BM25 in texts, or parts of them, in
    the order of the corpus.
    """
    data, names = task.data, task.data.corpus["id"][:]
    (subset,) = task.metadata.hf_subsets_to_langscripts
    queries = data.queries.select(rows)
    positives = data.evidence.positives()
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
    return WordBaseline(float(NDCG_AT_10[rank_columns(np.array(ranks, np.int64))].mean()), chance)


def cut_excerpts(
    collection: TextCollection, tokenizer: Tokenizer, size: int, texts: int
) -> TextCollection:
    """Cut the first texts to a random excerpt of so many tokens each, with a fixed seed."""
    excerpts = []
    spans = tokenizer.find_tokens([text.text for text in collection.texts[:texts]])
    for number, (text, tokens) in enumerate(zip(collection.texts, spans, strict=False)):
        if len(tokens) <= size:
            excerpts.append(text)
            continue
        first = random.Random(f"{SEED} {number}").randint(0, len(tokens) - size)
        start = tokens[first][0]
        end = tokens[first + size - 1][1]
        excerpts.append(replace(text, text=text.text[start:end]))
    return replace(collection, texts=tuple(excerpts))
