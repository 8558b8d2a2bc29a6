"""Preparation of a training: the model with its pooling and window, and the examples in the columns
and batches of a loss.

'Built-in or learned?' (arXiv 2605.26578, sections 3.1.4, 3.2.2 and 4.2): five length bins by
characters; as many questions in each bin for every position as the scarcest cell of position and
length has, 8,189 there; so the same total for begin, middle, end and uniform positions; every batch
from one bin. Here the shares of the positions are free.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, cycle, islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from datasets import Dataset
from huggingface_hub import ModelCard
from sentence_transformers.base.sampler import DefaultBatchSampler
from torch import Tensor

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
    PositionWeights,
    QuestionBudget,
    TrainingSettings,
    display_name,
)

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

#: Fewest words of a negative.
FEWEST_WORDS = 5
#: Examples scored at a time.
BLOCK = 64
#: Last length in characters of each length bin but the longest (Built-in or Learned, section
#: 3.1.1): its bins are 256 to 512, 512 to 1,024 and so on up to 8,192. Shorter and longer
#: documents, which it does not have, are in the first and the last.
CHARACTER_BOUNDS = (512, 1024, 2048, 4096)
#: By how much leaving the scarcest length bins out must increase the number of questions.
WORTH_LEAVING_OUT = 2
#: How often the examples are drawn again to fill the batches of an epoch.
PASSES = 3


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
    """Return what the model in a folder was made from, by its card; if that does not say, the
    model's own name.
    """
    try:
        stated = ModelCard.load(folder / "README.md", ignore_metadata_errors=True).data.base_model
    except (
        Exception
    ):  # there is no card, or a mistake in it, which is no reason not to train the model
        stated = None
    named = stated[0] if isinstance(stated, list) and stated else stated
    return named if isinstance(named, str) and named else name_folder(folder)


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
        """Return the reader of a model; raise PosirError if its tokenizer does not say where tokens
        are.
        """
        tokenizer = ModelTokenizer(model.tokenizer)
        if not tokenizer.locates_tokens:
            raise PosirError(
                f"{name}: its tokenizer does not say where its tokens are in a text. Choose a "
                "model with a fast one."
            )
        prompt = next(
            (model.prompts[name] for name in DOCUMENT_PROMPTS if model.prompts.get(name)), ""
        )
        extra = tokenizer.special_tokens + (tokenizer.count(prompt) if prompt else 0)
        return cls(tokenizer, model.max_seq_length, find_capacity(model), extra)

    def reads_evidence(self, source: TokenizedExample) -> bool:
        """Return whether the window has all of the evidence."""
        return self.window is None or source.last + self.extra <= self.window

    def refuse_beyond(self, sources: Sequence[TokenizedExample], name: str) -> None:
        """Raise PosirError if the model does not read the evidence of some questions; it says how
        many, and what to do.
        """
        beyond = [source for source in sources if not self.reads_evidence(source)]
        if not beyond:
            return
        needed = max(source.last for source in beyond) + self.extra
        advice = f"Give --set window={needed}"
        if self.longest is not None and needed > self.longest:
            advice = (
                f"They need one of {needed:,}, and the model reads {self.longest:,} at most: "
                "train another model"
            )
        raise PosirError(
            f"{name}: the evidence of {len(beyond):,} of {pluralize(len(sources), 'question')} is "
            "beyond the model's window of "
            f"{self.window:,} tokens, where it cannot learn to find it. {advice}, leave these "
            "questions out with "
            "--set drop_beyond=true, or cut windows with `posir compose`."
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
        count = len(tokens)
        start = int(count * rng.uniform(0, 0.5)) if count > 1 else 0
        return (
            text[int(tokens[start][0]) : int(tokens[start + count // 2 - 1][1])]
            if count > 1
            else text
        )

    tokens = tokenizer.find_tokens(texts)
    first, second = zip(
        *([sample(*text) for _ in range(2)] for text in zip(texts, tokens, strict=True)),
        strict=True,
    )
    negative = 0 if objective == "pads-published" else -1
    labels = [1] * len(texts) + [negative] * len(texts)
    return Dataset.from_dict(
        {"first": first * 2, "second": [*second, *second[1:], second[0]], "label": labels}
    )


class PadsLoss(torch.nn.Module):
    """torch's CosineEmbeddingLoss of the embeddings of two columns."""

    def __init__(self, model: SentenceTransformer, margin: float = 0.0) -> None:
        super().__init__()
        self.model = model
        self.loss = torch.nn.CosineEmbeddingLoss(margin=margin)

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
    text, start, end = example.document.text, example.start, example.end
    parts = [
        text[slice(*span)]
        for span in find_parts(text, len(Position))
        if span[1] <= start or span[0] >= end
    ]
    if len(parts) != len(Position) - 1:
        parts = [text[:start].strip(), text[end:].strip()]
    if any(count_words(part) < FEWEST_WORDS for part in parts):
        longer = max(parts, key=len)
        parts = [longer[slice(*span)] for span in find_parts(longer, 2)]
    return (
        (parts[0], parts[1]) if all(count_words(part) >= FEWEST_WORDS for part in parts) else None
    )


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
        [(row.question, row.document.text[slice(*span)]) for span in thirds[row]] for row in usable
    ]
    batches = [list(chain(*pairs[start : start + BLOCK])) for start in range(0, len(pairs), BLOCK)]
    scored: list[list[Scores]] = [[] for _ in rerankers]
    with track("Filtering by margin (questions)", len(usable) * len(rerankers)) as advance:
        for own, reranker in zip(scored, rerankers, strict=True):
            for _, scores in reranker.score_batches(batches):
                own.append(scores)
                advance(len(scores) // len(Position))
    scores = np.array([np.concatenate(own) for own in scored if own]).reshape(
        len(rerankers), -1, len(Position)
    )
    return [
        row
        for number, row in enumerate(usable)
        if compute_margin(scores[:, number], row.position) >= margin
    ]


#: Rows of the training data by position.
ByPosition = tuple[list[int], ...]


def draw_examples(
    examples: Sequence[Example],
    lengths: Sequence[int],
    weights: PositionWeights,
    budget: QuestionBudget | int,
    seed: int,
) -> dict[int, list[int]]:
    """Draw the questions that are trained on, once for all epochs; return their rows by length bin.

    The positions have their shares in each bin. The lengths of documents are in characters. The
    budget is for each length bin; with a number, bins with fewer at some position are left out.
    """
    rows: dict[int, ByPosition] = defaultdict(lambda: tuple([] for _ in Position))
    for row, (example, bin_) in enumerate(
        zip(examples, np.searchsorted(CHARACTER_BOUNDS, lengths).tolist(), strict=True)
    ):
        rows[bin_][example.position].append(row)
    counts = (
        f"{position.title} {sum(len(cells[position]) for cells in rows.values()):,}"
        for position in Position
    )
    counted, rng = ", ".join(counts), np.random.default_rng(seed)
    sizes = _choose_sizes(dict(sorted(rows.items())), weights, budget)
    if not sizes:
        raise PosirError(
            f"positions {weights.name}: {_describe_shortage(rows, weights, budget, counted)}"
        )
    # Rounding errors must not cost an example.
    drawn = {
        bin_: [
            int(row)
            for position in weights.needed
            for row in rng.permutation(rows[bin_][position])[
                : max(1, int(size * weights.shares[position] + 1e-6))
            ]
        ]
        for bin_, size in sizes.items()
    }
    articles = {examples[row].document.article for chosen in drawn.values() for row in chosen}
    if len(articles) < 2:
        raise PosirError(
            f"positions {weights.name}: all questions are about one document or article, "
            f"{articles.pop()} ({counted}). "
            "In-batch negatives need at least two; give more data, or place evidence with `posir "
            "compose`."
        )
    return drawn


def _choose_sizes(
    rows: Mapping[int, ByPosition], weights: PositionWeights, budget: QuestionBudget | int
) -> dict[int, float]:
    """Return the number of questions to draw from each length bin, for all positions together."""
    complete = {
        bin_: cells
        for bin_, cells in rows.items()
        if all(cells[position] for position in weights.needed)
    }
    needed, shares = weights.needed, weights.shares
    if budget == "most":
        return {
            bin_: min(len(cells[place]) / shares[place] for place in needed)
            for bin_, cells in complete.items()
        }
    # All positions count, so that training on another one has as many questions.
    comparable = {bin_: min(map(len, cells)) for bin_, cells in complete.items() if all(cells)}
    smallest = comparable or {
        bin_: min(len(cells[place]) for place in needed) for bin_, cells in complete.items()
    }
    if not smallest:
        return {}
    size = choose_size(list(smallest.values())) if isinstance(budget, str) else budget
    return {bin_: size for bin_, count in smallest.items() if count >= size}


def choose_size(smallest: Sequence[int]) -> int:
    """Return how many questions to draw from every length bin, given those of the scarcest position
    in each.

    It is the smallest number, as in the paper, unless leaving bins out at least doubles the number
    of all questions: a handful of long documents must not cost the rest.
    """
    totals = {size: size * sum(count >= size for count in smallest) for size in sorted(smallest)}
    chosen = min(totals)
    for size, total in totals.items():
        if total >= WORTH_LEAVING_OUT * totals[chosen]:
            chosen = size
    return chosen


def _describe_shortage(
    rows: Mapping[int, ByPosition],
    weights: PositionWeights,
    budget: QuestionBudget | int,
    counted: str,
) -> str:
    complete = [
        cells for cells in rows.values() if all(cells[position] for position in weights.needed)
    ]
    if complete:
        most = max(min(map(len, cells)) for cells in complete)
        return (
            f"no length bin has {budget:,} questions at every position; the most is {most:,} "
            f"({counted}). Set a lower budget."
        )
    empty = [
        position.title
        for position in weights.needed
        if not any(cells[position] for cells in rows.values())
    ]
    reason = (
        f"no question has its evidence at {' or '.join(empty)}"
        if empty
        else "no length has all positions"
    )
    return f"{reason} ({counted}). Choose other positions, or place evidence with `posir compose`."


@dataclass(frozen=True)
class BatchPlan:
    """The plan by which the batches of an epoch are formed."""

    examples: tuple[Example, ...]
    rows: Mapping[int, list[int]]
    """The examples that are trained on, by length bin; see `draw_examples`."""
    weights: PositionWeights
    per_article: int
    """Most questions about one article in a row: the other parts of an article are hard
    negatives.
    """

    def form_batches(self, size: int, seed: int, epoch: int) -> list[list[int]]:
        """Return the batches of an epoch: rows of the training data. The same arguments give the
        same batches.

        They are full if enough questions can be in one batch, of which none is answered by the
        document of another.
        """
        rng = np.random.default_rng((seed, epoch))
        chosen = []
        for rows in self.rows.values():
            full = len(rows) // size
            batches = list(self._fill(rows, size, rng))
            for _ in range(PASSES):
                if sum(len(batch) == size for batch in batches) >= full:
                    break
                batches += self._fill(rows, size, rng)
            # The largest first, until they have as many rows as the full batches would.
            batches.sort(key=len, reverse=True)
            sizes = np.cumsum([0, *map(len, batches)])
            chosen += batches[: np.searchsorted(sizes, max(full, 1) * size)]
        if not chosen:
            raise PosirError(
                "no two questions can be in one batch, since the document of each answers the "
                "others. Give more documents."
            )
        return [chosen[place] for place in rng.permutation(len(chosen))]

    def _fill(
        self, rows: Sequence[int], size: int, rng: np.random.Generator
    ) -> Iterator[list[int]]:
        """Yield batches of rows in which no document answers two questions; some are smaller if
        they cannot be filled.

        The positions have their shares in every batch, up to rounding, so that even a short
        training is balanced.
        """
        articles: dict[str, tuple[list[int], ...]] = defaultdict(
            lambda: tuple([] for _ in Position)
        )
        for row in rng.permutation(rows).tolist():
            example = self.examples[row]
            articles[example.document.article][example.position].append(row)
        groups = []
        for cells in articles.values():
            # A few of one article, of all positions in turn.
            own = [row for turn in zip_longest(*cells) for row in turn if row is not None]
            groups += [
                own[start : start + self.per_article]
                for start in range(0, len(own), self.per_article)
            ]
        waiting = deque(row for place in rng.permutation(len(groups)) for row in groups[place])
        filled: Counter[Position] = Counter()
        while waiting:
            room = self.weights.apportion(filled, size)
            batch: list[int] = []
            postponed: list[int] = []
            while waiting and len(batch) < size:
                row = waiting.popleft()
                position = self.examples[row].position
                if room[position] and not self._conflicts(row, batch):
                    batch.append(row)
                    room[position] -= 1
                else:
                    postponed.append(row)
            waiting.extendleft(reversed(postponed))
            if not batch:
                return
            if len(batch) > 1:
                filled.update(self.examples[row].position for row in batch)
                yield batch

    def _conflicts(self, row: int, batch: Iterable[int]) -> bool:
        """Return whether a row's document answers a question of a batch, or one of its documents
        the row's question.
        """
        example = self.examples[row]
        return any(
            example.question == other.question
            or (
                example.document.article == other.document.article
                and (
                    example.is_answered_by(other.document.text)
                    or other.is_answered_by(example.document.text)
                )
            )
            for other in (self.examples[place] for place in batch)
        )


class PositionBatchSampler(DefaultBatchSampler):
    """The batches of a plan, as sentence-transformers' trainer takes them."""

    def __init__(self, dataset: Dataset, plan: BatchPlan, batch_size: int, seed: int) -> None:
        super().__init__(dataset, batch_size=batch_size, drop_last=False, seed=seed)
        self._form = lru_cache(maxsize=2)(lambda epoch: plan.form_batches(batch_size, seed, epoch))

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the batches of the epoch that was set last, as many as of the first: a run is
        continued by counting them.
        """
        return islice(cycle(self._form(self.epoch)), len(self))

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return len(self._form(0))


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
    articles: frozenset[str]
    """Those that are trained on."""
    notes: tuple[str, ...]
    held_out: Examples


def prepare_data(settings: TrainingSettings, data: Examples, reader: ModelReader) -> PreparedData:
    """Divide examples into training and held-out ones, and form the columns of the loss."""
    if settings.objective != "retrieval":
        return _prepare_pads(settings, data, reader)
    sources = tokenize_examples(data, reader.tokens)
    if not settings.drop_beyond:
        reader.refuse_beyond(sources, data.name)
    training_examples, held_out = split_by_article(data, settings.held_out, settings.division)
    readable = {source.example for source in sources if reader.reads_evidence(source)}
    # What is measured keeps the evidence beyond the window: the model fails on it, and the report
    # says so.
    read = [example for example in training_examples.examples if example in readable]
    beyond = len(training_examples.examples) - len(read)
    notes = (
        [f"left out: {pluralize(beyond, 'question')} with evidence beyond the window"]
        if beyond
        else []
    )
    return _form_pairs(settings, data.name, read, held_out, notes)


def _prepare_pads(settings: TrainingSettings, data: Examples, reader: ModelReader) -> PreparedData:
    if settings.texts is not None:
        passages = [
            passage
            for passage in open_data(settings.texts).read_texts()
            if isinstance(passage, Passage)
        ]
        texts, articles, held_out = {passage.text for passage in passages}, frozenset[str](), data
    else:
        _, held_out = split_by_article(data, settings.held_out, settings.division)
        documents = [
            document for document in data.corpus if document.article not in held_out.articles
        ]
        texts = {document.text for document in documents}
        articles = frozenset(document.article for document in documents)
    kept = sorted(text for text in texts if text.strip())
    dataset = build_pairs(kept, reader.tokens, settings.objective, settings.seed)
    source = data.name if settings.texts is None else display_name(settings.texts)
    description = f"{source}: {pluralize(len(dataset), 'pair')} of {pluralize(len(kept), 'text')}"
    return PreparedData(dataset, None, description, articles, (), held_out)


def _form_pairs(
    settings: TrainingSettings,
    name: str,
    examples: Sequence[Example],
    held_out: Examples,
    notes: list[str],
) -> PreparedData:
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
            notes.append(
                f"left out: {pluralize(len(examples) - len(parts_of), 'question')} whose document "
                "has no other parts"
            )
        examples = list(parts_of)
        negatives = {
            f"negative_{number + 1}": [parts[number] for parts in parts_of.values()]
            for number in range(2)
        }
    lengths = [len(example.document.text) for example in examples]
    rows = draw_examples(examples, lengths, settings.weights, settings.budget, settings.seed)
    drawn = [examples[row] for chosen in rows.values() for row in chosen]
    if len(drawn) < len(examples):
        notes.append(
            f"drawn: {len(drawn):,} of {pluralize(len(examples), 'question')}, from "
            f"{pluralize(len(rows), 'length bin')} "
            f"(budget {settings.budget})"
        )
    columns = {
        "anchor": [example.question for example in examples],
        "positive": [example.document.text for example in examples],
        **negatives,
    }
    plan = BatchPlan(tuple(examples), rows, settings.weights, settings.per_article)
    articles = frozenset(example.document.article for example in drawn)
    counts = Counter(example.position for example in drawn)
    counted = ", ".join(f"{position.title} {counts[position]:,}" for position in Position)
    description = (
        f"{name}: {pluralize(len(drawn), 'question')} about {pluralize(len(articles), 'article')} "
        f"({counted})"
    )
    return PreparedData(
        Dataset.from_dict(columns), plan, description, articles, tuple(notes), held_out
    )
