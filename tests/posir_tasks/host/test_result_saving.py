"""Results are saved whole, beside what other processes save, and a damaged one is taken for none."""

import json
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from mteb.cache import ResultCache
from mteb.models import ModelMeta
from mteb.results import TaskResult

from posir_tasks.files import LOCK_FILE
from posir_tasks.host import result_saving
from posir_tasks.host.result_saving import add_result
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


@pytest.fixture(autouse=True)
def _process_of_its_own(monkeypatch):
    """Let each test be a process that begins with it."""
    monkeypatch.setattr(result_saving, "_began", time.time() - 0.05)
    monkeypatch.setattr(result_saving, "_left", {})


def save_as_another_process(monkeypatch, cache: ResultCache, result: TaskResult) -> None:
    with monkeypatch.context() as other:
        other.setattr(result_saving, "_left", {})
        cache.save_to_cache(result, MODEL)


def test_mtebs_own_files_are_there_and_no_others(cache: ResultCache):
    cache.save_to_cache(result_of(["sports"]), MODEL, encode_kwargs={"batch_size": 8})
    (folder,) = {file.parent for file in cache.cache_path.rglob("*.json")}
    assert sorted(file.name for file in folder.iterdir()) == [
        LOCK_FILE,
        f"{TASK}.json",
        "model_meta.json",
        "run_settings.jsonl",
    ]
    assert json.loads((folder / "run_settings.jsonl").read_text())["encode_kwargs"] == {"batch_size": 8}
    assert cache.load_task_result(TASK, MODEL) == result_of(["sports"])


def test_what_another_process_saved_meanwhile_is_kept(cache: ResultCache, monkeypatch):
    cache.save_to_cache(result_of(["sports"]), MODEL)
    save_as_another_process(monkeypatch, cache, result_of(["game"], 0.7))
    cache.save_to_cache(result_of(["sports", "mining"], 0.6), MODEL)
    assert scores_in(cache) == {"sports": 0.6, "mining": 0.6, "game": 0.7}


def test_the_settings_of_another_processs_run_are_kept(cache: ResultCache, monkeypatch):
    with monkeypatch.context() as other:
        other.setattr(result_saving, "_left", {})
        cache.save_to_cache(result_of(["game"]), MODEL, encode_kwargs={"batch_size": 8})
    cache.save_to_cache(result_of(["sports"]), MODEL, encode_kwargs={"batch_size": 16})
    (settings,) = cache.cache_path.rglob("run_settings.jsonl")
    rows = [json.loads(line) for line in settings.read_text().splitlines()]
    assert {(*row["subsets"], row["encode_kwargs"]["batch_size"]) for row in rows} == {("game", 8), ("sports", 16)}


def test_times_are_not_added_at_each_saving(cache: ResultCache, monkeypatch):
    for number in range(3):
        save_as_another_process(monkeypatch, cache, result_of([f"other {number}"]))
        cache.save_to_cache(result_of(["sports"]), MODEL)
    assert cache.load_task_result(TASK, MODEL).evaluation_time == 1.0


def test_what_a_run_is_to_overwrite_is_gone_at_its_first_saving(cache: ResultCache, monkeypatch):
    cache.save_to_cache(result_of(["sports", "game"]), MODEL)
    monkeypatch.setattr(result_saving, "_began", time.time() + 1)
    monkeypatch.setattr(result_saving, "_left", {})
    cache.save_to_cache(result_of(["mining"]), MODEL)
    assert set(scores_in(cache)) == {"mining"}


def test_what_this_process_saved_itself_can_be_overwritten(cache: ResultCache):
    cache.save_to_cache(result_of(["sports", "game"]), MODEL)
    cache.save_to_cache(result_of(["mining"]), MODEL)
    assert set(scores_in(cache)) == {"mining"}


def test_results_of_other_data_are_replaced(cache: ResultCache, monkeypatch, caplog: pytest.LogCaptureFixture):
    save_as_another_process(monkeypatch, cache, result_of(["game"], revision="old"))
    cache.save_to_cache(result_of(["sports"]), MODEL)
    assert set(scores_in(cache)) == {"sports"}
    assert "is replaced (ValueError: Cannot merge" in caplog.text


def test_results_computed_apart_are_added_up(cache: ResultCache, monkeypatch):
    for subset in ("sports", "game", "mining"):
        monkeypatch.setattr(result_saving, "_left", {})
        monkeypatch.setattr(result_saving, "_began", time.time() + 1)
        add_result(cache, result_of([subset]), MODEL, order=["game", "mining", "sports"], encode_kwargs={"batch_size": 8})
    assert list(scores_in(cache)) == ["game", "mining", "sports"]
    assert cache.load_task_result(TASK, MODEL).evaluation_time == 3.0


@pytest.mark.parametrize("content", ["", '{"task_name": "PosIR-Eng', "[]", '{"mteb_version": "2.26.24"}'])
def test_a_damaged_result_is_none_and_is_replaced(cache: ResultCache, content: str, caplog: pytest.LogCaptureFixture):
    cache.save_to_cache(result_of(["game"]), MODEL)
    (file,) = cache.cache_path.rglob(f"{TASK}.json")
    file.write_text(content)
    assert cache.load_task_result(TASK, MODEL) is None
    assert "the result cannot be read" in caplog.text
    add_result(cache, result_of(["sports"]), MODEL, order=[])
    assert set(scores_in(cache)) == {"sports"}


def test_a_result_that_is_not_there_is_an_error_where_mteb_is_told_so(cache: ResultCache):
    with pytest.raises(FileNotFoundError):
        cache.load_task_result(TASK, MODEL, raise_if_not_found=True)


def save_many(folder: Path, process: int) -> None:
    for number in range(10):
        add_result(ResultCache(folder), result_of([f"{process}-{number}"]), MODEL, order=[])


def test_nothing_is_lost_between_processes(cache: ResultCache):
    assert exit_codes(save_many, [(cache.cache_path, process) for process in range(4)]) == [0] * 4
    assert set(scores_in(cache)) == {f"{process}-{number}" for process in range(4) for number in range(10)}
