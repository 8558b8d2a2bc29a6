"""Measure the peak memory of a search in 1.7 million documents with half-precision vectors of 1,024
dimensions, as many documents as in PosIR-English. Blocks are encoded and searched one by one.

Usage: python benchmarks/large_search.py [DOCUMENTS [QUERIES]]

The exit status is 1 above 4 GB.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np
import torch
from datasets import Dataset
from mteb.timing import TimingStack

from posir_tasks.models.dispatch import search_dense
from posir_tasks.models.embeddings.encoding import DEFAULT_CONTEXT

DOCUMENTS, QUERIES, DIMENSIONS, TOP_K = 1_719_701, 1_356, 1_024, 100
MAX_BYTES = 4_000_000_000


class RandomEncoder:
    """An encoder that returns random vectors in half precision for any texts."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)

    def encode(self, inputs: object, **_: object) -> torch.Tensor:
        rows = len(inputs.dataset)  # type: ignore[attr-defined]
        numbers = self._rng.integers(-128, 128, (rows, DIMENSIONS), dtype=np.int8)
        return torch.from_numpy(numbers).to(torch.float16)

    @staticmethod
    def similarity(queries: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
        return queries @ documents.T


def build_numbered(rows: int) -> Dataset:
    """Build a dataset in which ids and texts are row numbers."""
    numbers = [str(row) for row in range(rows)]
    return Dataset.from_dict({"id": numbers, "text": numbers})


def main() -> int:
    """Search, and print CPU time and peak memory."""
    sizes = [int(argument) for argument in sys.argv[1:]]
    documents, queries = (sizes + [DOCUMENTS, QUERIES][len(sizes) :])[:2]
    corpus = build_numbered(documents)
    queries_data = build_numbered(queries)
    start = time.process_time()
    search_dense(
        RandomEncoder(),  # type: ignore[arg-type]
        corpus,
        queries_data,
        DEFAULT_CONTEXT,
        top_k=TOP_K,
        timer=TimingStack(),
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    seconds = time.process_time() - start
    embedding_bytes = documents * DIMENSIONS * 2
    sizes = f"peak {peak / 1e9:.2f} GB, embeddings {embedding_bytes / 1e9:.2f} GB"
    print(f"{documents:,} documents, {queries:,} queries: {seconds:.0f} s; {sizes}")
    return int(peak > MAX_BYTES)


if __name__ == "__main__":
    sys.exit(main())
