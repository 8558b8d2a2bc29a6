"""mteb's descriptive statistics for posir's tasks, packaged or calculated."""

import mteb
import pytest

from posir_tasks.base.errors import DataError
from posir_tasks.data import task_metadata as metadata
from posir_tasks.tasks.base import build_folder_task
from tests.support.datasets import posir_tables, write_domain


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_packaged_statistics_match_the_texts(tmp_path, monkeypatch):
    task = mteb.get_task("PosIR-Mini")
    packaged = task.metadata.descriptive_stats
    assert (packaged["test"]["num_queries"], packaged["test"]["num_documents"]) == (720, 72)
    assert task.metadata.n_samples == {"test": 792}
    assert task.calculate_descriptive_statistics() == packaged
    assert not task.data_loaded
    monkeypatch.setattr(metadata, "SHIPPED_STATISTICS", tmp_path)
    assert task.metadata.descriptive_stats is None
    assert task.calculate_descriptive_statistics() == packaged


def build_task(folder, **options):
    return build_folder_task(folder, name="Mine", language="eng-Latn", **options)()


def test_statistics_of_a_folder_match_its_current_data(tmp_path, cache):
    for domain in ("game", "sports"):
        write_domain(tmp_path / "mine", posir_tables(), domain=domain)
    task = build_task(tmp_path / "mine")
    assert task.metadata.descriptive_stats is None
    statistics = task.calculate_descriptive_statistics()
    by_subset = statistics["test"]["hf_subset_descriptive_stats"]
    assert list(by_subset) == task.hf_subsets
    assert (
        statistics["test"]["num_queries"]
        == sum(subset["num_queries"] for subset in by_subset.values())
        == 8
    )
    (file,) = (cache / "descriptive_stats").iterdir()
    assert build_task(tmp_path / "mine").metadata.descriptive_stats == statistics
    file.write_text('{"test": {"num_', encoding="utf-8")
    assert build_task(tmp_path / "mine").calculate_descriptive_statistics() == statistics
    write_domain(tmp_path / "mine", posir_tables(), domain="travel")
    assert build_task(tmp_path / "mine").metadata.descriptive_stats is None


def test_a_local_copy_of_posir_has_its_own_statistics(tmp_path, monkeypatch):
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))
    write_domain(tmp_path / "PosIR-Benchmark-v1", posir_tables(), domain="game")
    task = mteb.get_task("PosIR-English")
    assert task.calculate_descriptive_statistics()["test"]["num_queries"] == 4
    write_domain(tmp_path / "PosIR-Benchmark-v1", posir_tables(), domain="sports")
    assert (
        mteb.get_task("PosIR-English").calculate_descriptive_statistics()["test"]["num_queries"]
        == 8
    )
    part = mteb.get_task("PosIR-English", hf_subsets=["game"])
    with pytest.raises(DataError, match="this task lacks sports"):
        part.calculate_descriptive_statistics(overwrite_results=True)
