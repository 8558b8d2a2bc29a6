"""Rerankers behind an endpoint, over real HTTP."""

import math
from collections import deque
from typing import Any

import mteb
import pytest

from posir_tasks.base.errors import PosirError
from posir_tasks.models import connection
from posir_tasks.models.endpoint_models import RerankEndpoint, split_requests
from posir_tasks.models.references import parse_endpoint
from tests.support.embedding_server import Failure
from tests.support.rerank_server import serve_reranker

TEXTS = ["a bell", "the bell of copper", "nothing"]


@pytest.fixture(autouse=True)
def _few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "RETRIES", 1)


@pytest.mark.parametrize("fields_of_tei", [False, True])
def test_scores_are_in_the_order_of_the_texts(fields_of_tei: bool):
    with serve_reranker(fields_of_tei=fields_of_tei) as server:
        client = RerankEndpoint(parse_endpoint("bge:rerank", server.url))
        assert client.rerank("copper bell", TEXTS).tolist() == [1, 2, 0]
        assert client.rerank("nothing", TEXTS).tolist() == [0, 0, 1]
    sent = server.requests[-1]
    assert sent == (
        {"query": "nothing", "texts": TEXTS, "truncate": True}
        if fields_of_tei
        else {"model": "bge", "query": "nothing", "documents": TEXTS, "top_n": 3}
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"damage": lambda rows: rows[1:]}, "to 2 texts has 1 scores, with the indices"),
        ({"damage": lambda rows: [rows[0], rows[0]]}, "to 2 texts has 2 scores"),
        ({"damage": lambda _: "no"}, "rerank API"),
        ({"damage": lambda rows: [{**rows[0], "relevance_score": math.nan}, *rows[1:]]}, "finite"),
        ({"failures": deque([Failure(422)] * 3)}, "rejects a request"),
    ],
)
def test_failures_and_invalid_scores_raise_one_error(options: Any, message: str):
    with serve_reranker(**options) as server, pytest.raises(PosirError, match=message):
        RerankEndpoint(parse_endpoint("rerank", server.url))


def test_a_temporary_reranker_failure_is_retried():
    with serve_reranker(failures=deque([Failure(503)])) as server:
        assert RerankEndpoint(parse_endpoint("rerank", server.url)).rerank(
            "bell", TEXTS
        ).tolist() == [1, 1, 0]
    assert "model" not in server.requests[0]


def test_a_request_contains_the_texts_for_one_query():
    pairs = [("a", "1"), ("a", "2"), ("a", "3"), ("b", "1")]
    assert list(split_requests(pairs, 2)) == [("a", ["1", "2"]), ("a", ["3"]), ("b", ["1"])]


@pytest.mark.parametrize(
    ("reference", "name", "revision"),
    [
        ("rerank@http://localhost:8000/v1", "endpoint/rerank (localhost-8000)", None),
        (
            "BAAI/bge:rerank@http://localhost:8000/v1#2",
            "endpoint/BAAI-bge-rerank (localhost-8000 1ae840a9)",
            "2",
        ),
    ],
)
def test_references_contain_model_and_address(reference: str, name: str, revision: str | None):
    meta = mteb.get_model_meta(reference)
    assert (meta.name, meta.model_type) == (name, ["cross-encoder"])
    assert meta.revision == (revision or "no_revision_available")
    assert mteb.get_model_meta(meta.loader.reference).name == name  # type: ignore[union-attr]


def test_a_reranker_endpoint_reranks_a_task(tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path))
    with serve_reranker(score=lambda _query, text: float(len(text))) as server:
        model = mteb.get_model(f"rerank@{server.url}")
        task = mteb.get_task("PosIR-Mini")
        task.load_data()
        data = task.dataset["default"]["test"]  # type: ignore[index]
        chosen = data["queries"].select(range(4))
        data.update(queries=chosen, evidence=data["evidence"].select([0, 1, 2, 3]))
        result = mteb.evaluate(
            model, task, cache=None, show_progress_bar=False, encode_kwargs={"batch_size": 64}
        )
    scores = result.task_results[0].scores["test"][0]
    assert scores["previous_results_model_meta"]["model_name"] == "mteb/baseline-bm25s"
    # For any question, the longest of the top 100 are ranked first.
    assert scores["ndcg_at_10"] < 0.9
    assert {request["query"] for request in server.requests[1:]} == set(chosen["text"])
