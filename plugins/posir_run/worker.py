"""A worker: does one job after another and keeps the model loaded between them.

Heavy imports wait until a worker has its environment: the Hub's client reads its variables at import.
"""

from __future__ import annotations

import gc
import logging
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING

from posir_run.jobs import Failed, Job, JobOutcome
from posir_tasks.errors import PosirError, summarize_error
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import load_model
from posir_tasks.plugin_api.manager import loaded_plugins

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels
    from mteb.types import EncodeKwargs


class WarningLog(logging.Handler):
    """Passes each distinct warning on, once."""

    def __init__(self, show: Callable[[str], object], shown: Iterable[str] = ()) -> None:
        super().__init__(logging.WARNING)
        self._show = show
        self._shown = {*shown}

    def emit(self, record: logging.LogRecord) -> None:
        """Show a logged warning."""
        self.show(record.getMessage())

    def show(self, warning: str) -> None:
        """Show a warning, unless it was shown before."""
        if warning not in self._shown:
            self._shown.add(warning)
            self._show(warning)


@contextmanager
def show_warnings(show: Callable[[str], object]) -> Iterator[WarningLog]:
    """Show each warning of this process once, except those about plugins, which every command shows when it starts."""
    log = WarningLog(show, (plugin.warning for plugin in loaded_plugins().plugins if plugin.problem))
    logging.getLogger().addHandler(log)
    try:
        yield log
    finally:
        logging.getLogger().removeHandler(log)


def collect_warnings() -> list[str]:
    """Return a list to which posir's warnings in this process are added from now on; errors are reported with their job."""
    collected: list[str] = []
    log = WarningLog(collected.append)
    log.addFilter(lambda record: record.name.startswith("posir") and record.levelno == logging.WARNING)
    logging.getLogger().addHandler(log)
    return collected


logger = logging.getLogger(__name__)

#: Packages that results depend on; their versions must be the same on every machine.
PACKAGES = ("posir", "mteb", "torch", "transformers", "sentence-transformers")


def installed_versions() -> dict[str, str]:
    """Return the versions of the packages that results depend on, without PyTorch's suffix for CPU or CUDA."""
    return {package: version(package).partition("+")[0] for package in PACKAGES}


@dataclass(frozen=True)
class Settings:
    """Settings of the workers; the same for all jobs."""

    encode_kwargs: EncodeKwargs
    """Arguments of `encode`, as in `mteb.evaluate`."""
    verbose: bool = False
    """Whether the workers' logs are shown; otherwise only their warnings are."""


class Evaluator:
    """Does jobs in the current process."""

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        os.environ.update(environment)
        self._warnings: list[str] = []
        if settings.verbose:
            logging.basicConfig(level=logging.INFO)
        else:
            self._warnings = collect_warnings()
        self._encode_kwargs = settings.encode_kwargs
        self._loaded: tuple[ModelReference, MTEBModels] | None = None

    def check_versions(self, expected: Mapping[str, str]) -> None:
        """Check that this machine has the same versions as the one that runs the command.

        Raises:
            PosirError: They differ.
        """
        if (installed := installed_versions()) != expected:
            ours, theirs = (
                ", ".join(f"{name} {number}" for name, number in versions.items()) for versions in (installed, expected)
            )
            raise PosirError(
                f"{platform.node()} has {ours}, but the machine that runs the command has {theirs}. Install the same "
                "versions on both."
            )

    def evaluate(self, job: Job) -> JobOutcome:
        """Do a job. Every error becomes an outcome, which has the warnings, too."""
        outcome = self._evaluate(job)
        warnings = tuple(self._warnings)
        self._warnings.clear()
        return replace(outcome, warnings=warnings)

    def _evaluate(self, job: Job) -> JobOutcome:
        try:
            return job.run(self._load(job.model), self._encode_kwargs)
        except PosirError as error:
            return Failed(job, str(error), restart_worker=False)
        except Exception as error:
            logger.exception("%s", job)
            return Failed(job, summarize_error(error), restart_worker=True)

    def _load(self, reference: ModelReference) -> MTEBModels:
        import torch

        if self._loaded is None or self._loaded[0] != reference:
            # Free the previous model's memory before the next one needs it.
            self._loaded = None
            gc.collect()
            torch.cuda.empty_cache()
            self._loaded = (reference, load_model(reference))
        return self._loaded[1]
