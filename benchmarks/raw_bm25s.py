"""Time only bm25s on a domain in the PosIR layout: tokenize as in mteb's baseline, index, and
retrieve the top 100.

Usage: python benchmarks/raw_bm25s.py DOMAIN_FOLDER ISO_LANGUAGE
"""

import sys
import time
from pathlib import Path

import bm25s
import polars as pl
from mteb.models.model_implementations.bm25 import BM25Tokenizer

folder, language = Path(sys.argv[1]), sys.argv[2]
start = time.perf_counter()
tokenizer = BM25Tokenizer(language=language)
documents = tokenizer.fit_transform(pl.read_parquet(folder / "corpus.parquet")["text"].to_list())
retriever = bm25s.BM25(k1=1.5, b=0.75, delta=0.5, method="lucene")
retriever.index(documents, show_progress=False)
queries = tokenizer.transform(pl.read_parquet(folder / "queries.parquet")["text"].to_list())
retriever.retrieve(queries, k=100, show_progress=False)
print(time.perf_counter() - start)
