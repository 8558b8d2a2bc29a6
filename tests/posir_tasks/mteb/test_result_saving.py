"""Results are saved atomically and merged with results of other processes; damaged results are
evaluated again.
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


def make_result(subsets: Iterable[str], score: float = 0.5, revision: str = "main") -> TaskResult:
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


def read_scores(cache: ResultCache) -> dict[str, float]:
    (file,) = cache.cache_path.rglob(f"{TASK}.json")
    return read_subset_scores(file)


def read_subset_scores(file: Path) -> dict[str, float]:
    return {
        entry["hf_subset"]: entry["main_score"]
        for entry in json.loads(file.read_text())["scores"]["test"]
    }


def list_backups(cache: ResultCache) -> dict[str, Path]:
    """Map the suffixes of backups next to the result to their files."""
    return {
        file.name.removeprefix(f"{TASK}.json."): file
        for file in cache.cache_path.rglob(f"{TASK}.json.*")
    }


@pytest.fixture
def cache(tmp_path: Path) -> ResultCache:
    return ResultCache(tmp_path)


class SavingProcess:
    def __init__(self, cache: ResultCache):
        self.cache = cache
        # The clock of a file system may be some milliseconds late.
        self.saver = ResultSaver(start_time=time.time() - 0.05)

    def save(self, result: TaskResult, **settings) -> None:
        self.saver.make_safe(unwrap(ResultCache.save_to_cache))(
            self.cache, result, MODEL, **settings
        )


@pytest.fixture
def process(cache: ResultCache) -> SavingProcess:
    return SavingProcess(cache)


@pytest.fixture
def other(cache: ResultCache) -> SavingProcess:
    return SavingProcess(cache)


def test_only_mteb_files_and_the_lock_are_written(cache, process, monkeypatch):
    # Results are written next to the file, since the system's temporary folder may be too small.
    monkeypatch.setattr("tempfile.tempdir", "/nonexistent")
    process.save(make_result(["sports"]), encode_kwargs={"batch_size": 8})
    (folder,) = {file.parent for file in cache.cache_path.rglob("*.json")}
    names = [LOCK_FILE, f"{TASK}.json", "model_meta.json", "run_settings.jsonl"]
    assert sorted(file.name for file in folder.iterdir()) == names
    assert json.loads((folder / "run_settings.jsonl").read_text())["encode_kwargs"] == {
        "batch_size": 8
    }
    assert cache.load_task_result(TASK, MODEL) == make_result(["sports"])


def test_results_of_other_processes_are_preserved(cache, process, other):
    process.save(make_result(["sports"]), encode_kwargs={"batch_size": 16})
    other.save(make_result(["game"], 0.7), encode_kwargs={"batch_size": 8})
    process.save(make_result(["sports", "mining"], 0.6), encode_kwargs={"batch_size": 16})
    assert read_scores(cache) == {"sports": 0.6, "mining": 0.6, "game": 0.7}
    (settings,) = cache.cache_path.rglob("run_settings.jsonl")
    rows = [json.loads(line) for line in settings.read_text().splitlines()]
    stored_settings = {
        (name, row["encode_kwargs"]["batch_size"]) for row in rows for name in row["subsets"]
    }
    assert stored_settings == {("game", 8), ("sports", 16), ("mining", 16)}


def test_times_are_not_added_repeatedly(cache, process, other):
    for number in range(3):
        other.save(make_result([f"other {number}"]))
        process.save(make_result(["sports"]))
    assert cache.load_task_result(TASK, MODEL).evaluation_time == 1.0


def test_earlier_results_of_the_same_process_are_overwritten(cache, process):
    process.save(make_result(["sports", "game"]))
    process.save(make_result(["mining"]))
    assert set(read_scores(cache)) == {"mining"}
    (file,) = cache.cache_path.rglob(f"{TASK}.json")
    os.utime(file, (0, 0))
    SavingProcess(cache).save(make_result(["game"]))
    assert set(read_scores(cache)) == {"game"}


def test_results_on_other_data_are_replaced(cache, process, other, caplog):
    other.save(make_result(["game"], revision="old"))
    process.save(make_result(["sports"]))
    assert set(read_scores(cache)) == {"sports"}
    assert (
        "results for game were computed on other data and are replaced; the previous file is "
        "kept as" in caplog.text
    )
    assert set(read_subset_scores(list_backups(cache)["replaced"])) == {"game"}


def test_separately_computed_results_are_merged(cache):
    for subset in ("sports", "game", "mining"):
        order = ["game", "mining", "sports"]
        ResultSaver().add(
            cache, make_result([subset]), MODEL, order=order, encode_kwargs={"batch_size": 8}
        )
    assert list(read_scores(cache)) == ["game", "mining", "sports"]
    assert cache.load_task_result(TASK, MODEL).evaluation_time == 3.0


@pytest.mark.parametrize(
    ("task", "is_safe"), [(TASK, True), ("NFCorpus", False), ("unknown", False)]
)
def test_mteb_saves_results_of_other_tasks(cache, task, is_safe):
    caches = []

    def save(cache: ResultCache, *arguments) -> None:
        caches.append(cache)
        unwrap(ResultCache.save_to_cache)(cache, *arguments)

    result = make_result(["sports"]).model_copy(update={"task_name": task})
    ResultSaver().make_safe(save)(cache, result, MODEL)
    assert (caches != [cache]) is is_safe
    (file,) = cache.cache_path.rglob(f"{task}.json")
    assert (file.parent / LOCK_FILE).exists() is is_safe
    file.write_text("[]")
    with nullcontext() if is_safe else pytest.raises(INVALID_RESULT_ERRORS):
        assert cache.load_task_result(task, MODEL) is None


@pytest.mark.parametrize(
    "content", ["", '{"task_name": "PosIR-Eng', "[]", '{"mteb_version": "2.26.24"}']
)
def test_damaged_results_are_ignored_and_replaced(cache, process, content, caplog):
    with pytest.raises(FileNotFoundError):
        cache.load_task_result(TASK, MODEL, raise_if_not_found=True)
    process.save(make_result(["game"]))
    (file,) = cache.cache_path.rglob(f"{TASK}.json")
    file.write_text(content)
    assert cache.load_task_result(TASK, MODEL) is None
    assert "the result cannot be read" in caplog.text
    ResultSaver().add(cache, make_result(["sports"]), MODEL, order=[])
    assert set(read_scores(cache)) == {"sports"}


def save_many(folder: Path, process: int) -> None:
    for number in range(10):
        get_result_saver().add(
            ResultCache(folder), make_result([f"{process}-{number}"]), MODEL, order=[]
        )


def test_concurrent_processes_lose_no_results(cache):
    assert exit_codes(save_many, [(cache.cache_path, process) for process in range(2)]) == [0] * 2
    assert set(read_scores(cache)) == {
        f"{process}-{number}" for process in range(2) for number in range(10)
    }


# Results on other data.


COMMIT = "c" * 40


class Data:
    """Folders for `POSIR_DATA`, of which one is selected."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.folder, self.monkeypatch = folder, monkeypatch

    def choose(self, name: str, **texts: str) -> None:
        """Select a folder, and write a domain for each keyword, with the value at the end of its
        texts.
        """
        for domain, suffix in texts.items():
            texts = {title: f"{text} {suffix}" for title, text in TEXTS.items()}
            write_domain(self.folder / name / POSIR_FOLDER, posir_tables(texts), domain=domain)
        self.monkeypatch.setenv("POSIR_DATA", str(self.folder / name))

    def result(self, *subsets: str, score: float = 0.5, commit: str = "") -> TaskResult:
        """Build a result on the selected folder or, with a commit, on the Hub's data."""
        repository = LocalRepository(get_data_folder() / POSIR_FOLDER)
        result = make_result(
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


def load_subsets(cache: ResultCache) -> set[str]:
    result = cache.load_task_result(TASK, MODEL)
    return {entry["hf_subset"] for entries in result.scores.values() for entry in entries}


def test_results_without_requested_rotations_are_incomplete(cache, data, monkeypatch):
    data.choose("first", xquad="a", shared="b")
    result = data.result("xquad", "shared")
    del result.scores["test"][0][ROTATIONS_KEY]
    SavingProcess(cache).save(result)
    assert load_subsets(cache) == {"shared"}
    monkeypatch.setenv(ROTATED_VARIABLE, "0")
    assert load_subsets(cache) == {"xquad", "shared"}


@pytest.mark.parametrize("is_separate", [False, True], ids=["mteb run", "posir run"])
def test_results_on_other_folders_stay_in_the_file(cache, data, is_separate):
    data.choose("first", xquad="a", shared="b")
    SavingProcess(cache).save(data.result("xquad", "shared"))
    (file,) = cache.cache_path.rglob(f"{TASK}.json")
    os.utime(file, (0, 0))
    data.choose("second", covid="c", shared="b")
    assert load_subsets(cache) == {"shared"}
    if is_separate:
        ResultSaver().add(cache, data.result("covid", score=0.7), MODEL, order=[])
    else:
        SavingProcess(cache).save(data.result("covid", "shared", score=0.7))
    assert read_scores(cache) == {"xquad": 0.5, "covid": 0.7, "shared": 0.5 if is_separate else 0.7}
    assert not list_backups(cache)
    data.choose("first")
    assert load_subsets(cache) == {"xquad", "shared"}


def test_concurrent_runs_preserve_results_of_each_other(cache, data, process, other):
    data.choose("second", covid="b")
    data.choose("first", xquad="a")
    process.save(data.result("xquad"))
    data.choose("second")
    other.save(data.result("covid"))
    data.choose("first")
    process.save(data.result("xquad", score=0.6))
    assert read_scores(cache) == {"xquad": 0.6, "covid": 0.5}
    assert not list_backups(cache)


def test_backups_are_never_overwritten(cache, data, caplog):
    data.choose("first", sports="first", game="first")
    SavingProcess(cache).save(data.result("sports", "game", score=0.0))
    for number, name in enumerate(("second", "third"), start=1):
        data.choose(name, sports=name)
        assert load_subsets(cache) == set()
        process = SavingProcess(cache)
        for _ in ("after a subset", "at the end"):
            process.save(data.result("sports", score=number / 10))
    assert read_scores(cache) == {"sports": 0.2, "game": 0.0}
    assert read_subset_scores(list_backups(cache)["replaced"]) == {"sports": 0.0, "game": 0.0}
    assert read_subset_scores(list_backups(cache)["replaced-2"]) == {"sports": 0.1, "game": 0.0}
    assert len(list_backups(cache)) == 2
    assert f"the previous file is kept as {list_backups(cache)['replaced-2']}" in caplog.text
    assert [file.name for file in find_result_files(cache.cache_path)] == [f"{TASK}.json"]


def test_local_results_never_replace_hub_results(cache, data):
    data.choose("copy", sports="a")
    SavingProcess(cache).save(data.result("sports", commit=COMMIT))
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
            SavingProcess(cache).save(data.result(domain, score=0.9))
    assert {file: file.read_bytes() for file in before} == before
    assert [read_subset_scores(list_backups(cache)[name]) for name in ("refused", "refused-2")] == [
        {"sports": 0.9},
        {"custom": 0.9},
    ]


def test_equal_content_counts_as_the_same_data(cache, data):
    data.choose("copy", sports="a", game="b")
    SavingProcess(cache).save(data.result("sports", commit=COMMIT))
    assert load_subsets(cache) == {"sports"}
    ResultSaver().add(cache, data.result("game"), MODEL, order=[])
    assert set(read_scores(cache)) == {"sports", "game"}
    rewritten = data.folder / "copy" / POSIR_FOLDER / "eng-Latn" / "game" / "corpus.parquet"
    pl.read_parquet(rewritten).reverse().write_parquet(rewritten, compression="gzip")
    assert load_subsets(cache) == {"sports", "game"}
