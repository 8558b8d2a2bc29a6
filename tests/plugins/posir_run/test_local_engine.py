"""The local worker process: a crash does not end the run, and the process exits with the run."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

import pytest

from posir_run.worker import LocalWorker, Settings
from posir_tasks.models.references import ModelReference

BM25 = ModelReference("mteb/baseline-bm25s")


@dataclass(frozen=True)
class Pause:
    """A job that takes a given number of seconds."""

    seconds: float
    model: ModelReference = BM25
    corpus: str = ""

    def run(self, *_):
        time.sleep(self.seconds)


def has_ended(pid: int) -> bool:
    """Wait up to a minute for a process to exit. Return whether it exited."""
    for _ in range(600):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def test_a_killed_worker_fails_its_future_and_can_be_stopped():
    worker = LocalWorker(Settings({"batch_size": 32}))
    pid = worker.started.result()
    outcome = worker.submit(Pause(600))
    os.kill(pid, signal.SIGKILL)
    assert isinstance(outcome.exception(), BrokenProcessPool)
    worker.stop()


def test_a_worker_ignores_ctrl_c_and_can_be_stopped_during_a_job():
    worker = LocalWorker(Settings({"batch_size": 32}))
    pid = worker.started.result()
    os.kill(pid, signal.SIGINT)
    assert worker._pool.submit(os.getpid).result() == pid
    unfinished = worker.submit(Pause(600))
    worker.stop()
    assert has_ended(pid)
    assert unfinished.done()


def test_stopping_a_worker_during_its_start_leaves_no_process():
    before = set(multiprocessing.active_children())
    worker = LocalWorker(Settings({"batch_size": 32}))
    (process,) = set(multiprocessing.active_children()) - before
    worker.stop()
    assert has_ended(process.pid)
    assert worker.started.done()
    with pytest.raises(RuntimeError, match="after shutdown"):
        worker.submit(Pause(0))


def test_a_worker_exits_with_its_parent_process():
    code = (
        "import os, signal\n"
        "from posir_run.worker import LocalWorker, Settings\n"
        "if __name__ == '__main__':\n"
        "    print(LocalWorker(Settings({})).started.result(), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    parent = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=100
    )
    assert parent.returncode == -signal.SIGKILL
    assert has_ended(int(parent.stdout))
