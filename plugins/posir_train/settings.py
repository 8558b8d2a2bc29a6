"""The settings of `posir train` and `posir compose`, and where a run keeps its files."""

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
    """The third of the document that contains the evidence's midpoint, by characters."""

    BEGIN = 0
    MIDDLE = 1
    END = 2

    @property
    def title(self) -> str:
        """The name in tables and options."""
        return self.name.lower()


def find_position(start: int, end: int, characters: int) -> Position:
    """Return the third of a document of so many characters that contains the midpoint of a span;
    borders as in PosIR.
    """
    return Position(sum((start + end) * 3 > 2 * border * characters for border in (1, 2)))


@dataclass(frozen=True)
class PositionWeights:
    """Weights of the positions in training."""

    shares: tuple[float, float, float]
    """Shares by `Position`; they sum to 1."""
    name: str

    @classmethod
    def parse(cls, text: str) -> PositionWeights:
        """Read `begin`, `middle`, `end`, `uniform` or three weights separated by commas; ValueError
        for anything else.
        """
        named = {"begin": "1,0,0", "middle": "0,1,0", "end": "0,0,1", "uniform": "1,1,1"}
        try:
            weights = [float(weight) for weight in named.get(text, text).split(",")]
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

    def apportion(self, filled: Mapping[Position, int], places: int) -> Counter[Position]:
        """Divide places among the positions: with those already filled, they have their shares
        (Webster's method).
        """
        total = Counter(filled)
        for _ in range(places):
            quotients = {place: (total[place] + 0.5) / self.shares[place] for place in self.needed}
            total[min(quotients, key=quotients.__getitem__)] += 1
        return total - Counter(filled)

    @property
    def needed(self) -> tuple[Position, ...]:
        """The positions with a weight above 0."""
        return tuple(position for position in Position if self.shares[position])


def check_positions(text: str) -> str:
    """Raise ValueError if a text is not that of `PositionWeights`."""
    return PositionWeights.parse(text).name


def display_name(name: str) -> str:
    """Return the name of a task or model, or of a file or folder without the folders that it is
    in.
    """
    path = Path(name).expanduser()
    return path.resolve().name if path.exists() else name


def open_dataset(name: str) -> Dataset:
    """Open what `open_data` takes; raise PosirError if there is no such data, or it has no question
    with evidence.
    """
    return open_data(name).with_questions("posir train")


#: In the folder of a trained model: what is kept of its training.
WORK = "training"
CHECKPOINTS = "training/checkpoints"
#: The held-out questions and the corpus, as a folder for `POSIR_DATA`.
HELD_OUT = "training/held-out"
#: The settings in which a continued run must agree.
RECORD = "training/run.json"
#: Value of `positions` for a corpus of each position.
EACH = "each"
#: Settings of the published code of PADS, with Adam and, as here, three epochs and a learning rate
#: of 2e-5.
PADS_DEFAULTS = {"batch_size": 1, "schedule": "constant", "warmup": 0, "select": "last"}
#: The checkpoint that becomes the model: the one with the smallest position effect of those whose
#: nDCG@10 is not below the base model's by an interval without 0, the one with the highest nDCG@10,
#: or the last one.
Select: TypeAlias = Literal["balanced", "ndcg", "last"]
#: Questions from each length bin: the same from every bin and for all positions, as many as the
#: scarcest cell has (arXiv 2605.26578, section 3.2.2), or bin by bin as many as the scarcest
#: position that is trained on allows.
QuestionBudget: TypeAlias = Literal["equal", "most"]
#: Questions and the documents that answer them; PADS with labels -1 of negative pairs, or with 0,
#: as in the published code.
Objective: TypeAlias = Literal["retrieval", "pads", "pads-published"]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
Seed = Annotated[int, Field(ge=0)]
Reference = Annotated[str, Field(min_length=1)]


class TrainingSettings(Section):
    """Everything that a training run is asked for, but for its folder."""

    model: Reference
    """The model to train: a registered one or a local folder."""
    data: Reference
    """A task, or any file, folder or Hub dataset of questions with evidence."""
    positions: Annotated[str, AfterValidator(check_positions)] = "uniform"
    """begin, middle, end, uniform, or three weights such as 2,1,1."""
    revision: str | None = None
    """Revision of the model."""
    pooling: Literal["mean", "cls", "lasttoken", "max"] | None = None
    """Instead of the model's own."""
    window: Annotated[int, Field(ge=8)] | None = None
    """Tokens of a text that the model reads, instead of its own."""
    query_prompt: str | None = None
    """Put before queries, in training and in the trained model."""
    budget: QuestionBudget | Count = "equal"
    """Questions of each of five length bins: equal, as many in every bin and for all positions
    (arXiv 2605.26578); most, as many as the scarcest position that is trained on allows, bin by
    bin; or a number.
    """
    objective: Objective = "retrieval"
    """PADS, with labels -1 or, as published, 0, uses no questions; unless set, batch_size is then
    1, the learning rate constant without warmup, and the last checkpoint chosen.
    """
    texts: str | None = None
    """Plain texts that PADS trains on, any data with documents; without them, the documents of
    `data` that are not held out. With them, all of `data` is measured with.
    """
    loss: Literal[
        "MultipleNegativesRankingLoss",
        "CachedMultipleNegativesRankingLoss",
        "MultipleNegativesSymmetricRankingLoss",
        "CachedMultipleNegativesSymmetricRankingLoss",
    ] = "MultipleNegativesRankingLoss"
    """Name of the loss in sentence-transformers."""
    scale: Positive = 20.0
    """Factor of the cosines in the loss: 1 / temperature."""
    epochs: Positive = 3.0
    """Passes over the data."""
    max_steps: Count | None = None
    """Steps in place of epochs."""
    batch_size: Count = 32
    """Questions or, of PADS, pairs of samples per step."""
    mini_batch_size: Count = 32
    """Questions at a time of a Cached loss, and texts at a time of measurements."""
    learning_rate: Positive = 2e-5
    """The highest one."""
    warmup: Annotated[float, Field(ge=0)] = 0.1
    """Share of the steps, or from 1 their number."""
    schedule: Literal[
        "linear",
        "cosine",
        "cosine_with_restarts",
        "polynomial",
        "constant",
        "constant_with_warmup",
        "inverse_sqrt",
    ] = "linear"
    """Schedule of the learning rate, by transformers' names."""
    seed: Seed = 42
    """Seed of all random numbers."""
    split_seed: Seed | None = None
    """Seed of the division into training and held-out articles; null for `seed`."""
    held_out: Share = 0.2
    """Share of the articles to measure with."""
    per_article: Count = 4
    """Questions about one article in a row of a batch; 1 for random order, as in arXiv
    2605.26578.
    """
    hard_negatives: bool = False
    """Add the document's other parts as negatives."""
    rerankers: tuple[str, ...] = ()
    """Models of the margin filter; without any, nothing is filtered."""
    margin: float = 0.3
    """Least difference by which the third with the evidence must beat the others in every
    reranker.
    """
    drop_beyond: bool = False
    """Leave out evidence beyond the window, instead of refusing it."""
    evaluations: Count = 5
    """Times that the model is measured and saved during training."""
    select: Select | None = None
    """Checkpoint to choose: balanced (smallest position effect with nDCG@10 kept), ndcg (highest),
    or last. By default balanced for uniform positions, else last.
    """
    guard: tuple[str, ...] = ()
    """Data of forgetting checks: tasks of mteb, or what `data` takes."""
    trackers: tuple[str, ...] = ()
    """wandb, tensorboard and others, by transformers' names."""

    #: Settings that the trained model does not depend on.
    INDEPENDENT: ClassVar = frozenset({"mini_batch_size", "guard", "trackers"})

    @model_validator(mode="before")
    @classmethod
    def _follow_pads(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("objective") in ("pads", "pads-published"):
            return PADS_DEFAULTS | values
        return values

    @model_validator(mode="after")
    def _fit_the_objective(self) -> Self:
        if self.objective == "retrieval" and self.batch_size < 2:
            raise ValueError("batch_size: in-batch negatives need at least 2")
        if self.objective == "retrieval" and self.texts is not None:
            raise ValueError(
                "texts: only PADS trains on texts without questions; set objective: pads"
            )
        return self

    @property
    def weights(self) -> PositionWeights:
        """Weights of the positions in training."""
        return PositionWeights.parse(self.positions)

    @property
    def division(self) -> int:
        """The seed of the division into training and held-out articles."""
        return self.seed if self.split_seed is None else self.split_seed

    @property
    def chosen(self) -> Select:
        """The checkpoint to choose."""
        return self.select or ("balanced" if self.positions == "uniform" else "last")

    def to_json(self) -> dict[str, Any]:
        """Return the settings that the trained model depends on as plain JSON; paths are reduced to
        their last name.
        """
        return self.model_dump(mode="json", exclude=set(self.INDEPENDENT)) | {
            "model": display_name(self.model),
            "data": display_name(self.data),
            "texts": self.texts and display_name(self.texts),
            "rerankers": list(map(display_name, self.rerankers)),
        }


class ComposeSettings(Section):
    """Settings of the composition of documents."""

    kind: Literal["windows", "moved", "mosaics", "needles"] = "windows"
    """windows: cut from the documents themselves; moved: whole documents, in which the sentences
    with the evidence are moved; mosaics: passages of other articles around the evidence; needles:
    its sentences between those of other articles, in a domain NAME_N for each length of N tokens.
    """
    tokens: Annotated[int, Field(ge=9)] = 126
    """Tokens of a composed document; needles have `lengths`."""
    lengths: tuple[Annotated[int, Field(ge=9)], ...] = (128, 256, 512, 1_024, 2_048, 4_096, 8_000)
    """Tokens of the documents of each domain of needles."""
    literal: bool = False
    """Whether the sentences of a needle are themselves its question, word for word."""
    positions: Annotated[
        str, AfterValidator(lambda text: text if text == EACH else check_positions(text))
    ] = EACH
    """each: every question with its evidence in each third, in three domains NAME_1 to NAME_3; or
    begin, middle, end, uniform or three weights: every question once, in one domain.
    """
    tokenizer: str | None = None
    """Name or folder of a tokenizer; null for one token per 4 bytes of UTF-8."""
    groups: Annotated[int, Field(ge=4)] = 8
    """Groups of articles, for mosaics; passages are never mixed with those of other groups."""
    seed: int = 42
    """Seed of the random numbers."""

    @property
    def weights(self) -> PositionWeights | None:
        """Weights by which positions are drawn; None for a corpus of each."""
        return None if self.positions == EACH else PositionWeights.parse(self.positions)
