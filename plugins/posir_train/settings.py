"""Settings of `posir train` and `posir compose`, and paths in the output folder."""

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
        """Lowercase name for tables and options."""
        return self.name.lower()


def find_position(start: int, end: int, characters: int) -> Position:
    """Return the third of a document that contains the midpoint of a span.

    A midpoint on a boundary is in the earlier third, as in PosIR.
    """
    return Position(sum((start + end) * 3 > 2 * border * characters for border in (1, 2)))


@dataclass(frozen=True)
class PositionWeights:
    """Weights of the positions."""

    shares: tuple[float, float, float]
    """Share of each `Position`. The shares sum to 1."""
    name: str
    """The weights as written in the settings."""

    @classmethod
    def parse(cls, text: str) -> PositionWeights:
        """Parse `begin`, `middle`, `end`, `uniform`, or three weights separated by commas. Raise
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
                f"{text!r} is not valid. Use begin, middle, end, uniform, or three weights such as "
                "2,1,1, not all 0."
            )
        begin, middle, end = (weight / total for weight in weights)
        return cls((begin, middle, end), text)

    def allocate(self, counts: Mapping[Position, int], total: int) -> Counter[Position]:
        """Allocate `total` more examples to the positions, so that the positions have their shares
        in `counts` and the new examples together (Webster's method).
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


def validate_positions(text: str) -> str:
    """Return the text unchanged. Raise ValueError if it is not valid as `PositionWeights`."""
    return PositionWeights.parse(text).name


def strip_folders(name: str) -> str:
    """Reduce an existing path to its last component. Return other names unchanged."""
    path = Path(name).expanduser()
    return path.resolve().name if path.exists() else name


def open_dataset(name: str) -> Dataset:
    """Open data for training. Raise PosirError if it does not exist or has no questions with
    evidence.
    """
    return open_data(name).select_questions("posir train")


#: Paths in the folder of a trained model.
WORK_FOLDER = "training"
CHECKPOINT_FOLDER = "training/checkpoints"
#: Held-out questions and the corpus, as a folder for `POSIR_DATA`.
HELD_OUT_FOLDER = "training/held-out"
#: Settings that must be the same when a run is resumed.
RUN_FILE = "training/run.json"
#: Value of `positions` to compose one corpus per position.
EACH = "each"
#: Settings of the published PADS code, where they differ from the defaults.
PADS_DEFAULTS = {"batch_size": 1, "schedule": "constant", "warmup": 0, "select": "last"}
#: How to select a checkpoint. balanced: the smallest position effect, among checkpoints without a
#: significant loss of nDCG@10 relative to the base model; ndcg: the highest nDCG@10; last: the last
#: checkpoint.
CheckpointRule: TypeAlias = Literal["balanced", "ndcg", "last"]
#: Number of questions per length bin. equal: the same number for all bins and positions, limited by
#: the smallest combination of bin and position (arXiv 2605.26578, section 3.2.2); most: the largest
#: number in each bin for which the positions have their shares.
QuestionBudget: TypeAlias = Literal["equal", "most"]
#: retrieval: questions with their documents; pads: PADS with label -1 for negative pairs;
#: pads-published: PADS with label 0 for negative pairs, as in the published code.
Objective: TypeAlias = Literal["retrieval", "pads", "pads-published"]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
Seed = Annotated[int, Field(ge=0)]
Reference = Annotated[str, Field(min_length=1)]


class TrainingSettings(Section):
    """Settings of a training run."""

    model: Reference
    """The model to train: a registered model or a local folder."""
    data: Reference
    """A task, or any file, folder or Hub dataset of questions with evidence."""
    positions: Annotated[str, AfterValidator(validate_positions)] = "uniform"
    """begin, middle, end, uniform, or three weights such as 2,1,1."""
    revision: str | None = None
    """Revision of the model."""
    pooling: Literal["mean", "cls", "lasttoken", "max"] | None = None
    """Override the model's pooling."""
    window: Annotated[int, Field(ge=8)] | None = None
    """Override the model's context window, in tokens."""
    query_prompt: str | None = None
    """Query prompt for training and for the trained model."""
    budget: QuestionBudget | Count = "equal"
    """Questions per length bin (five bins). equal: the same number for all bins and positions
    (arXiv 2605.26578); most: as many as possible in each bin; or a number.
    """
    objective: Objective = "retrieval"
    """retrieval, or PADS with label -1 (pads) or 0 (pads-published) for negative pairs. PADS does
    not use questions. Its defaults are batch_size 1, a constant learning rate without warmup, and
    the last checkpoint.
    """
    texts: str | None = None
    """Training texts for PADS: any data with documents. All of `data` is then used for evaluation.
    By default, PADS trains on the documents in `data` that are not held out.
    """
    loss: Literal[
        "MultipleNegativesRankingLoss",
        "CachedMultipleNegativesRankingLoss",
        "MultipleNegativesSymmetricRankingLoss",
        "CachedMultipleNegativesSymmetricRankingLoss",
    ] = "MultipleNegativesRankingLoss"
    """Name of the loss in sentence-transformers."""
    scale: Positive = 20.0
    """Scale of the cosines in the loss: 1 / temperature."""
    epochs: Positive = 3.0
    """Number of epochs."""
    max_steps: Count | None = None
    """Number of steps. Overrides `epochs`."""
    batch_size: Count = 32
    """Number of questions per step, or of pairs for PADS."""
    mini_batch_size: Count = 32
    """Questions per mini-batch in a Cached loss, and texts per encoding batch in evaluations."""
    learning_rate: Positive = 2e-5
    """Peak learning rate."""
    warmup: Annotated[float, Field(ge=0)] = 0.1
    """Warmup: a share of all steps if below 1, otherwise a number of steps."""
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
    """Seed of the split into training and held-out articles; null to use `seed`."""
    held_out: Share = 0.2
    """Share of the articles to hold out for evaluation."""
    per_article: Count = 4
    """Maximum number of consecutive questions about one article in a batch; 1 for random order, as
    in arXiv 2605.26578.
    """
    hard_negatives: bool = False
    """Add other passages of the document as negatives."""
    rerankers: tuple[str, ...] = ()
    """Rerankers for the margin filter; empty for no filter."""
    margin: float = 0.3
    """Minimum score difference between the third with the evidence and the other thirds, for every
    reranker.
    """
    drop_beyond: bool = False
    """Skip questions with evidence beyond the window, instead of raising an error."""
    evaluations: Count = 5
    """Number of evaluations and checkpoints during training."""
    select: CheckpointRule | None = None
    """Checkpoint to select: balanced (smallest position effect without loss of nDCG@10), ndcg
    (highest nDCG@10), or last. The default is balanced for uniform positions, otherwise last.
    """
    guard: tuple[str, ...] = ()
    """Data for forgetting checks: mteb tasks, or data as for `data`."""
    trackers: tuple[str, ...] = ()
    """Experiment trackers, as named in transformers: wandb, tensorboard and others."""

    #: Settings that do not affect the trained model.
    EXCLUDED_SETTINGS: ClassVar = frozenset({"mini_batch_size", "guard", "trackers"})

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
    def article_seed(self) -> int:
        """Seed of the split into training and held-out articles."""
        return self.seed if self.split_seed is None else self.split_seed

    @property
    def checkpoint_rule(self) -> CheckpointRule:
        """How to select a checkpoint."""
        return self.select or ("balanced" if self.positions == "uniform" else "last")

    def to_json(self) -> dict[str, Any]:
        """Convert the settings that affect the trained model to JSON values. Reduce paths to their
        last component.
        """
        return self.model_dump(mode="json", exclude=set(self.EXCLUDED_SETTINGS)) | {
            "model": strip_folders(self.model),
            "data": strip_folders(self.data),
            "texts": self.texts and strip_folders(self.texts),
            "rerankers": list(map(strip_folders, self.rerankers)),
        }


class ComposeSettings(Section):
    """Settings of `posir compose`."""

    kind: Literal["windows", "moved", "mosaics", "needles"] = "windows"
    """windows: cut from the documents; moved: whole documents with moved evidence sentences;
    mosaics: a passage with the evidence and passages from other articles; needles: the evidence
    sentences between sentences from other articles, in a domain NAME_N for each length of N tokens.
    """
    tokens: Annotated[int, Field(ge=9)] = 126
    """Number of tokens per composed document. Needles use `lengths` instead."""
    lengths: tuple[Annotated[int, Field(ge=9)], ...] = (128, 256, 512, 1_024, 2_048, 4_096, 8_000)
    """Document lengths for needles, in tokens."""
    literal: bool = False
    """If true, use the evidence sentences of a needle as its question, word for word."""
    positions: Annotated[
        str, AfterValidator(lambda text: text if text == EACH else validate_positions(text))
    ] = EACH
    """each: every question with its evidence in each third, in three domains NAME_1 to NAME_3;
    begin, middle, end, uniform or three weights: every question once, in one domain.
    """
    tokenizer: str | None = None
    """Name or folder of a tokenizer; null to estimate one token per 4 bytes of UTF-8."""
    groups: Annotated[int, Field(ge=4)] = 8
    """Number of article groups for mosaics. All passages of a mosaic are from one group."""
    seed: int = 42
    """Random seed."""

    @property
    def weights(self) -> PositionWeights | None:
        """Weights for sampling positions; None to compose one corpus per position."""
        return None if self.positions == EACH else PositionWeights.parse(self.positions)

    @property
    def domain_numbers(self) -> list[int]:
        """Numbers in the domain names, one per corpus; empty for a single corpus."""
        if self.kind == "needles":
            return sorted(set(self.lengths))
        return [] if self.weights else list(range(1, len(Position) + 1))
