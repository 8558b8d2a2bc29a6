"""Start-up cost of the autoload file: `python -c pass` and `mteb --help` with and without it, alternating.

Use: python benchmarks/autoload_cost.py
"""

import statistics
import sys
from pathlib import Path

from measure import measure

PYTHON, MTEB = sys.executable, str(Path(sys.executable).parent / "mteb")


def medians(command: list[str], runs: int) -> tuple[float, float]:
    """Return the median seconds of a command with and without autoload, after one warm-up run of each."""
    walls: dict[str, list[float]] = {"1": [], "0": []}
    for run in range(runs + 1):
        for autoload, seconds in walls.items():
            wall = measure(command, {"POSIR_AUTOLOAD": autoload}).wall_s
            if run:
                seconds.append(wall)
    return statistics.median(walls["1"]), statistics.median(walls["0"])


if __name__ == "__main__":
    for command, runs in (([PYTHON, "-c", "pass"], 100), ([MTEB, "--help"], 7)):
        on, off = medians(command, runs)
        print(
            f"{' '.join([Path(command[0]).name, *command[1:]]):16s} autoload on {on * 1000:8.1f} ms, off {off * 1000:8.1f} ms: "
            f"{(on - off) * 1000:+.1f} ms, ratio {on / off:.3f} (median of {runs})"
        )
