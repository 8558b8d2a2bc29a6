"""Preparation of examples: the columns that a loss takes, and the examples that models are measured with."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor

from posir_tasks.display.progress import progress
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import PosirError
from posir_tasks.interventions import find_parts
from posir_tasks.models.references import ModelReference
from posir_tasks.models.rerankers import BatchReranker, ModelReranker, compute_margin
from posir_tasks.sources.formats.passages import Passage
from posir_tasks.sources.opening import open_data
from posir_tasks.text.tokenizer import Tokenizer, TokenSpans
from posir_tasks.text.words import count_words
from posir_train.examples import Example, Examples, split_by_article
from posir_train.model import ModelReader
from posir_train.sampler import BatchPlan, build_cells
from posir_train.settings import Objective, Position, TrainingSettings, display_name

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def build_pairs(texts: Sequence[str], tokenizer: Tokenizer, objective: Objective, seed: int) -> Dataset:
    """Return a positive and a negative pair for each text, as columns `first`, `second` and `label`.

    Negatives are the second samples of the next text, as in the published code.

    Raises:
        PosirError: There are fewer than two texts.
    """
    if len(texts) < 2:
        raise PosirError(f"objective {objective.value}: needs at least two different texts.")
    rng = random.Random(seed)
    samples = [
        [_sample(text, tokens, rng) for _ in range(2)] for text, tokens in zip(texts, tokenizer.find_tokens(texts), strict=True)
    ]
    positives = [(first, second, 1) for first, second in samples]
    negatives = [
        (first, other, objective.negative_label)
        for (first, _), (_, other) in zip(samples, [*samples[1:], samples[0]], strict=True)
    ]
    columns = zip(*[*positives, *negatives], strict=True)
    return Dataset.from_dict(dict(zip(("first", "second", "label"), map(list, columns), strict=True)))


def _sample(text: str, tokens: TokenSpans, rng: random.Random) -> str:
    count = len(tokens)
    if count < 2:
        return text
    start = int(count * rng.uniform(0, 0.5))
    return text[int(tokens[start][0]) : int(tokens[start + count // 2 - 1][1])]


class PadsLoss(torch.nn.Module):
    """torch's CosineEmbeddingLoss of the embeddings of two columns."""

    def __init__(self, model: SentenceTransformer, margin: float = 0.0) -> None:
        super().__init__()
        self.model = model
        self.loss = torch.nn.CosineEmbeddingLoss(margin=margin)

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """Return the mean loss of a batch of pairs with labels 1, -1 or 0."""
        first, second = (self.model(features)["sentence_embedding"] for features in sentence_features)
        loss: Tensor = self.loss(first, second, labels.to(first.dtype))
        return loss


#: Fewest words of a negative.
FEWEST_WORDS = 5
#: Examples scored at a time.
BLOCK = 64


def cut_negatives(example: Example) -> tuple[str, str] | None:
    """Return two parts of a document without any of the evidence; None if the rest of the document is too short.

    They are the two other thirds, by words. Where the evidence is in several thirds, they are what is before and after it, or
    two halves of the longer one if the other has almost no words.
    """
    text, start, end = example.document.text, example.start, example.end
    parts = [text[slice(*span)] for span in find_parts(text, len(Position)) if span[1] <= start or span[0] >= end]
    if len(parts) != len(Position) - 1:
        parts = [text[:start].strip(), text[end:].strip()]
    if any(count_words(part) < FEWEST_WORDS for part in parts):
        longer = max(parts, key=len)
        parts = [longer[slice(*span)] for span in find_parts(longer, 2)]
    return (parts[0], parts[1]) if all(count_words(part) >= FEWEST_WORDS for part in parts) else None


def filter_by_margin(examples: Sequence[Example], rerankers: Sequence[BatchReranker], margin: float) -> list[Example]:
    """Return the examples whose evidence third answers the question better than both other thirds, by a margin.

    The margin is that of 'Built-in or learned?' (arXiv 2605.26578, section 3.1): the smallest over rerankers of the score of
    the third with the evidence minus the larger one of the other two. The filter keeps more evidence at the beginning than
    elsewhere, so positions are balanced after it.

    Args:
        examples: Questions with their documents.
        rerankers: With scores in [0, 1].
        margin: The smallest to keep; the paper's is 0.3.
    """
    blocks = [examples[start : start + BLOCK] for start in range(0, len(examples), BLOCK)]
    kept: list[Example] = []
    for block in progress(blocks, "Filtering by margin"):
        thirds = [find_parts(example.document.text, len(Position)) for example in block]
        usable = [(example, spans) for example, spans in zip(block, thirds, strict=True) if len(spans) == len(Position)]
        pairs = [(example.question, example.document.text[slice(*span)]) for example, spans in usable for span in spans]
        if not pairs:
            continue
        scores = np.stack(
            [scores.reshape(-1, len(Position)) for reranker in rerankers for _, scores in reranker.score_batches([pairs])]
        )
        kept += [
            example for row, (example, _) in enumerate(usable) if compute_margin(scores[:, row], example.position) >= margin
        ]
    return kept


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
        rerankers = [ModelReranker(ModelReference(name), "eng-Latn") for name in settings.rerankers]
        examples = filter_by_margin(examples, rerankers, settings.margin)
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


def _count(examples: Sequence[Example]) -> str:
    counts = Counter(example.position for example in examples)
    return ", ".join(f"{position.title} {counts[position]:,}" for position in Position)
