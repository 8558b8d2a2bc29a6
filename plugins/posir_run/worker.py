"""What a worker does: evaluate one unit after another, the model kept warm between them.

Nothing heavy is imported before a worker has its environment: the Hub's client reads its variables when it is imported.
"""

from __future__ import annotations

import datetime
import gc
import logging
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from posir_run.jobs import Done, EvaluationJob, Failed, Outcome
from posir_tasks.errors import PosirError, summarize_error
from posir_tasks.models import ModelReference, load_model

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels
    from mteb.results import TaskResult
    from mteb.types import EncodeKwargs

logger = logging.getLogger(__name__)

#: Packages whose versions a result depends on, and so must be the same on every machine.
PACKAGES = ("posir", "mteb", "torch", "transformers", "sentence-transformers")


def versions() -> dict[str, str]:
    """Return the versions of what results depend on; PyTorch's without its mark of CPU or CUDA."""
    return {package: version(package).partition("+")[0] for package in PACKAGES}


@dataclass(frozen=True)
class Settings:
    """How to evaluate, the same for all units."""

    encode_kwargs: EncodeKwargs
    """As in `mteb.evaluate`."""
    verbose: bool = False
    """Whether a worker's log is shown."""


class Evaluator:
    """Evaluates units in the process that it is made in."""

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        os.environ.update(environment)
        if settings.verbose:
            logging.basicConfig(level=logging.INFO)
        self._encode_kwargs = settings.encode_kwargs
        self._warm: tuple[ModelReference, MTEBModels] | None = None

    def check(self, wanted: Mapping[str, str]) -> None:
        """Check that this machine's results will be the same as any other's.

        Raises:
            PosirError: It has other versions than wanted.
        """
        if versions() != wanted:
            raise PosirError(
                f"{platform.node()} has {_listed(versions())}, and the machine that gives out the work {_listed(wanted)}. "
                "Install the same everywhere."
            )

    def evaluate(self, unit: EvaluationJob) -> Outcome:
        """Evaluate a unit; whatever goes wrong is an outcome, too."""
        try:
            model = self._model(unit.model)
            result = evaluate_subset(model, unit, self._encode_kwargs)
            return Done(unit, result, model.mteb_model_meta.model_dump(exclude={"loader"}))
        except PosirError as error:
            return Failed(unit, str(error), fresh=False)
        except Exception as error:
            logger.exception("%s", unit)
            return Failed(unit, summarize_error(error), fresh=True)

    def _model(self, wanted: ModelReference) -> MTEBModels:
        import torch

        if self._warm is None or self._warm[0] != wanted:
            # The old one's memory is needed for the new one.
            self._warm = None
            gc.collect()
            torch.cuda.empty_cache()
            self._warm = (wanted, load_model(wanted))
        return self._warm[1]


def _listed(found: Mapping[str, str]) -> str:
    return ", ".join(f"{package} {number}" for package, number in found.items())


def evaluate_subset(model: MTEBModels, unit: EvaluationJob, encode_kwargs: EncodeKwargs) -> TaskResult:
    """Evaluate one subset of a task as `mteb.evaluate` does one after the other.

    The task is whole: one that is filtered to a subset would note the others as missing from the data.
    """
    import mteb
    from mteb.results import TaskResult
    from mteb.timing import TimingStack

    task = mteb.get_task(unit.task)
    timer, started = TimingStack(), time.monotonic()
    scores: dict[str, Any] = {
        split: task.evaluate(model, split, [unit.subset], encode_kwargs=encode_kwargs, timer=timer)
        for split in task.eval_splits
    }
    return TaskResult.from_task_results(
        task,
        scores,
        evaluation_time=time.monotonic() - started,
        date=datetime.datetime.now(tz=datetime.UTC),
        evaluation_phases=timer.phases,
    )
