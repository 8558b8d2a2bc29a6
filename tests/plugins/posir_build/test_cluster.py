"""Reranking and candidate retrieval as jobs return the same results as in one process."""

from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from posir_build import cluster
from posir_build.cluster import CandidateRetriever, Reranker, merge_shards
from posir_run.worker import Evaluator, RayEngine, Settings
from posir_tasks.base.errors import PosirError
from posir_tasks.language_models.call_log import CallLog
from posir_tasks.models.references import ModelReference
from posir_tasks.models.rerankers import ModelReranker
from tests.support.construction import document, question
from tests.support.models import write_tiny_model

TOPICS = ("bees", "mills", "wheels", "roofs")
DOCUMENTS = [document(f"d{row}", f"Number {row} is about {TOPICS[row % 4]}.") for row in range(9)]
QUESTIONS = [
    question(document, f"What is number {row} about?") for row, document in enumerate(DOCUMENTS)
]
PAIRS = [(row.text, other.text) for row in QUESTIONS for other in DOCUMENTS]


class InProcessEngine:
    def __init__(self):
        self.evaluator = Evaluator(Settings({"batch_size": 32}, verbose=True), {})

    def list_locations(self):
        return ("here",)

    def start(self, location):
        assert location == "here"
        return SimpleNamespace(
            started=build_future(None),
            submit=lambda job: build_future(self.evaluator.evaluate(job)),
            stop=lambda: None,
        )

    def close(self):
        pass


def build_future(value):
    future = Future()
    future.set_result(value)
    return future


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(write_tiny_model(tmp_path_factory.mktemp("model")))


def test_scores_are_the_same_as_in_one_process(model, tmp_path, monkeypatch):
    monkeypatch.setattr("posir_build.cluster.MIN_BATCH_PAIRS", 10)
    reranker = ModelReranker(ModelReference(model), "eng-Latn")
    local = Reranker(reranker, CallLog(tmp_path / "a.sqlite"))
    remote = Reranker(reranker, CallLog(tmp_path / "b.sqlite"), InProcessEngine)
    assert local.name == remote.name
    np.testing.assert_array_equal(remote.score(PAIRS), local.score(PAIRS))
    # All scores are saved, so the engine is not started.
    remote = Reranker(reranker, CallLog(tmp_path / "b.sqlite"), lambda: 1 / 0)
    np.testing.assert_array_equal(remote.score(PAIRS), local.score(PAIRS))


def test_documents_are_the_same_as_in_one_process(model, monkeypatch):
    monkeypatch.setattr(cluster, "DOCUMENTS_PER_JOB", 2)
    local = CandidateRetriever(ModelReference(model), "eng-Latn")
    remote = CandidateRetriever(ModelReference(model), "eng-Latn", InProcessEngine)
    assert local.name == remote.name
    result, expected = (value.find(DOCUMENTS, QUESTIONS, 3) for value in (remote, local))
    assert result == expected
    assert {len(item) for item in result} == {3}


def test_a_failed_job_ends_the_build(tmp_path):
    folder = str(write_tiny_model(tmp_path / "cross", "cross-encoder"))
    with pytest.raises(PosirError, match=r"documents 0: .*is not an embedding model"):
        CandidateRetriever(ModelReference(folder), "eng-Latn", InProcessEngine).find(
            DOCUMENTS, QUESTIONS, 3
        )
    reranker = Reranker(
        ModelReranker(ModelReference(folder), "eng-Latn"),
        CallLog(tmp_path / "log.sqlite"),
        InProcessEngine,
    )
    assert [number for number, _ in reranker.score_batches([PAIRS[:3], PAIRS[3:5]])] == [0, 1]


def test_equal_scores_are_in_the_order_of_the_corpus():
    parts = [
        ([names], np.array([scores], np.float32))
        for names, scores in ((["a", "b"], [0.9, 0.5]), (["c", "d"], [0.9, 0.7]))
    ]
    assert merge_shards(parts, 3) == [["a", "c", "d"]]


@pytest.mark.slow
def test_a_real_cluster_has_the_same_scores_and_documents(model, tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_worker_niceness", "0")
    start = partial(RayEngine, None, Settings({"batch_size": 32}))
    reranker = ModelReranker(ModelReference(model), "eng-Latn")
    batches = [PAIRS[:40], PAIRS[40:]]
    expected = dict(reranker.score_batches(batches))
    result = dict(
        Reranker(reranker, CallLog(tmp_path / "log.sqlite"), start).score_batches(batches)
    )
    assert result.keys() == expected.keys()
    for number, scores in expected.items():
        np.testing.assert_allclose(result[number], scores, atol=1e-6)
    local = CandidateRetriever(ModelReference(model), "eng-Latn")
    remote = CandidateRetriever(ModelReference(model), "eng-Latn", start)
    assert remote.find(DOCUMENTS, QUESTIONS, 3) == local.find(DOCUMENTS, QUESTIONS, 3)
