"""The plan of a run: what each model has to encode for each task, the room that takes, and how long."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from posir_run.jobs import Workload
from posir_run.planning.calibration import Calibration, Duration, calibrate
from posir_run.planning.samples import Samples, samples_of
from posir_run.planning.sizes import Lengths, SubsetSize, sizes_of
from posir_tasks.display.progress import progress
from posir_tasks.errors import PosirError, summarize_error
from posir_tasks.models import ModelReference, load_model
from posir_tasks.tasks.metadata import SPLIT

if TYPE_CHECKING:
    from mteb.models import ModelMeta

#: Bytes of a number of an embedding where the model itself could not be asked: single precision.
BYTES_A_NUMBER = 4


@dataclass(frozen=True)
class ModelSpeed:
    """What is known of a model."""

    name: str
    calibration: Calibration | None
    problem: str
    """Why there is no calibration; empty if there is one."""
    bytes_a_text: int | None
    """Of an embedding; None where it is unknown or the model has none."""


@dataclass(frozen=True)
class Load:
    """What there is to encode, and what it takes."""

    name: str
    units: int
    documents: Lengths
    queries: int
    bytes: int | None
    """Of the embeddings; None where they are unknown."""
    duration: Duration | None
    """Of encoding on one device such as this machine's; None where the model could not be measured."""

    @classmethod
    def of(cls, name: str, model: ModelSpeed, sizes: Sequence[SubsetSize], documents: Lengths) -> Load:
        """Return the load of some subsets, of which so many documents are encoded."""
        queries = sum(size.queries for size in sizes)
        texts = sum(documents.texts) + queries
        return cls(
            name,
            len(sizes),
            documents,
            queries,
            texts * model.bytes_a_text if model.bytes_a_text else None,
            model.calibration.duration(documents, queries) if model.calibration else None,
        )


@dataclass(frozen=True)
class Plan:
    """A model's part of a plan."""

    model: ModelSpeed
    tasks: tuple[Load, ...]
    total: Load
    stored: Load
    """The same with a store of embeddings: each corpus is encoded once."""
    counted: bool
    """Whether all sizes were counted in the data; otherwise some are published averages."""
    drawn: bool
    """Whether the model was measured with texts of the data alone."""


def make_plans(work: Workload, batch_size: int) -> list[Plan]:
    """Return a plan for each model.

    Raises:
        DataError: The data cannot be read.
    """
    subsets = [(task, subset) for task in work.tasks for subset in task.hf_subsets]
    sizes = sizes_of(progress(subsets, "Counting texts"))
    samples = samples_of(work.tasks, total(size.documents for size in sizes))
    where = {"task_metadata": work.tasks[0].metadata, "hf_split": SPLIT, "hf_subset": work.tasks[0].hf_subsets[0]}
    models = progress(list(work.models.items()), "Measuring models")
    return [plan_of(speed_of(model, meta, samples, where, batch_size), sizes, samples) for model, meta in models]


def speed_of(model: ModelReference, meta: ModelMeta, samples: Samples, where: dict[str, Any], batch_size: int) -> ModelSpeed:
    """Measure a model; where that cannot be done, say why and what its metadata tells."""
    try:
        calibration = calibrate(load_model(model), samples, where, batch_size)
    except Exception as error:  # loading a model runs code of others, and a machine may be too small for it
        told = meta.embed_dim * BYTES_A_NUMBER if isinstance(meta.embed_dim, int) else None
        return ModelSpeed(model.name, None, str(error) if isinstance(error, PosirError) else summarize_error(error), told)
    form = calibration.form
    return ModelSpeed(model.name, calibration, "", form.dimensions * form.stored_dtype.itemsize)


def plan_of(model: ModelSpeed, sizes: Sequence[SubsetSize], samples: Samples) -> Plan:
    """Return a model's plan."""
    tasks = [(name, list(group)) for name, group in groupby(sizes, key=lambda size: size.task)]
    corpora = {size.corpus: size.documents for size in sizes}
    return Plan(
        model=model,
        tasks=tuple(Load.of(name, model, group, total(size.documents for size in group)) for name, group in tasks),
        total=Load.of("total", model, sizes, total(size.documents for size in sizes)),
        stored=Load.of("with a store", model, sizes, total(corpora.values())),
        counted=all(size.counted for size in sizes),
        drawn=samples.drawn,
    )


def total(lengths: Iterable[Lengths]) -> Lengths:
    """Return the sum."""
    return sum(lengths, Lengths.none())
