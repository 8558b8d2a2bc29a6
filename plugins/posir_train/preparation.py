"""Preparation of examples: the columns that a loss takes, and the examples that models are measured with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from datasets import Dataset

from posir_tasks.display.wording import pluralize
from posir_tasks.sources.formats.passages import Passage
from posir_tasks.sources.opening import open_data
from posir_train.examples import Example, Examples, split_by_article
from posir_train.model import ModelReader
from posir_train.negatives import cut_negatives, filter_by_margin
from posir_train.pads import build_pairs
from posir_train.positions import Position
from posir_train.sampler import BatchPlan, build_cells
from posir_train.settings import Objective, TrainingSettings
from posir_train.sources import display_name

if TYPE_CHECKING:
    from posir_build.rerankers import ModelReranker


@dataclass(frozen=True)
class TrainingData:
    """The data that a model is trained on."""

    dataset: Dataset
    plan: BatchPlan | None
    """None for objectives without positions."""
    description: str
    """Name and size, such as `PosIR-Mini: 120 questions about 12 articles (begin 40, middle 40, end 40)`."""
    articles: frozenset[str]
    notes: tuple[str, ...]
    """Notes on what was left out, and why."""


@dataclass(frozen=True)
class PreparedData:
    """The data for training and for measuring: no article is in both."""

    training: TrainingData
    held_out: Examples


def prepare_data(settings: TrainingSettings, data: Examples, reader: ModelReader) -> PreparedData:
    """Divide examples into training and held-out ones, and form the columns of the loss.

    Args:
        settings: How to divide them, and which columns.
        data: Examples of all articles.
        reader: What the model reads of their documents.

    Raises:
        PosirError: The model does not read some evidence, there are too few articles, or a position is empty.
    """
    if settings.objective is not Objective.RETRIEVAL:
        return _prepare_pads(settings, data, reader)
    sources = reader.tokenize(data)
    if not settings.drop_beyond:
        reader.refuse_beyond(sources, data.name)
    split = split_by_article(data, settings.held_out, settings.seed)
    readable = {source.example for source in sources if reader.reads_evidence(source)}
    # What is measured keeps the evidence beyond the window: the model fails on it, and the report says so.
    read = [example for example in split.training.examples if example in readable]
    training = _form_pairs(settings, data.name, read)
    beyond = len(split.training.examples) - len(read)
    notes = (f"left out: {pluralize(beyond, 'question')} with evidence beyond the window",) if beyond else ()
    return PreparedData(replace(training, notes=(*notes, *training.notes)), split.held_out)


def _prepare_pads(settings: TrainingSettings, data: Examples, reader: ModelReader) -> PreparedData:
    """Form pairs of texts; questions and windows play no part."""
    if settings.texts is not None:
        passages = [passage for passage in open_data(settings.texts).read_texts() if isinstance(passage, Passage)]
        texts, articles, held_out = {passage.text for passage in passages}, frozenset[str](), data
    else:
        held_out = split_by_article(data, settings.held_out, settings.seed).held_out
        documents = [document for document in data.corpus if document.article not in held_out.articles]
        texts = {document.text for document in documents}
        articles = frozenset(document.article for document in documents)
    kept = sorted(text for text in texts if text.strip())
    dataset = build_pairs(kept, reader.tokens, settings.objective, settings.seed)
    source = data.name if settings.texts is None else display_name(settings.texts)
    description = f"{source}: {pluralize(len(dataset), 'pair')} of {pluralize(len(kept), 'text')}"
    return PreparedData(TrainingData(dataset, None, description, articles, ()), held_out)


def _form_pairs(settings: TrainingSettings, name: str, examples: Sequence[Example]) -> TrainingData:
    """Return questions and their documents, with the hard negatives that the settings ask for."""
    notes: list[str] = []
    total = len(examples)
    if settings.rerankers:
        examples = filter_by_margin(examples, _load_rerankers(settings.rerankers), settings.margin)
        removed = pluralize(total - len(examples), "question")
        notes.append(f"left out: {removed} with a margin below {settings.margin:g}")
    negatives: dict[str, list[str]] = {}
    if settings.hard_negatives:
        parts_of = {example: parts for example in examples if (parts := cut_negatives(example))}
        if len(parts_of) < len(examples):
            notes.append(f"left out: {pluralize(len(examples) - len(parts_of), 'question')} whose document has no other parts")
        examples = list(parts_of)
        negatives = {f"negative_{number + 1}": [parts[number] for parts in parts_of.values()] for number in range(2)}
    lengths = [len(example.document.text) for example in examples]
    cells = build_cells(examples, lengths, settings.weights, settings.budget, settings.seed)
    drawn = [examples[row] for row in cells.drawn]
    if len(drawn) < len(examples):
        notes.append(
            f"drawn: {len(drawn):,} of {pluralize(len(examples), 'question')}, from {pluralize(len(cells.rows), 'length bin')} "
            f"(budget {settings.budget})"
        )
    columns = {
        "anchor": [example.question for example in examples],
        "positive": [example.document.text for example in examples],
        **negatives,
    }
    plan = BatchPlan(tuple(examples), cells, settings.per_article)
    articles = frozenset(example.document.article for example in drawn)
    description = f"{pluralize(len(drawn), 'question')} about {pluralize(len(articles), 'article')} ({_count(drawn)})"
    return TrainingData(Dataset.from_dict(columns), plan, f"{name}: {description}", articles, tuple(notes))


def _load_rerankers(names: Sequence[str]) -> list[ModelReranker]:
    # The settings of `posir build` need a package that training does not.
    from posir_build.rerankers import ModelReranker
    from posir_build.settings import RerankerSettings

    return [ModelReranker(RerankerSettings(model=name), "eng-Latn") for name in names]


def _count(examples: Sequence[Example]) -> str:
    counts = Counter(example.position for example in examples)
    return ", ".join(f"{position.title} {counts[position]:,}" for position in Position)
