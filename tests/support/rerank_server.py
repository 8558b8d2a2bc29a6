"""A server with the rerank API of Cohere, Jina and vLLM, or that of Text Embeddings Inference, which can be told to fail."""

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.embedding_server import Failure


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
    failures: deque[Failure] = field(default_factory=deque)
    requests: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""


class RerankHandler(BaseHTTPRequestHandler):
    """Answers as the state of the server says."""

    server: Any

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
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
            rows = [{"index": index, name: state.score(request["query"], text)} for index, text in enumerate(texts)]
            rows = state.damage(sorted(rows, key=lambda row: -row[name]))
            self.answer(200, rows if state.fields_of_tei else {"results": rows})

    def answer(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serve_reranker(**settings: Any) -> Iterator[RerankServer]:
    """Run a server on a free port of this machine."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), RerankHandler)
    http.state = state = RerankServer(**settings, url=f"http://127.0.0.1:{http.server_port}/v1")  # type: ignore[attr-defined]
    threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield state
    finally:
        http.shutdown()
        http.server_close()
