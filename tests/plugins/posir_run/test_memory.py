"""The peak memory of a run: what it is made of, what is free, and the option that lowers it."""

import mteb
import pytest
from mteb.models import ModelMeta

from posir_run import memory
from posir_run.memory import PeakMemory, expect_peaks, find_free
from posir_tasks.models.run_settings import override_settings

GIGABYTE = 10**9


@pytest.mark.parametrize(
    ("free", "advice"),
    [
        (None, "5.0 GB."),
        (5 * GIGABYTE, "5.0 GB free."),
        (4 * GIGABYTE, "Use --batch-size 3."),
        (GIGABYTE // 2, "Free memory, or use a smaller model or --window."),
    ],
)
def test_a_peak_above_what_is_free_names_the_batch_size_that_fits(free, advice):
    peak = PeakMemory("m", GIGABYTE, GIGABYTE, 4, free)
    assert peak.bytes == 5 * GIGABYTE
    assert peak.describe().endswith(advice)


def meta(**values):
    return ModelMeta.create_empty({"name": "a/b", "revision": "1", **values})


def test_peaks_of_dense_models_follow_window_batch_and_weights():
    tasks = [mteb.get_task("PosIR-Mini")]
    dense = meta(embed_dim=100, max_tokens=64, memory_usage_mb=1.0)
    small, large = (expect_peaks([dense, meta()], tasks, size) for size in (1, 33))
    (at_one,), (at_many,) = small, large
    assert at_many.bytes - at_one.bytes == 32 * 64 * 100 * 4 * memory.ACTIVATIONS
    with override_settings(window=32):
        assert expect_peaks([dense], tasks, 1)[0].per_text == at_one.per_text // 2
    # Behind an endpoint, weights and tokens are elsewhere.
    (elsewhere,) = expect_peaks([meta(embed_dim=100)], tasks, 1)
    assert (elsewhere.per_text, at_one.fixed - elsewhere.fixed) == (0, 2**20)


@pytest.mark.parametrize(("limit", "free"), [("3000\n", 2000), ("max\n", None), ("500\n", 0)])
def test_the_limit_of_a_container_counts(monkeypatch, tmp_path, limit, free):
    files = tmp_path / "max", tmp_path / "current"
    for file, text in zip(files, (limit, "1000\n"), strict=True):
        file.write_text(text)
    machine = find_free()
    monkeypatch.setattr(memory, "CONTAINER_FILES", (files, (tmp_path / "none", tmp_path / "none")))
    found = find_free()
    assert machine > 10**6
    assert found == free if free is not None else found > 10**6
