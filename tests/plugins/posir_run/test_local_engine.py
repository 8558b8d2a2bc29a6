"""The worker process of this machine: what it dies of spares the run, and it does not outlive it."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool

from posir_run.jobs import Done, EvaluationJob
from posir_run.local_engine import LocalWorker
from posir_run.worker import Settings
from posir_tasks.models import ModelReference

UNIT = EvaluationJob(ModelReference("mteb/baseline-bm25s"), "PosIR-Mini", "default", "")


def ended(pid: int) -> bool:
    """Wait for a process to be gone; False if it never is."""
    for _ in range(600):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def test_a_killed_worker_ends_its_future_and_can_be_stopped():
    worker = LocalWorker(Settings({"batch_size": 32}))
    pid = worker.ready().result()
    unit = worker.submit(UNIT)
    os.kill(pid, signal.SIGKILL)
    assert isinstance(unit.exception(), BrokenProcessPool)
    worker.stop()


def test_a_worker_is_stopped_whatever_it_does_and_ignores_ctrl_c():
    worker = LocalWorker(Settings({"batch_size": 32}))
    pid = worker.ready().result()
    os.kill(pid, signal.SIGINT)
    assert isinstance(worker.submit(UNIT).result(), Done)
    again = worker.submit(UNIT)
    worker.stop()
    assert ended(pid)
    assert again.done()


def test_a_worker_that_has_not_started_can_be_stopped():
    LocalWorker(Settings({"batch_size": 32})).stop()


def test_a_worker_ends_with_the_process_that_started_it():
    code = (
        "import os, signal\n"
        "from posir_run.local_engine import LocalWorker\n"
        "from posir_run.worker import Settings\n"
        "if __name__ == '__main__':\n"
        "    print(LocalWorker(Settings({})).ready().result(), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    parent = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=100)
    assert parent.returncode == -signal.SIGKILL
    assert ended(int(parent.stdout))
