"""How fast a model encodes on this machine: measured for a few seconds on texts of every length that is to come.

A model is not equally fast on all lengths (attention grows with the square, short texts leave a GPU idle, long ones are cut at
the model's window), so each length bucket is measured by itself.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from datasets import Dataset, disable_progress_bars
from mteb.models import EncoderProtocol
from mteb.types import PromptType

from posir_run.planning.sizes import Lengths
from posir_tasks.embeddings.format import EmbeddingFormat
from posir_tasks.errors import PosirError
from posir_tasks.search.dense import ModelEmbedder
from posir_tasks.tokens import estimated_tokens

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

    from posir_run.planning.samples import Samples

#: Rounds of a measurement, and the seconds that one of them should take at least.
ROUNDS, ROUND_SECONDS = 3, 1.0
#: Seconds after which a measurement is given no further round.
PATIENCE = 20.0
SEED = 42


@dataclass(frozen=True)
class Speed:
    """How fast texts of one kind are encoded."""

    texts: int
    """Texts in a round."""
    seconds: tuple[float, ...]
    """What a token of a document, or a query, took in each round."""

    @property
    def mean(self) -> float:
        """The mean over the rounds."""
        return sum(self.seconds) / len(self.seconds)


@dataclass(frozen=True)
class Duration:
    """Seconds: what is expected, and what the fastest and the slowest rounds of the calibration would make of it."""

    low: float
    mean: float
    high: float

    def __add__(self, other: Duration) -> Duration:
        return Duration(self.low + other.low, self.mean + other.mean, self.high + other.high)

    @classmethod
    def of(cls, speed: Speed, amount: int) -> Duration:
        """Return how long so many tokens, or queries, take."""
        return cls(min(speed.seconds) * amount, speed.mean * amount, max(speed.seconds) * amount)


@dataclass(frozen=True)
class Calibration:
    """A model's speed on this machine."""

    device: str
    documents: tuple[Speed | None, ...]
    """A token's, by length bucket; None where there are no documents."""
    queries: Speed
    form: EmbeddingFormat
    """Of its embeddings."""

    def duration(self, documents: Lengths, queries: int) -> Duration:
        """Return how long documents and queries take to encode."""
        buckets = zip(self.documents, documents.tokens, strict=True)
        of_documents = [Duration.of(speed, tokens) for speed, tokens in buckets if speed is not None]
        return sum(of_documents, Duration.of(self.queries, queries))


def calibrate(model: MTEBModels, samples: Samples, where: dict[str, Any], batch_size: int) -> Calibration:
    """Measure a model.

    Args:
        model: As `mteb.get_model` returns it.
        samples: Texts of every length.
        where: `task_metadata`, `hf_split` and `hf_subset` of a task, for the model's prompts.
        batch_size: Texts to encode at a time.

    Raises:
        PosirError: The model gives no dense embeddings.
    """
    if not isinstance(model, EncoderProtocol):
        raise PosirError("it is no dense encoder")
    disable_progress_bars()
    embed = ModelEmbedder(model, {"batch_size": batch_size, "show_progress_bar": False}, None, where)

    def encode(texts: Sequence[str], kind: PromptType) -> Any:
        return embed(Dataset.from_dict({"id": list(map(str, range(len(texts)))), "text": list(texts)}), kind)

    form = EmbeddingFormat.detect(encode(samples.queries[:1], PromptType.query), 1)
    if form is None:
        raise PosirError("it is no dense encoder")
    return Calibration(
        device=torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads",
        documents=tuple(
            measure(lambda picked: encode(picked, PromptType.document), texts, estimated_tokens) if texts else None
            for texts in samples.documents
        ),
        queries=measure(lambda picked: encode(picked, PromptType.query), samples.queries, lambda _: 1),
        form=form,
    )


def measure(encode: Callable[[Sequence[str]], object], texts: Sequence[str], amount: Callable[[str], int]) -> Speed:
    """Measure how long texts take to encode: in rounds of as many as take long enough to be timed, drawn anew for each.

    Args:
        encode: Encodes texts.
        texts: All of one kind; at least one.
        amount: What a text counts.
    """
    draw, begun, count = random.Random(SEED), time.monotonic(), 1
    while timed(encode, draw.sample(texts, count)) < ROUND_SECONDS and count < len(texts):
        count = min(2 * count, len(texts))
    rounds: list[float] = []
    while len(rounds) < ROUNDS and (not rounds or time.monotonic() < begun + PATIENCE):
        picked = draw.sample(texts, count)
        rounds.append(timed(encode, picked) / sum(map(amount, picked)))
    return Speed(count, tuple(rounds))


def timed(encode: Callable[[Sequence[str]], object], texts: Sequence[str]) -> float:
    """Return how many seconds it takes to encode texts."""
    begun = time.perf_counter()
    encode(texts)
    return time.perf_counter() - begun
