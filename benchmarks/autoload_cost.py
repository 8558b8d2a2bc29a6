"""What the start-up hook costs a Python that does not use it: `python -c pass` and `mteb --help`, hook on and off, in turn.

Use: python benchmarks/autoload_cost.py
"""

import statistics
import sys
from pathlib import Path

from measure import measure

PYTHON, MTEB = sys.executable, str(Path(sys.executable).parent / "mteb")


def medians(command: list[str], runs: int) -> tuple[float, float]:
    """Return the median seconds of a command with the hook and without it, run in turn after one warm-up each."""
    walls: dict[str, list[float]] = {"1": [], "0": []}
    for run in range(runs + 1):
        for autoload, of_it in walls.items():
            wall = measure(command, {"POSIR_AUTOLOAD": autoload}).wall_s
            if run:
                of_it.append(wall)
    return statistics.median(walls["1"]), statistics.median(walls["0"])


if __name__ == "__main__":
    for command, runs in (([PYTHON, "-c", "pass"], 100), ([MTEB, "--help"], 7)):
        on, off = medians(command, runs)
        print(
            f"{' '.join([Path(command[0]).name, *command[1:]]):16s} hook on {on * 1000:8.1f} ms, off {off * 1000:8.1f} ms: "
            f"{(on - off) * 1000:+.1f} ms, ratio {on / off:.3f} (median of {runs})"
        )
