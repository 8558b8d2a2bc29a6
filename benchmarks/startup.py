"""Measure the CPU time of short commands relative to `python -c pass` and `mteb --help`.

Usage: python benchmarks/startup.py
"""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import measure

BIN = Path(sys.executable).parent
RUNS = 7
#: `RESULTS` is a folder with the result of BM25 on PosIR-Mini.
COMMANDS = (
    "python -c pass",
    "mteb --help",
    "posir --help",
    "posir report --help",
    "posir report RESULTS",
    "posir compare --help",
    "posir rescore RESULTS",
    "posir published",
    "posir power --difference 10",
    "posir tasks",
    "posir doctor",
)


def measure_processor_seconds(command: str, results: str) -> float:
    """Measure the median CPU time of a command after a warm-up run."""
    program, *arguments = (word.replace("RESULTS", results) for word in command.split())
    return statistics.median(
        [measure([str(BIN / program), *arguments]).processor_s for _ in range(RUNS + 1)][1:]
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as results:
        run = [
            BIN / "mteb",
            "run",
            "-t",
            "PosIR-Mini",
            "-m",
            "mteb/baseline-bm25s",
            "--output-folder",
            results,
        ]
        subprocess.run(run, check=True, capture_output=True)
        seconds = {command: measure_processor_seconds(command, results) for command in COMMANDS}
    print(
        f"{'':24s} {'CPU s':>12s} {'/ python -c pass':>17s} {'/ mteb --help':>14s}   "
        f"(median of {RUNS})"
    )
    for command, value in seconds.items():
        python, mteb = seconds["python -c pass"], seconds["mteb --help"]
        print(f"{command:24s} {value:12.2f} {value / python:17.1f} {value / mteb:14.2f}")
