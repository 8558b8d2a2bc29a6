"""Texts that a server rejects, fails for, or embeds differently in batches."""

import json
import logging

import numpy as np
import pytest
from mteb.types import PromptType
from transformers import AutoTokenizer

import posir
from posir_tasks.base.errors import PosirError
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import find_model, load_model
from posir_tasks.models.run_settings import override_settings
from posir_tasks.models.window import find_read_part
from posir_tasks.tasks.posir import PosIRMini
from posir_tasks.values.read_part import UNKNOWN, ReadPart, WindowSource
from tests.support.embedding_server import DIMENSIONS, Failure, embed, serve_embeddings
from tests.support.encode import encode
from tests.support.models import write_tiny_model

pytestmark = pytest.mark.usefixtures("short_waits")
#: Word in texts for which a server fails.
BROKEN = "zx7k1"


def embed_all(texts):
    return np.array([embed(text) for text in texts], np.float32)


def load(server, **settings):
    with override_settings(**settings):
        return load_model(ModelReference(server.reference))


LONG = [" ".join(f"word{i * j % 97}" for i in range(600)) for j in range(1, 11)]
SHORT = [f"entry {i} on a lamp" for i in range(30)]


@pytest.mark.parametrize("special", [0, 2])
def test_texts_are_cut_by_the_servers_token_count(special):
    with serve_embeddings(max_words=300, special=special) as server:
        model = load(server, window=200)
        vectors = encode(model, SHORT + LONG)
        assert vectors.shape == (40, DIMENSIONS)
        assert np.array_equal(vectors[:30], embed_all(SHORT))
        assert (
            196
            <= max(
                len(text.split()) for batch in server.batches for text in batch if "word" in text
            )
            + special
            <= 200
        )
        assert model.search_record == {"window_counted_by": "server"}
        assert find_read_part(model) == ReadPart.first(200, WindowSource.CLASS)
        assert len(server.times) < 60


#: Servers that do not count tokens.
UNCOUNTED = {
    "0": {"counts": lambda *_: 0},
    "characters": {"counts": lambda _, texts: sum(map(len, texts))},
    "billed": {"kind": "cohere"},
    "no count": {"kind": "tei"},
}


@pytest.mark.parametrize("name", UNCOUNTED)
def test_without_token_counts_the_window_is_estimated(name, caplog):
    with serve_embeddings(max_words=300, **UNCOUNTED[name]) as server:
        with override_settings(window=200):
            model = load_model(ModelReference(f"tiny@{server.kind}+{server.url}"))
        with caplog.at_level(logging.WARNING):
            encode(model, LONG)
        # Later requests test for truncation.
        texts = max(server.batches, key=len)
        assert all(700 <= len(text.encode()) <= 800 for text in texts)
        assert all(any(long.startswith(text + " ") for long in LONG) for text in texts)
        assert model.search_record == {"window_counted_by": "estimate"}
        assert "--tokenizer" in caplog.text


def test_a_tokenizer_cuts_to_the_token(tmp_path):
    folder = write_tiny_model(tmp_path / "tiny")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = ["the river rises in the hills and what is it " * 9, "a mill", "漢字かな交じり文" * 40]
    with serve_embeddings(max_words=100) as server:
        with override_settings(window=40, tokenizer=str(folder)):
            model = load_model(ModelReference(server.reference))
            encode(model, texts)
        sent = server.batches[1]
        lengths = [len(tokenizer(text)["input_ids"]) for text in sent]
        assert (lengths[0], sent[1]) == (40, "a mill")
        assert 38 <= lengths[2] <= 40
        assert all(text.startswith(cut) for text, cut in zip(texts, sent, strict=True))
        assert model.mteb_model_meta.experiment_kwargs["tokenizer"] == str(folder)
        assert model.search_record == {"window_counted_by": "tokenizer"}


def test_a_server_that_truncates_earlier_has_an_unknown_window(caplog):
    with serve_embeddings(window=100) as server:
        model = load(server, window=400)
        with caplog.at_level(logging.WARNING):
            encode(model, LONG[:2])
        assert "ignores the end of a text" in caplog.text
        assert find_read_part(model) == UNKNOWN


@pytest.mark.parametrize("window", [1, 5])
def test_a_window_without_room_for_text_is_rejected(window):
    with serve_embeddings(special=6) as server:
        model = load(server, window=window)
        with pytest.raises(PosirError, match="larger"):
            encode(model, LONG[:1])


#: Failures for a batch, but not for its texts.
BATCH_LIMITS = {
    "texts": lambda texts: (
        Failure(422, message="batch size 32 > maximum allowed batch size 8")
        if len(texts) > 8
        else None
    ),
    "no number": lambda texts: Failure(400, message="invalid input") if len(texts) > 5 else None,
    "tokens": lambda texts: (
        Failure(400, message="max allowed tokens per submitted batch is 100")
        if sum(len(text.split()) for text in texts) > 100
        else None
    ),
    "body": lambda texts: (
        Failure(413, message="Payload Too Large") if sum(map(len, texts)) > 200 else None
    ),
    "memory": lambda texts: Failure(500, message="CUDA out of memory") if len(texts) > 3 else None,
}


@pytest.mark.parametrize("name", BATCH_LIMITS)
def test_a_batch_that_is_too_large_is_halved(name):
    with serve_embeddings(fail=BATCH_LIMITS[name]) as server:
        assert np.array_equal(encode(load(server), SHORT), embed_all(SHORT))


def fail_for(status, message):
    return {
        "fail": lambda texts: (
            Failure(status, message=message) if any(BROKEN in text for text in texts) else None
        )
    }


def make_nan(texts, vectors):
    return [
        [float("nan")] * DIMENSIONS if BROKEN in text else v
        for text, v in zip(texts, vectors, strict=True)
    ]


#: Failures for a single text.
TEXT_FAILURES = {
    "500": fail_for(500, "failed to encode response: json: unsupported value: NaN"),
    "400": fail_for(400, "'$.input' is invalid"),
    "422": fail_for(422, "batch item is not valid"),
    "NaN": {"mix": make_nan},
    "no vector": {
        "mix": lambda texts, vectors: [
            v for text, v in zip(texts, vectors, strict=True) if BROKEN not in text
        ]
    },
    "empty vector": {
        "mix": lambda texts, vectors: [
            [] if BROKEN in text else v for text, v in zip(texts, vectors, strict=True)
        ]
    },
}


@pytest.mark.parametrize("name", TEXT_FAILURES)
def test_a_failing_text_is_reported_or_skipped_and_counted(name, caplog):
    texts = [*SHORT[:17], f"{BROKEN} in a text", *SHORT[17:]]
    with serve_embeddings(**TEXT_FAILURES[name]) as server:
        named = (
            r"begins 'zx7k1 in a text'" if name not in ("no vector", "empty vector") else "vector"
        )
        with pytest.raises(PosirError, match=named):
            encode(load(server), texts)
        model = load(server, skip_failed=True)
        with caplog.at_level(logging.WARNING):
            vectors = encode(model, texts)
        assert np.array_equal(vectors, np.where(np.arange(31)[:, None] == 17, 0, embed_all(texts)))
        left_out = model.search_record["left_out"]
        assert (left_out["documents"]["texts"], left_out["documents"]["named"][0]["begins"]) == (
            1,
            f"{BROKEN} in a text",
        )
        assert "1 of 31 documents" in caplog.text
        assert model.mteb_model_meta.experiment_kwargs == {"skip_failed": 1}
        scores = np.asarray(model.similarity(embed_all(["lamp"]), vectors))
        assert np.flatnonzero(np.isneginf(scores[0])).tolist() == [17]


@pytest.mark.parametrize("name", TEXT_FAILURES)
def test_at_most_a_fifth_of_the_texts_is_skipped(name):
    broken = [f"{BROKEN} {i}" for i in range(7)]
    with serve_embeddings(**TEXT_FAILURES[name]) as server:
        model = load(server, skip_failed=True)
        assert len(encode(model, SHORT + broken)) == 37
        with pytest.raises(PosirError, match="would be skipped"):
            encode(load(server, skip_failed=True), SHORT[:20] + broken)


def test_equal_vectors_for_all_texts_are_rejected_with_skip_failed():
    with serve_embeddings(mix=lambda _, vectors: [[1.0] * DIMENSIONS for _ in vectors]) as server:
        server.mix, mix = (lambda _, vectors: vectors), server.mix
        model = load(server, skip_failed=True)
        server.mix = mix
        with pytest.raises(PosirError, match="same vector"):
            encode(model, SHORT)


@pytest.mark.parametrize("least", [2, 16])
def test_texts_are_sent_one_at_a_time_if_vectors_depend_on_the_batch(least, caplog):
    def mix(texts, vectors):
        mean = np.mean(vectors, axis=0) * 3
        return (
            [list(np.array(vector) + mean) for vector in vectors]
            if len(texts) >= least
            else vectors
        )

    with serve_embeddings() as server:
        model = load(server)
        server.mix = mix
        with caplog.at_level(logging.WARNING):
            assert np.array_equal(encode(model, SHORT * 2), embed_all(SHORT * 2))
            encode(model, SHORT, PromptType.query)
        (warning,) = caplog.messages
        assert "depends on the other texts of its batch" in warning
        assert model.search_record["cosine_within_batch"] < 0.999


def test_rounding_and_noise_do_not_count_as_batch_effects(caplog):
    with serve_embeddings(noise=1e-3) as server, caplog.at_level(logging.WARNING):
        model = load(server)
        encode(model, SHORT)
        assert (caplog.messages, model.search_record) == ([], None)
        server.noise = 0.5
        model = load(server)
        encode(model, SHORT)
        assert "different vector in each response" in caplog.text
        assert max(map(len, server.batches)) == 30


def test_skip_failed_and_tokenizer_need_an_endpoint_and_a_window(monkeypatch):
    monkeypatch.setenv("POSIR_SKIP_FAILED", "yes")
    with serve_embeddings() as server:
        with pytest.raises(PosirError, match="POSIR_SKIP_FAILED=yes: must be 1 or 0"):
            load_model(ModelReference(server.reference))
        monkeypatch.setenv("POSIR_SKIP_FAILED", "1")
        with pytest.raises(PosirError, match="not an encoder behind an endpoint"):
            find_model(ModelReference(f"rerank@{server.url}"))
        monkeypatch.delenv("POSIR_SKIP_FAILED")
        with pytest.raises(PosirError, match="--tokenizer counts the tokens of --window"):
            posir.run(model=server.reference, task="PosIR-Mini", tokenizer="x")


def test_skipped_texts_are_not_retrieved_and_listed_in_the_result(tmp_path):
    def fail(texts):
        return (
            Failure(400, message="invalid text") if any("Ada" in text for text in texts) else None
        )

    with serve_embeddings(fail=fail) as server:
        (result,) = posir.evaluate(
            server.reference, "PosIR-Mini", skip_failed=True, output_folder=tmp_path / "failed"
        )
        server.fail = lambda _: None
        (plain,) = posir.evaluate(server.reference, "PosIR-Mini", output_folder=tmp_path / "plain")
    (file,) = (tmp_path / "failed").rglob("PosIR-Mini.json")
    (entry,) = json.loads(file.read_text())["scores"]["test"]
    left_out = entry["position_run"]["search"]["left_out"]
    assert (result.experiment, left_out["documents"]["texts"], plain.experiment) == (
        "skip_failed_1",
        5,
        None,
    )
    assert all(
        "Ada" in named["begins"] or named["reason"] == "invalid text"
        for named in left_out["documents"]["named"]
    )
    data = PosIRMini().read_subset("default")
    missing = {row["id"] for row in data.corpus if "Ada" in row["text"]}
    is_missing = np.isin(data.evidence.document_ids, list(missing))
    assert (len(missing), result.values.profile.queries) == (5, plain.values.profile.queries)
    # Not retrieved, although the corpus is smaller than the cutoff.
    assert entry["recall_at_100"] == pytest.approx(1 - is_missing.mean(), abs=1e-4)
