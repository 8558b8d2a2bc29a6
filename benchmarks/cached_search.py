"""Measure a run whose embeddings are all cached, from reading the data to the report.

Usage: python benchmarks/cached_search.py FOLDER OUT, with a FOLDER from `write_search`. For a table
of costs from 10,000 to DOCUMENTS documents: python benchmarks/cached_search.py growth [DOCUMENTS]
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from measure import measure

DIMENSIONS, QUERIES = 64, 2_000
#: Number of different number words. Each text contains two.
NUMBERS = 1_000
#: Domain of PosIR-English with all documents.
DOMAIN = "sports"


def write_model(folder: Path, dimensions: int) -> None:
    """Save a sentence-transformers model that averages random word vectors."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    words = ["?", *map(str, range(NUMBERS)), "begins", "ends"]
    vocabulary = {word: row for row, word in enumerate(words)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = Whitespace()
    static = StaticEmbedding(tokenizer, embedding_dim=dimensions)
    SentenceTransformer(modules=[static], device="cpu").save(str(folder))


def write_search(folder: Path, documents: int, dimensions: int = DIMENSIONS) -> None:
    """Write data and a model, cache the embeddings of all texts, and save random vectors for the
    bare job.
    """
    import polars as pl

    texts = [f"It begins. {row // NUMBERS} {row % NUMBERS}. It ends." for row in range(documents)]
    relevant = [row * (documents // QUERIES) for row in range(QUERIES)]
    data = folder / "PosIR-Benchmark-v1" / "eng-Latn" / DOMAIN
    (data / "qrels").mkdir(parents=True)
    corpus = pl.DataFrame({"_id": [f"d{row}" for row in range(documents)], "text": texts})
    corpus.write_parquet(data / "corpus.parquet")
    queries = {
        "_id": [f"q{row}" for row in relevant],
        "text": [f"{row // NUMBERS} {row % NUMBERS}?" for row in relevant],
        "pos_char_span": [[11, len(texts[row]) - 10] for row in relevant],
        "pos_char_length": [len(texts[row]) for row in relevant],
        "pos_token_length": [6] * QUERIES,
    }
    pl.DataFrame(queries).write_parquet(data / "queries.parquet")
    judgments = {"query-id": queries["_id"], "corpus-id": [f"d{row}" for row in relevant]}
    qrels = pl.DataFrame(judgments | {"score": [1] * QUERIES})
    qrels.write_parquet(data / "qrels" / "test.parquet")
    rng = np.random.default_rng(0)
    for name, rows in (("documents", documents), ("queries", QUERIES)):
        vectors = rng.standard_normal((rows, dimensions), dtype=np.float32)
        np.save(folder / f"{name}.npy", vectors)
    write_model(folder / "model", dimensions)
    measure([sys.executable, __file__, str(folder), str(folder / "first")])


def evaluate(folder: Path, output: Path) -> None:
    """Evaluate the model on the data and print the report."""
    os.environ |= {"POSIR_DATA": str(folder), "POSIR_EMBEDDINGS": str(folder / "embeddings")}
    import posir

    posir.evaluate(folder / "model", "PosIR-English", output_folder=output)
    print(posir.report(output))


def show_growth(max_documents: int) -> None:
    """Print the costs of posir and of the bare job for 10,000 documents and each power of ten up to
    `max_documents`.
    """
    print(f"{'documents':>10s}{'s':>8s}{'bare s':>8s}{'ratio':>8s}{'MB':>7s}{'bare MB':>9s}")
    documents = 10_000
    bare_jobs = Path(__file__).with_name("bare_jobs.py")
    while documents <= max_documents:
        with tempfile.TemporaryDirectory() as name:
            write_search(Path(name), documents)
            cost = measure([sys.executable, __file__, name, f"{name}/out"])
            bare = measure([sys.executable, str(bare_jobs), "multiply_blocks", name])
        ratio = cost.processor_s / bare.processor_s
        seconds = f"{cost.processor_s:8.2f}{bare.processor_s:8.2f}{ratio:8.2f}"
        print(f"{documents:10,d}{seconds}{cost.peak_mb:7.0f}{bare.peak_mb:9.0f}", flush=True)
        documents *= 10


if __name__ == "__main__":
    if sys.argv[1] == "growth":
        show_growth(int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
    else:
        evaluate(Path(sys.argv[1]), Path(sys.argv[2]))
