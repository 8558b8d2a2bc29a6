"""A worker's results are mteb's own, and whatever goes wrong is an outcome."""

import pickle

import mteb
import pytest

from posir_run import worker
from posir_run.jobs import Done, EvaluationJob, Failed
from posir_run.worker import Evaluator, Settings, versions
from posir_tasks.errors import PosirError
from posir_tasks.models import ModelReference
from tests.support.datasets import POSIR_FOLDER, posir_tables, write_domain

BM25 = ModelReference("mteb/baseline-bm25s")
DOMAINS = ("game", "sports")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for domain in DOMAINS:
        write_domain(tmp_path / POSIR_FOLDER, posir_tables(), domain=domain)
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))
    return tmp_path / POSIR_FOLDER


def evaluator():
    return Evaluator(Settings({"batch_size": 32}), {})


def unit(subset="sports", task="PosIR-English", model=BM25):
    return EvaluationJob(model, task, subset, "")


@pytest.mark.usefixtures("folder")
def test_a_subset_alone_has_the_scores_that_it_has_among_the_others():
    whole = mteb.evaluate(mteb.get_model(BM25.name), mteb.get_task("PosIR-English"), cache=None, show_progress_bar=False)
    (result,) = whole.task_results
    for expected in result.scores["test"]:
        outcome = evaluator().evaluate(unit(expected["hf_subset"]))
        assert outcome.result.scores["test"] == [expected]
        assert (outcome.result.task_name, outcome.result.dataset_revision) == ("PosIR-English", result.dataset_revision)


@pytest.mark.usefixtures("folder")
def test_an_outcome_can_be_sent_and_has_all_that_mteb_writes_of_the_model():
    outcome = pickle.loads(pickle.dumps(evaluator().evaluate(unit())))
    assert isinstance(outcome, Done)
    meta = mteb.get_model_meta(BM25.name).model_copy(update=outcome.loaded)
    assert meta.to_dict() == mteb.get_model(BM25.name, device="cpu").mteb_model_meta.to_dict()


def test_every_registered_models_metadata_can_be_sent():
    for meta in mteb.get_model_metas():
        fields = pickle.loads(pickle.dumps(meta.model_dump(exclude={"loader"})))
        assert meta.model_copy(update=fields).model_dump() == meta.model_dump()


def test_bad_data_is_named_and_leaves_the_worker_as_it_is(folder):
    (folder / "eng-Latn" / "sports" / "corpus.parquet").write_bytes(b"not parquet")
    outcome = evaluator().evaluate(unit())
    assert isinstance(outcome, Failed)
    assert "corpus.parquet" in outcome.why
    assert not outcome.fresh


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("error", [RuntimeError("CUDA error: out of memory\nmore of it"), MemoryError("no room")])
def test_after_any_other_error_the_worker_is_to_be_replaced(error, monkeypatch):
    def fail(*_):
        raise error

    monkeypatch.setattr(worker, "evaluate_subset", fail)
    outcome = evaluator().evaluate(unit())
    assert isinstance(outcome, Failed)
    assert outcome.why == f"{type(error).__name__}: {str(error).splitlines()[0]}"
    assert outcome.fresh


@pytest.mark.usefixtures("folder")
def test_a_model_is_loaded_once_until_another_is_wanted(monkeypatch):
    loaded, load = [], worker.load_model
    monkeypatch.setattr(worker, "load_model", lambda model: loaded.append(model) or load(model))
    warm, other = evaluator(), ModelReference("mteb/baseline-random-encoder")
    for model in (BM25, BM25, other, BM25):
        assert isinstance(warm.evaluate(unit(model=model)), Done)
    assert loaded == [BM25, other, BM25]


def test_a_machine_with_other_versions_is_refused():
    evaluator().check(versions())
    with pytest.raises(PosirError, match=r"has posir .*mteb 1\.0.*Install the same everywhere"):
        evaluator().check(versions() | {"mteb": "1.0"})


def test_a_worker_takes_the_environment_that_it_is_given(monkeypatch):
    monkeypatch.setenv("POSIR_DATA", "/here")
    Evaluator(Settings({}), {"POSIR_DATA": "/there"})
    assert worker.os.environ["POSIR_DATA"] == "/there"
