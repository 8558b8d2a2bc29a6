"""A worker's results equal mteb's results, and errors are returned as outcomes."""

import logging
import os
import pickle
import sys
from types import SimpleNamespace
from unittest.mock import Mock

import mteb
import pytest

from posir_run import jobs, worker
from posir_run.jobs import EvaluationJob, JobOutcome
from posir_run.worker import Evaluator, Settings, find_installed_versions
from posir_tasks.base.errors import PosirError
from posir_tasks.models.references import ModelReference
from posir_tasks.models.run_settings import with_settings
from posir_tasks.tasks.base import PositionTask
from tests.support.datasets import POSIR_FOLDER, posir_tables, write_domain

BM25 = ModelReference("mteb/baseline-bm25s")
DOMAINS = ("game", "sports")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for domain in DOMAINS:
        write_domain(tmp_path / POSIR_FOLDER, posir_tables(), domain=domain)
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))
    # With the default cut-offs, most of the time would be spent in mteb.
    monkeypatch.setattr(PositionTask, "k_values", (1, 10))
    return tmp_path / POSIR_FOLDER


def build_evaluator():
    return Evaluator(Settings({"batch_size": 32}), {})


def make_job(subset="sports", task="PosIR-English", model=BM25):
    return EvaluationJob(model, task, subset, "")


@pytest.mark.usefixtures("folder")
def test_a_subset_job_gives_the_scores_of_the_full_task():
    complete = mteb.evaluate(
        mteb.get_model(BM25.name),
        mteb.get_task("PosIR-English"),
        cache=None,
        show_progress_bar=False,
    )
    (result,) = complete.task_results
    for expected in result.scores["test"]:
        evaluated, _ = build_evaluator().evaluate(make_job(expected["hf_subset"])).value
        assert evaluated.scores["test"] == [expected]
        assert (evaluated.task_name, evaluated.dataset_revision) == (
            "PosIR-English",
            result.dataset_revision,
        )


@pytest.mark.usefixtures("folder")
def test_an_outcome_can_be_pickled_with_all_model_metadata():
    _, fields = pickle.loads(pickle.dumps(build_evaluator().evaluate(make_job()))).value
    meta = mteb.get_model_meta(BM25.name).model_copy(update=fields)
    assert meta.to_dict() == mteb.get_model(BM25.name, device="cpu").mteb_model_meta.to_dict()


def test_the_metadata_of_every_registered_model_can_be_pickled():
    for meta in mteb.get_model_metas():
        fields = pickle.loads(pickle.dumps(meta.model_dump(exclude={"loader"})))
        assert meta.model_copy(update=fields).model_dump() == meta.model_dump()


def test_warnings_are_attached_to_the_outcome_of_their_job(folder, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    evaluator = build_evaluator()
    (warning,) = evaluator.evaluate(make_job()).warnings
    assert "29 of PosIR's 31 domains are not evaluated" in warning
    logging.getLogger("another.library").warning("not ours")
    (folder / "eng-Latn" / "sports" / "corpus.parquet").write_bytes(b"not parquet")
    assert (
        evaluator.evaluate(make_job()).warnings
        == evaluator.evaluate(make_job("game")).warnings
        == ()
    )
    # Bad data does not restart the worker.
    outcome = evaluator.evaluate(make_job())
    assert ("corpus.parquet" in outcome.failure, outcome.restart_worker) == (True, False)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "error", [RuntimeError("CUDA error: out of memory\nmore of it"), MemoryError("no room")]
)
def test_any_other_error_restarts_the_worker(error, monkeypatch):
    monkeypatch.setattr(jobs, "evaluate_subset", Mock(side_effect=error))
    outcome = build_evaluator().evaluate(make_job())
    assert outcome == JobOutcome(
        failure=f"{type(error).__name__}: {str(error).splitlines()[0]}", restart_worker=True
    )


@pytest.mark.usefixtures("folder")
def test_a_model_stays_loaded_until_another_is_requested(monkeypatch):
    loaded, load = [], worker.load_model
    monkeypatch.setattr(worker, "load_model", lambda model: loaded.append(model) or load(model))
    evaluator, other = build_evaluator(), ModelReference("mteb/baseline-random-encoder")
    for model in (BM25, BM25, other, BM25):
        assert not evaluator.evaluate(make_job(model=model)).failure
    assert loaded == [BM25, other, BM25]


def test_a_machine_with_different_versions_is_rejected(
    monkeypatch,
):
    build_evaluator().check_versions(find_installed_versions())
    with pytest.raises(PosirError, match=r"has posir .*mteb 1\.0.*Install the same versions"):
        build_evaluator().check_versions(find_installed_versions() | {"mteb": "1.0"})
    monkeypatch.setenv("POSIR_DATA", "/here")
    Evaluator(Settings({}), {"POSIR_DATA": "/there"})
    assert worker.os.environ["POSIR_DATA"] == "/there"


def test_workers_get_only_the_settings_of_the_run(monkeypatch):
    ray = SimpleNamespace(init=lambda *_, **__: None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    settings = Settings({}, verbose=True)
    with with_settings(protocol="posq"):
        environment = worker.RayEngine(None, settings)._environment
    monkeypatch.setenv("POSIR_WINDOW", "9")
    monkeypatch.setenv("POSIR_PROTOCOL", "posir")
    Evaluator(settings, environment)
    assert (os.environ["POSIR_PROTOCOL"], os.environ.get("POSIR_WINDOW")) == ("posq", None)
