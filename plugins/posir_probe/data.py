"""Documents and questions for probes, and the datasets that contain them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from posir_data.texts import sample_texts
from posir_tasks.base.batches import split_batches
from posir_tasks.base.public import DataReference
from posir_tasks.data.data import PositionData, list_texts
from posir_tasks.data.formats.passages import Passage, SkippedItem
from posir_tasks.datasets.dataset import Subset
from posir_tasks.datasets.opening import open_data
from posir_tasks.models.embeddings.encoding import Encoder
from posir_tasks.text.interventions import NO_SPAN
from posir_tasks.text.languages import UNKNOWN_LANGUAGE
from posir_tasks.text.sentences import find_at_periods, find_sentences, split_at_periods
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import EstimatedTokenizer, Tokenizer
from posir_tasks.text.words import count_words, estimate_tokens

#: Texts with fewer words are not split into parts.
MIN_WORDS = 10
END_MISSING = "the data has the start of the answer but not its end"


@dataclass(frozen=True)
class ProbeQuestion:
    """A question and its evidence in a document."""

    text: str
    document: str
    """Id of the document."""
    span: Span
    """Span of the evidence; `NO_SPAN` if it is unknown."""
    start: int | None = None
    """Character offset of the evidence if its end is unknown, as in SQuAD-PosQ."""


@dataclass(frozen=True)
class Selection:
    """Criteria and seed of a random sample of documents.

    The defaults are from the PosQ code (arXiv 2505.13950, A.4), which sorts the texts and shuffles
    them with seed 1. For Table 4, the code selects texts with 101 to 511 words (SQuAD v2) or 201 to
    499 words (FineWeb-Edu), separated by spaces.
    """

    seed: int = 1
    words: tuple[int, int] | None = None
    """Exclusive bounds of the number of words, or None for no bounds."""
    tokens: int = 0
    """Minimum number of tokens. Token counts are from the data or estimated from bytes."""

    def accepts(self, text: str, tokens: int | None) -> bool:
        """Return whether a document meets the criteria.

        `tokens` is the document length from the data, or None if the data does not store it.
        """
        if self.words and not self.words[0] < len(text.split(" ")) < self.words[1]:
            return False
        length = estimate_tokens(text) if tokens is None else tokens
        return length >= self.tokens

    def __str__(self) -> str:
        criteria = [f"seed {self.seed}"]
        if self.words:
            criteria.append(f"more than {self.words[0]} and fewer than {self.words[1]} words")
        if self.tokens:
            criteria.append(f"at least {self.tokens} tokens")
        return ", ".join(criteria)


#: A selection without criteria.
DEFAULT_SELECTION = Selection()


@dataclass(frozen=True)
class ProbeData:
    """Documents, questions about them, and settings for probes."""

    documents: Mapping[str, str]
    """Texts by id."""
    questions: tuple[ProbeQuestion, ...] = ()
    corpus: Mapping[str, str] = field(default_factory=dict)
    """Texts to search by id; empty to search only `documents`."""
    tokens: Mapping[str, int] = field(default_factory=dict)
    """Document lengths in tokens by id; empty if the data does not store them."""
    language: str = UNKNOWN_LANGUAGE
    """Language of the documents, such as `eng-Latn`."""
    split_at_periods: bool = False
    """Whether to split sentences as in the Bias Learning code instead of by language."""
    tokenizer: Tokenizer = field(default_factory=EstimatedTokenizer)
    """The model's tokenizer, or an estimate."""
    cut_tokenizer: Tokenizer | None = None
    """Tokenizer to cut, insert and remove tokens; None for the model's tokenizer."""
    room: int | None = None
    """Tokens left in the window after the prompt; None if unknown."""
    encoder: Encoder | None = None
    """The model, for probes that need more than embeddings."""
    revision: str = ""
    """A commit on the Hub, or `local-` and a digest."""
    available: int = 0
    """Number of documents to sample from; 0 if unknown."""

    @classmethod
    def from_texts(cls, texts: Iterable[str], language: str = UNKNOWN_LANGUAGE) -> ProbeData:
        """Build data from texts without questions. Their ids are `0`, `1` and so on."""
        return cls({str(index): text for index, text in enumerate(texts)}, language=language)

    @classmethod
    def from_position_data(cls, data: PositionData, language: str = UNKNOWN_LANGUAGE) -> ProbeData:
        """Convert the corpus and questions of a task. Evidence spans may be incomplete."""
        evidence = data.evidence
        documents = evidence.document_ids
        count = len(evidence)
        starts: Sequence[int | None] = [None] * count
        if not data.has_spans and len(evidence.starts):
            starts = evidence.starts.tolist()
        spans = data.locate_spans() or [NO_SPAN] * count
        return cls(
            list_texts(data.documents),
            tuple(map(ProbeQuestion, data.questions["text"], documents, spans, starts)),
            tokens=dict(zip(documents, evidence.tokens.tolist(), strict=False)),
            language=language,
            revision=data.revision,
        )

    def find_sentences(self, text: str) -> list[Span]:
        """Find the sentence spans of a text."""
        if self.split_at_periods:
            return find_at_periods(text)
        return find_sentences(text, self.language)

    def split_sentences(self, text: str) -> list[str]:
        """Split a text into sentences.

        With `split_at_periods`, a period is appended to each sentence, as in the Bias Learning
        code.
        """
        if self.split_at_periods:
            return split_at_periods(text)
        return [span.slice(text) for span in self.find_sentences(text)]

    def sample(
        self,
        documents: int,
        selection: Selection = DEFAULT_SELECTION,
        *,
        with_questions: bool = True,
    ) -> ProbeData:
        """Sample documents and their questions, in random order.

        All documents become the corpus of the sample.

        Args:
            documents: Maximum number of documents.
            selection: Criteria and seed.
            with_questions: Sample only documents that have questions, unless no document has any.
        """
        relevant = {question.document for question in self.questions} if with_questions else set()
        eligible = {
            name: text
            for name, text in self.documents.items()
            if (not relevant or name in relevant) and selection.accepts(text, self.tokens.get(name))
        }
        # Sort by text, so that the sample does not depend on ids or their order, as in PosQ's code.
        names = sorted(eligible, key=lambda name: (eligible[name], name))
        Random(selection.seed).shuffle(names)
        sample = self._select(names[:documents])
        return replace(sample, corpus=self.documents, available=len(eligible))

    @property
    def edit_tokenizer(self) -> Tokenizer:
        """The tokenizer to cut, insert and remove tokens."""
        return self.cut_tokenizer or self.tokenizer

    def cut(self, tokens: int) -> ProbeData:
        """Truncate every document to a number of tokens, counted by `edit_tokenizer`."""
        texts = truncate_texts(self.edit_tokenizer, list(self.documents.values()), tokens)
        return replace(self, documents=dict(zip(self.documents, texts, strict=True)))

    def iterate_blocks(self, size: int) -> Iterator[ProbeData]:
        """Yield the data in blocks of at most `size` documents."""
        for names in split_batches(list(self.documents), size):
            yield self._select(names)

    def _select(self, names: Iterable[str]) -> ProbeData:
        documents = {name: self.documents[name] for name in names}
        questions = tuple(question for question in self.questions if question.document in documents)
        return replace(self, documents=documents, questions=questions, corpus={})


def truncate_texts(tokenizer: Tokenizer, texts: Sequence[str], tokens: int) -> list[str]:
    """Truncate texts to `tokens` tokens. `tokens` must be at least 1."""
    truncated_texts = []
    for text, spans in zip(texts, tokenizer.find_tokens(texts), strict=True):
        truncated_texts.append(text[: spans[tokens - 1, 1]] if len(spans) > tokens else text)
    return truncated_texts


def select_long_enough(data: ProbeData) -> tuple[dict[str, str], Counter[str]]:
    """Select the documents with at least `MIN_WORDS` words.

    Returns:
        The texts by id, and the number of skipped documents by reason.
    """
    documents = {}
    skipped: Counter[str] = Counter()
    for name, text in data.documents.items():
        if count_words(text) >= MIN_WORDS:
            documents[name] = text
        else:
            skipped[f"fewer than {MIN_WORDS} words" if text.strip() else "empty text"] += 1
    return documents, skipped


def select_with_evidence(data: ProbeData) -> tuple[list[ProbeQuestion], Counter[str]]:
    """Select the questions whose evidence is part of the document, but not all of it.

    Returns:
        The questions, and the number of skipped questions by reason.
    """
    skipped: Counter[str] = Counter()
    questions = []
    for question in data.questions:
        start, end = question.span
        text = data.documents[question.document]
        if not (0 <= start < end <= len(text) and text[start:end].strip()):
            skipped["no evidence span" if question.start is None else END_MISSING] += 1
        elif not (text[:start] + text[end:]).strip():
            skipped["the evidence is the whole document"] += 1
        else:
            questions.append(question)
    return questions, skipped


@dataclass(frozen=True)
class ProbeSource:
    """A dataset whose subsets are read on demand."""

    name: str
    """Name of the task, or a name derived from the file or folder."""
    subsets: Mapping[str, Callable[[], ProbeData]]
    """Functions that read the subsets, by `language/domain`, or by language if there are no
    questions. They raise PosirError if the data is missing or invalid.
    """
    skipped: Sequence[SkippedItem] = ()
    """Unusable texts, files, rows and questions."""


def open_probe_source(
    source: DataReference,
    *,
    column: str | None = None,
    limit: int = 1000,
    selection: Selection = DEFAULT_SELECTION,
) -> ProbeSource:
    """Open a dataset for probes.

    Args:
        source: Any data that `open_data` accepts.
        column: Column or field of plain texts.
        limit: Maximum number of texts to read if there are no questions. Data with questions is
            sampled later.
        selection: Criteria and seed to sample texts without questions.

    Raises:
        PosirError: The data does not exist or cannot be used.
    """
    dataset = open_data(source, column=column)
    if dataset.has_questions:
        subsets = {subset.name: partial(_read_subset, subset) for subset in dataset.subsets}
        skipped: list[SkippedItem] = []
        for subset in dataset.subsets if dataset.in_memory else ():
            skipped += subset.read().skipped
        return ProbeSource(dataset.name, subsets, skipped)

    def sample(items: Iterable[Passage | SkippedItem]) -> tuple[int, list[Passage | SkippedItem]]:
        """Return the number of items, and the items: unreadable items first, then the accepted
        passages, shuffled as in `ProbeData.sample`.
        """
        unreadable: list[Passage | SkippedItem] = []
        passages: list[Passage] = []
        item_count = 0
        for item in items:
            item_count += 1
            if isinstance(item, SkippedItem):
                unreadable.append(item)
            elif selection.accepts(item.text, None):
                passages.append(item)
        passages.sort(key=lambda passage: (passage.text, passage.name))
        Random(selection.seed).shuffle(passages)
        return item_count, unreadable + passages

    sampled = sample_texts(dataset, limit, sample)
    documents = {text.name: text.text for text in sampled.texts}
    data = ProbeData(documents, language=sampled.language, revision=dataset.find_revision())
    return ProbeSource(dataset.name, {sampled.language: lambda: data}, sampled.skipped)


def _read_subset(subset: Subset) -> ProbeData:
    return ProbeData.from_position_data(subset.read(), subset.corpus_language)
