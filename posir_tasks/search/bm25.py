"""BM25 by mteb's baseline, without a dictionary per query: its tokenizer, index and settings, and bm25s's own arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from datasets import Dataset
from mteb.models.model_implementations.bm25 import BM25Search

from posir_tasks.ranks import Hits


def bm25_hits(model: BM25Search, corpus: Dataset, queries: Dataset, *, top_k: int, **where: Any) -> Hits:
    """Search as `BM25Search.index` and `BM25Search.search` do.

    Args:
        model: mteb's BM25 baseline, with whatever settings.
        corpus: Columns `id` and `text`.
        queries: Columns `id` and `text`.
        top_k: Documents to keep for each query.
        where: `task_metadata`, `hf_split`, `hf_subset` and `encode_kwargs`, as mteb passes them.
    """
    ids = list(corpus["id"])
    # The model reads its corpus row by row, which a list does many times faster than a dataset.
    model.index([{"id": name, "text": text} for name, text in zip(ids, corpus["text"], strict=True)], **where)
    assert model._tokenizer is not None
    found = model.retriever.retrieve(
        model._tokenizer.transform(list(queries["text"])), k=min(top_k, len(ids)), show_progress=False
    )
    return Hits(np.asarray(found.documents, np.int64), found.scores, ids)
