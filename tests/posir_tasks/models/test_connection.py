"""Server responses over real HTTP: limited size, time and numbers, and no redirects."""

import gzip
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from http.server import BaseHTTPRequestHandler

import pytest

from posir_tasks.base.errors import PosirError
from posir_tasks.models import connection
from posir_tasks.models.connection import Connection, RequestError, submit
from posir_tasks.models.endpoint_models import EndpointEncoder, RerankEndpoint
from posir_tasks.models.references import parse_endpoint
from tests.support import embedding_server
from tests.support.embedding_server import Failure, Handler, serve_embeddings

#: Writes a response.
Writer = Callable[[BaseHTTPRequestHandler], None]


def write(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    for name, value in {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **headers,
    }.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def trickle(handler: BaseHTTPRequestHandler, *, headers: bool = False) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.flush_headers() if headers else handler.end_headers()
    for number in range(50):
        handler.wfile.write(b"X-%d: 1\r\n" % number if headers else b" ")
        time.sleep(0.05)


BOMB = gzip.compress(bytes(2**24))
RESPONSES: dict[str, tuple[Writer, str]] = {
    "bomb": (lambda to: write(to, BOMB, Content_Encoding="gzip"), "larger than"),
    "large": (lambda to: write(to, bytes(2**21)), "larger than"),
    "trickle": (trickle, "not complete"),
    "trickled headers": (partial(trickle, headers=True), "not complete"),
    "redirect": (
        lambda to: write(to, b"", 307, Location="http://127.0.0.2:9/v1"),
        "redirects to",
    ),
    "redirect on the same server": (lambda to: write(to, b"", 307, Location="/v2"), "redirects to"),
}
#: Responses with the wrong compression, which count as broken connections.
COMPRESSED = {
    "other": (b"{}", "br"),
    "damaged": (b"{}", "gzip"),
}
JSON = {
    "deep": b"[" * 100_000,
    "digits": b'{"data": %s}' % (b"9" * 400),
    "twice": b'{"data": 1, "data": 2}',
    "text": b"no",
}


@pytest.fixture
def serve(monkeypatch) -> Iterator[Callable[[Writer], str]]:
    monkeypatch.setenv("POSIR_MAX_BYTES", str(2**22))
    monkeypatch.setattr(connection, "RESPONSE_SECONDS", 0.5)
    with ExitStack() as servers:

        def start(write_response: Writer) -> str:
            class WritingHandler(Handler):
                def do_POST(self) -> None:  # noqa: N802
                    self.rfile.read(int(self.headers.get("Content-Length", 0)))
                    write_response(self)

            return servers.enter_context(embedding_server.serve(WritingHandler)) + "/v1"

        yield start


def ask_chat(address: str) -> str:
    """Send a request like `posir build`."""
    server = Connection(address, retries=1)
    try:
        return submit(server.send_async(f"{address}/chat/completions", {})).result()
    except RequestError as error:
        raise PosirError(server.explain(error, advice="")) from None


CLIENTS: dict[str, Callable[[str], object]] = {
    "embeddings": lambda address: EndpointEncoder(parse_endpoint("m", address)),
    "rerank": lambda address: RerankEndpoint(parse_endpoint("rerank", address)),
    "chat": ask_chat,
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("response", RESPONSES)
def test_a_response_beyond_the_limits_is_not_retried(serve, client: str, response: str):
    requests = []
    write_response, word = RESPONSES[response]

    def respond(handler: BaseHTTPRequestHandler) -> None:
        requests.append(handler.path)
        write_response(handler)

    with pytest.raises(PosirError, match=word):
        CLIENTS[client](serve(respond))
    # On a busy machine, the time may be over before the server receives the request.
    assert len(requests) <= 1


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("response", COMPRESSED)
def test_broken_compression_raises_one_error(serve, monkeypatch, client: str, response: str):
    monkeypatch.setattr(connection, "RETRIES", 1)
    monkeypatch.setattr(connection, "FIRST_WAIT", 0.001)
    body, encoding = COMPRESSED[response]
    with pytest.raises(PosirError, match="server"):
        CLIENTS[client](serve(lambda to: write(to, body, Content_Encoding=encoding)))


@pytest.mark.parametrize("client", ["embeddings", "rerank"])
@pytest.mark.parametrize("body", JSON.values(), ids=JSON)
def test_ambiguous_or_deep_json_is_rejected(serve, client: str, body: bytes):
    with pytest.raises(PosirError, match="the server's response"):
        CLIENTS[client](serve(lambda to: write(to, body)))


def test_responses_may_be_compressed(serve):
    content = gzip.compress(json.dumps({"right": True}).encode())
    address = serve(lambda to: write(to, content, Content_Encoding="gzip"))
    assert json.loads(ask_chat(address)) == {"right": True}


def test_rate_limits_use_all_retries(monkeypatch):
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(connection.asyncio, "sleep", wait)
    with serve_embeddings() as server:
        client = EndpointEncoder(parse_endpoint(server.model, server.url))
        first = len(server.times)
        with client.open_measurement(retries=0):
            server.failures.extend([Failure(429, {"Retry-After": "7"})] * 3)
            assert client.embed(["some text"]).shape[0] == 1
            assert len(server.times) == first + 4
            assert waits == [7] * 3
            for status in (400, 413, 500, 503, None):
                server.failures.append(Failure(status))
                with pytest.raises(PosirError, match="server"):
                    client.embed(["some text"])
            assert len(server.times) == first + 9
        server.failures.append(Failure(503))
        assert client.embed(["some text"]).shape[0] == 1
