"""Peak memory of a run, free memory, and suggestions to lower the peak."""

import mteb
import pytest
from mteb.models import ModelMeta

from posir_run import memory
from posir_run.memory import PeakMemory, estimate_peaks, find_free_memory
from posir_tasks.models.run_settings import with_settings

GIGABYTE = 10**9


@pytest.mark.parametrize(
    ("free_bytes", "advice"),
    [
        (None, "5.0 GB."),
        (5 * GIGABYTE, "5.0 GB free."),
        (4 * GIGABYTE, "Use --batch-size 3."),
        (GIGABYTE // 2, "Free memory, or use a smaller model or window."),
    ],
)
def test_a_peak_above_the_free_memory_suggests_a_batch_size(free_bytes, advice):
    peak = PeakMemory("m", GIGABYTE, GIGABYTE, 4, free_bytes)
    assert peak.peak_bytes == 5 * GIGABYTE
    assert peak.describe().endswith(advice)


def meta(**values):
    return ModelMeta.create_empty({"name": "a/b", "revision": "1", **values})


def test_peaks_depend_on_window_batch_size_and_weights():
    tasks = [mteb.get_task("PosIR-Mini")]
    dense = meta(embed_dim=100, max_tokens=64, memory_usage_mb=1.0)
    small, large = (estimate_peaks([dense, meta()], tasks, size) for size in (1, 33))
    (at_one,), (at_many,) = small, large
    assert (
        at_many.peak_bytes - at_one.peak_bytes == 32 * 64 * 100 * 4 * memory.ACTIVATIONS_PER_TOKEN
    )
    with with_settings(window=32):
        assert estimate_peaks([dense], tasks, 1)[0].bytes_per_text == at_one.bytes_per_text // 2
    # An endpoint needs no memory for weights and activations.
    (remote,) = estimate_peaks([meta(embed_dim=100)], tasks, 1)
    assert (remote.bytes_per_text, at_one.fixed_bytes - remote.fixed_bytes) == (0, 2**20)


@pytest.mark.parametrize(("limit", "free_bytes"), [("3000\n", 2000), ("max\n", None), ("500\n", 0)])
def test_free_memory_respects_the_container_limit(monkeypatch, tmp_path, limit, free_bytes):
    files = tmp_path / "max", tmp_path / "current"
    for file, text in zip(files, (limit, "1000\n"), strict=True):
        file.write_text(text)
    machine = find_free_memory()
    monkeypatch.setattr(memory, "CONTAINER_FILES", (files, (tmp_path / "none", tmp_path / "none")))
    free = find_free_memory()
    assert machine > 10**6
    assert free == free_bytes if free_bytes is not None else free > 10**6
