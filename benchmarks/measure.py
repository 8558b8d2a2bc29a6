"""Run a command and measure its time and memory, including child processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Seconds between two memory samples.
SAMPLE_SECONDS = 0.2


@dataclass(frozen=True)
class Cost:
    """Time and memory of a finished command."""

    wall_s: float
    peak_mb: float
    """Peak memory of all processes together, with shared memory counted once. It is at least the
    peak of the largest process.
    """
    output: str
    processor_s: float
    """CPU time of the process and of the children that it waited for."""


def measure(
    command: Sequence[str], environment: Mapping[str, str] | None = None, *, exit_status: int = 0
) -> Cost:
    """Run a command and return its cost and standard output. Standard error is discarded.

    The benchmark stops if the exit status is not `exit_status`.
    """
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    assert process.stdout is not None
    samples, ended = [0.0], threading.Event()
    sampler = threading.Thread(target=_sample_memory, args=(process.pid, samples, ended))
    sampler.start()
    output = process.stdout.read()
    ended.set()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    sampler.join()
    if os.waitstatus_to_exitcode(status) != exit_status:
        sys.exit(f"failed: {' '.join(command)}")
    return Cost(
        wall, max(usage.ru_maxrss / 1024, *samples), output, usage.ru_utime + usage.ru_stime
    )


def _sample_memory(pid: int, samples: list[float], ended: threading.Event) -> None:
    while not ended.wait(SAMPLE_SECONDS):
        # Sampling slows processes down, and the system records the peak of a single process.
        if len(processes := list(_list_processes(pid))) > 1:
            samples.append(sum(map(_read_proportional_mb, processes)))


def _list_processes(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            child_ids = children.read_text().split()
        except OSError:  # The process has ended.
            continue
        for child in child_ids:
            yield from _list_processes(int(child))


def _read_proportional_mb(pid: int) -> float:
    """Read the proportional set size of a process, in which shared pages are split between
    processes.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def print_rows(rows: Sequence[tuple[str, Cost]]) -> None:
    """Print costs and their ratios to the last row."""
    baseline = rows[-1][1]
    print(
        f"{'':44s} {'wall s':>8s} {'peak MB':>9s} {'wall':>7s} {'peak':>7s}   (ratios to the last "
        "row)"
    )
    for name, cost in rows:
        ratios = f"{cost.wall_s / baseline.wall_s:7.2f} {cost.peak_mb / baseline.peak_mb:7.2f}"
        print(f"{name:44s} {cost.wall_s:8.1f} {cost.peak_mb:9.0f} {ratios}")
