"""Settings of `posir train` and `posir compose`, and paths in the folder of a run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from posir_tasks.base.settings_file import Section
from posir_tasks.datasets.dataset import Dataset
from posir_tasks.datasets.opening import open_data


class Position(IntEnum):
    """The third of the document that contains the midpoint of the evidence, in characters."""

    BEGIN = 0
    MIDDLE = 1
    END = 2

    @property
    def title(self) -> str:
        """Name in tables and options."""
        return self.name.lower()


def find_position(start: int, end: int, characters: int) -> Position:
    """Return the third of a document that contains the midpoint of a span; boundaries as in
    PosIR.
    """
    return Position(sum((start + end) * 3 > 2 * border * characters for border in (1, 2)))


@dataclass(frozen=True)
class PositionWeights:
    """Training weights of the positions."""

    shares: tuple[float, float, float]
    """Shares by `Position`; they sum to 1."""
    name: str

    @classmethod
    def parse(cls, text: str) -> PositionWeights:
        """Parse `begin`, `middle`, `end`, `uniform`, or three weights separated by commas; raise
        ValueError for other texts.
        """
        presets = {"begin": "1,0,0", "middle": "0,1,0", "end": "0,0,1", "uniform": "1,1,1"}
        try:
            weights = [float(weight) for weight in presets.get(text, text).split(",")]
        except ValueError:
            weights = []
        total = sum(weights)
        if len(weights) != len(Position) or min(weights) < 0 or not 0 < total < math.inf:
            raise ValueError(
                f"{text!r} is not allowed. Use begin, middle, end, uniform, or three weights such "
                "as 2,1,1, not all 0."
            )
        begin, middle, end = (weight / total for weight in weights)
        return cls((begin, middle, end), text)

    def allocate(self, counts: Mapping[Position, int], total: int) -> Counter[Position]:
        """Divide `total` additional examples among the positions so that, together with `counts`,
        the positions have their shares (Webster's method).
        """
        sums = Counter(counts)
        for _ in range(total):
            quotients = {
                position: (sums[position] + 0.5) / self.shares[position]
                for position in self.positions
            }
            sums[min(quotients, key=quotients.__getitem__)] += 1
        return sums - Counter(counts)

    @property
    def positions(self) -> tuple[Position, ...]:
        """Positions with a weight above 0."""
        return tuple(position for position in Position if self.shares[position])


def check_positions(text: str) -> str:
    """Raise ValueError if a text cannot be parsed as `PositionWeights`."""
    return PositionWeights.parse(text).name


def display_name(name: str) -> str:
    """Return the last component of an existing path; return other names unchanged."""
    path = Path(name).expanduser()
    return path.resolve().name if path.exists() else name


def open_dataset(name: str) -> Dataset:
    """Open data with `open_data`; raise PosirError if it does not exist or has no questions with
    evidence.
    """
    return open_data(name).select_questions("posir train")


#: Paths in the folder of a trained model.
WORK = "training"
CHECKPOINTS = "training/checkpoints"
#: Held-out questions and the corpus, as a folder for `POSIR_DATA`.
HELD_OUT = "training/held-out"
#: Settings that must not change when a run is resumed.
RECORD = "training/run.json"
#: Value of `positions` for one corpus per position.
EACH = "each"
#: Settings in PADS's published code, which also uses Adam, three epochs and a learning rate of
#: 2e-5.
PADS_DEFAULTS = {"batch_size": 1, "schedule": "constant", "warmup": 0, "select": "last"}
#: The checkpoint to select. balanced: the smallest position effect among the checkpoints without a
#: significant loss of nDCG@10 relative to the base model; ndcg: the highest nDCG@10; last: the last
#: one.
Select: TypeAlias = Literal["balanced", "ndcg", "last"]
#: Number of questions per length bin. equal: the size of the scarcest cell, for all bins and
#: positions (arXiv 2605.26578, section 3.2.2); most: as many as the scarcest trained position of
#: each bin allows.
QuestionBudget: TypeAlias = Literal["equal", "most"]
#: retrieval: questions with their documents; pads: PADS with label -1 for negative pairs;
#: pads-published: PADS with label 0, as in the published code.
Objective: TypeAlias = Literal["retrieval", "pads", "pads-published"]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
Seed = Annotated[int, Field(ge=0)]
Reference = Annotated[str, Field(min_length=1)]


class TrainingSettings(Section):
    """Settings of a training run, except its folder."""

    model: Reference
    """The model to train: a registered model or a local folder."""
    data: Reference
    """A task, or any file, folder or Hub dataset of questions with evidence."""
    positions: Annotated[str, AfterValidator(check_positions)] = "uniform"
    """begin, middle, end, uniform, or three weights such as 2,1,1."""
    revision: str | None = None
    """Revision of the model."""
    pooling: Literal["mean", "cls", "lasttoken", "max"] | None = None
    """Override the model's pooling."""
    window: Annotated[int, Field(ge=8)] | None = None
    """Override the model's context window, in tokens."""
    query_prompt: str | None = None
    """Query prompt, for training and in the trained model."""
    budget: QuestionBudget | Count = "equal"
    """Questions per length bin (five bins). equal: the same number for all bins and positions
    (arXiv 2605.26578); most: as many as the scarcest trained position of each bin allows; or a
    number.
    """
    objective: Objective = "retrieval"
    """retrieval, or PADS with label -1 (pads) or 0 (pads-published) for negative pairs. PADS uses
    no questions; its defaults are batch_size 1, a constant learning rate without warmup, and the
    last checkpoint.
    """
    texts: str | None = None
    """Training texts for PADS: any data with documents; then all of `data` is used for evaluation.
    By default, the documents in `data` that are not held out.
    """
    loss: Literal[
        "MultipleNegativesRankingLoss",
        "CachedMultipleNegativesRankingLoss",
        "MultipleNegativesSymmetricRankingLoss",
        "CachedMultipleNegativesSymmetricRankingLoss",
    ] = "MultipleNegativesRankingLoss"
    """Name of the loss in sentence-transformers."""
    scale: Positive = 20.0
    """Factor that scales the cosines in the loss: 1 / temperature."""
    epochs: Positive = 3.0
    """Number of epochs."""
    max_steps: Count | None = None
    """Number of steps, instead of epochs."""
    batch_size: Count = 32
    """Questions per step, or pairs of samples for PADS."""
    mini_batch_size: Count = 32
    """Questions per mini-batch of a Cached loss, and texts per encoding batch of evaluations."""
    learning_rate: Positive = 2e-5
    """Peak learning rate."""
    warmup: Annotated[float, Field(ge=0)] = 0.1
    """Warmup as a share of the steps if below 1, else as a number of steps."""
    schedule: Literal[
        "linear",
        "cosine",
        "cosine_with_restarts",
        "polynomial",
        "constant",
        "constant_with_warmup",
        "inverse_sqrt",
    ] = "linear"
    """Learning rate schedule, as named in transformers."""
    seed: Seed = 42
    """Random seed."""
    split_seed: Seed | None = None
    """Seed of the split into training and held-out articles; null for `seed`."""
    held_out: Share = 0.2
    """Share of the articles for evaluation."""
    per_article: Count = 4
    """Maximum number of consecutive questions about one article in a batch; 1 for random order, as
    in arXiv 2605.26578.
    """
    hard_negatives: bool = False
    """Add other passages of the document as negatives."""
    rerankers: tuple[str, ...] = ()
    """Rerankers for the margin filter; empty for no filter."""
    margin: float = 0.3
    """Minimum margin by which every reranker must prefer the third with the evidence."""
    drop_beyond: bool = False
    """Leave out questions with evidence beyond the window, instead of raising an error."""
    evaluations: Count = 5
    """Number of evaluations and checkpoints during training."""
    select: Select | None = None
    """Checkpoint to select: balanced (smallest position effect without loss of nDCG@10), ndcg
    (highest nDCG@10), or last. By default balanced for uniform positions, else last.
    """
    guard: tuple[str, ...] = ()
    """Data for forgetting checks: mteb tasks, or data as for `data`."""
    trackers: tuple[str, ...] = ()
    """wandb, tensorboard and others, as named in transformers."""

    #: Settings that do not affect the trained model.
    INDEPENDENT: ClassVar = frozenset({"mini_batch_size", "guard", "trackers"})

    @model_validator(mode="before")
    @classmethod
    def _add_pads_defaults(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("objective") in ("pads", "pads-published"):
            return PADS_DEFAULTS | values
        return values

    @model_validator(mode="after")
    def _check_objective(self) -> Self:
        if self.objective == "retrieval" and self.batch_size < 2:
            raise ValueError("batch_size: in-batch negatives need at least 2")
        if self.objective == "retrieval" and self.texts is not None:
            raise ValueError(
                "texts: only PADS trains on texts without questions; set objective: pads"
            )
        return self

    @property
    def weights(self) -> PositionWeights:
        """Training weights of the positions."""
        return PositionWeights.parse(self.positions)

    @property
    def split(self) -> int:
        """Seed of the split into training and held-out articles."""
        return self.seed if self.split_seed is None else self.split_seed

    @property
    def checkpoint(self) -> Select:
        """The checkpoint to select."""
        return self.select or ("balanced" if self.positions == "uniform" else "last")

    def to_json(self) -> dict[str, Any]:
        """Convert the settings that affect the trained model to JSON values; paths are reduced to
        their last component.
        """
        return self.model_dump(mode="json", exclude=set(self.INDEPENDENT)) | {
            "model": display_name(self.model),
            "data": display_name(self.data),
            "texts": self.texts and display_name(self.texts),
            "rerankers": list(map(display_name, self.rerankers)),
        }


class ComposeSettings(Section):
    """Settings of `posir compose`."""

    kind: Literal["windows", "moved", "mosaics", "needles"] = "windows"
    """windows: cut from the documents; moved: whole documents with moved evidence sentences;
    mosaics: the evidence between passages of other articles; needles: the evidence sentences
    between sentences of other articles, in a domain NAME_N for each length of N tokens.
    """
    tokens: Annotated[int, Field(ge=9)] = 126
    """Tokens per composed document; needles use `lengths`."""
    lengths: tuple[Annotated[int, Field(ge=9)], ...] = (128, 256, 512, 1_024, 2_048, 4_096, 8_000)
    """Document lengths of the needle domains, in tokens."""
    literal: bool = False
    """If true, the question of a needle is its evidence sentences, word for word."""
    positions: Annotated[
        str, AfterValidator(lambda text: text if text == EACH else check_positions(text))
    ] = EACH
    """each: every question with its evidence in each third, in three domains NAME_1 to NAME_3; or
    begin, middle, end, uniform or three weights: every question once, in one domain.
    """
    tokenizer: str | None = None
    """Name or folder of a tokenizer; null for one token per 4 bytes of UTF-8."""
    groups: Annotated[int, Field(ge=4)] = 8
    """Number of article groups for mosaics, which only use passages of their own group."""
    seed: int = 42
    """Random seed."""

    @property
    def weights(self) -> PositionWeights | None:
        """Weights for sampling positions; None for one corpus per position."""
        return None if self.positions == EACH else PositionWeights.parse(self.positions)

    @property
    def domain_numbers(self) -> list[int]:
        """Numbers in the names of the corpora's domains; empty for a single corpus."""
        if self.kind == "needles":
            return sorted(set(self.lengths))
        return [] if self.weights else list(range(1, len(Position) + 1))
