"""A server with the OpenAI-compatible embeddings API, which can be told to fail in every way that real ones do."""

import json
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIMENSIONS = 24
#: The number of the first words of a text that are read, or the function that selects them.
Window = int | None | Callable[[list[str]], list[str]]


class Pooling(StrEnum):
    """How a vector is made of the words of a text."""

    COUNT = "count"
    MEAN = "mean"
    CLS = "cls"
    """A function of the first word's vector and of an attention over all of them."""


@dataclass
class Failure:
    """An answer without embeddings."""

    status: int | None
    """None to close the connection."""
    headers: dict[str, str] = field(default_factory=dict)
    message: str = "failed"


@dataclass
class EmbeddingServer:
    """The state of a server: what it was sent, and how it answers."""

    model: str = "tiny"
    key: str | None = None
    """The only accepted key; None to accept requests without one."""
    window: Window = None
    pooling: Pooling = Pooling.COUNT
    noise: float = 0.0
    """Standard deviation of a vector's entries between two answers, relative to the length of the vector."""
    max_words: int | None = None
    failures: deque[Failure] = field(default_factory=deque)
    damage: Callable[[list[dict[str, Any]]], Any] = list
    """Changes the rows of an answer."""
    rewrite: Callable[[int, dict[str, str], bytes], tuple[int, dict[str, str], bytes]] | None = None
    seconds: float = 0.0
    batches: list[list[str]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    most_in_flight: int = 0
    in_flight: int = 0
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0), repr=False)
    lock: threading.Lock = field(default_factory=threading.Lock)
    url: str = ""

    @property
    def reference(self) -> str:
        return f"{self.model}@{self.url}"


def select(words: list[str], window: Window) -> list[str]:
    return window(words) if callable(window) else words[:window]


def embed(text: str, window: Window = None) -> list[float]:
    """Return how many of a text's words fall into each of some classes."""
    counts = [0.1] * DIMENSIONS
    for word in select(text.lower().split(), window):
        counts[zlib.crc32(word.strip(".,?").encode()) % DIMENSIONS] += 1
    return counts


@cache
def word_vector(word: str) -> NDArray[np.float64]:
    """Return a random vector for a word, with a component that all words share, as those of real models."""
    return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(DIMENSIONS) + 0.5


def pool(text: str, pooling: Pooling, window: Window, noise: NDArray[np.float64]) -> list[float]:
    """Return the vector of a text of which so many words are read, with noise relative to its length, shape (DIMENSIONS,)."""
    if pooling is Pooling.COUNT:
        vector = np.array(embed(text, window))
    else:
        words = np.array([word_vector(word) for word in select(text.split(), window)])
        weights = np.exp(words @ words[0] / np.sqrt(DIMENSIONS)) if pooling is Pooling.CLS else np.ones(len(words))
        mean = (weights / weights.sum()) @ words
        vector = np.tanh(words[0] + mean) if pooling is Pooling.CLS else mean
    return [float(entry) for entry in vector + noise * np.linalg.norm(vector) / np.sqrt(DIMENSIONS)]


class Handler(BaseHTTPRequestHandler):
    server: Any

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.answer(200, {"object": "list", "data": [{"id": self.server.state.model, "object": "model"}]})

    def do_POST(self) -> None:
        state = self.server.state
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with state.lock:
            state.times.append(time.monotonic())
            state.in_flight += 1
            state.most_in_flight = max(state.most_in_flight, state.in_flight)
            failure = state.failures.popleft() if state.failures else None
        time.sleep(state.seconds)
        # A client that has its answer may send the next request before this thread goes on.
        with state.lock:
            state.in_flight -= 1
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if state.key is not None and given != state.key:
            failure = failure or Failure(401, message=f"Incorrect API key provided: {given}")
        elif request["model"] != state.model or self.path != "/v1/embeddings":
            failure = failure or Failure(404, message=f"The model {request['model']} does not exist at {self.path}")
        elif state.max_words and max(len(text.split()) for text in request["input"]) > state.max_words:
            failure = failure or Failure(400, message=f"This model's maximum context length is {state.max_words} tokens")
        if failure:
            self.fail(failure)
        else:
            with state.lock:
                state.batches.append(request["input"])
                noise = state.noise * state.random.standard_normal((len(request["input"]), DIMENSIONS))
            vectors = [pool(text, state.pooling, state.window, row) for text, row in zip(request["input"], noise, strict=True)]
            rows = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
            usage = {"prompt_tokens": 1, "total_tokens": 1}
            self.answer(200, {"object": "list", "model": state.model, "data": state.damage(rows), "usage": usage})

    def fail(self, failure: Failure) -> None:
        if failure.status is None:
            self.close_connection = True
            self.connection.close()
        else:
            self.answer(failure.status, {"error": {"message": failure.message}}, failure.headers)

    def answer(self, status: int, content: object, headers: dict[str, str] | None = None) -> None:
        body = (content if isinstance(content, str) else json.dumps(content)).encode()
        sent = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
        if self.server.state.rewrite:
            status, sent, body = self.server.state.rewrite(status, sent, body)
        self.send_response(status)
        for name, value in sent.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serve(handler: type[BaseHTTPRequestHandler], state: Any = None) -> Iterator[str]:
    """Run a server on a free port of this machine; yield its address, which the state is given as `url`."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    http.handle_error = lambda *_: None  # type: ignore[method-assign]
    address = f"http://127.0.0.1:{http.server_port}"
    if state is not None:
        http.state, state.url = state, f"{address}/v1"  # type: ignore[attr-defined]
    threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield address
    finally:
        http.shutdown()
        http.server_close()


@contextmanager
def serve_embeddings(**settings: Any) -> Iterator[EmbeddingServer]:
    state = EmbeddingServer(**settings)
    with serve(Handler, state):
        yield state
