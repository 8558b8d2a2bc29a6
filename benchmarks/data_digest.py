"""Measure time and memory of computing the digest of a corpus.

Usage: python benchmarks/data_digest.py [DOCUMENTS CHARACTERS]

By default, the corpus has the average size of a PosIR domain and the average document length of
English.
"""

from __future__ import annotations

import resource
import sys
import time

from datasets import Dataset

from posir_tasks.data.data import digest_texts
from posir_tasks.data.mini import read_documents


def build_corpus(documents: int, characters: int) -> Dataset:
    """Build a corpus of distinct texts."""
    text = "".join(document.text for document in read_documents())
    starts = [number * 37 % (len(text) - characters) for number in range(documents)]
    texts = [f"{number} {text[start : start + characters]}" for number, start in enumerate(starts)]
    return Dataset.from_dict({"id": [f"d{number}" for number in range(documents)], "text": texts})


def read_peak_memory() -> float:
    """Read the peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    corpus = build_corpus(*map(int, sys.argv[1:3] or (55_900, 4_700)))
    before, start = read_peak_memory(), time.perf_counter()
    digest_texts(corpus)
    seconds = time.perf_counter() - start
    print(
        f"{len(corpus):,} documents: {seconds:.2f} s; peak memory rises by "
        f"{read_peak_memory() - before:.0f} MB"
    )
