"""Measure the time of `posir report` on many results relative to only decoding the JSON files.

Usage: OMP_NUM_THREADS=1 python benchmarks/report_many.py [RESULTS] [QUESTIONS] [FOLDER]

Each result is from a different model on one task: by default 300 questions, two per document, in
four length buckets, with a window of 512 tokens. Ranks are random. With FOLDER, files are kept and
reused.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import numpy as np
from plugins_speed import draw_evidence

from posir_tasks.plugin_api import score_result
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.evidence import ReadEvidence
from posir_tasks.values.profile import map_ranks_to_columns
from posir_tasks.values.read_part import ReadPart, WindowSource
from posir_tasks.values.result_schema import SCHEMA, round_floats
from posir_tasks.values.schemes import RelativePositions
from posir_tasks.values.scores import ResultValues

RESULTS, QUESTIONS, WINDOW, TASK = 5_000, 300, 512, "PosIR-English"


def write_results(folder: Path, results: int, questions: int) -> None:
    """Write results as mteb does. All files contain the scores of the first result, since reports
    compute scores from ranks.
    """
    rng, evidence = np.random.default_rng(0), draw_evidence(np.random.default_rng(0), 0, questions)
    read_evidence = ReadEvidence.estimate(
        ReadPart.first(WINDOW, WindowSource.GIVEN), evidence, ["eng-Latn"]
    )
    ranks = DocumentRanks.from_ranks(
        RelativePositions(), evidence, np.ones(questions, np.int64), read_evidence, "web"
    )
    (part,) = ranks.sets
    scores = None
    for number in range(results):
        # Models differ in quality and in the loss from start to end.
        quality, loss = rng.uniform(0.2, 0.7), rng.uniform(0, 0.3)
        drawn = rng.geometric(quality - loss * quality * part.thirds / 2)
        values = ResultValues(
            replace(ranks, sets=(replace(part, ranks=map_ranks_to_columns(drawn)),)),
            read_evidence.read,
        )
        scores = scores or round_floats(score_result(values).to_json(values.profile.positions))
        run = {
            "schema": SCHEMA,
            "data_revision": "local",
            "data_digest": {"corpus": "c", "queries": "q"},
        }
        entry = {
            "hf_subset": "web",
            "languages": ["eng-Latn"],
            "main_score": 0.5,
            "position_run": run,
        }
        entry |= {**scores, **values.to_json()}
        file = folder / f"lab__model-{number:04}" / "rev" / f"{TASK}.json"
        file.parent.mkdir(parents=True)
        (file.parent / "model_meta.json").write_text(
            json.dumps({"name": f"lab/model-{number:04}", "revision": "rev"})
        )
        file.write_text(
            json.dumps(
                {"dataset_revision": "main", "task_name": TASK, "scores": {"test": [entry]}},
                indent=2,
            )
        )


def measure(*command: str) -> tuple[float, float]:
    """Measure wall time and CPU time of a command in seconds."""
    start, before = time.perf_counter(), getrusage(RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = getrusage(RUSAGE_CHILDREN)
    return (
        time.perf_counter() - start,
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    )


def main() -> None:
    """Print wall time and CPU time of each format, and the ratio to decoding the files."""
    results, questions = (int(text) for text in (*sys.argv[1:3], RESULTS, QUESTIONS)[:2])
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[3] if len(sys.argv) > 3 else temporary)
        if not any(folder.glob("*__*")):
            write_results(folder, results, questions)
        decode = (
            "import json, pathlib, sys; [json.loads(f.read_bytes()) for f in "
            "pathlib.Path(sys.argv[1]).rglob('*.json')]"
        )
        base = measure(sys.executable, "-c", decode, str(folder))
        print(f"decoding {results:,} files: {base[0]:.1f} s wall time, {base[1]:.1f} s CPU time")
        posir = str(Path(sys.executable).parent / "posir")
        for format_ in ("text", "csv", "json"):
            wall, processor = measure(posir, "report", str(folder), "--format", format_)
            print(
                f"report, {format_}: {wall:.1f} s wall time, {processor:.1f} s CPU time, "
                f"ratio {processor / base[1]:.1f}"
            )


if __name__ == "__main__":
    main()
