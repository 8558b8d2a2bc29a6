"""`posir run` saves the same results as mteb, on this machine or on a Ray cluster, whatever is
killed meanwhile.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import mteb
import polars as pl
import pytest
from mteb.cache import ResultCache

from posir_tasks.base.errors import PosirError
from tests.support.cli import call_posir
from tests.support.commands import BIN, CLEAN
from tests.support.datasets import ASKED, POSIR_FOLDER, TEXTS, posir_tables, write_domain
from tests.support.embedding_server import serve_embeddings

DOMAINS = ("film_entertainment", "fire_safety_food_safety", "fineweb", "game", "mining", "sports")
TASKS = ("PosIR-English", "PosIR-German-English")
OPTIONS = ("-t", *TASKS, "-m", "baseline-bm25s")
TIMES = ("date", "evaluation_time", "evaluation_phases")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six domains in English and German, each with its own texts."""
    folder = tmp_path_factory.mktemp("data")
    for number, domain in enumerate(DOMAINS):
        texts = {
            name: f"{text} This is about {domain}." * (number + 1) for name, text in TEXTS.items()
        }
        questions = dict(list(ASKED.items())[number % 2 :])
        for language in ("eng-Latn", "deu-Latn"):
            write_domain(
                folder / POSIR_FOLDER,
                posir_tables(texts, questions),
                language=language,
                domain=domain,
            )
    return folder


@pytest.fixture(scope="module")
def expected(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("expected")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POSIR_DATA", str(data))
        model = mteb.get_model("mteb/baseline-bm25s", device="cpu")
        mteb.evaluate(model, mteb.get_tasks(list(TASKS)), cache=ResultCache(folder))
    return saved(folder)


def saved(output: Path) -> dict[str, object]:
    """Return all files of an output folder by their path, without times; subsets in their order."""
    files = {file.relative_to(output).as_posix(): file for file in output.rglob("*.json*")}
    contents = {
        name: [json.loads(line) for line in file.read_text().splitlines()]
        for name, file in files.items()
        if name[-1] == "l"
    }
    for name in files.keys() - contents.keys():
        content = json.loads(files[name].read_text())
        contents[name] = {field: value for field, value in content.items() if field not in TIMES}
    return contents


def subsets_in(output: Path, task: str) -> list[str]:
    files = output.rglob(f"{task}.json")
    return [
        scores["hf_subset"]
        for file in files
        for scores in json.loads(file.read_text())["scores"]["test"]
    ]


@pytest.mark.slow
def test_ctrl_c_and_a_bad_subset_leave_the_other_results(
    data: Path, tmp_path: Path, expected, monkeypatch
):
    output = tmp_path / "out"
    command = ("posir", "run", *OPTIONS, "--output", str(output))
    stopped = interrupted(command, {"POSIR_DATA": str(data)}, after=2)
    assert stopped.returncode == 130
    assert f"Finished results are in {output}; run the same command again" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    # The worker of this machine warns, too.
    assert [stopped.stderr.count(f"{task}, folder ") for task in TASKS] == [1, 1], stopped.stderr
    finished = sum(len(subsets_in(output, task)) for task in TASKS)
    assert 2 <= finished < len(TASKS) * len(DOMAINS)

    monkeypatch.setenv("POSIR_DATA", str(data))
    queries = data / POSIR_FOLDER / "deu-Latn" / "sports" / "queries.parquet"
    good = queries.read_bytes()
    pl.read_parquet(queries).drop("pos_char_span").write_parquet(queries)
    failed = call_posir(command[1:])
    queries.write_bytes(good)
    assert isinstance(failed.exception, PosirError)
    assert f"{finished} of 12 jobs already have a result" in failed.output
    assert f"1 of {12 - finished} jobs failed" in str(failed.exception)
    reason = (
        f"mteb/baseline-bm25s · PosIR-German-English · sports: {queries}: field 'pos_char_span': "
        "missing column"
    )
    assert reason in str(failed.exception)
    english, german = (f"results/mteb__baseline-bm25s/0_3_0/{task}.json" for task in TASKS)
    assert saved(output)[english] == expected[english]
    assert saved(output)[german]["scores"]["test"] == expected[german]["scores"]["test"][:-1]


def interrupted(
    command: tuple[str, ...], environment: dict[str, str], after: int
) -> subprocess.CompletedProcess[str]:
    """Press Ctrl-C when this many jobs are done: the signal reaches the command and its worker, as
    on a terminal.
    """
    options = {
        "env": CLEAN | environment,
        "stderr": subprocess.PIPE,
        "text": True,
        "start_new_session": True,
    }
    process = subprocess.Popen([BIN / command[0], *command[1:]], **options)
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith(f"{after}/"):
            os.killpg(process.pid, signal.SIGINT)
    return subprocess.CompletedProcess(command, process.wait(), stderr="".join(lines))


@pytest.fixture(scope="module")
def cluster():
    """A Ray cluster of two simulated machines, each with resources for one worker with all
    processors.
    """
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    resources = {"num_cpus": os.cpu_count(), "object_store_memory": 80_000_000}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # By default Ray yields to all other processes, here to the tests that run in parallel.
        patch.setenv("RAY_worker_niceness", "0")
        cluster = Cluster(
            initialize_head=True, head_node_args=resources | {"include_dashboard": False}
        )
        cluster.add_node(**resources)
        yield cluster
        cluster.shutdown()


def busy_workers(cluster) -> list[int]:
    """Return the processes of the cluster's workers that evaluate a job now."""
    raylets = {
        info.process.pid
        for node in cluster.list_all_nodes()
        for info in node.all_processes["raylet"]
    }
    values = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title, parent = (
                (folder / "cmdline").read_text(),
                (folder / "stat").read_text().rsplit(")", 1)[1].split()[1],
            )
        except OSError:
            continue
        if title.startswith("ray::Evaluator.evaluate") and int(parent) in raylets:
            values.append(int(folder.name))
    return values


def kill_one_worker(cluster, killed: list[int]) -> None:
    """Wait for a worker that evaluates a job, and kill it."""
    while not killed:
        for pid in busy_workers(cluster)[:1]:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        time.sleep(0.02)


@pytest.mark.slow
def test_a_killed_worker_of_two_leaves_the_results_of_mteb(
    cluster, data: Path, tmp_path: Path, expected, monkeypatch
):
    monkeypatch.setenv("POSIR_DATA", str(data))
    killed: list[int] = []
    killer = threading.Thread(target=kill_one_worker, args=(cluster, killed), daemon=True)
    killer.start()
    output = tmp_path / "out"
    on_cluster = ("--engine", "ray", "--address", cluster.address)
    done = call_posir(["run", *OPTIONS, "--output", str(output), *on_cluster])
    assert killed, "the run ended before a worker was found busy"
    assert done.exit_code == 0, done.output
    assert saved(output) == expected


@pytest.mark.slow
def test_after_a_kill_only_the_texts_of_its_job_are_encoded_again(
    cluster, data: Path, tmp_path: Path, monkeypatch
):
    monkeypatch.setenv("POSIR_DATA", str(data))
    monkeypatch.setenv("POSIR_ROTATED", "0")
    counts = []
    killed: list[int] = []

    def kill_workers(texts: list[str], vectors: list[object]) -> list[object]:
        """Kill all workers that evaluate a job, when the first document has arrived."""
        if len(counts) == 1 and not killed and "This is about" in texts[0]:
            killed.extend(busy_workers(cluster))
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
        return vectors

    with serve_embeddings(mix=kill_workers) as server:
        for name in ("whole", "killed"):
            server.batches.clear()
            command = ["run", "-t", "PosIR-English", "-m", server.reference]
            command += ["--output", str(tmp_path / name)]
            done = call_posir([*command, "--engine", "ray", "--address", cluster.address])
            assert done.exit_code == 0, done.output
            counts.append(Counter(text for batch in server.batches for text in batch))
    assert killed
    assert saved(tmp_path / "killed") == saved(tmp_path / "whole")
    domains = re.findall(r"PosIR-English · (\w+): its worker crashed", done.output)
    assert len(domains) == len(killed)
    extra = counts[1] - counts[0]
    documents = [text for text in extra if "This is about" in text]
    assert documents
    assert {re.search(r"This is about (\w+)", text)[1] for text in documents} <= {*domains}
    assert {extra[text] for text in documents} == {1}


@pytest.mark.slow
def test_ctrl_c_stops_a_cluster_and_the_command_completes_it(
    cluster, data: Path, tmp_path: Path, expected
):
    output = tmp_path / "out"
    on_cluster = ("--engine", "ray", "--address", cluster.address)
    command = ("posir", "run", *OPTIONS, "--output", str(output), *on_cluster)
    stopped = interrupted(
        command, {"POSIR_DATA": str(data), "RAY_USAGE_STATS_ENABLED": "0"}, after=2
    )
    assert stopped.returncode == 130
    assert f"Finished results are in {output}; run the same command again" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    finished = sum(len(subsets_in(output, task)) for task in TASKS)
    assert 2 <= finished < len(TASKS) * len(DOMAINS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POSIR_DATA", str(data))
        done = call_posir(command[1:])
    assert done.exit_code == 0, done.output
    assert f"{finished} of 12 jobs already have a result" in done.output
    assert saved(output) == expected


def test_errors_without_a_cluster_or_without_ray_say_what_to_do(monkeypatch, tmp_path: Path):
    ray = pytest.importorskip("ray")

    def error_of(*options: str) -> str:
        command = [
            "run",
            "-t",
            "PosIR-Mini",
            "-m",
            "baseline-bm25s",
            "--output",
            str(tmp_path),
            *options,
        ]
        return str(call_posir(command).exception)

    def unreachable(*_: object, **__: object) -> None:
        raise ConnectionError("nobody is there")

    assert "applies to a Ray cluster only" in error_of("--address", "auto")
    monkeypatch.setattr(ray, "init", unreachable)
    assert "no Ray cluster can be reached there (nobody is there)" in error_of(
        "--engine", "ray", "--address", "auto"
    )
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'ray>=2.9'" in error_of("--engine", "ray")
