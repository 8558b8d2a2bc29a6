"""A server with the rerank API of Cohere, Jina and vLLM, or that of Text Embeddings Inference,
which can be told to fail.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.embedding_server import Failure, Handler, serve


def count_common_words(query: str, text: str) -> float:
    """Return how many of the query's words a text has."""
    return float(len(set(query.lower().split()) & set(text.lower().split())))


@dataclass
class RerankServer:
    """The state of a server: what it was sent, and how it answers."""

    score: Callable[[str, str], float] = count_common_words
    fields_of_tei: bool = False
    """Whether requests and answers are those of Text Embeddings Inference."""
    damage: Callable[[Any], Any] = lambda rows: rows
    rewrite: None = None
    failures: deque[Failure] = field(default_factory=deque)
    requests: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""


class RerankHandler(Handler):
    def do_POST(self) -> None:  # noqa: N802
        state: RerankServer = self.server.state
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        state.requests.append(request)
        texts = request.get("texts" if state.fields_of_tei else "documents")
        if state.failures:
            failure = state.failures.popleft()
            self.answer(failure.status or 500, {"error": {"message": failure.message}})
        elif self.path != "/v1/rerank":
            self.answer(404, {"error": {"message": f"no {self.path}"}})
        elif texts is None:
            self.answer(422, {"error": {"message": "missing field"}})
        else:
            name = "score" if state.fields_of_tei else "relevance_score"
            rows = [
                {"index": index, name: state.score(request["query"], text)}
                for index, text in enumerate(texts)
            ]
            rows = state.damage(sorted(rows, key=lambda row: -row[name]))
            self.answer(200, rows if state.fields_of_tei else {"results": rows})


@contextmanager
def serve_reranker(**settings: Any) -> Iterator[RerankServer]:
    state = RerankServer(**settings)
    with serve(RerankHandler, state):
        yield state
