"""Dense search returns the same results as mteb's, for any chunk size and memory limit."""

from contextlib import suppress

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from mteb.models import ModelMeta, SearchEncoderWrapper
from mteb.timing import TimingStack
from mteb.types import PromptType

from posir_tasks.models import dispatch
from posir_tasks.models.embeddings.cached_encoder import add_cache
from posir_tasks.models.embeddings.context import EncodingContext
from posir_tasks.values.ranks import rank_hits, rank_results
from tests.support.encode import TASK
from tests.support.encoders import RecordingEncoder, reset_process_state


class PrecomputedEmbeddings:
    """A model with precomputed embeddings. Each text is the number of its row."""

    mteb_model_meta = ModelMeta.create_empty()

    def __init__(self, queries, documents, convert=np.asarray):
        self.rows = {PromptType.query: queries, PromptType.document: documents}
        self.convert = convert

    def encode(self, inputs, *, prompt_type, **kwargs):  # noqa: ARG002
        selected = [int(text) for batch in inputs for text in batch["text"]]
        return self.convert(self.rows[prompt_type][selected])

    def similarity(self, first, second):
        first, second = (torch.as_tensor(side) for side in (first, second))
        scores = first @ second.mT
        return scores if scores.layout == torch.strided else scores.to_dense()

    similarity_pairwise = similarity


def build_texts(count: int, prefix: str) -> Dataset:
    return Dataset.from_dict(
        {
            "id": [f"{prefix}{row}" for row in range(count)],
            "text": [str(row) for row in range(count)],
        }
    )


def rank_both_ways(model: PrecomputedEmbeddings, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    queries, corpus = (
        build_texts(len(model.rows[PromptType.query]), "q"),
        build_texts(len(model.rows[PromptType.document]), "d"),
    )
    positives = {name: f"d{row % len(corpus)}" for row, name in enumerate(queries["id"])}
    context = EncodingContext(**TASK, encode_kwargs={})
    hits = dispatch.search_dense(model, corpus, queries, context, top_k=top_k, timer=TimingStack())
    search = SearchEncoderWrapper(model)
    search.index(corpus, **TASK, encode_kwargs={})
    results = search.search(
        queries, **TASK, top_k=top_k, encode_kwargs={"show_progress_bar": False}
    )
    return rank_hits(hits, positives).ranks, rank_results(results, positives).ranks


@settings(max_examples=25)
@given(
    counts=st.tuples(st.integers(1, 12), st.integers(1, 30)),
    chunk_size=st.integers(1, 40),
    tile=st.tuples(st.integers(1, 12), st.integers(1, 40)),
    seed=st.integers(0, 2**31),
)
def test_ranks_equal_mtebs(counts, chunk_size, tile, seed):
    rng = np.random.default_rng(seed)
    # Small integers cause many ties. With all documents in the results, no tie is at the cutoff.
    model = PrecomputedEmbeddings(
        *(rng.integers(-2, 3, (count, 3)).astype(np.float32) for count in counts)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch, "CORPUS_CHUNK_SIZE", chunk_size)
        patch.setattr(dispatch, "TILE_QUERIES", tile[0])
        patch.setattr(dispatch, "TILE_DOCUMENTS", tile[1])
        ours, mtebs = rank_both_ways(model, top_k=30)
    assert ours.tolist() == mtebs.tolist()


CONVERSIONS = {
    "numpy": np.asarray,
    "torch": torch.as_tensor,
    "bfloat16": lambda rows: torch.as_tensor(rows).bfloat16(),
    "sparse": lambda rows: torch.as_tensor(rows).to_sparse_coo(),
}


@pytest.mark.parametrize("convert", CONVERSIONS.values(), ids=CONVERSIONS)
def test_the_top_k_of_every_array_type_equal_mtebs(convert, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dispatch, "CORPUS_CHUNK_SIZE", 50)
    monkeypatch.setattr(dispatch, "TILE_QUERIES", 16)
    monkeypatch.setattr(dispatch, "TILE_DOCUMENTS", 20)
    rng = np.random.default_rng(1)
    model = PrecomputedEmbeddings(
        *(rng.standard_normal((count, 8)).astype(np.float32) for count in (40, 120)),
        convert=convert,
    )
    ours, mtebs = rank_both_ways(model, top_k=10)
    assert ours.tolist() == mtebs.tolist()
    assert 0 < np.count_nonzero(ours) < len(ours)


class CrashingEncoder(RecordingEncoder):
    """An encoder that crashes at a text until it is repaired."""

    _crashes_at = "5"

    def encode(self, inputs, **task):
        if self._crashes_at in inputs.dataset["text"]:
            raise SystemExit(-9)
        return super().encode(inputs, **task)


def test_a_restarted_job_continues_after_the_last_complete_block(tmp_path, monkeypatch):
    monkeypatch.setattr(dispatch, "CORPUS_CHUNK_SIZE", 2)
    monkeypatch.setenv("POSIR_EMBEDDINGS", str(tmp_path))
    model = CrashingEncoder()
    corpus, queries = build_texts(8, "d"), build_texts(1, "q")

    def search() -> list[str]:
        reset_process_state()
        encoded_before = len(model.encoded)
        context = EncodingContext(**TASK, encode_kwargs={})
        with suppress(SystemExit):
            dispatch.search_dense(
                add_cache(model), corpus, queries, context, top_k=1, timer=TimingStack()
            )
        return model.encoded[encoded_before:]

    assert search() == ["0", *"0123"]
    model._crashes_at = "none"
    assert search() == [*"4567"]
    assert search() == []
