"""Results are saved atomically, with what other processes save, and a damaged one is evaluated again."""

import json
import os
import time
from collections.abc import Iterable
from contextlib import nullcontext
from inspect import unwrap
from pathlib import Path

import pytest
from mteb.cache import ResultCache
from mteb.models import ModelMeta
from mteb.results import TaskResult

from posir_tasks.files import LOCK_FILE
from posir_tasks.host.result_saving import UNREADABLE, ResultSaver, process_saver
from tests.support.processes import exit_codes

TASK = "PosIR-English"
MODEL = ModelMeta.create_empty({"name": "org/model", "revision": "r1"})


def result_of(subsets: Iterable[str], score: float = 0.5, revision: str = "main") -> TaskResult:
    scores = [
        {"hf_subset": name, "languages": ["eng-Latn"], "main_score": score, "mteb_version": "2.26.24"} for name in subsets
    ]
    return TaskResult(
        dataset_revision=revision, task_name=TASK, mteb_version="2.26.24", scores={"test": scores}, evaluation_time=1.0
    )


def scores_in(cache: ResultCache) -> dict[str, float]:
    (file,) = cache.cache_path.rglob(f"{TASK}.json")
    return {entry["hf_subset"]: entry["main_score"] for entry in json.loads(file.read_text())["scores"]["test"]}


@pytest.fixture
def cache(tmp_path: Path) -> ResultCache:
    return ResultCache(tmp_path)


class Process:
    """What a process that saves into a cache does, from its start."""

    def __init__(self, cache: ResultCache):
        self.cache = cache
        # A file system's clock may be some milliseconds behind.
        self.saver = ResultSaver(started=time.time() - 0.05)

    def save(self, result: TaskResult, **settings) -> None:
        self.saver.make_safe(unwrap(ResultCache.save_to_cache))(self.cache, result, MODEL, **settings)


@pytest.fixture
def process(cache: ResultCache) -> Process:
    return Process(cache)


@pytest.fixture
def other(cache: ResultCache) -> Process:
    return Process(cache)


def test_mtebs_own_files_are_there_and_no_others(cache: ResultCache, process: Process):
    process.save(result_of(["sports"]), encode_kwargs={"batch_size": 8})
    (folder,) = {file.parent for file in cache.cache_path.rglob("*.json")}
    assert sorted(file.name for file in folder.iterdir()) == [
        LOCK_FILE,
        f"{TASK}.json",
        "model_meta.json",
        "run_settings.jsonl",
    ]
    assert json.loads((folder / "run_settings.jsonl").read_text())["encode_kwargs"] == {"batch_size": 8}
    assert cache.load_task_result(TASK, MODEL) == result_of(["sports"])


def test_what_another_process_saved_meanwhile_is_kept(cache: ResultCache, process: Process, other: Process):
    process.save(result_of(["sports"]))
    other.save(result_of(["game"], 0.7))
    process.save(result_of(["sports", "mining"], 0.6))
    assert scores_in(cache) == {"sports": 0.6, "mining": 0.6, "game": 0.7}


def test_the_settings_of_another_processs_run_are_kept(cache: ResultCache, process: Process, other: Process):
    other.save(result_of(["game"]), encode_kwargs={"batch_size": 8})
    process.save(result_of(["sports"]), encode_kwargs={"batch_size": 16})
    (settings,) = cache.cache_path.rglob("run_settings.jsonl")
    rows = [json.loads(line) for line in settings.read_text().splitlines()]
    assert {(*row["subsets"], row["encode_kwargs"]["batch_size"]) for row in rows} == {("game", 8), ("sports", 16)}


def test_times_are_not_added_at_each_saving(cache: ResultCache, process: Process, other: Process):
    for number in range(3):
        other.save(result_of([f"other {number}"]))
        process.save(result_of(["sports"]))
    assert cache.load_task_result(TASK, MODEL).evaluation_time == 1.0


def test_an_earlier_result_is_overwritten_at_the_first_saving(cache: ResultCache, process: Process):
    process.save(result_of(["sports", "game"]))
    (file,) = cache.cache_path.rglob(f"{TASK}.json")
    os.utime(file, (0, 0))
    Process(cache).save(result_of(["mining"]))
    assert set(scores_in(cache)) == {"mining"}


def test_what_this_process_saved_itself_can_be_overwritten(cache: ResultCache, process: Process):
    process.save(result_of(["sports", "game"]))
    process.save(result_of(["mining"]))
    assert set(scores_in(cache)) == {"mining"}


def test_results_of_other_data_are_replaced(
    cache: ResultCache, process: Process, other: Process, caplog: pytest.LogCaptureFixture
):
    other.save(result_of(["game"], revision="old"))
    process.save(result_of(["sports"]))
    assert set(scores_in(cache)) == {"sports"}
    assert "is replaced (ValueError: Cannot merge" in caplog.text


def test_results_computed_separately_are_merged(cache: ResultCache):
    for subset in ("sports", "game", "mining"):
        order = ["game", "mining", "sports"]
        ResultSaver().add(cache, result_of([subset]), MODEL, order=order, encode_kwargs={"batch_size": 8})
    assert list(scores_in(cache)) == ["game", "mining", "sports"]
    assert cache.load_task_result(TASK, MODEL).evaluation_time == 3.0


@pytest.mark.parametrize(("task", "safe"), [(TASK, True), ("NFCorpus", False), ("unknown", False)])
def test_results_of_other_tasks_are_saved_and_loaded_by_mteb_itself(cache: ResultCache, task: str, safe: bool):
    given = []

    def save(cache: ResultCache, *arguments) -> None:
        given.append(cache)
        unwrap(ResultCache.save_to_cache)(cache, *arguments)

    result = result_of(["sports"]).model_copy(update={"task_name": task})
    ResultSaver().make_safe(save)(cache, result, MODEL)
    assert (given != [cache]) is safe
    (file,) = cache.cache_path.rglob(f"{task}.json")
    assert (file.parent / LOCK_FILE).exists() is safe
    file.write_text("[]")
    with nullcontext() if safe else pytest.raises(UNREADABLE):
        assert cache.load_task_result(task, MODEL) is None


@pytest.mark.parametrize("content", ["", '{"task_name": "PosIR-Eng', "[]", '{"mteb_version": "2.26.24"}'])
def test_a_damaged_result_is_none_and_is_replaced(
    cache: ResultCache, process: Process, content: str, caplog: pytest.LogCaptureFixture
):
    process.save(result_of(["game"]))
    (file,) = cache.cache_path.rglob(f"{TASK}.json")
    file.write_text(content)
    assert cache.load_task_result(TASK, MODEL) is None
    assert "the result cannot be read" in caplog.text
    ResultSaver().add(cache, result_of(["sports"]), MODEL, order=[])
    assert set(scores_in(cache)) == {"sports"}


def test_a_missing_result_is_an_error_if_mteb_is_asked_to_raise(cache: ResultCache):
    with pytest.raises(FileNotFoundError):
        cache.load_task_result(TASK, MODEL, raise_if_not_found=True)


def save_many(folder: Path, process: int) -> None:
    for number in range(10):
        process_saver().add(ResultCache(folder), result_of([f"{process}-{number}"]), MODEL, order=[])


def test_nothing_is_lost_between_processes(cache: ResultCache):
    assert exit_codes(save_many, [(cache.cache_path, process) for process in range(4)]) == [0] * 4
    assert set(scores_in(cache)) == {f"{process}-{number}" for process in range(4) for number in range(10)}
