"""BM25 in scripts without spaces."""

import logging

import mteb
import numpy as np
import pytest
from datasets import Dataset

from posir_tasks.models.bm25 import adapt_to_script, search_bm25, split_trigrams
from posir_tasks.models.references import BM25_BASELINE as BASELINE
from tests.support.encode import TASK


def test_trigrams_ignore_white_space_and_control_characters():
    assert [split_trigrams(text) for text in ("A b\u200bcd\n", "ab")] == [["abc", "bcd"], ["ab"]]
    assert split_trigrams("กินข้าว")[:2] == ["กิน", "ินข"]


@pytest.mark.parametrize(
    ("language", "is_adapted"),
    [("tha-Thai", True), ("shn-Mymr", True), ("jpn-Jpan", False), ("deu-Latn", False)],
)
def test_only_scripts_without_spaces_use_trigrams(language, is_adapted):
    model = mteb.get_model(BASELINE)
    assert (adapt_to_script(model, language) is not model) is is_adapted
    assert adapt_to_script(model, language).mteb_model_meta.name == BASELINE
    other = object()
    assert adapt_to_script(other, language) is other


def build_texts(texts):
    return Dataset.from_dict({"id": [f"t{row}" for row in range(len(texts))], "text": texts})


@pytest.mark.parametrize("documents", [["! !", "? ...", "—"], ["the", "and of", "a"]])
def test_documents_without_words_score_0_with_a_warning(documents, caplog):
    for model in (mteb.get_model(BASELINE), adapt_to_script(mteb.get_model(BASELINE), "eng-Latn")):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            hits = search_bm25(
                model,
                build_texts(documents),
                build_texts(["which?", "!"]),
                top_k=2,
                encode_kwargs={},
                **TASK,
            )
        assert np.array_equal(hits.scores, np.zeros((2, 2)))
        assert [sorted(row) for row in hits.documents.tolist()] == [[0, 1]] * 2
        assert "subset 'default': BM25 finds no words in any document" in caplog.text


def test_an_indexing_error_is_raised_if_there_are_words(monkeypatch):
    model = mteb.get_model(BASELINE)
    index = type(model).index

    def fail(self, *arguments, **options):
        index(self, *arguments, **options)
        raise ValueError("broken")

    monkeypatch.setattr(type(model), "index", fail)
    with pytest.raises(ValueError, match="broken"):
        search_bm25(
            model, build_texts(["bells"]), build_texts(["bell"]), top_k=1, encode_kwargs={}, **TASK
        )


def test_jax_is_not_used_even_if_it_is_installed(monkeypatch):
    model, texts = mteb.get_model(BASELINE), build_texts(["a bell", "a horn"])
    monkeypatch.setattr("bm25s.selection.JAX_IS_AVAILABLE", True)
    assert search_bm25(
        model, texts, texts, top_k=1, encode_kwargs={}, **TASK
    ).documents.tolist() == [[0], [1]]
