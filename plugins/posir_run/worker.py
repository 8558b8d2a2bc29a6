"""Workers: a process on this machine, or Ray actors. A worker runs jobs sequentially and keeps its
model loaded.

Heavy imports are deferred until a worker's environment variables are set, since the Hub client
reads them at import.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import platform
import signal
import socket
import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from posir_run.jobs import Job, JobOutcome
from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.records import Fields
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import load_model
from posir_tasks.models.run_settings import VARIABLES
from posir_tasks.plugin_api import get_plugins

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels
    from mteb.types import EncodeKwargs

logger = logging.getLogger(__name__)

#: Packages that affect results. Their versions must be the same on all machines.
PACKAGES = ("posir", "mteb", "torch", "transformers", "sentence-transformers")
#: Name prefixes of environment variables to pass to workers. Paths in these variables must exist on
#: every machine.
FORWARDED_PREFIXES = ("POSIR_", "HF_", "MTEB_")
#: Seconds to wait for the cluster's head node.
CONNECT_SECONDS = 10
#: The evaluator of a worker process. It is a global because a pool initializer cannot return a
#: value.
_evaluator: Evaluator


class WarningHandler(logging.Handler):
    """A logging handler that shows each distinct warning once."""

    def __init__(self, show: Callable[[str], object], seen: Iterable[str] = ()) -> None:
        super().__init__(logging.WARNING)
        self._show = show
        self._seen = {*seen}

    def emit(self, record: logging.LogRecord) -> None:
        """Show a new warning."""
        warning = record.getMessage()
        if warning not in self._seen:
            self._seen.add(warning)
            self._show(warning)


@contextmanager
def show_warnings(show: Callable[[str], object]) -> Iterator[None]:
    """Show each warning of this process once, except plugin warnings, which are shown earlier."""
    plugins = get_plugins().plugins
    handler = WarningHandler(show, (plugin.warning for plugin in plugins if plugin.problem))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


def find_installed_versions() -> dict[str, str]:
    """Return the installed versions of `PACKAGES`, without local suffixes such as `+cpu`."""
    return {package: version(package).partition("+")[0] for package in PACKAGES}


@dataclass(frozen=True)
class Settings:
    """Settings for all workers of a run."""

    encode_kwargs: EncodeKwargs
    verbose: bool = False
    """Whether to show the workers' logs; if false, only warnings are shown."""


class Evaluator:
    """Runs jobs in the current process."""

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        # The environment of the command replaces the settings of a cluster machine.
        for name in VARIABLES:
            os.environ.pop(name, None)
        os.environ.update(environment)
        self._warnings: list[str] = []
        if settings.verbose:
            logging.basicConfig(level=logging.INFO)
        else:
            # Exclude errors, which are reported with their jobs.
            handler = WarningHandler(self._warnings.append)
            handler.addFilter(
                lambda record: record.name.startswith("posir") and record.levelno == logging.WARNING
            )
            logging.getLogger().addHandler(handler)
        self._encode_kwargs = settings.encode_kwargs
        self._loaded: tuple[ModelReference, MTEBModels] | None = None

    def check_versions(self, expected_versions: Mapping[str, str]) -> None:
        """Raise PosirError if the installed versions differ from the expected ones."""
        versions = find_installed_versions()
        if versions != expected_versions:
            raise PosirError(
                f"{platform.node()} has {_list_versions(versions)}, but the machine that runs the "
                f"command has {_list_versions(expected_versions)}. Install the same versions on "
                "both."
            )

    def evaluate(self, job: Job) -> JobOutcome:
        """Run a job. Return its result or its error, and its warnings."""
        try:
            outcome = JobOutcome(job.run(self._load(job.model), self._encode_kwargs))
        except PosirError as error:
            outcome = JobOutcome(failure=str(error))
        except Exception as error:
            logger.exception("%s", job)
            outcome = JobOutcome(failure=summarize_error(error), restart_worker=True)
        warnings = tuple(self._warnings)
        self._warnings.clear()
        return replace(outcome, warnings=warnings)

    def _load(self, reference: ModelReference) -> MTEBModels:
        import torch

        if self._loaded is None or self._loaded[0] != reference:
            # Free the previous model's memory first.
            self._loaded = None
            gc.collect()
            torch.cuda.empty_cache()
            self._loaded = (reference, load_model(reference))
        return self._loaded[1]


def _list_versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())


class LocalEngine:
    """One worker that uses all CPU cores and the first GPU of this machine, as in `mteb run`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # Hide Python's warning about leaked semaphores of a killed worker; Python releases them.
        os.environ.setdefault(
            "PYTHONWARNINGS", "ignore::UserWarning:multiprocessing.resource_tracker"
        )

    def list_locations(self) -> Sequence[Hashable]:
        """Return the only location."""
        return ("this machine",)

    def start(self, location: Hashable) -> LocalWorker:  # noqa: ARG002
        """Start the worker process."""
        return LocalWorker(self._settings)

    def close(self) -> None:
        """Do nothing, since the dispatcher stops the workers."""


class LocalWorker:
    """A process on this machine. It exits with its parent, and a crash does not end the run."""

    def __init__(self, settings: Settings) -> None:
        # CUDA cannot be used in a forked process.
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, context, initializer=_initialize, initargs=(settings,))
        # A terminal sends Ctrl-C to all processes, but only the main process should handle it. The
        # new process inherits SIG_IGN, so it prints no traceback while it starts.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self.started: Future[Any] = self._pool.submit(os.getpid)
        finally:
            signal.signal(signal.SIGINT, handler)
        self._current = self.started

    def submit(self, job: Job) -> Future[JobOutcome]:
        """Start a job in the process."""
        self._current = self._pool.submit(_evaluate, job)
        return self._current

    def stop(self) -> None:
        """Stop the process. Kill it if a job is running."""
        if self.started.done() and not self._current.done():
            os.kill(self.started.result(), signal.SIGKILL)
        self._pool.shutdown(cancel_futures=True)


def _initialize(settings: Settings) -> None:
    global _evaluator
    if not settings.verbose:
        # Hide the libraries' output, which would garble the progress bar.
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _evaluator = Evaluator(settings, dict(os.environ))


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _evaluate(job: Job) -> JobOutcome:
    return _evaluator.evaluate(job)


@dataclass(frozen=True)
class RayLocation:
    """A place for one worker in the cluster: a machine and a share of its resources."""

    node: str
    """Ray's node id."""
    address: str
    index: int
    """Index of the worker on its machine."""
    cpus: float
    gpus: int
    """Number of GPUs, 0 or 1."""

    def __str__(self) -> str:
        return f"{self.address}, GPU {self.index}" if self.gpus else self.address


class RayEngine:
    """A Ray cluster."""

    def __init__(self, address: str | None, settings: Settings) -> None:
        """Connect to a cluster. If `address` is None, start one on this machine.

        Raises:
            PosirError: Ray is not installed, or the cluster cannot be reached.
        """
        try:
            import ray
        except ImportError as error:
            raise PosirError("--engine ray needs Ray: pip install 'ray>=2.9'") from error
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        check_address(address)
        level = logging.INFO if settings.verbose else logging.ERROR
        try:
            ray.init(
                address or "local",
                log_to_driver=settings.verbose,
                logging_level=level,
                include_dashboard=None if address else False,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise _make_unreachable_error(address, error) from error
        self._environment = {
            name: value for name, value in os.environ.items() if name.startswith(FORWARDED_PREFIXES)
        }
        self._settings = settings

    def list_locations(self) -> Sequence[RayLocation]:
        """List the locations in the cluster, which may grow during a run."""
        import ray

        return find_locations(ray.nodes())  # type: ignore[no-untyped-call]

    def start(self, location: Hashable) -> _RayWorker:
        """Start an actor at a location."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        assert isinstance(location, RayLocation)
        actor = ray.remote(Evaluator).options(
            num_cpus=location.cpus,
            num_gpus=location.gpus,
            scheduling_strategy=NodeAffinitySchedulingStrategy(location.node, soft=False),
        )
        return _RayWorker(actor.remote(self._settings, self._environment))

    def close(self) -> None:
        """Disconnect from the cluster. Ray then stops this run's workers."""
        import ray

        ray.shutdown()


def check_address(address: str | None) -> None:
    """Raise PosirError if no server listens at the address. Ray would retry for 15 minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if port.isdecimal():
        try:
            socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
        except OSError as error:
            raise _make_unreachable_error(address, error) from error


def _make_unreachable_error(address: str | None, error: Exception) -> PosirError:
    return PosirError(
        f"--address {address}: no Ray cluster can be reached there ({error}). Start one with `ray "
        "start --head`, which prints its address."
    )


def find_locations(nodes: Sequence[Fields]) -> list[RayLocation]:
    """Convert the result of `ray.nodes()` to worker locations.

    Each GPU is a location, with an equal share of its machine's CPU cores. If the cluster has no
    GPU, each machine is a location.
    """
    gpu_locations = []
    cpu_locations = []
    for node in nodes:
        if not node["Alive"]:
            continue
        cpus = node["Resources"].get("CPU", 0)
        gpus = int(node["Resources"].get("GPU", 0))
        make_location = partial(RayLocation, node["NodeID"], node["NodeManagerAddress"])
        gpu_locations += [make_location(index, cpus // gpus, 1) for index in range(gpus)]
        if cpus >= 1:
            cpu_locations.append(make_location(0, cpus, 0))
    return gpu_locations or cpu_locations


class _RayWorker:
    """A Ray actor. It exits with the process that started it."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self.started: Future[Any] = actor.check_versions.remote(find_installed_versions()).future()
        """Completes once the actor has started and passed the version check."""

    def submit(self, job: Job) -> Future[JobOutcome]:
        outcome: Future[JobOutcome] = self._actor.evaluate.remote(job).future()
        return outcome

    def stop(self) -> None:
        import ray

        ray.kill(self._actor)
