"""The texts of a running index, and the questions to ask it."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from posir_data.texts import sample_candidates, sample_texts
from posir_inspect.questions import SEED, PseudoQuestion, QuestionSet, Wording, generate_questions
from posir_score.collecting import PendingQuery
from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import track
from posir_tasks.data.formats.passages import Passage, SkippedItem, describe_skipped
from posir_tasks.datasets.dataset import Dataset
from posir_tasks.language_models.other_words import QuestionWriter
from posir_tasks.models.window import find_read_part
from posir_tasks.text.spans import Span, find_third
from posir_tasks.text.tokenizer import EstimatedTokenizer, Tokenizer, find_tokenizer
from posir_tasks.values.read_part import ReadKind, ReadPart

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

#: Subset name for queries with the opening words of a document.
OPENING = "head"

MAX_OPENING_CHARACTERS = 250

#: Maximum number of missing documents listed by name.
MAX_LISTED_DOCUMENTS = 10


@dataclass(frozen=True)
class IndexQuestion(PendingQuery):
    """A question about a document. The subset is the wording, or `head` for the opening words."""

    document: str
    sentence: Span
    third: int

    @property
    def key(self) -> tuple[str, str]:
        """Subset and id, the key of the answer in the journal."""
        return self.subset, self.id

    @property
    def is_opening(self) -> bool:
        """True if the query is the document's opening words."""
        return self.subset == OPENING


@dataclass(frozen=True)
class IndexedTexts:
    """The documents that the index should contain, and the questions about them."""

    name: str
    language: str
    ids: Collection[str]
    """Ids of all documents, including documents without questions."""
    questions: QuestionSet
    wordings: tuple[Wording, ...]
    window: ReadPart
    """The embedder's window."""
    skip_note: str
    """A note about skipped texts; may be empty."""

    def locate_in_window(self) -> dict[str, int]:
        """Return the twelfth of the window that contains each sentence, by question id.

        The mapping is empty if the embedder reads whole texts or if its window is unknown.
        """
        if self.window.kind is not ReadKind.PART:
            return {}
        evidence = self.questions.build_data(self.wordings[0]).evidence
        twelfths = evidence.estimate_twelfths(self.window).tolist()
        return dict(zip(evidence.query_ids, twelfths, strict=False))

    def write_questions(self, folder: Path, questions: Sequence[IndexQuestion]) -> tuple[str, ...]:
        """Write the planned questions with their spans. Return the folders, one per wording."""
        folders = []
        for wording in self.wordings:
            ids = {question.id for question in questions if question.subset == wording}
            selection = self.questions.select(ids)
            folders.append(str(selection.write(wording, folder, self.name, self.language)))
        return tuple(folders)


@dataclass(frozen=True)
class IndexOptions:
    """Options of an index inspection."""

    max_texts: int
    """Maximum number of texts to read. A larger collection is sampled at random."""
    max_requests: int
    window: ReadPart | MTEBModels
    """The embedder's window, or the embedder itself."""
    embedder: str | None
    """Name, folder or endpoint of the model that embeds the queries for a collection."""
    separator: str
    """Separator between document id and chunk number; empty if documents are not chunked."""
    folder: Path | None
    """Output folder for the questions."""


def read_index(
    dataset: Dataset,
    options: IndexOptions,
    open_writer: Callable[[Sequence[str]], QuestionWriter | None],
) -> IndexedTexts:
    """Read the texts of an index and generate questions about them.

    With a writer, at most `options.max_requests` questions are also paraphrased.
    """
    ids: set[str] = set()

    def collect_ids(items: Iterable[Passage | SkippedItem]) -> Iterator[Passage | SkippedItem]:
        for item in items:
            if isinstance(item, Passage):
                ids.add(item.id or item.name)
            yield item

    with track("Reading texts"):
        collection = sample_texts(
            dataset,
            options.max_texts,
            lambda items: sample_candidates(collect_ids(items), 2 * options.max_texts),
        )
    texts = [text.text for text in collection.texts]
    tokenizer: Tokenizer = EstimatedTokenizer()
    window = options.window
    if not isinstance(window, ReadPart):
        tokenizer = find_tokenizer(window) or tokenizer
        window = find_read_part(window)
    questions = generate_questions(collection, tokenizer.count_all(texts))
    if not ids.issuperset(questions.documents):
        raise PosirError(
            f"{dataset.location}: several documents have the same id, for example in different "
            "subsets. Give the texts of one index."
        )
    wordings: tuple[Wording, ...] = (Wording.RAREST_WORDS,)
    skip_note = describe_skipped(collection.skipped)
    writer = open_writer(texts)
    if writer:
        planned_questions = plan_questions(questions, wordings)[: options.max_requests]
        selection = questions.select({question.id for question in planned_questions})
        questions = selection.add_paraphrases(writer)
        wordings = (Wording.RAREST_WORDS, Wording.OTHER_WORDS)
        skip_note = " ".join(filter(None, [skip_note, writer.describe_answers()]))
    return IndexedTexts(
        collection.name, collection.language, ids, questions, wordings, window, skip_note
    )


def plan_questions(questions: QuestionSet, wordings: Sequence[Wording]) -> list[IndexQuestion]:
    """Order the questions: first the opening words and one sentence per third of each document,
    then all other sentences.

    Documents are in random order, so that a prefix of the list covers a random sample.
    """
    by_document = defaultdict[str, list[PseudoQuestion]](list)
    for question in questions.questions:
        by_document[question.document].append(question)
    first_round = []
    other_questions: list[IndexQuestion] = []
    for name, text in questions.documents.items():
        opening = text[:MAX_OPENING_CHARACTERS]
        opening = opening.rpartition(" ")[0] or opening
        first_round.append(IndexQuestion(OPENING, name, opening, name, Span(0, len(opening)), 0))
        planned: set[tuple[Wording, int]] = set()
        document_questions = by_document[name]
        rng = random.Random(f"{SEED} {name}")
        for question in rng.sample(document_questions, len(document_questions)):
            third = find_third(question.sentence, len(text))
            for wording in wordings:
                if wording not in question.wordings:
                    continue
                query = question.wordings[wording]
                group = other_questions if (wording, third) in planned else first_round
                group.append(
                    IndexQuestion(wording.value, question.id, query, name, question.sentence, third)
                )
                planned.add((wording, third))
    return [*first_round, *other_questions]
