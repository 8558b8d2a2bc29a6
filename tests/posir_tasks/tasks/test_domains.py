"""A run on some of PosIR's domains is a separate experiment."""

import pytest

import posir
from posir_tasks.base.errors import PosirError
from posir_tasks.datasets.opening import open_data
from posir_tasks.models.registry import ModelReference, find_model
from posir_tasks.models.run_settings import ignore_run_settings, override_settings
from posir_tasks.tasks.catalog import find_task
from tests.support.datasets import POSIR_FOLDER, posir_tables, write_domain

BM25 = "mteb/baseline-bm25s"


@pytest.fixture
def data(tmp_path, monkeypatch):
    for domain in ("law", "letters", "sports"):
        write_domain(tmp_path / POSIR_FOLDER, posir_tables(), domain=domain)
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("selection", [("sports", "law"), "law,sports", " sports law "])
def test_a_task_contains_only_the_selected_domains(selection):
    for name in ("PosIR-English", "PosIR-English-Nano"):
        with override_settings(domains=selection):
            task = find_task(name)()
            assert sorted(task.hf_subsets) == ["law", "sports"]
            task.load_data()
        assert sorted(task.hf_subsets) == ["law", "sports"]
        assert len(task.list_missing_subsets()) == 30
    assert len(find_task("PosIR-English")().hf_subsets) == 3


@pytest.mark.usefixtures("data")
def test_probes_and_statistics_read_only_the_selected_domains(monkeypatch):
    """Otherwise, a probe of all domains would be stored as a probe of some."""
    monkeypatch.setenv("POSIR_DOMAINS", "sports,law")
    assert [subset.domain for subset in open_data("PosIR-English").subsets] == ["law", "sports"]
    monkeypatch.setenv("POSIR_DOMAINS", "lw")
    with pytest.raises(PosirError, match=r"has no domain lw\. Available: law, letters, sports"):
        open_data("PosIR-English")


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("selection", ["lw", "law,none"])
def test_a_domain_that_is_not_in_the_data_is_an_error(selection, monkeypatch):
    monkeypatch.setenv("POSIR_DOMAINS", selection)
    task = find_task("PosIR-English")()
    with pytest.raises(PosirError, match=r"has no domain .*Available: law, letters, sports"):
        task.load_data()


def test_results_for_some_domains_are_stored_separately(data):
    output = data / "results"
    some = posir.evaluate(BM25, "PosIR-English", output_folder=output, domains=["sports", "law"])
    every = posir.evaluate(BM25, "PosIR-English", output_folder=output)
    assert sorted(result.subset for result in some) == ["law", "sports"]
    assert sorted(result.subset for result in every) == ["law", "letters", "sports"]
    assert {result.experiment for result in some} == {"domains_law,sports"}
    assert {result.experiment for result in every} == {None}


def test_a_models_settings_contain_domains_but_not_its_first_stages(monkeypatch):
    monkeypatch.setenv("POSIR_DOMAINS", "law")
    assert find_model(ModelReference(BM25)).experiment_kwargs == {"domains": "law"}
    with ignore_run_settings():
        assert not find_model(ModelReference(BM25)).experiment_kwargs
