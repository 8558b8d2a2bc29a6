"""Missing jobs are run and saved, and finished results survive a killed process."""

import json
import multiprocessing
import os
import random
import re
import signal
import time

import pytest
from mteb.cache import ResultCache
from mteb.results import TaskResult

from posir_run.api import run_and_save
from posir_run.jobs import JobOutcome, find_missing_jobs, find_workload
from posir_run.worker import Settings
from posir_tasks.base.errors import PosirError
from posir_tasks.data.posir import SubsetKey
from posir_tasks.data.repository import LocalRepository, get_data_folder
from posir_tasks.text import languages
from tests.plugins.posir_run.test_dispatch import FakeEngine
from tests.support.datasets import POSIR_FOLDER, posir_tables, write_domain

#: Some of PosIR's 31 domains, since more domains take longer to save.
DOMAINS = languages.DOMAINS[:8]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for domain in DOMAINS:
        write_domain(folder / POSIR_FOLDER, posir_tables(), domain=domain)
    return folder


@pytest.fixture
def workload(data, monkeypatch):
    monkeypatch.setenv("POSIR_DATA", str(data))
    # Scores are set here instead of computed.
    monkeypatch.setenv("POSIR_ROTATED", "0")
    return find_workload(["PosIR-English"], (), ["mteb/baseline-bm25s"])


def build_engine(workload, failing=()):
    """Build an engine whose workers return known scores."""
    (task,) = workload.tasks

    def outcome(job):
        if job.subset in failing:
            return JobOutcome(failure="bad data")
        repository = LocalRepository(get_data_folder() / POSIR_FOLDER)
        run = {
            "data_revision": repository.resolve_revision(
                SubsetKey("eng-Latn", "eng-Latn", job.subset).files
            )
        }
        scores = {
            "test": {job.subset: {"main_score": look_up_score(job.subset), "position_run": run}}
        }
        return JobOutcome(
            (TaskResult.from_task_results(task, scores, evaluation_time=1.0), {"max_tokens": 7})
        )

    return FakeEngine(outcome=outcome)


def look_up_score(subset):
    return len(subset) / 100


def save(workload, cache, failing=()):
    jobs = find_missing_jobs(workload, cache)
    yield from run_and_save(
        jobs, build_engine(workload, failing), workload, cache, Settings({"batch_size": 4})
    )


def read_saved_scores(cache):
    """Read the saved scores by subset, in file order."""
    files = list(cache.cache_path.rglob("PosIR-English.json"))
    return {
        row["hf_subset"]: row["main_score"]
        for file in files
        for row in json.loads(file.read_text())["scores"]["test"]
    }


def test_a_result_is_saved_before_it_is_reported(workload, tmp_path):
    cache = ResultCache(tmp_path)
    for count, (job, _) in enumerate(save(workload, cache), start=1):
        assert job.subset in read_saved_scores(cache)
        assert len(read_saved_scores(cache)) == count
    assert list(read_saved_scores(cache)) == list(workload.tasks[0].hf_subsets)
    for name, key, value in (
        ("model_meta.json", "max_tokens", 7),
        ("run_settings.jsonl", "encode_kwargs", {"batch_size": 4}),
    ):
        (file,) = cache.cache_path.rglob(name)
        assert json.loads(file.read_text())[key] == value


def test_only_failed_jobs_are_missing_afterward(workload, tmp_path):
    cache = ResultCache(tmp_path)
    failing = set(DOMAINS[2:4])
    assert {
        job.subset for job, outcome in save(workload, cache, failing) if outcome.failure
    } == failing
    assert {job.subset for job in find_missing_jobs(workload, cache)} == failing
    assert set(read_saved_scores(cache)) == {*DOMAINS} - failing
    list(save(workload, cache))
    assert find_missing_jobs(workload, cache) == []
    assert list(read_saved_scores(cache)) == list(workload.tasks[0].hf_subsets)


def test_results_of_another_data_revision_are_missing(workload, tmp_path):
    cache = ResultCache(tmp_path)
    list(save(workload, cache))
    (file,) = tmp_path.rglob("PosIR-English.json")
    for revision in ("local-0123456789abcdef", "0123456789abcdef0123456789abcdef01234567"):
        file.write_text(re.sub('"local-[0-9a-f]*"', f'"{revision}"', file.read_text()))
        if revision.startswith("local"):
            assert len(find_missing_jobs(workload, cache)) == len(DOMAINS)
    with pytest.raises(PosirError, match="results on the Hub's data"):
        find_missing_jobs(workload, cache)


@pytest.mark.parametrize("moments", [8, pytest.param(50, marks=pytest.mark.slow)])
def test_a_run_killed_at_any_moment_resumes(workload, tmp_path, moments):
    """Workers return immediately, so the process is killed while it saves, not while it waits."""
    rng, killed, folders = random.Random(0), 0, 0
    while killed < moments:
        folders += 1
        cache = ResultCache(tmp_path / str(folders))
        while find_missing_jobs(workload, cache):
            reader, writer = os.pipe()
            process = multiprocessing.get_context("fork").Process(
                target=save_and_report, args=(workload, cache, writer)
            )
            process.start()
            os.close(writer)
            # After the last kill, the run finishes, even on a slow machine.
            if killed < moments:
                time.sleep(rng.uniform(0, 0.15))
                os.kill(process.pid, signal.SIGKILL)
            process.join()
            killed += process.exitcode == -signal.SIGKILL
            with os.fdopen(reader) as lines:
                finished = lines.read().splitlines()
            saved_scores = read_saved_scores(cache)
            assert set(finished) <= set(saved_scores)
            assert all(saved_scores[subset] == look_up_score(subset) for subset in saved_scores)
        assert read_saved_scores(cache) == {domain: look_up_score(domain) for domain in DOMAINS}
        assert list(read_saved_scores(cache)) == list(workload.tasks[0].hf_subsets)
        files = [file.relative_to(cache.cache_path) for file in cache.cache_path.rglob("*.*")]
        file_names = {
            file.name for file in files if not any(part.startswith(".") for part in file.parts)
        }
        assert file_names == {"PosIR-English.json", "model_meta.json", "run_settings.jsonl"}


def save_and_report(workload, cache, writer):
    for job, _ in save(workload, cache):
        os.write(writer, f"{job.subset}\n".encode())
