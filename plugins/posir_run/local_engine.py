"""One worker on this machine: a process of its own, so that what kills or spoils it spares the run."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Hashable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

from posir_run.jobs import EvaluationJob, Outcome
from posir_run.worker import Evaluator, Settings

PLACE = "this machine"

_evaluator: Evaluator


class LocalEngine:
    """One worker, which has the machine's processors and its first GPU to itself, as `mteb run` has."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # A killed worker cannot give back its semaphores; that they are freed for it is not worth a warning.
        os.environ.setdefault("PYTHONWARNINGS", "ignore::UserWarning:multiprocessing.resource_tracker")

    def places(self) -> Sequence[Hashable]:
        """Return the one place."""
        return (PLACE,)

    def start(self, place: Hashable) -> LocalWorker:  # noqa: ARG002
        """Start the process."""
        return LocalWorker(self._settings)

    def close(self) -> None:
        """Do nothing: the worker was all."""


class LocalWorker:
    """A process of this machine, which ends with the one that started it."""

    def __init__(self, settings: Settings) -> None:
        # A forked process could not use CUDA.
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, context, initializer=_begin, initargs=(settings,))
        self._started = self._pool.submit(os.getpid)
        self._doing: Future[Any] = self._started

    def ready(self) -> Future[Any]:
        """Return what is done when the process runs."""
        return self._started

    def submit(self, unit: EvaluationJob) -> Future[Outcome]:
        """Have it evaluate a unit."""
        self._doing = self._pool.submit(_evaluate, unit)
        return self._doing

    def stop(self) -> None:
        """End the process; kill it if it is at work."""
        if self._started.done() and not self._doing.done():
            os.kill(self._started.result(), signal.SIGKILL)
        self._pool.shutdown(cancel_futures=True)


def _begin(settings: Settings) -> None:
    global _evaluator
    if not settings.verbose:
        # Bars and warnings of many libraries, which would run over the bar of the whole run.
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
    # Ctrl-C reaches every process of the terminal; the one that gives out the work decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _evaluator = Evaluator(settings, {})


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _evaluate(unit: EvaluationJob) -> Outcome:
    return _evaluator.evaluate(unit)
