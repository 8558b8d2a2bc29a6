"""A run that is killed at any moment leaves whole files, and the next one goes on from the last finished subset."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import mteb
import numpy as np
import pytest
import torch
from mteb.cache import ResultCache

from posir_tasks.embeddings.arrow_files import compute_checksums, read_embeddings
from tests.support.commands import BIN, CLEAN, python
from tests.support.datasets import ASKED, POSIR_FOLDER, TEXTS, posir_tables, write_domain
from tests.support.encoders import NotingEncoder
from tests.support.processes import exit_codes, start

MODEL = "mteb/baseline-random-encoder"
DOMAINS = ("sports", "game", "mining", "aerospace")
KILLS = 50


def write_slowly(value: Any, file: Any, **options: Any) -> None:
    """Be `json.dump` to a slow disk."""
    text = json.dumps(value, **options)
    file.write(text[: len(text) // 2])
    file.flush()
    time.sleep(0.02)
    file.write(text[len(text) // 2 :])


def mteb_run(folder: Path) -> None:
    """Be `mteb run` into `folder/out`, and note each subset in `folder/evaluated` when its evaluation begins."""
    from mteb.cli.build_cli import main
    from tqdm import tqdm

    from posir_tasks.tasks.base import PositionTask

    # tqdm's own lock would be left behind by a process that is killed.
    tqdm.set_lock(threading.RLock())
    json.dump = write_slowly
    # mteb takes longer for each of these than for all the rest.
    PositionTask.k_values = (1, 10)
    evaluate = PositionTask._evaluate_subset

    def noting(task: PositionTask, *given: object, hf_subset: str, **more: object) -> object:
        with (folder / "evaluated").open("a") as evaluated:
            evaluated.write(f"{hf_subset}\n")
        return evaluate(task, *given, hf_subset=hf_subset, **more)

    PositionTask._evaluate_subset = noting  # type: ignore[method-assign]
    os.environ.update(POSIR_DATA=str(folder.parent), POSIR_EMBEDDINGS=str(folder / "embeddings"))
    sys.argv = ["mteb", "run", "-t", "PosIR-English", "-m", MODEL, "--output-folder", str(folder / "out")]
    with (folder / "said").open("a") as said, redirect_stdout(said), redirect_stderr(said):
        main()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with some domains of English; runs go into folders in it."""
    root = tmp_path_factory.mktemp("data")
    for domain in DOMAINS:
        texts = {name: f"{domain}: {text}" for name, text in TEXTS.items()}
        write_domain(root / POSIR_FOLDER, posir_tables(texts, ASKED), domain=domain)
    return root


@pytest.fixture(scope="module")
def undisturbed(data: Path) -> tuple[dict, float]:
    """The scores of a run that nobody disturbs, and its seconds."""
    for name in ("warm-up", "undisturbed"):
        (data / name).mkdir()
    exit_codes(mteb_run, [(data / "warm-up",)])
    began = time.monotonic()
    assert exit_codes(mteb_run, [(data / "undisturbed",)]) == [0]
    seconds = time.monotonic() - began
    return scores_in(data / "undisturbed"), seconds


def scores_in(folder: Path) -> dict[str, dict]:
    """Return the scores by subset; every file of the run's is looked at."""
    for file in (folder / "out").rglob("*.json"):
        json.loads(file.read_text())
    for file in (folder / "out").rglob("*.jsonl"):
        for line in file.read_text().splitlines():
            json.loads(line)
    for file in (folder / "embeddings").rglob("*.arrow"):
        cached = read_embeddings(file)
        assert np.array_equal(compute_checksums(cached.format, cached.keys, cached.rows), cached.checksums)
    results = [json.loads(file.read_text()) for file in (folder / "out").rglob("PosIR-English.json")]
    return {scores["hf_subset"]: scores for result in results for scores in result["scores"]["test"]}


def evaluated_in(folder: Path) -> list[str]:
    return (folder / "evaluated").read_text().split() if (folder / "evaluated").exists() else []


def test_killed_at_fifty_moments(data: Path, undisturbed: tuple[dict, float]):
    expected, seconds = undisturbed
    moments = random.Random(6)
    folder, resumed, completed = None, 0, 0
    for kill in range(KILLS):
        if folder is None:
            folder = data / f"killed-{kill}"
            folder.mkdir()
        finished, before = scores_in(folder), len(evaluated_in(folder))
        process = start(mteb_run, folder)
        process.join(moments.uniform(0, seconds))
        process.kill()
        process.join()
        now = scores_in(folder)
        assert not set(evaluated_in(folder)[before:]) & set(finished)
        assert now.items() >= finished.items()
        resumed += bool(finished)
        if process.exitcode == 0:
            assert now == expected
            folder, completed = None, completed + 1
    assert resumed > KILLS / 10
    if folder is not None:
        assert exit_codes(mteb_run, [(folder,)]) == [0]
        assert scores_in(folder) == expected


def test_two_runs_into_one_folder_end_with_the_same(data: Path, undisturbed: tuple[dict, float]):
    folder = data / "together"
    folder.mkdir()
    assert exit_codes(mteb_run, [(folder,)] * 2) == [0, 0]
    assert scores_in(folder) == undisturbed[0]


def test_a_half_written_result_of_an_older_run_is_replaced(data: Path, undisturbed: tuple[dict, float]):
    folder = data / "half"
    folder.mkdir()
    assert exit_codes(mteb_run, [(folder,)]) == [0]
    (file,) = folder.rglob("PosIR-English.json")
    file.write_text(file.read_text()[:1000])
    assert exit_codes(mteb_run, [(folder,)]) == [0]
    assert scores_in(folder) == undisturbed[0]


class LimitedEncoder(NotingEncoder):
    """An encoder that has not memory enough for one domain, until it has."""

    limited = True

    def encode(self, inputs: Any, *, hf_subset: str, **told: Any) -> Any:
        if hf_subset == "mining" and self.limited:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return super().encode(inputs, hf_subset=hf_subset, **told)


def test_out_of_memory_in_one_subset_leaves_the_results_of_the_others(data: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("POSIR_DATA", str(data))
    model = LimitedEncoder()

    def evaluate(folder: Path) -> dict[str, dict]:
        task = mteb.get_task("PosIR-English")
        task.k_values = (1, 10)
        mteb.evaluate(model, task, cache=ResultCache(folder / "out"), show_progress_bar=False)
        return scores_in(folder)

    with pytest.raises(torch.OutOfMemoryError):
        evaluate(tmp_path)
    finished = scores_in(tmp_path)
    assert 0 < len(finished) < len(DOMAINS)
    LimitedEncoder.limited = False
    resumed = evaluate(tmp_path)
    assert resumed.items() >= finished.items()
    assert resumed == evaluate(tmp_path / "at once")


def test_without_the_start_up_hook_an_import_makes_saving_safe():
    code = """
import mteb
save = mteb.ResultCache.save_to_cache
import posir_tasks
print(mteb.ResultCache.save_to_cache.__wrapped__ is save, mteb.ResultCache.load_task_result.__wrapped__)
"""
    said = python(code, POSIR_AUTOLOAD="0")
    assert said.stdout.startswith("True <function ResultCache.load_task_result"), said.stderr


@pytest.mark.slow
def test_the_real_command_killed(data: Path, undisturbed: tuple[dict, float]):
    folder, moments = data / "command", random.Random(7)
    command = [BIN / "mteb", "run", "-t", "PosIR-English", "-m", MODEL, "--output-folder", str(folder / "out")]
    environment = CLEAN | {"POSIR_DATA": str(data), "POSIR_EMBEDDINGS": str(folder / "embeddings")}
    for seconds in [*(moments.uniform(5, 15) for _ in range(5)), None]:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
        assert process.wait() in (0, -signal.SIGKILL)
        finished = scores_in(folder)
    expected = undisturbed[0]
    assert {name: scores["ndcg_at_10"] for name, scores in finished.items()} == {
        name: scores["ndcg_at_10"] for name, scores in expected.items()
    }
