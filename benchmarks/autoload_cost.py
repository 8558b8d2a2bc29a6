"""Measure what the autoload file costs users of mteb, alternating runs with and without it.

Measures the start of `python -c pass` and `mteb --help`, and listing tasks and benchmarks after
mteb has been imported.

Usage: python benchmarks/autoload_cost.py
"""

import json
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from measure import measure

PYTHON, MTEB = sys.executable, str(Path(sys.executable).parent / "mteb")
#: Prints the CPU seconds of each listing, and whether torch was imported.
LISTING = """
import json, sys, time, mteb

def seconds(function, *arguments):
    start = time.process_time()
    function(*arguments)
    return time.process_time() - start

print(json.dumps({
    "get_tasks, first call": seconds(mteb.get_tasks),
    "get_tasks, next call": min(seconds(mteb.get_tasks) for _ in range(5)),
    "get_benchmark": seconds(mteb.get_benchmark, "MTEB(eng, v2)"),
    "torch is imported": float("torch" in sys.modules),
}))
"""
#: Number of measured runs, after a warm-up run.
RUNS = 7
#: Seconds in one run, by name.
Times = Mapping[str, float]


def compare(measure_times: Callable[[str], Times], runs: int) -> None:
    """Print the median times with and without autoload, and their ratios.

    Args:
        measure_times: Returns the times of one run, given the value of POSIR_AUTOLOAD.
        runs: Number of measured runs with each value, after a warm-up run.
    """
    measured: dict[str, list[Times]] = {"1": [], "0": []}
    for _ in range(runs + 1):
        for autoload, times in measured.items():
            times.append(measure_times(autoload))
    for name in measured["1"][0]:
        on, off = (
            statistics.median(times[name] for times in measured[autoload][1:]) for autoload in "10"
        )
        ratio = f"ratio {on / off:.2f}" if off else ""
        print(
            f"{name:24s} on {on * 1000:8.1f} ms, off {off * 1000:8.1f} ms: "
            f"{(on - off) * 1000:+8.1f} ms, {ratio}"
        )


def time_command(*command: str) -> Callable[[str], Times]:
    """Build a function that runs a command and returns its wall time."""
    name = " ".join([Path(command[0]).name, *command[1:]])
    return lambda autoload: {name: measure(command, {"POSIR_AUTOLOAD": autoload}).wall_s}


def time_listing(autoload: str) -> Times:
    """Measure listing tasks and benchmarks in a new process."""
    times: Times = json.loads(measure([PYTHON, "-c", LISTING], {"POSIR_AUTOLOAD": autoload}).output)
    return times


if __name__ == "__main__":
    print(f"Autoload on and off, medians of {RUNS} runs (`python -c pass`: of 100)")
    compare(time_command(PYTHON, "-c", "pass"), 100)
    compare(time_command(MTEB, "--help"), RUNS)
    compare(time_listing, RUNS)
