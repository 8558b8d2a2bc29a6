"""Preparation of a training: the model with its pooling and window, and the examples in the columns
of a loss.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
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
from posir_tasks.models.folder import is_model_folder, name_folder
from posir_tasks.models.prompts import DOCUMENT_PROMPTS
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import load_model
from posir_tasks.models.rerankers import ModelReranker, Scores, compute_margin
from posir_tasks.models.window import find_capacity
from posir_tasks.text.interventions import find_parts
from posir_tasks.text.tokenizer import ModelTokenizer, Tokenizer, TokenSpans
from posir_tasks.text.words import count_words
from posir_train.batches import BatchPlan, draw_examples
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
    display_name,
)

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

#: Minimum number of words of a negative.
MIN_WORDS = 5
#: Examples scored at a time.
BLOCK = 64


def load_base(settings: TrainingSettings) -> SentenceTransformer:
    """Load the model to train, with the changes that the settings ask for; raise PosirError if it
    cannot be trained so.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling as PoolingModule

    name = settings.model
    wrapper = load_model(ModelReference(name, settings.revision))
    loaded = getattr(wrapper, "model", None)
    if type(loaded) is not SentenceTransformer:
        raise PosirError(
            f"{name}: not a dense model of sentence-transformers, which alone can be trained."
        )
    if (window := settings.window) is not None:
        longest = find_capacity(loaded)
        if longest is not None and window > longest:
            raise PosirError(
                f"window {window}: {name} reads {longest} tokens at most. Choose a smaller one, "
                "or another model."
            )
        loaded.max_seq_length = window
    if settings.pooling is not None:
        modules = [module for module in loaded if isinstance(module, PoolingModule)]
        if len(modules) != 1 or not isinstance(modules[0].pooling_mode, str):
            raise PosirError(
                f"{name}: its pooling cannot be exchanged. Train it without --pooling."
            )
        modules[0].pooling_mode = settings.pooling
    if settings.query_prompt is not None:
        loaded.prompts["query"] = settings.query_prompt
    folder = Path(name).expanduser()
    loaded.model_card_data.base_model = (
        find_base(folder) if is_model_folder(folder) else wrapper.mteb_model_meta.name
    )
    return loaded


def find_base(folder: Path) -> str:
    """Read the base model of the model in a folder from its card; without one, return the model's
    own name.
    """
    try:
        base = ModelCard.load(folder / "README.md", ignore_metadata_errors=True).data.base_model
    except Exception:
        # There is no card, or a mistake in it, which is no reason not to train the model.
        base = None
    first = base[0] if isinstance(base, list) and base else base
    return first if isinstance(first, str) and first else name_folder(folder)


@dataclass(frozen=True)
class ModelReader:
    """Finds the part of a document that a model reads."""

    tokens: ModelTokenizer
    window: int | None
    extra: int
    """Special tokens, and those of the prompt."""

    @classmethod
    def of_model(cls, model: SentenceTransformer, name: str) -> ModelReader:
        """Return the reader of a model; raise PosirError if its tokenizer does not say where tokens
        are.
        """
        tokenizer = ModelTokenizer(model.tokenizer)
        if not tokenizer.locates_tokens:
            raise PosirError(
                f"{name}: its tokenizer does not say where its tokens are in a text. Choose a "
                "model with a fast one."
            )
        extra = tokenizer.special_tokens
        prompts = [model.prompts.get(name) for name in DOCUMENT_PROMPTS]
        if prompt := next(filter(None, prompts), None):
            extra += tokenizer.count(prompt)
        return cls(tokenizer, model.max_seq_length, extra)

    def reads_evidence(self, source: TokenizedExample) -> bool:
        """Tell whether all of the evidence is within the window."""
        return self.window is None or source.last + self.extra <= self.window

    def refuse_beyond(self, sources: Sequence[TokenizedExample], name: str) -> None:
        """Raise PosirError if the model does not read the evidence of some questions; it says how
        many, and what to do.
        """
        beyond = [source.last for source in sources if not self.reads_evidence(source)]
        if beyond:
            raise PosirError(
                f"{name}: the evidence of {len(beyond):,} of {pluralize(len(sources), 'question')} "
                f"is beyond the model's window of {self.window:,} tokens, where it cannot learn to "
                f"find it. Give --set window={max(beyond) + self.extra}, leave these questions out "
                "with --set drop_beyond=true, or cut windows with `posir compose`."
            )


def build_pairs(
    texts: Sequence[str], tokenizer: Tokenizer, objective: Objective, seed: int
) -> Dataset:
    """Return a positive and a negative pair for each text, as columns `first`, `second` and
    `label`.

    Negatives are the second samples of the next text, as in the published code. Fewer than two
    texts are a PosirError.
    """
    if len(texts) < 2:
        raise PosirError(f"objective {objective}: needs at least two different texts.")
    rng = random.Random(seed)

    def sample(text: str, tokens: TokenSpans) -> str:
        """Return a half of the tokens of a text, from a random start."""
        count = len(tokens)
        if count < 2:
            return text
        start = int(count * rng.uniform(0, 0.5))
        return text[tokens[start, 0] : tokens[start + count // 2 - 1, 1]]

    tokens = tokenizer.find_tokens(texts)
    pairs = [(sample(*text), sample(*text)) for text in zip(texts, tokens, strict=True)]
    firsts = [first for first, _ in pairs]
    seconds = [second for _, second in pairs]
    negative = 0 if objective == "pads-published" else -1
    labels = [1] * len(texts) + [negative] * len(texts)
    shifted = [*seconds[1:], seconds[0]]
    return Dataset.from_dict({"first": firsts * 2, "second": seconds + shifted, "label": labels})


class PadsLoss(torch.nn.Module):
    """torch's CosineEmbeddingLoss of the embeddings of two columns."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model
        self.loss = torch.nn.CosineEmbeddingLoss()

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """Return the mean loss of a batch of pairs with labels 1, -1 or 0."""
        first, second = (
            self.model(features)["sentence_embedding"] for features in sentence_features
        )
        loss: Tensor = self.loss(first, second, labels.to(first.dtype))
        return loss


def cut_negatives(example: Example) -> tuple[str, str] | None:
    """Return two parts of a document without any of the evidence; None if the rest of the document
    is too short.

    They are the two other thirds, by words. Where the evidence is in several thirds, they are what
    is before and after it, or two halves of the longer one if the other has almost no words.
    """
    text = example.document.text
    parts = [
        span.of(text)
        for span in find_parts(text, len(Position))
        if span.end <= example.start or span.start >= example.end
    ]
    if len(parts) != 2:
        parts = [text[: example.start].strip(), text[example.end :].strip()]
    if not _are_long(parts):
        longer = max(parts, key=len)
        parts = [span.of(longer) for span in find_parts(longer, 2)]
    return (parts[0], parts[1]) if _are_long(parts) else None


def _are_long(parts: Sequence[str]) -> bool:
    return all(count_words(part) >= MIN_WORDS for part in parts)


def filter_by_margin(
    examples: Sequence[Example], rerankers: Sequence[ModelReranker], margin: float
) -> list[Example]:
    """Return the examples whose evidence third answers the question better than both other thirds,
    by a margin.

    The margin is that of 'Built-in or learned?' (arXiv 2605.26578, section 3.1): the smallest over
    rerankers of the score of the third with the evidence minus the larger one of the other two; the
    paper's threshold is 0.3. The filter keeps more evidence at the beginning than elsewhere, so
    positions are balanced after it. Scores are in [0, 1].
    """
    thirds = {example: find_parts(example.document.text, len(Position)) for example in examples}
    usable = [example for example in examples if len(thirds[example]) == len(Position)]
    pairs = [
        (example.question, span.of(example.document.text))
        for example in usable
        for span in thirds[example]
    ]
    batches = split_batches(pairs, BLOCK * len(Position))
    scores: list[Scores] = []
    with track("Filtering by margin (questions)", len(usable) * len(rerankers)) as advance:
        for reranker in rerankers:
            for _, of_batch in reranker.score_batches(batches):
                scores.append(of_batch)
                advance(len(of_batch) // len(Position))
    by_reranker = np.concatenate([*scores, []]).reshape(len(rerankers), -1, len(Position))
    return [
        example
        for number, example in enumerate(usable)
        if compute_margin(by_reranker[:, number], example.position) >= margin
    ]


@dataclass(frozen=True)
class PreparedData:
    """The data for training and for measuring: no article is in both."""

    dataset: Dataset
    plan: BatchPlan | None
    """None for objectives without positions."""
    description: str
    """Name and size, such as `PosIR-Mini: 120 questions about 12 articles (begin 40, middle 40, end
    40)`.
    """
    articles: set[str]
    """Those that are trained on."""
    notes: Sequence[str]
    held_out: Examples


def prepare_data(settings: TrainingSettings, data: Examples, reader: ModelReader) -> PreparedData:
    """Divide examples into training and held-out ones, and form the columns of the loss."""
    if settings.objective != "retrieval":
        return _prepare_pads(settings, data, reader)
    sources = tokenize_examples(data, reader.tokens)
    if not settings.drop_beyond:
        reader.refuse_beyond(sources, data.name)
    training, held_out = split_by_article(data, settings.held_out, settings.division)
    readable = {source.example for source in sources if reader.reads_evidence(source)}
    # What is measured keeps the evidence beyond the window: the model fails on it, and the report
    # says so.
    examples = [example for example in training.examples if example in readable]
    notes = []
    if beyond := len(training.examples) - len(examples):
        notes.append(f"left out: {pluralize(beyond, 'question')} with evidence beyond the window")
    if settings.rerankers:
        total = len(examples)
        rerankers = [ModelReranker(ModelReference(name), "eng-Latn") for name in settings.rerankers]
        examples = filter_by_margin(examples, rerankers, settings.margin)
        count = pluralize(total - len(examples), "question")
        notes.append(f"left out: {count} with a margin below {settings.margin:g}")
    # The order of the columns is that of the loss.
    columns: dict[str, list[str]] = {"anchor": [], "positive": []}
    if settings.hard_negatives:
        parts = {example: cut_negatives(example) for example in examples}
        negatives = {example: texts for example, texts in parts.items() if texts}
        if removed := len(examples) - len(negatives):
            notes.append(
                f"left out: {pluralize(removed, 'question')} whose document has no other parts"
            )
        examples = list(negatives)
        columns["negative_1"] = [first for first, _ in negatives.values()]
        columns["negative_2"] = [second for _, second in negatives.values()]
    columns["anchor"] = [example.question for example in examples]
    columns["positive"] = [example.document.text for example in examples]
    lengths = list(map(len, columns["positive"]))
    rows = draw_examples(examples, lengths, settings.weights, settings.budget, settings.seed)
    drawn = [examples[row] for chosen in rows.values() for row in chosen]
    if len(drawn) < len(examples):
        notes.append(
            f"drawn: {len(drawn):,} of {pluralize(len(examples), 'question')}, from "
            f"{pluralize(len(rows), 'length bin')} (budget {settings.budget})"
        )
    articles = {example.document.article for example in drawn}
    positions = Counter(example.position.title for example in drawn)
    counted = ", ".join(f"{place.title} {positions[place.title]:,}" for place in Position)
    about = pluralize(len(articles), "article")
    return PreparedData(
        Dataset.from_dict(columns),
        BatchPlan(tuple(examples), rows, settings.weights, settings.per_article),
        f"{data.name}: {pluralize(len(drawn), 'question')} about {about} ({counted})",
        articles,
        notes,
        held_out,
    )


def _prepare_pads(settings: TrainingSettings, data: Examples, reader: ModelReader) -> PreparedData:
    articles = set[str]()
    if settings.texts is None:
        _, held_out = split_by_article(data, settings.held_out, settings.division)
        name = data.name
        documents = [
            document for document in data.corpus if document.article not in held_out.articles
        ]
        texts = {document.text for document in documents}
        articles = {document.article for document in documents}
    else:
        held_out = data
        name = display_name(settings.texts)
        passages = open_data(settings.texts).read_texts()
        texts = {passage.text for passage in passages if isinstance(passage, Passage)}
    kept = sorted(text for text in texts if text.strip())
    dataset = build_pairs(kept, reader.tokens, settings.objective, settings.seed)
    description = f"{name}: {pluralize(len(dataset), 'pair')} of {pluralize(len(kept), 'text')}"
    return PreparedData(dataset, None, description, articles, (), held_out)
