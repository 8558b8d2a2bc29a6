"""What upstream has for mteb: a patch by which it knows tasks of other packages, and a task in
a file of its own.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import mteb
import numpy as np
import polars as pl
import pytest
from pytrec_eval import RelevanceEvaluator

from posir_tasks.data.mini import read_mini
from tests.support.commands import CLEAN, run_process

UPSTREAM = Path(__file__).parents[2] / "upstream"
TASK = UPSTREAM / "posir_nano_retrieval.py"
CODE = (
    "import mteb; print(mteb.__file__, mteb.get_task('PosIR-Mini').metadata.name, "
    "sum(task.metadata.name == 'PosIR-Mini' for task in mteb.get_tasks()), "
    "mteb.get_task('PosIRNanoRetrieval').metadata.name)"
)
CARD = """---
configs:
- {config_name: corpus, data_files: [{split: test, path: corpus.parquet}]}
- {config_name: queries, data_files: [{split: test, path: queries.parquet}]}
- {config_name: qrels, data_files: [{split: test, path: qrels.parquet}]}
---
"""


@pytest.mark.slow
@pytest.mark.parametrize("autoload", ["0", "1"])
def test_a_patched_mteb_knows_the_tasks_once(tmp_path, autoload):
    shutil.copytree(Path(mteb.__file__).parent, tmp_path / "mteb")
    subprocess.run(
        ["git", "apply", "--unidiff-zero", str(UPSTREAM / "mteb-tasks.patch")],
        cwd=tmp_path,
        check=True,
    )
    tasks = tmp_path / "mteb" / "tasks" / "retrieval" / "eng"
    shutil.copy(TASK, tasks)
    with (tasks / "__init__.py").open("a") as file:
        file.write(
            "from .posir_nano_retrieval import PosIRNanoRetrieval\n__all__ += "
            "['PosIRNanoRetrieval']\n"
        )
    environment = CLEAN | {"PYTHONPATH": str(tmp_path), "POSIR_AUTOLOAD": autoload}
    done = run_process(sys.executable, "-c", CODE, env=environment)
    assert done.stdout.split() == [
        str(tmp_path / "mteb" / "__init__.py"),
        "PosIR-Mini",
        "1",
        "PosIRNanoRetrieval",
    ], done.stderr
    assert "posir: " not in done.stderr


def load_task(dataset: Path) -> Any:
    """Load the task from its file, with a folder in place of its data on the Hub."""
    spec = importlib.util.spec_from_file_location(TASK.stem, TASK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    task = module.PosIRNanoRetrieval
    task.metadata = task.metadata.model_copy(
        update={"dataset": {"path": str(dataset), "revision": "1"}}
    )
    return task()


def test_the_task_reports_thirds_as_pytrec_eval_has_them(tmp_path):
    data = read_mini()
    evidence = data.evidence
    position = (evidence.starts + evidence.ends) / 2 / evidence.characters
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "README.md").write_text(CARD)
    qrels = {
        "query-id": evidence.query_ids,
        "corpus-id": evidence.document_ids,
        "score": [1] * len(evidence),
    }
    queries = {"id": data.queries["id"], "text": data.queries["text"], "position": position}
    tables = {
        "queries": queries,
        "qrels": qrels,
        "corpus": {"id": data.corpus["id"], "text": data.corpus["text"]},
    }
    for name, columns in tables.items():
        pl.DataFrame(columns).write_parquet(tmp_path / "data" / f"{name}.parquet")

    task, predictions = load_task(tmp_path / "data"), tmp_path / "predictions"
    result = mteb.evaluate(
        mteb.get_model("mteb/baseline-bm25s"),
        task,
        cache=None,
        prediction_folder=predictions,
        show_progress_bar=False,
    )
    [scores] = result.task_results[0].scores["test"]

    [file] = predictions.rglob("*.json")
    run = json.loads(file.read_text())["default"]["test"]
    judged = {
        query: {document: 1}
        for query, document in zip(evidence.query_ids, evidence.document_ids, strict=True)
    }
    gains = RelevanceEvaluator(judged, {"ndcg_cut_10"}).evaluate(run)
    gain = np.array([gains[query]["ndcg_cut_10"] for query in evidence.query_ids])
    first, middle, last = (
        gain[np.minimum((position * 3).astype(int), 2) == third].mean() for third in range(3)
    )
    assert scores["ndcg_at_10_first_third"] == pytest.approx(first, abs=1e-5)
    assert scores["ndcg_at_10_middle_third"] == pytest.approx(middle, abs=1e-5)
    assert scores["ndcg_at_10_last_third"] == pytest.approx(last, abs=1e-5)
    assert scores["start_minus_end"] == pytest.approx(first - last, abs=1e-5)
    assert scores["main_score"] == pytest.approx(gain.mean(), abs=1e-4)
