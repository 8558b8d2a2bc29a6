"""Cost of the autoload file for every user of mteb, with it and without it, alternating.

`python -c pass` and `mteb --help` start; tasks and benchmarks are listed in a process that has
imported mteb.

Use: python benchmarks/autoload_cost.py
"""

import json
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from measure import measure

PYTHON, MTEB = sys.executable, str(Path(sys.executable).parent / "mteb")
#: Prints the seconds of processor time that each listing takes, and whether torch is imported.
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
#: Runs that are counted, after one that warms up.
RUNS = 7
#: Times of one run, by what was timed.
Times = Mapping[str, float]


def compare(measure_times: Callable[[str], Times], runs: int) -> None:
    """Print the medians of times with and without autoload, and their ratios.

    Args:
        measure_times: Returns the times of one run, in seconds, with this value of POSIR_AUTOLOAD.
        runs: Runs of each, after one that warms up.
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
    """Return a function that runs a command and returns its wall time."""
    name = " ".join([Path(command[0]).name, *command[1:]])
    return lambda autoload: {name: measure(command, {"POSIR_AUTOLOAD": autoload}).wall_s}


def time_listing(autoload: str) -> Times:
    """Return the times of listing tasks and benchmarks in a new process."""
    times: Times = json.loads(measure([PYTHON, "-c", LISTING], {"POSIR_AUTOLOAD": autoload}).output)
    return times


if __name__ == "__main__":
    print(f"Autoload on and off, medians of {RUNS} runs (`python -c pass`: of 100)")
    compare(time_command(PYTHON, "-c", "pass"), 100)
    compare(time_command(MTEB, "--help"), RUNS)
    compare(time_listing, RUNS)
