"""Preparation of a training: the model with its pooling and window, and the columns that a loss takes of the examples."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from datasets import Dataset
from huggingface_hub import ModelCard
from torch import Tensor

from posir_tasks.display.progress import progress
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import PosirError
from posir_tasks.interventions import find_parts
from posir_tasks.models.folder import is_model_folder, name_folder
from posir_tasks.models.prompts import DOCUMENT_PROMPTS
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import load_model
from posir_tasks.models.rerankers import BatchReranker, ModelReranker, compute_margin
from posir_tasks.sources.formats.passages import Passage
from posir_tasks.sources.opening import open_data
from posir_tasks.text.tokenizer import ModelTokenizer, Tokenizer, TokenSpans
from posir_tasks.text.words import count_words
from posir_train.composing import TokenizedExample, tokenize_examples
from posir_train.examples import Example, Examples, split_by_article
from posir_train.sampler import BatchPlan, group_by_cell
from posir_train.settings import Objective, Pooling, Position, TrainingSettings, display_name

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

#: Types of models whose positions begin after the id of the padding token.
ROBERTA = ("roberta", "xlm-roberta", "camembert")


def load_base(settings: TrainingSettings) -> SentenceTransformer:
    """Load the model to train, with the changes that the settings ask for.

    Raises:
        PosirError: There is no such model, it is none that sentence-transformers can train, or it has no such window.
    """
    from sentence_transformers import SentenceTransformer

    name = settings.model
    wrapper = load_model(ModelReference(name, settings.revision))
    loaded = getattr(wrapper, "model", None)
    if type(loaded) is not SentenceTransformer:
        raise PosirError(f"{name}: not a dense model of sentence-transformers, which alone can be trained.")
    if settings.window is not None:
        _set_window(loaded, settings.window, name)
    if settings.pooling is not None:
        _set_pooling(loaded, settings.pooling, name)
    if settings.query_prompt is not None:
        loaded.prompts["query"] = settings.query_prompt
    folder = Path(name).expanduser()
    loaded.model_card_data.base_model = find_base(folder) if is_model_folder(folder) else wrapper.mteb_model_meta.name
    return loaded


def find_base(folder: Path) -> str:
    """Return what the model in a folder was made from, by its card; if that does not say, the model's own name."""
    try:
        stated = ModelCard.load(folder / "README.md", ignore_metadata_errors=True).data.base_model
    except Exception:  # there is no card, or a mistake in it, which is no reason not to train the model
        stated = None
    named = stated[0] if isinstance(stated, list) and stated else stated
    return named if isinstance(named, str) and named else name_folder(folder)


def _set_pooling(model: SentenceTransformer, pooling: Pooling, name: str) -> None:
    from sentence_transformers.sentence_transformer.modules import Pooling as PoolingModule

    modules = [module for module in model if isinstance(module, PoolingModule)]
    if len(modules) != 1 or not isinstance(modules[0].pooling_mode, str):
        raise PosirError(f"{name}: its pooling cannot be exchanged. Train it without --pooling.")
    modules[0].pooling_mode = pooling.value


def _set_window(model: SentenceTransformer, window: int, name: str) -> None:
    longest = longest_window(model)
    if longest is not None and window > longest:
        raise PosirError(f"window {window}: {name} reads {longest} tokens at most. Choose a smaller one, or another model.")
    model.max_seq_length = window


def longest_window(model: SentenceTransformer) -> int | None:
    """Return the most tokens that a model can read by its position embeddings; None if there is no limit."""
    config: Any = getattr(model[0], "config", None)
    limit = getattr(config, "max_position_embeddings", None)
    if not isinstance(limit, int):
        return None
    # RoBERTa counts positions from the id of the padding token.
    return limit - config.pad_token_id - 1 if config.model_type in ROBERTA else limit


@dataclass(frozen=True)
class ModelReader:
    """Finds the part of a document that a model reads."""

    tokens: ModelTokenizer
    window: int | None
    longest: int | None
    extra: int
    """Special tokens, and those of the prompt."""

    @classmethod
    def of_model(cls, model: SentenceTransformer, name: str) -> ModelReader:
        """Return the reader of a model; PosirError if its tokenizer does not say where tokens are."""
        tokenizer = ModelTokenizer(model.tokenizer)
        if not tokenizer.locates_tokens:
            raise PosirError(
                f"{name}: its tokenizer does not say where its tokens are in a text. Choose a model with a fast one."
            )
        prompt = next((model.prompts[name] for name in DOCUMENT_PROMPTS if model.prompts.get(name)), "")
        extra = tokenizer.special_tokens + (tokenizer.count(prompt) if prompt else 0)
        return cls(tokenizer, model.max_seq_length, longest_window(model), extra)

    def reads_evidence(self, source: TokenizedExample) -> bool:
        """Return whether the window has all of the evidence."""
        return self.window is None or source.last + self.extra <= self.window

    def refuse_beyond(self, sources: Sequence[TokenizedExample], name: str) -> None:
        """Raise PosirError if the model does not read the evidence of some questions; it says how many, and what to do."""
        beyond = [source for source in sources if not self.reads_evidence(source)]
        if not beyond:
            return
        needed = max(source.last for source in beyond) + self.extra
        advice = f"Give --set window={needed}"
        if self.longest is not None and needed > self.longest:
            advice = f"They need one of {needed:,}, and the model reads {self.longest:,} at most: train another model"
        raise PosirError(
            f"{name}: the evidence of {len(beyond):,} of {pluralize(len(sources), 'question')} is beyond the model's window of "
            f"{self.window:,} tokens, where it cannot learn to find it. {advice}, leave these questions out with "
            "--set drop_beyond=true, or cut windows with `posir compose`."
        )


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
    the third with the evidence minus the larger one of the other two; the paper's threshold is 0.3. The filter keeps more
    evidence at the beginning than elsewhere, so positions are balanced after it. Scores are in [0, 1].
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

    Raises:
        PosirError: The model does not read some evidence, there are too few articles, or a position is empty.
    """
    if settings.objective is not Objective.RETRIEVAL:
        return _prepare_pads(settings, data, reader)
    sources = tokenize_examples(data, reader.tokens)
    if not settings.drop_beyond:
        reader.refuse_beyond(sources, data.name)
    training_examples, held_out = split_by_article(data, settings.held_out, settings.seed)
    readable = {source.example for source in sources if reader.reads_evidence(source)}
    # What is measured keeps the evidence beyond the window: the model fails on it, and the report says so.
    read = [example for example in training_examples.examples if example in readable]
    training = _form_pairs(settings, data.name, read)
    beyond = len(training_examples.examples) - len(read)
    notes = (f"left out: {pluralize(beyond, 'question')} with evidence beyond the window",) if beyond else ()
    return PreparedData(replace(training, notes=(*notes, *training.notes)), held_out)


def _prepare_pads(settings: TrainingSettings, data: Examples, reader: ModelReader) -> PreparedData:
    """Form pairs of texts; questions and windows play no part."""
    if settings.texts is not None:
        passages = [passage for passage in open_data(settings.texts).read_texts() if isinstance(passage, Passage)]
        texts, articles, held_out = {passage.text for passage in passages}, frozenset[str](), data
    else:
        _, held_out = split_by_article(data, settings.held_out, settings.seed)
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
    cells = group_by_cell(examples, lengths, settings.weights, settings.budget, settings.seed)
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
