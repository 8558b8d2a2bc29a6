"""The interface of a probe, and the texts that it measures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from posir_probe.sums import ProbeSums
from posir_tasks.cells import Floats
from posir_tasks.embeddings.encoding import Embeddings, Encoder, encode_distinct
from posir_tasks.interventions import NO_SPAN
from posir_tasks.sources.data import PositionData
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import EstimatedTokenizer, Tokenizer
from posir_tasks.text.words import count_words
from posir_tasks.tokens import estimate_tokens

#: Fewest words of a text that probes cut into parts.
FEWEST_WORDS = 10
TOO_SHORT = f"fewer than {FEWEST_WORDS} words"
#: Below it, a difference of cosines in single precision is rounding error.
ROUNDING = 1e-6
NO_EVIDENCE = "no evidence span"
NO_END = "the data has where an answer starts, not where it ends"

#: Maps the values at all positions, shape (..., P), to one number, shape (...).
Summary: TypeAlias = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Preference:
    """The relation of the first summary of a probe to the end of a text that a model prefers."""

    neutral: float = 0.0
    """Value of the summary without a preference."""
    sign: int = 1
    """1 if larger values are a preference for the start, -1 if smaller ones are."""

    def orient(self, value: float) -> float:
        """Return the preference for the start: positive for the start, negative for the end."""
        return self.sign * (value - self.neutral)


#: Larger values are a preference for the start, 0 is none.
POSITIVE_IS_START = Preference()


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

    The defaults are those of the code of PosQ (arXiv 2505.13950, A.4): the texts in order, shuffled with seed 1. For its
    table 4 that code takes texts of more than 100 and fewer than 512 words (SQuAD v2), or of 200 and 500 (FineWeb-Edu),
    counted between spaces.
    """

    seed: int = 1
    words: tuple[int, int] | None = None
    """More than the first and fewer than the second number of words are between the spaces of a text; None for any."""
    tokens: int = 0
    """Fewest tokens of a document, as the data states them, or else estimated from bytes."""

    def accepts(self, text: str, tokens: int | None) -> bool:
        """Return whether a document may be drawn; `tokens` are those that the data states, None if it does not."""
        words = len(text.split(" "))
        return (self.words is None or self.words[0] < words < self.words[1]) and (
            not self.tokens or (tokens if tokens is not None else estimate_tokens(text)) >= self.tokens
        )

    def __str__(self) -> str:
        words = f", more than {self.words[0]} and fewer than {self.words[1]} words" if self.words else ""
        return f"seed {self.seed}{words}{f', at least {self.tokens} tokens' if self.tokens else ''}"


@dataclass(frozen=True)
class Needle:
    """A sentence of a document, a question about it, and sentences of other documents that are nearly its meaning."""

    document: str
    """Id of the document."""
    question: str
    sentence: str
    rest: tuple[str, ...]
    """The document's other sentences, in order."""
    near_misses: tuple[str, ...]
    """The most similar first."""


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
    tokenizer: Tokenizer = field(default_factory=EstimatedTokenizer)
    """Tokenizer of the model, where it has one here: what probes count as tokens."""
    translations: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The documents in every language that all of them have, text by id, by language; empty where the data is of one."""
    room: int | None = None
    """Most of its tokens that fit the model's window, with the prompt; None if that is unknown."""
    needles: tuple[Needle, ...] = ()
    """Needles in documents, where there is a model that writes questions about them."""

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> ProbeData:
        """Return texts without questions, named by their number."""
        return cls({str(number): text for number, text in enumerate(texts)})

    @classmethod
    def from_position_data(cls, data: PositionData) -> ProbeData:
        """Return the corpus of a task and its questions, with as much of the evidence as the data has."""
        evidence = data.evidence
        starts = evidence.starts.tolist() if len(evidence.starts) else [None] * len(evidence)
        spans = data.place_spans() or [NO_SPAN] * len(evidence)
        questions = (
            ProbeQuestion(text, document, span, None if data.has_spans else start)
            for text, document, span, start in zip(data.queries["text"], evidence.document_ids, spans, starts, strict=True)
        )
        return cls(
            dict(zip(data.corpus["id"], data.corpus["text"], strict=True)),
            tuple(questions),
            tokens=dict(zip(evidence.document_ids, evidence.tokens.tolist(), strict=True)) if len(evidence.tokens) else {},
        )

    def sample(self, documents: int, selection: Selection = ANY, *, asked_about: bool = True) -> ProbeData:
        """Return a random sample of documents, in random order, and their questions.

        All other documents are distractors, so that questions are searched in the whole corpus.

        Args:
            documents: Most documents.
            selection: Which may be drawn, and the seed.
            asked_about: Whether only documents with questions are drawn, if there are any.
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
        others = {name: text for name, text in self.documents.items() if name not in sampled.documents}
        return replace(sampled, distractors={**self.distractors, **others})

    def blocks(self, size: int) -> Iterator[ProbeData]:
        """Yield the data in blocks of at most `size` documents."""
        names = list(self.documents)
        for start in range(0, len(names), size):
            yield self._select(names[start : start + size])

    def _select(self, names: Iterable[str]) -> ProbeData:
        documents = {name: self.documents[name] for name in names}
        questions = tuple(question for question in self.questions if question.document in documents)
        needles = tuple(needle for needle in self.needles if needle.document in documents)
        return replace(self, documents=documents, questions=questions, needles=needles, distractors={})


@dataclass(frozen=True)
class ProbePlan:
    """The texts that a probe needs encoded, and its evaluation of the embeddings."""

    summarize: Callable[[Embeddings], ProbeSums]
    documents: Sequence[str] = ()
    """Texts to encode as documents; repeated ones are encoded once."""
    queries: Sequence[str] = ()


class Probe(Protocol):
    """A measurement of a model on texts, or of the texts themselves."""

    @property
    def name(self) -> str:
        """Unique name, as in `--probe` and in results."""

    @property
    def title(self) -> str:
        """Title of what is measured, as headings print it, such as `Whole text and its thirds`."""

    @property
    def source(self) -> str:
        """Paper and section of the definition."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes that a reader of the values needs."""

    @property
    def summaries(self) -> Mapping[str, Summary]:
        """Summaries of the values by name; the first is the one that is correlated with retrieval."""


@runtime_checkable
class TextProbe(Probe, Protocol):
    """A probe that needs embeddings of texts alone, and shares them with other probes; it measures block by block."""

    def plan(self, data: ProbeData) -> ProbePlan:
        """Return what must be encoded to measure a block."""


@runtime_checkable
class ModelProbe(Probe, Protocol):
    """A probe that needs all texts at once, or the model itself."""

    def measure(self, encoder: Encoder, data: ProbeData) -> ProbeSums:
        """Measure a model.

        Raises:
            PosirError: The model does not have what the probe needs.
        """


@runtime_checkable
class QuestionProbe(Protocol):
    """A probe of questions: it measures documents that have some."""

    @property
    def needs_questions(self) -> bool:
        """Whether it does."""


@runtime_checkable
class ParallelProbe(Protocol):
    """A probe of documents in several languages."""

    @property
    def needs_translations(self) -> bool:
        """Whether it is."""


@runtime_checkable
class NeedleProbe(Protocol):
    """A probe of needles, whose questions another model writes."""

    @property
    def needs_needles(self) -> bool:
        """Whether it is."""


@runtime_checkable
class SpreadProbe(Protocol):
    """A probe whose figure shows the standard deviation of its values, too."""

    @property
    def shows_spread(self) -> bool:
        """Whether it does."""


@runtime_checkable
class DirectedProbe(Protocol):
    """A probe whose first summary says which end of a text a model prefers."""

    @property
    def preference(self) -> Preference:
        """Relation of its first summary to the end."""


@runtime_checkable
class ScatterProbe(Protocol):
    """A probe that counts points in the cells of a plane."""

    @property
    def cells(self) -> Sequence[tuple[str, float, float]]:
        """The panel of each position, and the middle of its cell on both axes."""

    @property
    def cell_size(self) -> tuple[float, float]:
        """Width and height of a cell."""


@runtime_checkable
class AveragedProbe(Protocol):
    """A probe whose figure has a panel of averages over its conditions."""

    @property
    def averages(self) -> Mapping[str, Summary]:
        """Averages by the name of their position, as `mean over sizes · 0 %`."""


def run_plans(encoder: Encoder, plans: Sequence[ProbePlan]) -> list[ProbeSums]:
    """Encode the texts of several plans in one pass, and return the sums of each."""
    embeddings = encode_distinct(
        encoder, (text for plan in plans for text in plan.documents), (text for plan in plans for text in plan.queries)
    ).normalize()
    return [plan.summarize(embeddings) for plan in plans]


def run_probe(probe: TextProbe | ModelProbe, encoder: Encoder, data: ProbeData) -> ProbeSums:
    """Measure all data with one probe, as a Python function does."""
    if isinstance(probe, ModelProbe):
        return probe.measure(encoder, data)
    (sums,) = run_plans(encoder, [probe.plan(data)])
    return sums


def needs_questions(probe: TextProbe | ModelProbe) -> bool:
    """Return whether a probe measures questions."""
    return isinstance(probe, QuestionProbe) and probe.needs_questions


def select_long_enough(data: ProbeData) -> tuple[list[tuple[str, str]], Counter[str]]:
    """Return id and text of the documents that can be cut into parts, and how many were skipped, by reason."""
    skipped: Counter[str] = Counter()
    long_enough = []
    for name, text in data.documents.items():
        if count_words(text) < FEWEST_WORDS:
            skipped["empty text" if not text.strip() else TOO_SHORT] += 1
        else:
            long_enough.append((name, text))
    return long_enough, skipped


def needs_translations(probe: TextProbe | ModelProbe) -> bool:
    """Return whether a probe measures documents in several languages."""
    return isinstance(probe, ParallelProbe) and probe.needs_translations


def needs_needles(probe: TextProbe | ModelProbe) -> bool:
    """Return whether a probe measures needles."""
    return isinstance(probe, NeedleProbe) and probe.needs_needles


def is_evidence(text: str, span: Span) -> bool:
    """Return whether a span holds words of a text."""
    start, end = span
    return 0 <= start < end <= len(text) and bool(text[start:end].strip())


def select_with_evidence(data: ProbeData) -> tuple[list[ProbeQuestion], Counter[str]]:
    """Return the questions whose evidence is a part of their document, and how many were skipped, by reason."""
    skipped: Counter[str] = Counter()
    with_evidence = []
    for question in data.questions:
        start, end = question.span
        text = data.documents[question.document]
        if not is_evidence(text, question.span):
            skipped[NO_EVIDENCE if question.start is None else NO_END] += 1
        elif not (text[:start] + text[end:]).strip():
            skipped["the evidence is the whole document"] += 1
        else:
            with_evidence.append(question)
    return with_evidence, skipped


def value_at(values: Floats, place: int) -> Floats:
    """Return the value at one position."""
    value: Floats = values[..., place]
    return value


def ignore_rounding(differences: Floats) -> Floats:
    """Return differences of cosines with those that are rounding errors as 0, so that no interval excludes 0 by them."""
    return np.where(np.abs(differences) < ROUNDING, 0.0, differences)


def start_to_end(values: Floats) -> Floats:
    """Return the first value minus the last: positive if the start counts more."""
    difference: Floats = values[..., 0] - values[..., -1]
    return difference


def value_range(values: Floats) -> Floats:
    """Return the largest value minus the smallest. Like every range it is biased upwards by sampling error."""
    extent: Floats = values.max(axis=-1) - values.min(axis=-1)
    return extent
