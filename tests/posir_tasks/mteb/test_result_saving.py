"""Results are saved atomically, with what other processes save, and a damaged one is evaluated
again.
"""

import json
import os
import time
from collections.abc import Iterable
from contextlib import nullcontext
from inspect import unwrap
from pathlib import Path

import polars as pl
import pytest
from mteb.cache import ResultCache
from mteb.models import ModelMeta
from mteb.results import TaskResult

from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import LOCK_FILE
from posir_tasks.data.data import digest_data
from posir_tasks.data.posir import read_domain
from posir_tasks.data.repository import LocalRepository, get_data_folder
from posir_tasks.mteb.result_saving import INVALID_RESULT_ERRORS, ResultSaver, get_result_saver
from posir_tasks.results import find_result_files
from posir_tasks.values.result_schema import ROTATIONS_KEY
from posir_tasks.values.rotation_ranks import ROTATED_VARIABLE
from tests.support.datasets import POSIR_FOLDER, TEXTS, posir_tables, write_domain
from tests.support.processes import exit_codes

TASK = "PosIR-English"
MODEL = ModelMeta.create_empty({"name": "org/model", "revision": "r1"})


def result_of(subsets: Iterable[str], score: float = 0.5, revision: str = "main") -> TaskResult:
    common = {"languages": ["eng-Latn"], "main_score": score, "mteb_version": "2.26.24"}
    common |= {ROTATIONS_KEY: {"schema": 1, "sets": []}}
    scores = {"test": [{"hf_subset": name, **common} for name in subsets]}
    return TaskResult(
        dataset_revision=revision,
        task_name=TASK,
        mteb_version="2.26.24",
        scores=scores,
        evaluation_time=1.0,
    )


def scores_in(cache: ResultCache) -> dict[str, float]:
    (file,) = cache.cache_path.rglob(f"{TASK}.json")
    return subsets_in(file)


def subsets_in(file: Path) -> dict[str, float]:
    return {
        entry["hf_subset"]: entry["main_score"]
        for entry in json.loads(file.read_text())["scores"]["test"]
    }


def kept(cache: ResultCache) -> dict[str, Path]:
    """Return the files beside the result that are kept of it, by what follows its name."""
    return {
        file.name.removeprefix(f"{TASK}.json."): file
        for file in cache.cache_path.rglob(f"{TASK}.json.*")
    }


@pytest.fixture
def cache(tmp_path: Path) -> ResultCache:
    return ResultCache(tmp_path)


class Process:
    def __init__(self, cache: ResultCache):
        self.cache = cache
        # A file system's clock may be some milliseconds behind.
        self.saver = ResultSaver(start_time=time.time() - 0.05)

    def save(self, result: TaskResult, **settings) -> None:
        self.saver.make_safe(unwrap(ResultCache.save_to_cache))(
            self.cache, result, MODEL, **settings
        )


@pytest.fixture
def process(cache: ResultCache) -> Process:
    return Process(cache)


@pytest.fixture
def other(cache: ResultCache) -> Process:
    return Process(cache)


def test_mtebs_own_files_are_there_and_no_others(cache, process, monkeypatch):
    # Results are staged beside the file: the folder for temporary files is often a small disk in
    # memory, which is full.
    monkeypatch.setattr("tempfile.tempdir", "/nonexistent")
    process.save(result_of(["sports"]), encode_kwargs={"batch_size": 8})
    (folder,) = {file.parent for file in cache.cache_path.rglob("*.json")}
    names = [LOCK_FILE, f"{TASK}.json", "model_meta.json", "run_settings.jsonl"]
    assert sorted(file.name for file in folder.iterdir()) == names
    assert json.loads((folder / "run_settings.jsonl").read_text())["encode_kwargs"] == {
        "batch_size": 8
    }
    assert cache.load_task_result(TASK, MODEL) == result_of(["sports"])


def test_what_another_process_saved_meanwhile_is_kept(cache, process, other):
    process.save(result_of(["sports"]), encode_kwargs={"batch_size": 16})
    other.save(result_of(["game"], 0.7), encode_kwargs={"batch_size": 8})
    process.save(result_of(["sports", "mining"], 0.6), encode_kwargs={"batch_size": 16})
    assert scores_in(cache) == {"sports": 0.6, "mining": 0.6, "game": 0.7}
    (settings,) = cache.cache_path.rglob("run_settings.jsonl")
    rows = [json.loads(line) for line in settings.read_text().splitlines()]
    kept_settings = {
        (name, row["encode_kwargs"]["batch_size"]) for row in rows for name in row["subsets"]
    }
    assert kept_settings == {("game", 8), ("sports", 16), ("mining", 16)}


def test_times_are_not_added_at_each_saving(cache, process, other):
    for number in range(3):
        other.save(result_of([f"other {number}"]))
        process.save(result_of(["sports"]))
    assert cache.load_task_result(TASK, MODEL).evaluation_time == 1.0


def test_earlier_results_and_own_ones_are_overwritten(cache, process):
    process.save(result_of(["sports", "game"]))
    process.save(result_of(["mining"]))
    assert set(scores_in(cache)) == {"mining"}
    (file,) = cache.cache_path.rglob(f"{TASK}.json")
    os.utime(file, (0, 0))
    Process(cache).save(result_of(["game"]))
    assert set(scores_in(cache)) == {"game"}


def test_results_of_other_data_are_replaced(cache, process, other, caplog):
    other.save(result_of(["game"], revision="old"))
    process.save(result_of(["sports"]))
    assert set(scores_in(cache)) == {"sports"}
    assert (
        "results for game were computed on other data and are replaced; the previous file is "
        "kept as" in caplog.text
    )
    assert set(subsets_in(kept(cache)["replaced"])) == {"game"}


def test_results_computed_separately_are_merged(cache):
    for subset in ("sports", "game", "mining"):
        order = ["game", "mining", "sports"]
        ResultSaver().add(
            cache, result_of([subset]), MODEL, order=order, encode_kwargs={"batch_size": 8}
        )
    assert list(scores_in(cache)) == ["game", "mining", "sports"]
    assert cache.load_task_result(TASK, MODEL).evaluation_time == 3.0


@pytest.mark.parametrize(("task", "safe"), [(TASK, True), ("NFCorpus", False), ("unknown", False)])
def test_results_of_other_tasks_are_left_to_mteb(cache, task, safe):
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
    with nullcontext() if safe else pytest.raises(INVALID_RESULT_ERRORS):
        assert cache.load_task_result(task, MODEL) is None


@pytest.mark.parametrize(
    "content", ["", '{"task_name": "PosIR-Eng', "[]", '{"mteb_version": "2.26.24"}']
)
def test_a_damaged_result_is_none_and_is_replaced(cache, process, content, caplog):
    with pytest.raises(FileNotFoundError):
        cache.load_task_result(TASK, MODEL, raise_if_not_found=True)
    process.save(result_of(["game"]))
    (file,) = cache.cache_path.rglob(f"{TASK}.json")
    file.write_text(content)
    assert cache.load_task_result(TASK, MODEL) is None
    assert "the result cannot be read" in caplog.text
    ResultSaver().add(cache, result_of(["sports"]), MODEL, order=[])
    assert set(scores_in(cache)) == {"sports"}


def save_many(folder: Path, process: int) -> None:
    for number in range(10):
        get_result_saver().add(
            ResultCache(folder), result_of([f"{process}-{number}"]), MODEL, order=[]
        )


def test_nothing_is_lost_between_processes(cache):
    assert exit_codes(save_many, [(cache.cache_path, process) for process in range(2)]) == [0] * 2
    assert set(scores_in(cache)) == {
        f"{process}-{number}" for process in range(2) for number in range(10)
    }


# Other data.


COMMIT = "c" * 40


class Data:
    """Folders for `POSIR_DATA`, one of which is chosen at a time."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.folder, self.monkeypatch = folder, monkeypatch

    def choose(self, name: str, **texts: str) -> None:
        """Choose a folder, and write into it a domain for each keyword, whose texts end with the
        value.
        """
        for domain, suffix in texts.items():
            texts = {title: f"{text} {suffix}" for title, text in TEXTS.items()}
            write_domain(self.folder / name / POSIR_FOLDER, posir_tables(texts), domain=domain)
        self.monkeypatch.setenv("POSIR_DATA", str(self.folder / name))

    def result(self, *subsets: str, score: float = 0.5, commit: str = "") -> TaskResult:
        """Return a result on the chosen data, as evaluated from the folder or, with a commit, from
        the Hub.
        """
        repository = LocalRepository(get_data_folder() / POSIR_FOLDER)
        result = result_of(
            subsets,
            score,
            revision="main" if commit else repository.resolve_revision(repository.list_paths()),
        )
        for entry in result.scores["test"]:
            data = read_domain(repository, "eng-Latn", "eng-Latn", entry["hf_subset"])
            digest = digest_data(data)
            entry["position_run"] = {
                "data_revision": commit or data.revision,
                "data_digest": digest,
            }
        return result


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Data:
    return Data(tmp_path / "data", monkeypatch)


def loaded(cache: ResultCache) -> set[str]:
    result = cache.load_task_result(TASK, MODEL)
    return {entry["hf_subset"] for entries in result.scores.values() for entry in entries}


def test_a_result_without_requested_rotations_is_unfinished(cache, data, monkeypatch):
    data.choose("first", xquad="a", shared="b")
    result = data.result("xquad", "shared")
    del result.scores["test"][0][ROTATIONS_KEY]
    Process(cache).save(result)
    assert loaded(cache) == {"shared"}
    monkeypatch.setenv(ROTATED_VARIABLE, "0")
    assert loaded(cache) == {"xquad", "shared"}


@pytest.mark.parametrize("separately", [False, True], ids=["mteb run", "posir run"])
def test_results_on_another_folder_stay_in_the_file(cache, data, separately):
    data.choose("first", xquad="a", shared="b")
    Process(cache).save(data.result("xquad", "shared"))
    (file,) = cache.cache_path.rglob(f"{TASK}.json")
    os.utime(file, (0, 0))
    data.choose("second", covid="c", shared="b")
    assert loaded(cache) == {"shared"}
    if separately:
        ResultSaver().add(cache, data.result("covid", score=0.7), MODEL, order=[])
    else:
        Process(cache).save(data.result("covid", "shared", score=0.7))
    assert scores_in(cache) == {"xquad": 0.5, "covid": 0.7, "shared": 0.5 if separately else 0.7}
    assert not kept(cache)
    data.choose("first")
    assert loaded(cache) == {"xquad", "shared"}


def test_two_runs_at_the_same_time_keep_each_others_results(cache, data, process, other):
    data.choose("second", covid="b")
    data.choose("first", xquad="a")
    process.save(data.result("xquad"))
    data.choose("second")
    other.save(data.result("covid"))
    data.choose("first")
    process.save(data.result("xquad", score=0.6))
    assert scores_in(cache) == {"xquad": 0.6, "covid": 0.5}
    assert not kept(cache)


def test_a_replaced_result_is_kept_beside_and_never_overwritten(cache, data, caplog):
    data.choose("first", sports="first", game="first")
    Process(cache).save(data.result("sports", "game", score=0.0))
    for number, name in enumerate(("second", "third"), start=1):
        data.choose(name, sports=name)
        assert loaded(cache) == set()
        process = Process(cache)
        for _ in ("after a subset", "at the end"):
            process.save(data.result("sports", score=number / 10))
    assert scores_in(cache) == {"sports": 0.2, "game": 0.0}
    assert subsets_in(kept(cache)["replaced"]) == {"sports": 0.0, "game": 0.0}
    assert subsets_in(kept(cache)["replaced-2"]) == {"sports": 0.1, "game": 0.0}
    assert len(kept(cache)) == 2
    assert f"the previous file is kept as {kept(cache)['replaced-2']}" in caplog.text
    assert [file.name for file in find_result_files(cache.cache_path)] == [f"{TASK}.json"]


def test_the_hubs_results_are_never_replaced_by_local_ones(cache, data):
    data.choose("copy", sports="a")
    Process(cache).save(data.result("sports", commit=COMMIT))
    before = {file: file.read_bytes() for file in cache.cache_path.rglob("*.json*")}
    for name, domain in (("changed", "sports"), ("custom", "custom")):
        data.choose(name, **{domain: "b"})
        with pytest.raises(
            PosirError,
            match=r"PosIR-English\.json: has results on the Hub's data.*--output-folder",
        ):
            cache.load_task_result(TASK, MODEL)
        with pytest.raises(
            PosirError, match=r"The result is saved as PosIR-English\.json\.refused"
        ):
            Process(cache).save(data.result(domain, score=0.9))
    assert {file: file.read_bytes() for file in before} == before
    assert [subsets_in(kept(cache)[name]) for name in ("refused", "refused-2")] == [
        {"sports": 0.9},
        {"custom": 0.9},
    ]


def test_the_same_content_is_the_same_data_wherever_it_is(cache, data):
    data.choose("copy", sports="a", game="b")
    Process(cache).save(data.result("sports", commit=COMMIT))
    assert loaded(cache) == {"sports"}
    ResultSaver().add(cache, data.result("game"), MODEL, order=[])
    assert set(scores_in(cache)) == {"sports", "game"}
    rewritten = data.folder / "copy" / POSIR_FOLDER / "eng-Latn" / "game" / "corpus.parquet"
    pl.read_parquet(rewritten).reverse().write_parquet(rewritten, compression="gzip")
    assert loaded(cache) == {"sports", "game"}
