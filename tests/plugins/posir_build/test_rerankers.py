"""Embedding models as rerankers encode each text once, and score like encoding every pair."""

from collections import Counter

import mteb
import numpy as np
import pytest
from mteb.types import PromptType

from posir_build.cluster import MIN_BATCH_PAIRS, Reranker, batch_by_text
from posir_tasks.language_models.call_log import CallLog
from posir_tasks.models.embeddings.context import EncodingContext, build_context, build_texts
from posir_tasks.models.references import ModelReference
from posir_tasks.models.rerankers import ModelReranker, build_scorer
from tests.support.models import TINY_KINDS, write_tiny_model

QUESTIONS = [f"Of what metal is bell number {row}?" for row in range(4)]
TEXTS = ["A bell of copper rings in the tower. " * times for times in (1, 2, 3)]
#: Every question with every text, and one repeated pair.
PAIRS = [(question, text) for text in TEXTS for question in QUESTIONS] + [(QUESTIONS[0], TEXTS[0])]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {kind: write_tiny_model(tmp_path_factory.mktemp("models") / kind) for kind in TINY_KINDS}


@pytest.fixture
def encode_counts(monkeypatch):
    counts = Counter()
    load = EncodingContext.load

    def count(context, texts, prompt_type):
        counts.update((prompt_type, text) for text in texts["text"])
        return load(context, texts, prompt_type)

    monkeypatch.setattr(EncodingContext, "load", count)
    return counts


def test_each_text_is_encoded_once_over_all_batches(folders, encode_counts, monkeypatch, tmp_path):
    monkeypatch.setattr("posir_build.cluster.MIN_BATCH_PAIRS", 3)
    model = ModelReranker(ModelReference(str(folders["dense"])), "eng-Latn")
    reranker = Reranker(model, CallLog(tmp_path / "log.sqlite"))
    scores = reranker.score(PAIRS)
    assert set(encode_counts.values()) == {1}
    assert len(encode_counts) == len(QUESTIONS) + len(TEXTS)
    np.testing.assert_array_equal(reranker.score(PAIRS[::-1]), scores[::-1])
    assert set(encode_counts.values()) == {1}


@pytest.mark.parametrize("kind", ["dense", "sparse", "late-interaction"])
def test_scores_equal_encoding_every_pair(folders, kind):
    model = mteb.get_model(str(folders[kind]), device="cpu")
    context = build_context("eng-Latn")
    sides = []
    for column, prompt_type in zip(
        zip(*PAIRS, strict=True), (PromptType.query, PromptType.document), strict=True
    ):
        sides.append(context.encode(model, build_texts(column), prompt_type))
    scores = build_scorer(model, QUESTIONS, "eng-Latn")(PAIRS)
    np.testing.assert_allclose(
        scores, np.asarray(model.similarity_pairwise(*sides)).reshape(-1), atol=1e-5
    )
    assert len(set(scores.round(4))) > 1


def test_batches_group_pairs_by_text_and_length():
    pairs = {
        str(number).encode(): (f"q{number}", "x" * (1 + number % 7))
        for number in range(3 * MIN_BATCH_PAIRS)
    }
    batches = batch_by_text(pairs)
    assert sorted(key for batch in batches for key in batch) == sorted(pairs)
    lengths = [[len(pairs[key][1]) for key in batch] for batch in batches]
    assert sum(map(len, map(set, lengths))) == 7
    assert [length for batch in lengths for length in batch] == sorted(
        length for batch in lengths for length in batch
    )
    assert all(len(batch) >= MIN_BATCH_PAIRS for batch in batches[:-1])
    assert batch_by_text({}) == []
