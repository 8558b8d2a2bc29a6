"""Load the base model, and build the training data."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from datasets import Dataset
from huggingface_hub import ModelCard
from torch import Tensor

from posir_tasks.base.batches import split_batches
from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import track
from posir_tasks.base.wording import pluralize
from posir_tasks.data.formats.passages import Passage
from posir_tasks.datasets.opening import open_data
from posir_tasks.models.folder import is_model_folder, read_model_name
from posir_tasks.models.prompts import DOCUMENT_PROMPTS
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import load_model
from posir_tasks.models.rerankers import ModelReranker, compute_margin
from posir_tasks.models.window import find_capacity
from posir_tasks.text.interventions import find_parts
from posir_tasks.text.tokenizer import ModelTokenizer, Tokenizer, TokenSpans
from posir_tasks.text.words import count_words
from posir_train.batches import BatchPlan, format_counts, sample_examples
from posir_train.examples import (
    Example,
    Examples,
    TokenizedExample,
    split_by_article,
    tokenize_examples,
)
from posir_train.settings import (
    Objective,
    Position,
    TrainingSettings,
    strip_folders,
)

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

#: Minimum number of words in a negative.
MIN_WORDS = 5
#: Number of examples per reranker batch.
RERANKER_BATCH_SIZE = 64


def load_base_model(settings: TrainingSettings) -> SentenceTransformer:
    """Load the model to train and apply the settings for window, pooling and prompt.

    Raises:
        PosirError: The model is not a dense sentence-transformers model, or does not support a
            setting.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling as PoolingModule

    name = settings.model
    wrapper = load_model(ModelReference(name, settings.revision))
    model = getattr(wrapper, "model", None)
    if type(model) is not SentenceTransformer:
        raise PosirError(
            f"{name}: not a dense sentence-transformers model. Only dense sentence-transformers "
            "models can be trained. Choose another model."
        )
    window = settings.window
    if window is not None:
        capacity = find_capacity(model)
        if capacity is not None and window > capacity:
            raise PosirError(
                f"window {window}: {name} reads at most {capacity} tokens. Choose a smaller "
                "window, or another model."
            )
        model.max_seq_length = window
    if settings.pooling is not None:
        modules = [module for module in model if isinstance(module, PoolingModule)]
        if len(modules) != 1 or not isinstance(modules[0].pooling_mode, str):
            raise PosirError(f"{name}: its pooling cannot be changed. Train it without --pooling.")
        modules[0].pooling_mode = settings.pooling
    if settings.query_prompt is not None:
        model.prompts["query"] = settings.query_prompt
    folder = Path(name).expanduser()
    model.model_card_data.base_model = (
        find_base_name(folder) if is_model_folder(folder) else wrapper.mteb_model_meta.name
    )
    return model


def find_base_name(folder: Path) -> str:
    """Return the base model named in the folder's model card. Default to the folder name."""
    try:
        base = ModelCard.load(folder / "README.md", ignore_metadata_errors=True).data.base_model
    except Exception:
        # Train even if the card is missing or invalid.
        base = None
    first_base = base[0] if isinstance(base, list) and base else base
    return first_base if isinstance(first_base, str) and first_base else read_model_name(folder)


@dataclass(frozen=True)
class ModelWindow:
    """A model's tokenizer and context window."""

    tokenizer: ModelTokenizer
    size: int | None
    """Window in tokens; None if unlimited."""
    added_tokens: int
    """Number of special and prompt tokens added to each text."""

    @classmethod
    def from_model(cls, model: SentenceTransformer, name: str) -> ModelWindow:
        """Read a model's window. Raise PosirError if its tokenizer does not return offsets."""
        tokenizer = ModelTokenizer(model.tokenizer)
        if not tokenizer.returns_offsets:
            raise PosirError(
                f"{name}: its tokenizer does not return token offsets. Choose a model with "
                "a fast tokenizer."
            )
        added_tokens = tokenizer.special_tokens
        prompt = next(filter(None, map(model.prompts.get, DOCUMENT_PROMPTS)), None)
        if prompt:
            added_tokens += tokenizer.count(prompt)
        return cls(tokenizer, model.max_seq_length, added_tokens)

    def contains_evidence(self, source: TokenizedExample) -> bool:
        """Return True if the whole evidence is within the window."""
        return self.size is None or source.last + self.added_tokens <= self.size

    def check_evidence(self, sources: Sequence[TokenizedExample], name: str) -> None:
        """Raise PosirError if the evidence of any question is truncated."""
        truncated_ends = [source.last for source in sources if not self.contains_evidence(source)]
        if truncated_ends:
            raise PosirError(
                f"{name}: the evidence of {len(truncated_ends):,} of "
                f"{pluralize(len(sources), 'question')} is truncated by the model's window of "
                f"{self.size:,} tokens, so the model cannot learn to find it. Set a larger window "
                f"with --set window={max(truncated_ends) + self.added_tokens}, leave out these "
                "questions with --set drop_beyond=true, or cut windows with `posir compose`."
            )


def build_pairs(
    texts: Sequence[str], tokenizer: Tokenizer, objective: Objective, seed: int
) -> Dataset:
    """Build a positive and a negative pair per text, as columns `first`, `second` and `label`.

    Both texts of a positive pair are samples of the same text. As in the published code, a negative
    pair consists of the first sample of a text and the second sample of the next text.

    Raises:
        PosirError: There are fewer than two texts.
    """
    if len(texts) < 2:
        raise PosirError(f"objective {objective}: needs at least two different texts.")
    rng = random.Random(seed)

    def sample_half(text: str, tokens: TokenSpans) -> str:
        """Return half of the tokens of a text, from a random start."""
        count = len(tokens)
        if count < 2:
            return text
        start = int(count * rng.uniform(0, 0.5))
        return text[tokens[start, 0] : tokens[start + count // 2 - 1, 1]]

    first = []
    second = []
    for text, tokens in zip(texts, tokenizer.find_tokens(texts), strict=True):
        first.append(sample_half(text, tokens))
        second.append(sample_half(text, tokens))
    negative_label = 0 if objective == "pads-published" else -1
    labels = [1] * len(texts) + [negative_label] * len(texts)
    return Dataset.from_dict(
        {"first": first * 2, "second": second + second[1:] + second[:1], "label": labels}
    )


class PadsLoss(torch.nn.Module):
    """PyTorch's CosineEmbeddingLoss on the embeddings of two columns."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model
        self.loss = torch.nn.CosineEmbeddingLoss()

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """Return the mean loss of a batch of pairs. Labels are 1, -1 or 0, shape (pairs,)."""
        first, second = (
            self.model(features)["sentence_embedding"] for features in sentence_features
        )
        loss: Tensor = self.loss(first, second, labels.to(first.dtype))
        return loss


def cut_negatives(example: Example) -> list[str]:
    """Cut two passages without evidence out of a document. Return an empty list if the document is
    too short.

    The passages are the other two thirds, by words. If the evidence spans several thirds, the
    passages are the text before and the text after the evidence. If one of these is too short, the
    other is split in half.
    """
    text = example.document.text
    passages = [
        span.slice(text)
        for span in find_parts(text, len(Position))
        if span.end <= example.start or span.start >= example.end
    ]
    if len(passages) != 2:
        passages = [text[: example.start].strip(), text[example.end :].strip()]
    if not _has_enough_words(passages):
        longer_passage = max(passages, key=len)
        passages = [span.slice(longer_passage) for span in find_parts(longer_passage, 2)]
    return passages if _has_enough_words(passages) else []


def _has_enough_words(texts: Sequence[str]) -> bool:
    return all(count_words(text) >= MIN_WORDS for text in texts)


def filter_by_margin(
    examples: Sequence[Example], rerankers: Sequence[ModelReranker], margin: float
) -> list[Example]:
    """Keep the examples with at least the given margin.

    The margin follows 'Built-in or learned?' (arXiv 2605.26578, section 3.1): the score of the
    third with the evidence minus the highest score of the other thirds, and the minimum of this
    difference over rerankers. Scores are in [0, 1]; the paper's threshold is 0.3. The filter favors
    evidence at the beginning, so positions are balanced later.
    """
    thirds = {example: find_parts(example.document.text, len(Position)) for example in examples}
    usable = [example for example in examples if len(thirds[example]) == len(Position)]
    pairs = [
        (example.question, span.slice(example.document.text))
        for example in usable
        for span in thirds[example]
    ]
    batches = split_batches(pairs, RERANKER_BATCH_SIZE * len(Position))
    scores = []
    with track("Filtering by margin (questions)", len(usable) * len(rerankers)) as advance:
        for reranker in rerankers:
            for _, batch_scores in reranker.score_batches(batches):
                scores.append(batch_scores)
                advance(len(batch_scores) // len(Position))
    by_reranker = np.concatenate([*scores, []]).reshape(len(rerankers), -1, len(Position))
    return [
        example
        for row, example in enumerate(usable)
        if compute_margin(by_reranker[:, row], example.position) >= margin
    ]


@dataclass(frozen=True)
class PreparedData:
    """Training data and held-out data, with no articles in common."""

    dataset: Dataset
    """Training columns in the order that the loss expects."""
    plan: BatchPlan | None
    """Plan of the batches; None for objectives that ignore positions."""
    description: str
    """Name and size of the training data, such as `PosIR-Mini: 120 questions about 12 articles
    (begin 40, middle 40, end 40)`.
    """
    articles: set[str]
    """Articles in the training data."""
    notes: Sequence[str]
    """Notes about questions that were left out."""
    held_out: Examples


def prepare_data(settings: TrainingSettings, data: Examples, window: ModelWindow) -> PreparedData:
    """Split examples into training and held-out data, and build the training columns."""
    if settings.objective != "retrieval":
        return _prepare_pads(settings, data, window)
    sources = tokenize_examples(data, window.tokenizer)
    if not settings.drop_beyond:
        window.check_evidence(sources, data.name)
    training, held_out = split_by_article(data, settings.held_out, settings.article_seed)
    within_window = {source.example for source in sources if window.contains_evidence(source)}
    # Held-out data keeps truncated evidence, so that the report measures the loss.
    examples = [example for example in training.examples if example in within_window]
    notes = _describe_removal(training.examples, examples, "with evidence beyond the window")
    if settings.rerankers:
        rerankers = [ModelReranker(ModelReference(name), "eng-Latn") for name in settings.rerankers]
        total = len(examples)
        examples = filter_by_margin(examples, rerankers, settings.margin)
        questions = pluralize(total - len(examples), "question")
        notes.append(f"left out: {questions} with a margin below {settings.margin:g}")
    negatives = {}
    if settings.hard_negatives:
        passages = {example: cut_negatives(example) for example in examples}
        negatives = {example: pair for example, pair in passages.items() if pair}
        notes += _describe_removal(examples, negatives, "with documents too short for negatives")
        examples = list(negatives)
    # The loss expects the columns in this order.
    columns = {
        "anchor": [example.question for example in examples],
        "positive": [example.document.text for example in examples],
    }
    for number, column in enumerate(zip(*negatives.values(), strict=True), 1):
        columns[f"negative_{number}"] = list(column)
    lengths = list(map(len, columns["positive"]))
    rows = sample_examples(examples, lengths, settings.weights, settings.budget, settings.seed)
    sample = [examples[row] for bin_rows in rows.values() for row in bin_rows]
    if len(sample) < len(examples):
        notes.append(
            f"sampled: {len(sample):,} of {pluralize(len(examples), 'question')}, from "
            f"{pluralize(len(rows), 'length bin')} (budget {settings.budget})"
        )
    articles = {example.document.article for example in sample}
    counts = Counter(example.position for example in sample)
    questions = pluralize(len(sample), "question")
    about_articles = f"about {pluralize(len(articles), 'article')}"
    return PreparedData(
        Dataset.from_dict(columns),
        BatchPlan(tuple(examples), rows, settings.weights, settings.per_article),
        f"{data.name}: {questions} {about_articles} ({format_counts(counts)})",
        articles,
        notes,
        held_out,
    )


def _describe_removal(
    examples: Collection[Example], selection: Collection[Example], reason: str
) -> list[str]:
    count = len(examples) - len(selection)
    return [f"left out: {pluralize(count, 'question')} {reason}"] if count else []


def _prepare_pads(settings: TrainingSettings, data: Examples, window: ModelWindow) -> PreparedData:
    """Build PADS pairs from `settings.texts` or, by default, from documents not held out."""
    articles = set[str]()
    if settings.texts is None:
        _, held_out = split_by_article(data, settings.held_out, settings.article_seed)
        name = data.name
        documents = [
            document for document in data.corpus if document.article not in held_out.articles
        ]
        texts = {document.text for document in documents}
        articles = {document.article for document in documents}
    else:
        held_out = data
        name = strip_folders(settings.texts)
        passages = open_data(settings.texts).read_texts()
        texts = {passage.text for passage in passages if isinstance(passage, Passage)}
    usable_texts = sorted(text for text in texts if text.strip())
    dataset = build_pairs(usable_texts, window.tokenizer, settings.objective, settings.seed)
    description = (
        f"{name}: {pluralize(len(dataset), 'pair')} of {pluralize(len(usable_texts), 'text')}"
    )
    return PreparedData(dataset, None, description, articles, (), held_out)
