"""A server of embeddings of any kind, which can be told to fail in every way that real ones do."""

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


@dataclass(frozen=True)
class Served:
    """A route of a kind of server."""

    texts: str
    answer: Callable[[list[Any], int], Any]
    """Makes the answer of the vectors, or of those of each document, and the number of tokens that
    were read.
    """


def answer_openai(vectors: list[Any], tokens: int) -> Any:
    rows = [
        {"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)
    ]
    return {
        "object": "list",
        "data": rows,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def answer_billed(vectors: list[Any], tokens: int) -> Any:
    return answer_openai(vectors, tokens) | {"usage": {"total_tokens": 7 * tokens}}


def answer_nested(vectors: list[Any], tokens: int) -> Any:
    """Return what Voyage and Perplexity do for lists of chunks, the last document first."""
    rows = [
        {"index": i, "data": answer_openai(inner, 0)["data"]} for i, inner in enumerate(vectors)
    ]
    return {"data": rows[::-1], "usage": {"total_tokens": 7 * tokens}}


#: Facts: `facts-systems.md`, section 1.
ROUTES: dict[str, dict[str, Served]] = {
    "openai": {"/v1/embeddings": Served("input", answer_openai)},
    "tei": {"/embed": Served("inputs", lambda vectors, _: vectors)},
    "ollama": {
        "/api/embed": Served(
            "input", lambda vectors, tokens: {"embeddings": vectors, "prompt_eval_count": tokens}
        )
    },
    "cohere": {
        "/v2/embed": Served(
            "texts",
            lambda vectors, tokens: {
                "embeddings": {"float": vectors},
                "meta": {"billed_units": {"input_tokens": 7 * tokens}},
            },
        )
    },
    "voyage": {
        "/v1/embeddings": Served("input", answer_billed),
        "/v1/contextualizedembeddings": Served("inputs", answer_nested),
    },
    "jina": {"/v1/embeddings": Served("input", answer_billed)},
    "perplexity": {
        "/v1/embeddings": Served("input", answer_openai),
        "/v1/contextualizedembeddings": Served("input", answer_nested),
    },
}


@dataclass
class EmbeddingServer:
    """The state of a server: what it was sent, and how it answers."""

    model: str = "tiny"
    kind: str = "openai"
    special: int = 0
    """Special tokens of a text, which the window includes if it is a number."""
    counts: Callable[[int, list[str]], Any] = lambda tokens, _: tokens
    """Makes what the server says that it read of the number of tokens and the texts."""
    stated: int | None = None
    """The limit that it states in an answer of its own."""
    batch_size: int = 32
    """The number of texts of a request that it states in it."""
    reasons: Callable[[str], Any] = lambda message: {"error": {"message": message}}
    """Makes the answer to a request that fails."""
    check: Callable[[dict[str, Any]], str | None] = lambda _: None
    """Returns why a request is refused; None if it is not."""
    fail: Callable[[list[str]], "Failure | None"] = lambda _: None
    """Returns the failure for the texts of a request; None if there is none."""
    mix: Callable[[list[str], list[Any]], list[Any]] = lambda _, vectors: vectors
    """Changes the vectors of the texts of a request."""
    key: str | None = None
    """The only accepted key; None to accept requests without one."""
    window: Window = None
    pooling: Pooling = Pooling.COUNT
    noise: float = 0.0
    """Standard deviation of a vector's entries between two answers, relative to the length of the
    vector.
    """
    max_words: int | None = None
    refusal: str = "This model's maximum context length is {limit} tokens"
    """What it says of a text of more, of which `{sent}` is the number."""
    failures: deque[Failure] = field(default_factory=deque)
    encode: Callable[[list[float]], Any] = list
    """Makes what an answer has of a vector."""
    damage: Callable[[list[dict[str, Any]]], Any] = list
    """Changes the rows of an answer."""
    rewrite: Callable[[int, dict[str, str], bytes], tuple[int, dict[str, str], bytes]] | None = None
    seconds: float = 0.0
    batches: list[Any] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    most_in_flight: int = 0
    in_flight: int = 0
    random: np.random.Generator = field(
        default_factory=lambda: np.random.default_rng(0), repr=False
    )
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
def make_word_vector(word: str) -> NDArray[np.float64]:
    """Return a random vector for a word, with a component that all words share, as those of real
    models.
    """
    return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(DIMENSIONS) + 0.5


def pool(text: str, pooling: Pooling, window: Window, noise: NDArray[np.float64]) -> list[float]:
    """Return the vector of a text of which so many words are read, with noise relative to its
    length, shape (DIMENSIONS,).
    """
    if pooling is Pooling.COUNT:
        vector = np.array(embed(text, window))
    else:
        words = np.array([make_word_vector(word) for word in select(text.split(), window)])
        weights = (
            np.exp(words @ words[0] / np.sqrt(DIMENSIONS))
            if pooling is Pooling.CLS
            else np.ones(len(words))
        )
        mean = (weights / weights.sum()) @ words
        vector = np.tanh(words[0] + mean) if pooling is Pooling.CLS else mean
    return [float(entry) for entry in vector + noise * np.linalg.norm(vector) / np.sqrt(DIMENSIONS)]


def add_context(documents: list[list[str]], vectors: list[list[float]]) -> list[list[float]]:
    """Return the vectors of chunks plus half of that of their document."""
    whole = [
        pool(" ".join(chunks), Pooling.COUNT, None, np.zeros(DIMENSIONS))
        for chunks in documents
        for _ in chunks
    ]
    return [
        list(np.array(vector) + 0.5 * np.array(context))
        for vector, context in zip(vectors, whole, strict=True)
    ]


class Server(ThreadingHTTPServer):
    # With the default of 5, clients that connect at once wait for seconds.
    request_queue_size = 256


class Handler(BaseHTTPRequestHandler):
    server: Any

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        state = self.server.state
        state.times.append(time.monotonic())
        if self.path == "/info" and state.kind == "tei":
            limits = {"max_input_length": state.stated, "max_client_batch_size": state.batch_size}
            self.answer(200, {**limits, "auto_truncate": not state.max_words})
        else:
            self.answer(200, {"object": "list", "data": [{"id": state.model, "object": "model"}]})

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
        if self.path == "/api/show" and state.kind == "ollama":
            self.answer(200, {"model_info": {"bert.context_length": state.stated}})
            return
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        served = ROUTES[state.kind].get(self.path)
        sent = request.get(served.texts) if served else None
        documents = sent if sent and isinstance(sent[0], list) else [[text] for text in sent or ()]
        texts = [text for chunks in documents for text in chunks]
        if state.key is not None and given != state.key:
            failure = failure or Failure(401, message=f"Incorrect API key provided: {given}")
        elif (
            not served
            or (state.kind != "tei" and request.get("model") != state.model)
            or sent is None
        ):
            failure = failure or Failure(
                404, message=f"The model {request.get('model')} does not exist at {self.path}"
            )
        elif refused := state.check(request):
            failure = failure or Failure(400, message=refused)
        elif (
            state.max_words
            and (longest := max(len(text.split()) + state.special for text in texts))
            > state.max_words
        ):
            failure = failure or Failure(
                400, message=state.refusal.format(limit=state.max_words, sent=longest)
            )
        failure = failure or state.fail(texts)
        if failure:
            self.fail(failure)
            return
        assert served
        with state.lock:
            state.batches.append(sent)
            state.requests.append(request)
            noise = state.noise * state.random.standard_normal((len(texts), DIMENSIONS))
        window = state.window - state.special if isinstance(state.window, int) else state.window
        read = [
            pool(text, state.pooling, window, row) for text, row in zip(texts, noise, strict=True)
        ]
        read = state.mix(texts, read)
        if request.get("late_chunking") or (sent is not texts and served.answer is answer_nested):
            read = add_context([texts] if request.get("late_chunking") else documents, read)
        vectors: list[Any] = [state.encode(vector) for vector in read]
        if served.answer is answer_nested:
            rows = iter(vectors)
            vectors = [[next(rows) for _ in chunks] for chunks in documents]
        tokens = sum(len(select(text.split(), window)) + state.special for text in texts)
        answer = served.answer(vectors, state.counts(tokens, texts))
        if "data" in answer and served.answer is answer_openai:
            answer["data"] = state.damage(answer["data"])
        self.answer(200, answer)

    def fail(self, failure: Failure) -> None:
        if failure.status is None:
            self.close_connection = True
            self.connection.close()
        else:
            self.answer(failure.status, self.server.state.reasons(failure.message), failure.headers)

    def answer(self, status: int, content: object, headers: dict[str, str] | None = None) -> None:
        body = (content if isinstance(content, str) else json.dumps(content)).encode()
        sent = {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **(headers or {}),
        }
        if self.server.state.rewrite:
            status, sent, body = self.server.state.rewrite(status, sent, body)
        self.send_response(status)
        for name, value in sent.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serve(handler: type[BaseHTTPRequestHandler], state: Any = None) -> Iterator[str]:
    """Run a server on a free port of this machine; yield its address, which the state is given as
    `url`.
    """
    http = Server(("127.0.0.1", 0), handler)
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
