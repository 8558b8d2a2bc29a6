"""Runs a command as a user would and measures the whole process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """What a finished process took."""

    wall_s: float
    peak_mb: float
    output: str


def measure(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Cost:
    """Run a command to its end and return its cost; its standard output is returned, its errors are dropped."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, **(environment or {})}
    )
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"failed: {' '.join(command)}")
    return Cost(time.perf_counter() - start, usage.ru_maxrss / 1024, output)


def print_rows(rows: Sequence[tuple[str, Cost]]) -> None:
    """Print costs side by side, as ratios to the last row."""
    against = rows[-1][1]
    print(f"{'':44s} {'wall s':>8s} {'peak MB':>9s} {'wall':>7s} {'peak':>7s}   (ratios to the last row)")
    for name, cost in rows:
        ratios = f"{cost.wall_s / against.wall_s:7.2f} {cost.peak_mb / against.peak_mb:7.2f}"
        print(f"{name:44s} {cost.wall_s:8.1f} {cost.peak_mb:9.0f} {ratios}")
