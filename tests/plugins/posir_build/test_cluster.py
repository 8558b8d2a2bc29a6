"""Reranking and candidate retrieval as jobs: the same scores and documents as in one process, for
any batches.
"""

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
PAIRS = [(asked.text, other.text) for asked in QUESTIONS for other in DOCUMENTS]


class InProcess:
    def __init__(self):
        self.evaluator = Evaluator(Settings({"batch_size": 32}, verbose=True), {})

    def list_locations(self):
        return ("here",)

    def start(self, location):
        assert location == "here"
        return SimpleNamespace(
            started=done(None),
            submit=lambda job: done(self.evaluator.evaluate(job)),
            stop=lambda: None,
        )

    def close(self):
        pass


def done(value):
    future = Future()
    future.set_result(value)
    return future


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(write_tiny_model(tmp_path_factory.mktemp("model")))


def test_scores_are_the_same_as_in_one_process(model, tmp_path, monkeypatch):
    monkeypatch.setattr("posir_build.cluster.BATCH", 10)
    reranker = ModelReranker(ModelReference(model), "eng-Latn")
    here = Reranker(reranker, CallLog(tmp_path / "a.sqlite"))
    there = Reranker(reranker, CallLog(tmp_path / "b.sqlite"), InProcess)
    assert here.name == there.name
    np.testing.assert_array_equal(there.score(PAIRS), here.score(PAIRS))
    # All of them are saved, so nothing is started.
    there = Reranker(reranker, CallLog(tmp_path / "b.sqlite"), lambda: 1 / 0)
    np.testing.assert_array_equal(there.score(PAIRS), here.score(PAIRS))


def test_documents_are_the_same_as_in_one_process(model, monkeypatch):
    monkeypatch.setattr(cluster, "DOCUMENTS_PER_JOB", 2)
    here = CandidateRetriever(ModelReference(model), "eng-Latn")
    there = CandidateRetriever(ModelReference(model), "eng-Latn", InProcess)
    assert here.name == there.name
    result, expected = (value.find(DOCUMENTS, QUESTIONS, 3) for value in (there, here))
    assert result == expected
    assert {len(item) for item in result} == {3}


def test_a_failed_job_ends_the_build(tmp_path):
    folder = str(write_tiny_model(tmp_path / "cross", "cross-encoder"))
    with pytest.raises(PosirError, match=r"documents 0: .*not an embedder"):
        CandidateRetriever(ModelReference(folder), "eng-Latn", InProcess).find(
            DOCUMENTS, QUESTIONS, 3
        )
    unscaled = Reranker(
        ModelReranker(ModelReference(folder), "eng-Latn"),
        CallLog(tmp_path / "log.sqlite"),
        InProcess,
    )
    assert [number for number, _ in unscaled.score_batches([PAIRS[:3], PAIRS[3:5]])] == [0, 1]


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
    reranker, batches = ModelReranker(ModelReference(model), "eng-Latn"), [PAIRS[:40], PAIRS[40:]]
    expected = dict(reranker.score_batches(batches))
    result = dict(
        Reranker(reranker, CallLog(tmp_path / "log.sqlite"), start).score_batches(batches)
    )
    assert result.keys() == expected.keys()
    for number, scores in expected.items():
        np.testing.assert_allclose(result[number], scores, atol=1e-6)
    here = CandidateRetriever(ModelReference(model), "eng-Latn")
    there = CandidateRetriever(ModelReference(model), "eng-Latn", start)
    assert there.find(DOCUMENTS, QUESTIONS, 3) == here.find(DOCUMENTS, QUESTIONS, 3)
