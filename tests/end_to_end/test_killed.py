"""A run that is killed at any moment leaves complete files, and the next run resumes after the last
finished subset.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import mteb
import numpy as np
import pytest
import torch
from mteb.cache import ResultCache

from posir_tasks.base.files import PART_SUFFIX
from posir_tasks.models.embeddings.cache import compute_checksums, read_embeddings
from posir_tasks.results import read_results
from tests.plugins.posir_train.texts import build_examples, write_squad
from tests.support.commands import BIN, CLEAN, python
from tests.support.datasets import ASKED, POSIR_FOLDER, TEXTS, posir_tables, write_domain
from tests.support.encoders import RecordingEncoder
from tests.support.human_answers import Truth, mini_documents, write_documents
from tests.support.language_model_server import NO_FAILURES, serve_language_model
from tests.support.models import write_tiny_model
from tests.support.probed_encoders import invent_texts
from tests.support.processes import CONTEXT, exit_codes

MODEL = "mteb/baseline-random-encoder"
DOMAINS = ("sports", "game", "mining", "aerospace")
#: Audit events of Python's file operations.
FILE_OPERATIONS = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"})


def mteb_run(folder: Path, kill_at: int | None = None) -> None:
    """Run `mteb run` into `folder/out` and log evaluated subsets and the number of file operations.

    With `kill_at`, the process kills itself at that file operation. The files change at no other
    moment, so that these stand for all moments at which a process may be killed.
    """
    from mteb.cli.build_cli import main
    from tqdm import tqdm

    from posir_tasks.tasks.base import PositionTask

    operations = 0

    def count_operation() -> None:
        nonlocal operations
        operations += 1
        if operations == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        if event in FILE_OPERATIONS and str(arguments[0]).startswith(str(folder)):
            count_operation()

    def dump_in_two_parts(value: Any, file: Any, **options: Any) -> None:
        text = json.dumps(value, **options)
        file.write(text[: len(text) // 2])
        file.flush()
        count_operation()
        file.write(text[len(text) // 2 :])

    evaluate = PositionTask._evaluate_subset

    def log_and_evaluate(
        task: PositionTask, *data: object, hf_subset: str, **options: object
    ) -> object:
        with (folder / "evaluated").open("a") as evaluated:
            evaluated.write(f"{hf_subset}\n")
        return evaluate(task, *data, hf_subset=hf_subset, **options)

    # A killed process would never release the lock of tqdm, which processes share.
    tqdm.set_lock(threading.RLock())
    json.dump = dump_in_two_parts
    # The default cut-offs take mteb longer than everything else.
    PositionTask.k_values = (1, 10)
    PositionTask._evaluate_subset = log_and_evaluate  # type: ignore[method-assign]
    os.environ.update(POSIR_DATA=str(folder.parent), POSIR_EMBEDDINGS=str(folder / "embeddings"))
    sys.argv = [
        "mteb",
        "run",
        "-t",
        "PosIR-English",
        "-m",
        MODEL,
        "--output-folder",
        str(folder / "out"),
    ]
    with (folder / "log").open("a") as log, redirect_stdout(log), redirect_stderr(log):
        sys.addaudithook(audit)
        main()
    (folder / "operations").write_text(str(operations))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with some English domains; runs write to its subfolders."""
    root = tmp_path_factory.mktemp("data")
    for domain in DOMAINS:
        texts = {name: f"{domain}: {text}" for name, text in TEXTS.items()}
        write_domain(root / POSIR_FOLDER, posir_tables(texts, ASKED), domain=domain)
    return root


@pytest.fixture(scope="module")
def expected(data: Path) -> dict[str, dict]:
    """The scores of an uninterrupted run."""
    (data / "uninterrupted").mkdir()
    assert exit_codes(mteb_run, [(data / "uninterrupted",)]) == [0]
    return scores_in(data / "uninterrupted")


def scores_in(folder: Path) -> dict[str, dict]:
    """Return the scores by subset, after a check of every file of the run."""
    # What a killed process was writing is in a temporary folder, which the next one removes.
    written = [
        file
        for file in (folder / "out").rglob("*.json*")
        if not file.parent.name.endswith(PART_SUFFIX)
    ]
    for file in (file for file in written if file.suffix in (".json", ".jsonl")):
        for text in (
            file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
        ):
            json.loads(text)
    for file in (folder / "embeddings").rglob("*.arrow"):
        cached = read_embeddings(file)
        assert np.array_equal(
            compute_checksums(cached.format, cached.keys, cached.rows), cached.checksums
        )
    results = [
        json.loads(file.read_text()) for file in (folder / "out").rglob("PosIR-English.json")
    ]
    return {
        scores["hf_subset"]: scores for result in results for scores in result["scores"]["test"]
    }


def evaluated_in(folder: Path) -> list[str]:
    return (folder / "evaluated").read_text().split() if (folder / "evaluated").exists() else []


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_at_any_file_operation(data: Path, expected: dict[str, dict], kills: int):
    operations = int((data / "uninterrupted" / "operations").read_text())
    # From 1 to beyond the end of a run that starts from nothing.
    moments = (
        np.random.default_rng(6)
        .permutation(np.linspace(1, operations + 1, kills).astype(int))
        .tolist()
    )
    folder, resumed = None, 0
    for kill_at in moments:
        if folder is None:
            folder = data / f"killed-{kills}-{kill_at}"
            folder.mkdir()
        finished, before = scores_in(folder), len(evaluated_in(folder))
        (code,) = exit_codes(mteb_run, [(folder, kill_at)])
        scores = scores_in(folder)
        assert not set(evaluated_in(folder)[before:]) & set(finished)
        assert scores.items() >= finished.items()
        resumed += bool(finished)
        assert code in (0, -signal.SIGKILL)
        if code == 0:
            assert scores == expected
            folder = None
    assert resumed
    if folder is not None:
        assert exit_codes(mteb_run, [(folder,)]) == [0]
        assert scores_in(folder) == expected


def test_two_runs_into_one_folder_give_the_same_result(data: Path, expected: dict[str, dict]):
    folder = data / "together"
    folder.mkdir()
    assert exit_codes(mteb_run, [(folder,)] * 2) == [0, 0]
    assert scores_in(folder) == expected


class LimitedEncoder(RecordingEncoder):
    """An encoder that runs out of memory in one domain while it is limited."""

    limited = True

    def encode(self, inputs: Any, *, hf_subset: str, **task: Any) -> Any:
        if hf_subset == "mining" and self.limited:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return super().encode(inputs, hf_subset=hf_subset, **task)


def test_out_of_memory_in_a_subset_leaves_other_results(data: Path, tmp_path: Path, monkeypatch):
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
    model.limited = False
    resumed = evaluate(tmp_path)
    assert resumed.items() >= finished.items()
    assert resumed == evaluate(tmp_path / "at once")


@pytest.mark.slow
def test_importing_posir_tasks_alone_makes_saving_safe():
    code = """
import mteb
save = mteb.ResultCache.save_to_cache
import posir_tasks
print(mteb.ResultCache.save_to_cache.__wrapped__ is save, mteb.ResultCache.load_task_result.__wrapped__)
"""  # noqa: E501
    printed = python(code, POSIR_AUTOLOAD="0")
    assert printed.stdout.startswith("True <function ResultCache.load_task_result"), printed.stderr


#: Kills of one command.
KILLS = 20


def posir(folder: Path, arguments: tuple[str, ...]) -> None:
    """Run a command of `posir` in a folder, with its caches and what it prints in there."""
    from posir_tasks.command.commands import run_command
    from posir_tasks.tasks.base import PositionTask

    os.chdir(folder)
    PositionTask.k_values = (1, 10)
    os.environ.update(
        POSIR_DATA=str(folder.parent),
        POSIR_EMBEDDINGS=str(folder / "embeddings"),
        POSIR_CACHE=str(folder / "cache"),
    )
    printed, log = (folder / "printed").open("w"), (folder / "log").open("a")
    with printed, log, redirect_stdout(printed), redirect_stderr(log):
        sys.exit(run_command(arguments))


def kill_and_resume(
    folder: Path,
    arguments: tuple[str, ...],
    moments: random.Random,
    *,
    check: Callable[[Path], None] | None = None,
    find_options: Callable[[Path], tuple[str, ...]] = lambda _: (),
) -> None:
    """Kill a command at random moments of an undisturbed run's time, resume it each time, and
    finish it.

    After a run that ended before it was killed, the command starts from nothing.

    Args:
        folder: A folder for the runs.
        arguments: The command.
        moments: Random numbers.
        check: Raises AssertionError if the killed run did not end as the whole one; by default
            `check_same`.
        find_options: Returns the options that resume a run in a folder.
    """
    check = check or check_same
    (folder / "whole").mkdir()
    start = time.monotonic()
    assert exit_codes(posir, [(folder / "whole", arguments)]) == [0]
    seconds, kills = time.monotonic() - start, 0
    killed = folder / "killed"
    while kills < KILLS:
        killed.mkdir(exist_ok=True)
        process = CONTEXT.Process(target=posir, args=(killed, (*arguments, *find_options(killed))))
        process.start()
        process.join(moments.uniform(0.1, 1.1) * seconds)
        if process.is_alive():
            process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL), (killed / "log").read_text()
        kills += process.exitcode != 0
        if process.exitcode == 0:
            check(folder)
            shutil.rmtree(killed)
    killed.mkdir(exist_ok=True)
    assert exit_codes(posir, [(killed, (*arguments, *find_options(killed)))]) == [0], (
        killed / "log"
    ).read_text()
    check(folder)


def check_same(folder: Path) -> None:
    """Check that a killed and a whole run have printed the same, and have the same results."""
    whole, killed = folder / "whole", folder / "killed"
    # How long encoding took differs.
    printed = ((side / "printed").read_text().splitlines() for side in (killed, whole))
    assert len({tuple(line for line in lines if "seconds" not in line) for lines in printed}) == 1
    assert results_in(killed) == results_in(whole)


def results_in(folder: Path) -> dict[str, Any]:
    scores_in(folder)
    results = {}
    for file in (
        file
        for file in (folder / "out").rglob("*.json")
        if not file.parent.name.endswith(PART_SUFFIX)
    ):
        content = json.loads(file.read_text())
        if "scores" in content:
            rows = [row for split in content["scores"].values() for row in split]
            results[file.relative_to(folder).as_posix()] = {row["hf_subset"]: row for row in rows}
    assert results
    return results


@pytest.mark.slow
def test_inspect_killed_twenty_times(tmp_path: Path):
    """No answer of the language model that was saved is asked for again."""
    write_tiny_model(tmp_path / "tiny")
    (tmp_path / "texts").mkdir()
    for number, text in enumerate(invent_texts(24, 20)):
        (tmp_path / "texts" / f"{number}.txt").write_text(text)
    with serve_language_model(Truth([]), rates=NO_FAILURES, seconds=0.05) as server:
        texts = (str(tmp_path / "tiny"), str(tmp_path / "texts"), "--llm", f"human@{server.url}")
        kill_and_resume(
            tmp_path, ("inspect", *texts, "--format", "json", "--output", "out"), random.Random(9)
        )


@pytest.mark.slow
def test_run_killed_twenty_times(tmp_path: Path):
    """Two models are evaluated on one domain."""
    write_domain(tmp_path / POSIR_FOLDER, posir_tables(TEXTS, ASKED), domain=DOMAINS[0])
    models = (str(write_tiny_model(tmp_path / "tiny")), "mteb/baseline-bm25s")

    def check(folder: Path) -> None:
        # What is printed has the number of jobs that had no result before.
        assert results_in(folder / "killed") == results_in(folder / "whole")

    jobs = ("run", "-t", "PosIR-English", "-m", *models, "--output", "out", "--format", "json")
    kill_and_resume(tmp_path, jobs, random.Random(10), check=check)


def files_in(folder: Path, pattern: str) -> dict[str, bytes]:
    """Return the contents of the files of a finished run; there are some."""
    files = {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob(pattern)
        if file.is_file()
    }
    assert files
    return files


@pytest.mark.slow
def test_build_killed_twenty_times(tmp_path: Path):
    """The dataset is the same, byte for byte."""
    documents = mini_documents()[:8]
    write_documents(tmp_path / "texts", documents)

    def check(folder: Path) -> None:
        killed, whole = (files_in(folder / side / "data", "*") for side in ("killed", "whole"))
        assert killed == whole

    with serve_language_model(Truth(documents), rates=NO_FAILURES, seconds=0.05) as server:
        settings = {
            "documents": str(tmp_path / "texts"),
            "language": "eng-Latn",
            "domain": "harbour",
            "output": "data",
            "work": "work",
            "llm": {"model": "human", "endpoints": [server.url]},
            "sample": {"lengths": "any"},
        }
        config = tmp_path / "settings.yaml"
        config.write_text(json.dumps(settings))
        kill_and_resume(tmp_path, ("build", str(config)), random.Random(11), check=check)


@pytest.mark.slow
def test_train_killed_twenty_times(tmp_path: Path):
    """The weights are the same, and so are all measurements before and after."""
    model = str(write_tiny_model(tmp_path / "tiny"))
    data = str(
        write_squad(tmp_path / "facts.json", build_examples(articles=6, questions=6, sentences=6))
    )
    values = (
        "max_steps=4",
        "batch_size=8",
        "held_out=0.4",
        "evaluations=2",
        "select=last",
        "guard=[]",
    )
    options = [part for value in values for part in ("--set", value)]

    def check(folder: Path) -> None:
        for name in ("model.safetensors", "before.json", "report.json"):
            killed, whole = (files_in(folder / side / "out", name) for side in ("killed", "whole"))
            assert killed == whole

    def find_options(folder: Path) -> tuple[str, ...]:
        return ("--resume",) if (folder / "out" / "training" / "run.json").exists() else ()

    arguments = ("train", model, "--data", data, "--output", "out", *options)
    kill_and_resume(tmp_path, arguments, random.Random(12), check=check, find_options=find_options)


#: Kills of a run after its ordinary search, and what its log says then.
KILLS_OF_ROTATIONS = 4
ROTATION_BEGINS = "Rotating 72 documents"


def start_mini(model: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start a run of PosIR-Mini with results, embeddings and log in a folder, and a process group
    of its own.
    """
    folder.mkdir(exist_ok=True)
    command = [BIN / "posir", "run", "-v", "-t", "PosIR-Mini", "-m", model]
    environment = CLEAN | {"POSIR_EMBEDDINGS": str(folder / "embeddings")}
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [*command, "--output", folder / "out"],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def wait_for_rotation(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait until a run rotates documents, or has ended."""
    while process.poll() is None and ROTATION_BEGINS not in (folder / "log").read_text():
        time.sleep(0.01)


def cached_in(folder: Path) -> list[tuple[str, bytes]]:
    """Return the folder and the key of each cached embedding, sorted."""
    files = list((folder / "embeddings").rglob("*.arrow"))
    return sorted(
        (file.parent.name, key.tobytes()) for file in files for key in read_embeddings(file).keys
    )


@pytest.mark.slow
def test_run_killed_while_documents_are_rotated(tmp_path: Path):
    """The result is that of an undisturbed run, and no embedding that was saved is computed
    again.
    """
    model = str(write_tiny_model(tmp_path / "tiny"))
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = start_mini(model, whole)
    wait_for_rotation(process, whole)
    start = time.monotonic()
    assert process.wait() == 0, (whole / "log").read_text()
    seconds = time.monotonic() - start
    (result,) = read_results(whole / "out")
    assert result.values.rotations.untested is None

    def check() -> None:
        # NaN, the score of some metrics, equals itself as text.
        assert json.dumps(results_in(killed)) == json.dumps(results_in(whole))
        # An embedding that is computed again is saved again.
        assert cached_in(killed) == cached_in(whole)

    moments, kills = random.Random(13), 0
    for _ in range(KILLS_OF_ROTATIONS):
        process = start_mini(model, killed)
        wait_for_rotation(process, killed)
        time.sleep(moments.uniform(0, seconds))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        assert code in (0, -signal.SIGKILL), (killed / "log").read_text()
        assert ROTATION_BEGINS in (killed / "log").read_text()
        kills += code != 0
        # After its result is saved, a run only ends.
        if any((killed / "out").rglob("PosIR-Mini.json")):
            check()
            shutil.rmtree(killed)
    assert kills
    assert start_mini(model, killed).wait() == 0, (killed / "log").read_text()
    check()
