"""What is missing is run and saved; a process that is killed at any moment loses nothing that was finished."""

import json
import multiprocessing
import os
import random
import signal
import time

import pytest
from mteb.cache import ResultCache
from mteb.results import TaskResult

from posir_run.jobs import Done, Failed, RunRequest, find
from posir_run.runner import missing_units, run_and_save
from posir_run.worker import Settings
from posir_tasks.languages import DOMAINS
from tests.plugins.posir_run.test_dispatch import MadeEngine
from tests.support.datasets import POSIR_FOLDER, posir_tables, write_domain

MOMENTS = 50


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for domain in DOMAINS:
        write_domain(folder / POSIR_FOLDER, posir_tables(), domain=domain)
    return folder


@pytest.fixture
def work(data, monkeypatch):
    monkeypatch.setenv("POSIR_DATA", str(data))
    return find(RunRequest(["PosIR-English"], (), ["mteb/baseline-bm25s"]))


def engine_of(work, failing=()):
    """Workers that know every score."""
    (task,) = work.tasks

    def outcome(unit):
        if unit.subset in failing:
            return Failed(unit, "bad data", fresh=False)
        scores = {"test": {unit.subset: {"main_score": score_of(unit.subset)}}}
        return Done(unit, TaskResult.from_task_results(task, scores, evaluation_time=1.0), {"max_tokens": 7})

    return MadeEngine(outcome=outcome)


def score_of(subset):
    return len(subset) / 100


def save(work, cache, failing=()):
    units = missing_units(work, cache)
    yield from run_and_save(units, engine_of(work, failing), work, cache, Settings({"batch_size": 4}))


def saved(cache):
    """Return the scores on disk in the order of the file."""
    files = list(cache.cache_path.rglob("PosIR-English.json"))
    return {one["hf_subset"]: one["main_score"] for file in files for one in json.loads(file.read_text())["scores"]["test"]}


def test_a_result_is_saved_before_it_is_told(work, tmp_path):
    cache = ResultCache(tmp_path)
    for count, outcome in enumerate(save(work, cache), start=1):
        assert outcome.unit.subset in saved(cache)
        assert len(saved(cache)) == count
    assert saved(cache) == {domain: score_of(domain) for domain in DOMAINS}
    assert list(saved(cache)) == list(work.tasks[0].hf_subsets)
    (meta,) = cache.cache_path.rglob("model_meta.json")
    assert json.loads(meta.read_text())["max_tokens"] == 7
    (settings,) = cache.cache_path.rglob("run_settings.jsonl")
    assert json.loads(settings.read_text())["encode_kwargs"] == {"batch_size": 4}


def test_what_failed_and_nothing_else_is_missing_afterwards(work, tmp_path):
    cache = ResultCache(tmp_path)
    failing = {"sports", "game"}
    failed = [one for one in save(work, cache, failing) if isinstance(one, Failed)]
    assert {one.unit.subset for one in failed} == failing
    assert {unit.subset for unit in missing_units(work, cache)} == failing
    assert set(saved(cache)) == {*DOMAINS} - failing
    list(save(work, cache))
    assert missing_units(work, cache) == []
    assert list(saved(cache)) == list(work.tasks[0].hf_subsets)


def test_results_of_other_data_are_missing(work, tmp_path):
    cache = ResultCache(tmp_path)
    list(save(work, cache))
    (file,) = tmp_path.rglob("PosIR-English.json")
    file.write_text(file.read_text().replace('"dataset_revision": "local"', '"dataset_revision": "main"'))
    assert len(missing_units(work, cache)) == len(DOMAINS)


def test_a_run_killed_at_any_of_fifty_moments_goes_on_from_the_last_finished_subset(work, tmp_path):
    """Workers answer at once, so that the process is killed while it saves and not while it waits."""
    rng, killed, folders = random.Random(0), 0, 0
    while killed < MOMENTS:
        folders += 1
        cache = ResultCache(tmp_path / str(folders))
        while missing_units(work, cache):
            told, tell = os.pipe()
            process = multiprocessing.get_context("fork").Process(target=save_and_tell, args=(work, cache, tell))
            process.start()
            os.close(tell)
            time.sleep(rng.uniform(0, 0.3))
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            killed += process.exitcode == -signal.SIGKILL
            with os.fdopen(told) as lines:
                finished = lines.read().splitlines()
            on_disk = saved(cache)
            assert set(finished) <= set(on_disk)
            assert all(on_disk[subset] == score_of(subset) for subset in on_disk)
        assert saved(cache) == {domain: score_of(domain) for domain in DOMAINS}
        assert list(saved(cache)) == list(work.tasks[0].hf_subsets)
        shown = {file.name for file in cache.cache_path.rglob("*.*") if not file.name.startswith(".")}
        assert shown == {"PosIR-English.json", "model_meta.json", "run_settings.jsonl"}


def save_and_tell(work, cache, tell):
    for outcome in save(work, cache):
        os.write(tell, f"{outcome.unit.subset}\n".encode())
