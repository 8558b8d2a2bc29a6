"""Each distinct text is encoded once, through the embedding cache."""

import numpy as np
import pytest
from mteb.types import PromptType

from posir_tasks.base.errors import PosirError
from posir_tasks.models.embeddings.encoding import (
    EmbeddingMemory,
    ModelEncoder,
    encode_distinct,
    load_encoder,
    normalize_vectors,
)
from tests.support.encoders import RecordingEncoder


class RecordingCallable:
    """An encoder that records its calls. Vectors are the length of the text and 1."""

    def __init__(self):
        self.calls = []

    def __call__(self, texts, prompt_type):
        self.calls.append((prompt_type, list(texts)))
        return np.array([[len(text), 1] for text in texts], np.float32)


def test_each_distinct_text_is_encoded_once():
    recorder = RecordingCallable()
    embeddings = encode_distinct(recorder, ["aa", "b", "aa"], ["b", "b"])
    assert recorder.calls == [(PromptType.document, ["aa", "b"]), (PromptType.query, ["b"])]
    np.testing.assert_array_equal(embeddings.select(["b", "aa", "b"]), [[1, 1], [2, 1], [1, 1]])
    selected = embeddings.normalize().select(["b", "aa", "b"])
    np.testing.assert_allclose(
        selected, np.array([[1, 1], [2, 1], [1, 1]]) / np.sqrt([[2], [5], [2]]), atol=1e-7
    )
    assert embeddings.select(["b"], PromptType.query).shape == (1, 2)
    assert not normalize_vectors(np.zeros((2, 3))).any()


def test_a_memory_caches_only_the_selected_texts():
    recorder = RecordingCallable()
    everything, some = EmbeddingMemory(), EmbeddingMemory(frozenset({"b"}))
    for _ in range(2):
        for memory in (everything, some):
            vectors = memory.look_up(["aa", "b", "aa"], PromptType.document, recorder)
            np.testing.assert_array_equal(vectors, [[2, 1], [1, 1], [2, 1]])
    assert [texts for _, texts in recorder.calls] == [["aa", "b"], ["aa", "b"], ["aa"]]


def test_an_mteb_model_is_cached(tmp_path, monkeypatch):
    monkeypatch.setenv("POSIR_EMBEDDINGS", str(tmp_path))
    model = RecordingEncoder()
    first = ModelEncoder(model)(["one", "two"], PromptType.document)
    assert (first.shape, first.dtype) == ((2, 256), np.float32)
    again = ModelEncoder(model)(["two", "three"], PromptType.document)
    np.testing.assert_array_equal(again[0], first[1])
    assert model.encoded == ["one", "two", "three"]


def test_models_without_one_vector_per_text_are_rejected():
    class LateInteraction(RecordingEncoder):
        def vectors(self, counts):
            return np.stack([np.stack(counts)] * 2)

    with pytest.raises(PosirError, match="test/encoder: not a dense encoder"):
        ModelEncoder(LateInteraction())(["one"], PromptType.document)
    with pytest.raises(PosirError, match="mteb/baseline-bm25s: not a dense encoder"):
        load_encoder("mteb/baseline-bm25s")
