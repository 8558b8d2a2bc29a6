"""Read and truncated tokens: counts with a tokenizer, in a sample, and in mteb's results."""

import json
import logging
from pathlib import Path

import mteb
import numpy as np
import polars as pl
import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer

import posir
from posir_tasks.models.window import find_read_part
from posir_tasks.search import input_window
from posir_tasks.text.tokenizer import EstimatedTokenizer
from posir_tasks.values.read_part import UNKNOWN, ReadPart, TokenCountMethod, WindowSource
from posir_tasks.values.schemes import RelativePositions
from posir_tasks.values.tokens_read import SAMPLE, count_tokens_read, resolve_window
from tests.support.models import write_tiny_model

TEXTS = [f"{'the mill on the river ' * row} wheel" for row in range(40)]
CORPUS = Dataset.from_list(
    [{"id": f"d{row}", "title": "Mills", "text": text} for row, text in enumerate(TEXTS)]
)
SCHEME, ENGLISH = RelativePositions(), ["eng-Latn"]


def test_a_sample_estimates_the_counts_of_all_documents():
    rng = np.random.default_rng(3)
    # Words of four letters are one estimated token. A few documents are very long.
    words = np.minimum(rng.lognormal(5, 1.5, 6 * SAMPLE), 20_000).astype(int) + 1
    corpus = pl.DataFrame(
        {"id": list(map(str, range(len(words)))), "text": ["mill" * int(count) for count in words]}
    )
    read = ReadPart.first(256, WindowSource.CLASS)
    counted = count_tokens_read(SCHEME, ENGLISH, EstimatedTokenizer(), 6, corpus, read)
    estimated = count_tokens_read(SCHEME, ENGLISH, None, 0, corpus, read)
    share, margin = counted.share
    assert 0 < margin < 0.01
    assert share == pytest.approx(np.maximum(words - 250, 0).sum() / words.sum(), abs=2 * margin)
    assert estimated.share == (np.maximum(words - 256, 0).sum() / words.sum(), 0)
    assert (counted.counted_with, estimated.counted_with) == (
        TokenCountMethod.TOKENIZER,
        TokenCountMethod.ESTIMATE,
    )
    lexical = count_tokens_read(
        SCHEME, ENGLISH, EstimatedTokenizer(), 6, corpus, ReadPart.all(WindowSource.CLASS)
    )
    assert (int(lexical.read.sum()), lexical.share) == (words.sum(), (0, 0))
    assert lexical.read.tolist() == [
        words[np.searchsorted([512, 1024, 1536], words) == bin_].sum() for bin_ in range(4)
    ]


@pytest.mark.parametrize("text", ["mill " * 40, "水車" * 33, "the mill\n", ""])
def test_documents_shorter_than_the_minimum_are_read_completely(text):
    corpus = pl.DataFrame(
        [{"id": "a", "title": None, "text": "river"}, {"id": "b", "title": "Mills", "text": text}]
    )
    size, tokens = (
        count(f"Mills {text}".strip())
        for count in (lambda words: len(words.encode()), EstimatedTokenizer().count)
    )
    whole = ReadPart.all(WindowSource.MEASURED)
    for longest, languages, tokenizer in (
        (-(-size // 4), ENGLISH, None),
        (size, ["eng-Latn", "jpn-Jpan"], None),
        (tokens, ["jpn-Jpan"], EstimatedTokenizer()),
    ):
        assert resolve_window(ReadPart.at_least(longest), corpus, languages, tokenizer) == whole
        shorter = ReadPart.at_least(longest - 1)
        assert resolve_window(shorter, corpus, languages, tokenizer) == shorter
    for read in (UNKNOWN, whole, ReadPart.first(size, WindowSource.CLASS)):
        assert resolve_window(read, corpus, ENGLISH) is read


def test_mteb_runs_store_token_counts_next_to_the_result(tmp_path: Path, monkeypatch, caplog):
    task = mteb.get_task("NFCorpus")
    queries = Dataset.from_list(
        [{"id": f"q{row}", "text": f"which mill {row}?"} for row in range(5)]
    )
    data = {
        "corpus": CORPUS,
        "queries": queries,
        "relevant_docs": {f"q{row}": {f"d{row}": 1} for row in range(5)},
    }
    monkeypatch.setattr(
        task, "dataset", {"default": {"test": data | {"top_ranked": None}}}, raising=False
    )
    monkeypatch.setattr(task, "data_loaded", True)
    model = mteb.get_model_meta(str(write_tiny_model(tmp_path / "tiny"))).load_model()
    cache = mteb.ResultCache(tmp_path)
    mteb.evaluate(model, task, cache=cache, show_progress_bar=False)
    (file,) = tmp_path.rglob("*.tokens_read")
    (result,) = cache.get_cache_paths()
    assert (result.name, file.parent, "tokens_read" in result.read_text()) == (
        "NFCorpus.json",
        result.parent,
        False,
    )
    # Count with the tokenizer. Each document gets two special tokens.
    tokenize = SentenceTransformer(str(tmp_path / "tiny")).tokenizer.tokenize
    counts = [len(tokenize(f"Mills {text}")) for text in TEXTS]
    unread = [max(0, count - (find_read_part(model).tokens - 2)) for count in counts]
    stored = json.loads(file.read_text())["test, default"]["tokens_read"]
    assert (stored["not_read"].split()[0], stored["counted_with"]) == (
        str(sum(unread)),
        "tokenizer",
    )
    assert sum(unread) > 0
    row = posir.report(tmp_path).to_polars().row(0, named=True)
    assert row["corpus_not_read"] == pytest.approx(sum(unread) / sum(counts))
    # The file is missing, or counting fails.
    file.unlink()
    assert "lengths unknown: rescore with --data" in str(posir.report(tmp_path))
    monkeypatch.setattr(input_window, "count_corpus", lambda *_: 1 / 0)
    before = json.loads(result.read_text())["scores"]
    with caplog.at_level(logging.WARNING):
        mteb.evaluate(
            model, task, cache=cache, overwrite_strategy="always", show_progress_bar=False
        )
    assert "NFCorpus: the tokens read in the corpus cannot be counted" in caplog.text
    assert (json.loads(result.read_text())["scores"], file.exists()) == (before, False)
