"""Endpoints over real HTTP: references, kinds, requests, retries and errors."""

import base64
import json
import logging
import struct
import traceback
from collections import Counter
from http.server import BaseHTTPRequestHandler
from itertools import cycle

import mteb
import numpy as np
import pytest
from mteb.types import PromptType

from posir_tasks.base.errors import PosirError
from posir_tasks.models import connection
from posir_tasks.models.embeddings.cached_encoder import build_embedding_key
from posir_tasks.models.endpoint_client import KINDS, EmbeddingClient
from posir_tasks.models.endpoint_models import MAX_IN_FLIGHT, EndpointEncoder
from posir_tasks.models.prefixes import find_family
from posir_tasks.models.references import (
    ModelReference,
    find_endpoint,
    get_portable_reference,
)
from posir_tasks.models.registry import find_model, resolve_endpoint
from posir_tasks.models.run_settings import override_settings
from tests.support.embedding_server import DIMENSIONS, Failure, embed, serve, serve_embeddings
from tests.support.encode import TASK, encode

KEY = "sk-secret-of-the-test"


pytestmark = pytest.mark.usefixtures("short_waits")


@pytest.fixture
def server():
    with serve_embeddings() as served:
        yield served


def embed_all(texts, window=None):
    return np.array([embed(text, window) for text in texts], np.float32)


@pytest.mark.parametrize(
    ("reference", "name", "portable"),
    [
        (
            "bge-m3@http://LOCALHOST:8000/v1/embeddings/",
            "endpoint/bge-m3 (localhost-8000)",
            "bge-m3@http://localhost:8000/v1",
        ),
        (
            "BAAI/bge-m3@https://a.org/team/v1",
            "endpoint/BAAI-bge-m3 (a.org-team 96445fc5)",
            "BAAI/bge-m3@https://a.org/team/v1",
        ),
        ("m@https://a.org/v1#2025-06", "endpoint/m (a.org)", "m@https://a.org/v1#2025-06"),
        (
            "bge:v2@tei+http://a.org:8080",
            "endpoint/bge-v2 (a.org-8080 4c11d4a0)",
            "bge:v2@tei+http://a.org:8080",
        ),
    ],
)
def test_a_reference_contains_model_and_address(reference, name, portable):
    meta = find_model(ModelReference(reference))
    assert (meta.name, get_portable_reference(meta)) == (name, portable)
    assert meta.revision == ("2025-06" if "#" in reference else "no_revision_available")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("http://localhost:8000/v1", "no model .* MODEL@ADDRESS"),
        ("m@http:///v1", "no host"),
        ("m@tgi+http://a.org", "no such kind .* openai, tei, ollama, cohere, voyage, jina"),
        ("m@http://localhost:80000/v1", "not valid"),
        ("m@http://me:hunter2@localhost/v1", "password .*OPENAI_API_KEY"),
        ("m@http://localhost/v1?api-key=hunter2", "password"),
        ("m@http://localhost/v1#a/b", "'#a/b'"),
    ],
)
def test_an_incomplete_or_secret_reference_is_rejected(reference, message):
    with pytest.raises(PosirError, match=message) as raised:
        find_model(ModelReference(reference))
    assert "hunter2" not in str(raised.value)


def test_batches_are_returned_in_order_with_few_concurrent_requests(
    server,
):
    model = mteb.get_model(server.reference)
    texts = [f"text {i} of many" for i in range(25)]
    assert np.array_equal(encode(model, texts, batch_size=4), embed_all(texts))
    # The two first texts; then the shortest and longest text of the first batch alone.
    assert Counter(map(len, server.batches)) == {4: 6, 2: 1, 1: 3}
    server.damage, server.seconds = (lambda rows: rows[::-1]), 0.05
    texts = ["one", "two two", "three three three"] * 14
    assert np.array_equal(
        encode(mteb.get_model(server.reference), texts, batch_size=3), embed_all(texts)
    )
    assert 1 < server.most_in_flight <= MAX_IN_FLIGHT


def test_prompts_are_prepended_and_part_of_the_key(server):
    reference = f"{server.reference}#1"
    model = mteb.get_model(reference, model_prompts={"query": "query: "})
    encode(model, ["a"], PromptType.query)
    encode(model, ["a"])
    assert server.batches[-2:] == [["query: a"], ["a"]]
    keys = [
        build_embedding_key(value, {}, TASK, PromptType.query)
        for value in (model, mteb.get_model(reference))
    ]
    assert [(key.revision, key.shared, key.task_context) for key in keys] == [
        ("1", True, "query: "),
        ("1", True, None),
    ]
    assert keys[0].digest() != keys[1].digest()
    assert build_embedding_key(mteb.get_model(server.reference), {}, TASK, None) is None


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (Failure(429, message="no quota left"), r"limit .*no quota left"),
        (Failure(503), "failed up to 3 times"),
        (Failure(None), r"no response after 3 attempts .*running"),
    ],
)
def test_a_permanent_failure_raises_one_error_after_retries(server, monkeypatch, failure, message):
    server.failures.extend([failure] * 3)
    texts = ["some text", "another"]
    assert np.array_equal(encode(mteb.get_model(server.reference), texts), embed_all(texts))
    assert len(server.times) == 3 + 4
    monkeypatch.setattr(connection, "RETRIES", 2)
    server.failures.extend([failure] * 3)
    with pytest.raises(PosirError, match=rf"^{server.reference}: .*{message}"):
        mteb.get_model(server.reference)


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (Failure(413, message="too large"), r"rejects a request \(.*too large.* --window N"),
        (Failure(403, message="not yours"), r"without a key; set OPENAI_API_KEY \(.*not yours"),
    ],
)
def test_a_rejection_raises_one_error_without_retries(server, failure, message):
    server.failures.append(failure)
    with pytest.raises(PosirError, match=message):
        mteb.get_model(server.reference)


def test_an_unknown_model_or_address_raises_one_error(server, monkeypatch):
    monkeypatch.setattr(connection, "RETRIES", 0)
    for reference, message in (
        (f"other@{server.url}", r"no such model or address"),
        (server.reference.removesuffix("/v1"), r"no such model or address .* end in /v1\."),
        (
            f"m@tei+{server.url}",
            r"model or address \(404: [^)]*\)\. .*Tried: tei \(http://[\d.:]+/embed\)\.",
        ),
        ("m@http://127.0.0.1:9/v1", r"after 1 attempts \(.*[Cc]onnection refused"),
    ):
        with pytest.raises(PosirError, match=message):
            mteb.get_model(reference)


def replace_entries(*entries):
    return lambda rows: [row | {"embedding": list(entries)} for row in rows]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda rows: rows[1:], r"to 3 texts has 2 vectors, with the indices 1, 2\."),
        (
            lambda rows: [*rows[:2], rows[2] | {"embedding": [0.5]}],
            rf"dimensions: 1, {DIMENSIONS}\.",
        ),
        (replace_entries(*[float("nan")] * DIMENSIONS), "finite"),
        (replace_entries(*[1e39] * DIMENSIONS), "infinity in .* 'alpha'"),
        (replace_entries(*[10**400] * DIMENSIONS), "64 bits"),
        (replace_entries(*[True] * DIMENSIONS), "not numbers, such as True"),
        (replace_entries(*[0] * DIMENSIONS), "zeros, in 3 vectors of 24"),
        (lambda _: None, "embeddings API"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_a_response_without_a_finite_vector_per_text_is_rejected(server, damage, message):
    model = mteb.get_model(server.reference)
    server.damage = damage
    with pytest.raises(PosirError, match=message):
        encode(model, ["alpha", "beta", "gamma"])


def test_equal_vectors_for_different_texts_are_rejected(server):
    model = mteb.get_model(server.reference)
    server.damage = replace_entries(*[0.25] * DIMENSIONS)
    with pytest.raises(
        PosirError,
        match=r"tiny@http.*the same vector for 10 different texts: 0\.25, 0\.25.*Check the server",
    ):
        encode(model, [f"text {number}" for number in range(10)])
    with pytest.raises(PosirError, match="the same vector for 'position' and 'A bell was cast"):
        mteb.get_model(server.reference)


def test_equal_texts_and_empty_texts_may_have_equal_vectors(server):
    model = mteb.get_model(server.reference)
    assert np.array_equal(encode(model, ["Text", "text"] * 10), embed_all(["text"] * 20))
    beginning = "word " * 100
    server.window = 60
    assert np.array_equal(
        encode(model, [f"{beginning} {number}" for number in range(10)]),
        embed_all([beginning] * 10, 60),
    )
    server.damage = lambda rows: [
        row | {"embedding": [0] * DIMENSIONS} if row["index"] == 1 else row for row in rows
    ]
    assert not encode(model, ["text", " "])[1].any()
    server.damage = replace_entries(*[0] * DIMENSIONS)
    assert not encode(model, [" "]).any()


def test_an_overlong_text_stops_the_run(server):
    model = mteb.get_model(server.reference)
    server.max_words, server.seconds = 100, 0.02
    with pytest.raises(
        PosirError, match=r"maximum context length is 100 tokens.*let the server truncate them"
    ):
        encode(model, ["word " * 101] * 500, batch_size=1)
    assert len(server.batches) < 100


def test_silent_truncation_is_detected(server, caplog):
    model = mteb.get_model(server.reference)
    text = " ".join(f"word{i}" for i in range(400))
    with caplog.at_level(logging.WARNING):
        encode(model, [text])
        assert not caplog.messages
        server.window = 100
        encode(model, [text + " more"])
        encode(model, [text])
    (warning,) = caplog.messages
    assert warning.startswith(f"{server.reference}: the server ignores the end of a text of ")
    assert warning.endswith(f"posir window {server.reference}")


def test_the_key_is_sent_and_never_shown(server, monkeypatch, caplog):
    server.key = KEY
    with pytest.raises(PosirError, match=r"rejects requests without a key; set OPENAI_API_KEY"):
        mteb.get_model(server.reference)
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
    with caplog.at_level(logging.DEBUG):
        model = mteb.get_model(server.reference)
        assert np.array_equal(encode(model, ["text"]), embed_all(["text"]))
        server.key = "another"
        with pytest.raises(
            PosirError, match=r"rejects the key in OPENAI_API_KEY \(.*provided: \*\*\*"
        ) as raised:
            encode(model, ["text"])
    error = raised.value
    assert error.__suppress_context__
    assert KEY not in str(error)
    assert KEY not in caplog.text
    monkeypatch.setenv("OPENAI_API_KEY", "ключ")
    with pytest.raises(PosirError, match="characters that HTTP does not allow"):
        mteb.get_model(server.reference)


#: Changes to the first row of a response that echo the key.
IN_ROWS = {
    "index": lambda row: row | {"index": KEY},
    "entry": lambda row: row | {"embedding": [*row["embedding"][1:], f"{'x' * 75}{KEY}"]},
    "vector": lambda row: row | {"embedding": f"\0{KEY}"},
}
#: Other responses that echo the key: status, headers and body.
IN_RESPONSES = {
    "json key": (200, {}, json.dumps({"data": 1}).replace("{", f'{{"{KEY}": 1, "{KEY}": 2, ')),
    "redirect": (307, {"Location": f"http://{KEY}.evil.example/{KEY}"}, ""),
    "redirect user": (307, {"Location": f"http://me:{KEY}@evil.example/"}, ""),
    "escaped": (400, {}, json.dumps({"error": f"\0{KEY}\x1b[31m\u202e"})),
    "base64": (403, {}, base64.b64encode(KEY.encode()).decode()),
    "cut": (500, {}, f"{'x' * 490}{KEY}"),
    "page": (200, {}, f"<html>{KEY}</html>"),
    "header": (200, {"Content-Encoding": KEY}, ""),
}


def echo_key(place):
    """Return a function that rewrites a response so that it echoes the key."""

    def rewrite(status, headers, body):
        if place in IN_RESPONSES:
            status, added, text = IN_RESPONSES[place]
            return status, headers | added, text.encode()
        response = json.loads(body)
        response["data"][0] = IN_ROWS[place](response["data"][0])
        return status, headers, json.dumps(response).encode()

    return rewrite


@pytest.mark.parametrize("place", [*IN_ROWS, *IN_RESPONSES])
def test_a_key_that_the_server_echoes_is_never_shown(server, monkeypatch, caplog, place):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.rewrite = echo_key(place)
    with caplog.at_level(logging.DEBUG), pytest.raises(PosirError) as raised:
        connect(server)
    printed = "".join(traceback.format_exception(raised.value)) + caplog.text + str(raised.value)
    parts = (KEY[:8], base64.b64encode(KEY.encode()).decode(), "\x1b", "\u202e", "\0")
    assert [part for part in parts if part in printed.lower() or part in printed] == []


class Proxy(BaseHTTPRequestHandler):
    """Rejects every request, and echoes the credentials."""

    status = 407

    def reject(self):
        login = self.headers.get("Proxy-Authorization", "")
        decoded = base64.b64decode(login.rpartition(" ")[2]).decode()
        body = f"{login} {decoded}".encode()
        self.send_response(self.status, f"rejected {decoded}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_CONNECT = do_GET = do_POST = reject  # noqa: N815

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("status", [400, 401, 403, 404, 407, 429, 500, 501, 502, 503])
@pytest.mark.parametrize(
    ("scheme", "name"), [("http", "http_proxy"), ("https", "https_proxy"), ("https", "HTTPS_PROXY")]
)
def test_a_proxy_password_is_never_shown(monkeypatch, caplog, status, scheme, name):
    monkeypatch.setattr(connection, "RETRIES", 0)
    with serve(type("Refusing", (Proxy,), {"status": status})) as url:
        monkeypatch.setenv(name, url.replace("//", "//me%40corp:p%40ss:w0rd@"))
        endpoint = find_endpoint(f"m@{scheme}://somewhere.example/v1")
        with caplog.at_level(logging.DEBUG), pytest.raises(PosirError) as raised:
            EmbeddingClient(endpoint)
    printed = "".join(traceback.format_exception(raised.value)) + caplog.text
    login = base64.b64encode(b"me@corp:p@ss:w0rd").decode()
    assert [part for part in ("p%40ss", "p@ss", "w0rd", login) if part in printed] == []


def connect(server, *, names_kind=True):
    endpoint = find_endpoint(
        f"{server.model}@{server.kind}+{server.url}" if names_kind else server.reference
    )
    assert endpoint
    return EmbeddingClient(endpoint)


#: Request fields for queries and documents, other than model and texts.
SIDE_FIELDS = {
    "openai": ({"encoding_format": "float"}, {"encoding_format": "float"}),
    "tei": ({}, {}),
    "ollama": ({}, {}),
    "cohere": (
        {"embedding_types": ["float"], "input_type": "search_query"},
        {"embedding_types": ["float"], "input_type": "search_document"},
    ),
    "voyage": ({}, {}),
    "jina": ({}, {}),
}


@pytest.mark.parametrize(
    ("kind", "fields", "marks"),
    [
        ("openai", {}, False),
        ("cohere", {}, True),
        (
            "openai",
            {"query_field": "input_type=query", "passage_field": "input_type=document"},
            True,
        ),
        ("openai", {"query_field": "prompt_name=query"}, True),
        ("openai", {"passage_field": "truncate=true"}, False),
    ],
)
def test_no_prompt_is_suggested_if_requests_contain_the_side(kind, fields, marks):
    with serve_embeddings(kind=kind, model="e5-base-v2") as server:
        endpoint = find_endpoint(f"{server.model}@{kind}+{server.url}")
        with override_settings(**fields):
            encoder = EndpointEncoder(endpoint)
        encoder.mteb_model_meta = resolve_endpoint(str(endpoint), {})
        assert encoder.has_query_fields == marks
        assert (find_family(encoder) is None) == marks


@pytest.mark.parametrize("kind", SIDE_FIELDS)
def test_each_kind_of_server_gets_its_request_format(kind):
    texts = ["one", "two two", "three three three"]
    with serve_embeddings(kind=kind) as server:
        # Commercial services are recognized by their host.
        client = connect(server, names_kind=kind in ("voyage", "jina"))
        assert client.kind.name == kind
        for query in (True, False):
            assert np.array_equal(client.embed(texts, query=query), embed_all(texts))
    sent = [
        {
            name: value
            for name, value in request.items()
            if name not in ("model", "input", "inputs", "texts")
        }
        for request in server.requests[-2:]
    ]
    assert sent == list(SIDE_FIELDS[kind])
    assert ("model" in server.requests[0]) == (kind != "tei")
    assert [kind.name for kind in KINDS.values() if ".api.cohere.com".endswith(kind.hosts)] == [
        "cohere"
    ]


def test_an_unknown_kind_of_server_lists_the_attempts(server):
    with pytest.raises(
        PosirError,
        match=r"404: .*Tried: openai \(.*/embeddings\), tei .*, ollama .*, cohere .*@tei\+http",
    ):
        EmbeddingClient(find_endpoint(server.reference.replace("/v1", "/v7")))
    with pytest.raises(PosirError, match="404: ") as raised:
        EmbeddingClient(find_endpoint(f"tiny@tei+{server.url}"))
    assert "openai" not in str(raised.value)


def encode_float(vector):
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def encode_int8(vector):
    return base64.b64encode(
        struct.pack(f"{len(vector)}b", *(round(10 * entry) for entry in vector))
    ).decode()


def reject_float(request):
    return (
        "encoding_format: must be base64_int8"
        if request.get("encoding_format") == "float"
        else None
    )


@pytest.mark.parametrize(
    ("settings", "factor"),
    [
        ({"check": reject_float}, 1),
        ({"encode": encode_float}, 1),
        ({"check": reject_float, "encode": encode_int8}, 10),
        ({"kind": "perplexity", "encode": encode_int8}, 10),
        ({"damage": lambda rows: [{"embedding": row["embedding"]} for row in rows]}, 1),
    ],
)
def test_other_formats_and_missing_indices_are_parsed(settings, factor):
    texts = ["one two", "three " * 9, "four"]
    with serve_embeddings(**settings) as server:
        vectors = connect(server).embed(texts)
        first_requests = len(server.times)
        connect(server).embed(texts)
    np.testing.assert_allclose(
        vectors / factor, embed_all(texts), atol=0.051 if factor > 1 else 1e-6
    )
    # A rejected format is requested once.
    assert len(server.times) == first_requests + (3 if "check" in settings else 2)


def test_the_base64_format_is_detected():
    # The first vector could also be float32.
    contents = cycle([bytes([0, 0, 0, 64] * 6), bytes(range(1, DIMENSIONS + 1))])
    with serve_embeddings(encode=lambda _: base64.b64encode(next(contents)).decode()) as server:
        assert connect(server).embed(["one two", "three"])[1].tolist() == list(
            range(1, DIMENSIONS + 1)
        )
    with serve_embeddings(encode=encode_float) as server:
        client = connect(server)
        server.encode = lambda vector: encode_float([0.0] * len(vector))
        assert not client.embed([" "]).any()


def test_status_500_for_a_long_text_counts_as_a_rejection(server):
    client = connect(server)
    message = (
        "input (600 tokens) is too large to process. increase the physical batch size (current "
        "batch size: 512)"
    )
    server.failures.append(Failure(500, message=message))
    sent = len(server.times)
    with pytest.raises(PosirError, match=r"rejects a request \(500: input .*512"):
        client.embed(["text"])
    assert len(server.times) == sent + 1
    server.reasons = lambda message: {"detail": [{"loc": ["body"], "msg": message}]}
    server.failures.append(Failure(422, message="no such field"))
    with pytest.raises(PosirError, match=r"422: .*no such field"):
        client.embed(["text"])


def test_request_fields_are_sent_and_recorded_as_an_experiment(server, monkeypatch):
    fields = {
        "query_field": ["task=retrieval.query", "options.num_ctx=8192"],
        "passage_field": "truncate=true",
    }
    with override_settings(**fields):
        model = mteb.get_model(server.reference)
        meta = find_model(ModelReference(server.reference))
        with pytest.raises(PosirError, match=r"POSIR_QUERY_FIELD: .* not behind an endpoint"):
            find_model(ModelReference("all-MiniLM-L6-v2"))
    encode(model, ["a"], PromptType.query)
    encode(model, ["a"])
    assert [
        (sent.get("task"), sent.get("options"), sent.get("truncate"))
        for sent in server.requests[-2:]
    ] == [("retrieval.query", {"num_ctx": 8192}, None), (None, None, True)]
    recorded = {
        "query_field": "task=retrieval.query\noptions.num_ctx=8192",
        "passage_field": "truncate=true",
    }
    assert meta.experiment_kwargs == recorded | {
        "settings_digest": meta.experiment_kwargs["settings_digest"]
    }
    with monkeypatch.context() as patch, override_settings(query_field=f"api_key={KEY}"):
        patch.setenv("OPENAI_API_KEY", KEY)
        with pytest.raises(PosirError, match="stored in results"):
            mteb.get_model(server.reference)
    with (
        override_settings(passage_field="truncate"),
        pytest.raises(PosirError, match="--passage-field truncate: expected"),
    ):
        mteb.get_model(server.reference)


@pytest.mark.parametrize("kind", ["voyage", "jina", "perplexity"])
def test_chunks_are_embedded_in_the_context_of_their_document(kind):
    chunks = ["one two", "three", "four five six"]
    format_ = {"encode": encode_int8} if kind == "perplexity" else {}
    model = "jina-embeddings-v3" if kind == "jina" else "some-context-model"
    with serve_embeddings(kind=kind, model=model, **format_) as server:
        vectors = connect(server).embed_chunks(chunks)
    with serve_embeddings(kind=kind) as other:
        assert bool(connect(other).kind.in_context) == (kind == "jina")
    # The server adds half of the document's vector.
    expected = embed_all(chunks) + 0.5 * embed_all([" ".join(chunks)])
    np.testing.assert_allclose(vectors / (10 if format_ else 1), expected, atol=0.051)
    assert (server.requests[-1].get("late_chunking"), server.batches[-1]) == (
        (True, chunks) if kind == "jina" else (None, [chunks])
    )


def test_a_contextual_model_embeds_a_text_as_a_single_chunk():
    with serve_embeddings(kind="voyage", model="voyage-context-3") as server:
        connect(server).embed(["one", "two"])
    assert server.batches == [[["position"], ["A bell was cast in copper."]], [["one"], ["two"]]]
