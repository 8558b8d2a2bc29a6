"""The texts that probes measure: documents, most with questions about them, and their source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from posir_data.texts import draw_texts
from posir_tasks.base.batches import split_batches
from posir_tasks.base.public import DataReference
from posir_tasks.data.data import PositionData, list_texts
from posir_tasks.data.formats.passages import Passage, SkippedText
from posir_tasks.datasets.dataset import Subset
from posir_tasks.datasets.opening import open_data
from posir_tasks.models.embeddings.encoding import Encoder
from posir_tasks.text.interventions import NO_SPAN
from posir_tasks.text.languages import UNKNOWN
from posir_tasks.text.sentences import find_at_periods, find_sentences, split_at_periods
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import EstimatedTokenizer, Tokenizer
from posir_tasks.text.words import count_words, estimate_tokens

#: Fewest words of a text that probes cut into parts.
MIN_WORDS = 10
NO_END = "the data has where an answer starts, not where it ends"


@dataclass(frozen=True)
class ProbeQuestion:
    """A question, and the span of its evidence in a document."""

    text: str
    document: str
    """Id of the document."""
    span: Span
    """`NO_SPAN` if it is unknown."""
    start: int | None = None
    """First character of the evidence if the data does not have its end, as SQuAD-PosQ."""


@dataclass(frozen=True)
class Selection:
    """Documents that a random sample is drawn from, and the seed.

    The defaults are those of the code of PosQ (arXiv 2505.13950, A.4): the texts in order, shuffled
    with seed 1. For its table 4 that code takes texts of more than 100 and fewer than 512 words
    (SQuAD v2), or of 200 and 500 (FineWeb-Edu), counted between spaces.
    """

    seed: int = 1
    words: tuple[int, int] | None = None
    """More than the first and fewer than the second number of words are between the spaces of a
    text; None for any.
    """
    tokens: int = 0
    """Fewest tokens of a document, as the data states them, or else estimated from bytes."""

    def accepts(self, text: str, tokens: int | None) -> bool:
        """Return whether a document may be drawn; `tokens` are those that the data states, None if
        it does not.
        """
        if self.words and not self.words[0] < len(text.split(" ")) < self.words[1]:
            return False
        length = estimate_tokens(text) if tokens is None else tokens
        return length >= self.tokens

    def __str__(self) -> str:
        parts = [f"seed {self.seed}"]
        if self.words:
            parts.append(f"more than {self.words[0]} and fewer than {self.words[1]} words")
        if self.tokens:
            parts.append(f"at least {self.tokens} tokens")
        return ", ".join(parts)


#: Any document.
ANY = Selection()


@dataclass(frozen=True)
class ProbeData:
    """Documents, and questions about them if there are any."""

    documents: Mapping[str, str]
    """Text by id."""
    questions: tuple[ProbeQuestion, ...] = ()
    distractors: Mapping[str, str] = field(default_factory=dict)
    """The other documents of the corpus, text by id: they are searched, but not measured."""
    tokens: Mapping[str, int] = field(default_factory=dict)
    """Length of documents in tokens by id, where the data states it."""
    language: str = UNKNOWN
    """Language of the documents, such as `eng-Latn`."""
    split_at_periods: bool = False
    """Whether sentences are those of the code of Bias Learning, and not those of the language."""
    tokenizer: Tokenizer = field(default_factory=EstimatedTokenizer)
    """Tokenizer of the model, where it has one here: what probes count as tokens."""
    given_tokenizer: Tokenizer | None = None
    """Tokenizer of what is cut, inserted and removed; None for that of the model."""
    prepared: str = ""
    """How texts are cut and split, for the record of a sample, after a comma."""
    room: int | None = None
    """Most of its tokens that fit the model's window, with the prompt; None if that is unknown."""
    encoder: Encoder | None = None
    """The model, for probes of its inside."""
    revision: str = ""
    """A commit of the Hub, or `local-` and a digest."""
    available: int = 0
    """Documents that a sample was drawn from; 0 if that is unknown."""

    @classmethod
    def from_texts(cls, texts: Iterable[str], language: str = UNKNOWN) -> ProbeData:
        """Number texts without questions."""
        return cls({str(number): text for number, text in enumerate(texts)}, language=language)

    @classmethod
    def from_position_data(cls, data: PositionData, language: str = UNKNOWN) -> ProbeData:
        """Take the corpus of a task and its questions, with as much of the evidence as it has."""
        evidence = data.evidence
        documents = evidence.document_ids
        number = len(evidence)
        starts: Sequence[int | None] = [None] * number
        if not data.has_spans and len(evidence.starts):
            starts = evidence.starts.tolist()
        spans = data.place_spans() or [NO_SPAN] * number
        return cls(
            list_texts(data.corpus),
            tuple(map(ProbeQuestion, data.queries["text"], documents, spans, starts)),
            tokens=dict(zip(documents, evidence.tokens.tolist(), strict=False)),
            language=language,
            revision=data.revision,
        )

    def find_sentences(self, text: str) -> list[Span]:
        """Find the sentences of a text."""
        if self.split_at_periods:
            return find_at_periods(text)
        return find_sentences(text, self.language)

    def split_sentences(self, text: str) -> list[str]:
        """Split a text into its sentences; at periods, with the period that the code appends to
        each.
        """
        if self.split_at_periods:
            return split_at_periods(text)
        return [span.of(text) for span in self.find_sentences(text)]

    def sample(
        self, documents: int, selection: Selection = ANY, *, asked_about: bool = True
    ) -> ProbeData:
        """Draw a random sample of documents, in random order, and their questions.

        All other documents are distractors, so that questions are searched in the whole corpus. If
        `asked_about`, documents without questions are drawn only if none has some.
        """
        asked = {question.document for question in self.questions} if asked_about else set()
        eligible = {
            name: text
            for name, text in self.documents.items()
            if (not asked or name in asked) and selection.accepts(text, self.tokens.get(name))
        }
        # Sorted by text, so that neither ids nor their order matter, as in the code of PosQ.
        drawn = sorted(eligible, key=lambda name: (eligible[name], name))
        Random(selection.seed).shuffle(drawn)
        sampled = self._select(drawn[:documents])
        others = {
            name: text for name, text in self.documents.items() if name not in sampled.documents
        }
        return replace(sampled, distractors=others, available=len(eligible))

    @property
    def counter(self) -> Tokenizer:
        """The tokenizer of what is cut, inserted and removed."""
        return self.given_tokenizer or self.tokenizer

    def cut(self, tokens: int) -> ProbeData:
        """Cut every document after so many tokens of `counter`."""
        spans = self.counter.find_tokens(list(self.documents.values()))
        documents = {}
        for (name, text), found in zip(self.documents.items(), spans, strict=True):
            documents[name] = text[: found[tokens - 1, 1]] if len(found) > tokens else text
        return replace(self, documents=documents)

    def blocks(self, size: int) -> Iterator[ProbeData]:
        """Yield the data in blocks of at most `size` documents."""
        for names in split_batches(list(self.documents), size):
            yield self._select(names)

    def _select(self, names: Iterable[str]) -> ProbeData:
        documents = {name: self.documents[name] for name in names}
        questions = tuple(question for question in self.questions if question.document in documents)
        return replace(self, documents=documents, questions=questions, distractors={})


def select_long_enough(data: ProbeData) -> tuple[dict[str, str], Counter[str]]:
    """Select the documents that can be cut into parts, text by id, and count the others, by
    reason.
    """
    long_enough = {}
    skipped: Counter[str] = Counter()
    for name, text in data.documents.items():
        if count_words(text) >= MIN_WORDS:
            long_enough[name] = text
        else:
            skipped[f"fewer than {MIN_WORDS} words" if text.strip() else "empty text"] += 1
    return long_enough, skipped


def select_with_evidence(data: ProbeData) -> tuple[list[ProbeQuestion], Counter[str]]:
    """Select the questions whose evidence is a part of their document, and count the others, by
    reason.
    """
    skipped: Counter[str] = Counter()
    with_evidence = []
    for question in data.questions:
        start, end = question.span
        text = data.documents[question.document]
        if not (0 <= start < end <= len(text) and text[start:end].strip()):
            skipped["no evidence span" if question.start is None else NO_END] += 1
        elif not (text[:start] + text[end:]).strip():
            skipped["the evidence is the whole document"] += 1
        else:
            with_evidence.append(question)
    return with_evidence, skipped


@dataclass(frozen=True)
class ProbeSource:
    """Documents, most with questions about them."""

    name: str
    """A task, or a name that is derived from that of a file or folder."""
    subsets: Mapping[str, Callable[[], ProbeData]]
    """Functions that read a part each, by `language/domain`, or by the language of texts without
    questions.

    They raise PosirError if the data is missing or invalid.
    """
    skipped: Sequence[SkippedText] = ()
    """Texts, files, rows and questions that cannot be used."""


def open_probe_source(
    source: DataReference,
    *,
    column: str | None = None,
    limit: int = 1000,
    selection: Selection = ANY,
) -> ProbeSource:
    """Open what `open_data` takes; raise PosirError if there is no such data, or it cannot be used.

    Of texts without questions, at most `limit` of a selection are read; other data is sampled
    later. `column` has the text.
    """
    opened = open_data(source, column=column)
    if opened.has_questions:
        subsets = {subset.name: partial(_read_subset, subset) for subset in opened.subsets}
        skipped: list[SkippedText] = []
        for subset in opened.subsets if opened.in_memory else ():
            skipped += subset.read().skipped
        return ProbeSource(opened.name, subsets, skipped)

    def draw(items: Iterable[Passage | SkippedText]) -> tuple[int, list[Passage | SkippedText]]:
        """Return what cannot be read, then the passages that may be drawn, in the order in which
        `ProbeData.sample` draws.
        """
        unread: list[Passage | SkippedText] = []
        passages: list[Passage] = []
        number = 0
        for item in items:
            number += 1
            if isinstance(item, SkippedText):
                unread.append(item)
            elif selection.accepts(item.text, None):
                passages.append(item)
        passages.sort(key=lambda passage: (passage.text, passage.name))
        Random(selection.seed).shuffle(passages)
        return number, unread + passages

    texts = draw_texts(opened, limit, draw)
    documents = {text.name: text.text for text in texts.texts}
    data = ProbeData(documents, language=texts.language, revision=opened.find_revision())
    return ProbeSource(opened.name, {texts.language: lambda: data}, texts.skipped)


def _read_subset(subset: Subset) -> ProbeData:
    return ProbeData.from_position_data(subset.read(), subset.corpus_language)
