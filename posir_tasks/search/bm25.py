"""BM25 by mteb's baseline: its tokenizer, index and settings, but bm25s's own arrays in place of a dictionary per query,
and every processor core."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from bm25s import BM25, Results
from bm25s.tokenization import Tokenized
from datasets import Dataset
from mteb.models.model_implementations.bm25 import BM25Search

from posir_tasks.ranks import Hits

#: Queries below which another process is not worth its start.
SHARE = 2_000

_shared: tuple[BM25, Tokenized, int]


def bm25_hits(
    model: BM25Search, corpus: Dataset, queries: Dataset, *, top_k: int, num_proc: int | None = None, **where: Any
) -> Hits:
    """Search as `BM25Search.index` and `BM25Search.search` do.

    Args:
        model: mteb's BM25 baseline, with whatever settings.
        corpus: Columns `id` and `text`.
        queries: Columns `id` and `text`.
        top_k: Documents to keep for each query.
        num_proc: Processes to search with; by default one for each core.
        where: `task_metadata`, `hf_split`, `hf_subset` and `encode_kwargs`, as mteb passes them.
    """
    ids = corpus["id"][:]
    # The model reads its corpus row by row, which a list does many times faster than a dataset.
    model.index([{"id": name, "text": text} for name, text in zip(ids, corpus["text"][:], strict=True)], **where)
    assert model._tokenizer is not None
    tokens = model._tokenizer.transform(queries["text"][:])
    processes = min(num_proc or os.cpu_count() or 1, len(queries) // SHARE)
    found = retrieve(model.retriever, tokens, k=min(top_k, len(ids)), processes=processes)
    return Hits(np.concatenate([part.documents for part in found]), np.concatenate([part.scores for part in found]), ids)


def retrieve(retriever: BM25, tokens: Tokenized, *, k: int, processes: int) -> list[Results]:
    """Retrieve the first `k` documents of each query, in parts and in order.

    bm25s works under Python's lock, so threads do not help it. Forked processes see the index without a copy, as those of a
    PyTorch data loader do; where a system cannot fork, one process does it all.
    """
    if processes < 2 or "fork" not in multiprocessing.get_all_start_methods():
        return [retriever.retrieve(tokens, k=k, show_progress=False)]
    bounds = np.linspace(0, len(tokens.ids), processes + 1).astype(int).tolist()
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(processes, context, initializer=_share, initargs=(retriever, tokens, k)) as pool:
        return list(pool.map(_retrieve_part, bounds[:-1], bounds[1:]))


def _share(retriever: BM25, tokens: Tokenized, k: int) -> None:
    global _shared
    _shared = (retriever, tokens, k)


def _retrieve_part(start: int, end: int) -> Results:
    retriever, tokens, k = _shared
    return retriever.retrieve(Tokenized(ids=tokens.ids[start:end], vocab=tokens.vocab), k=k, show_progress=False)
