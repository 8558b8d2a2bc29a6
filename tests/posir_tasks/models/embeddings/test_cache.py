"""Cached embeddings are returned unchanged or not at all, in any process and after corruption."""

import json
import resource
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.base.errors import PosirError
from posir_tasks.models.embeddings import cache as module
from posir_tasks.models.embeddings.cache import (
    CorruptFileError,
    EmbeddingCache,
    EmbeddingFormat,
    compute_checksums,
    read_embeddings,
    write_embeddings,
)
from tests.support.encoders import damage
from tests.support.processes import exit_codes

RANDOM = np.random.default_rng(7)


def build_keys(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, (count, 2), np.uint64)


def build_vectors(count: int, dimensions: int = 5) -> np.ndarray:
    return RANDOM.standard_normal((count, dimensions)).astype(np.float32)


ARRAYS = [
    build_vectors(6).astype(dtype)
    for dtype in ("float32", "float64", "float16", "int8", "uint8", "bool")
]
TENSOR_TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.bool)
ARRAYS += [torch.from_numpy(build_vectors(6)).to(dtype) for dtype in TENSOR_TYPES]
ARRAYS += [build_vectors(6)[:, ::-1], torch.from_numpy(build_vectors(6)).T]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda entry: f"{type(entry).__name__} {entry.dtype}")
def test_embeddings_are_returned_unchanged(tmp_path: Path, array):
    keys = build_keys(len(array))
    EmbeddingCache(tmp_path).add(keys, array)
    cache = EmbeddingCache(tmp_path)
    order = np.array([3, 0, 4])
    cached = cache.look_up(keys[order])
    restored = cache.format.restore(cached.rows)
    assert (cached.missing.size, type(restored), restored.dtype) == (
        0,
        type(array),
        array.dtype,
    )
    assert torch.equal(torch.as_tensor(restored), torch.as_tensor(array[order]))


def test_only_one_dense_row_per_text_is_cacheable():
    wrong = [
        [np.ones((2, 3))],
        np.ones(3),
        np.ones((3, 3, 4)),
        np.array([["a"]] * 3),
        build_vectors(4),
    ]
    wrong += [torch.eye(3).to_sparse(), torch.ones((3, 2), dtype=torch.complex64)]
    assert [EmbeddingFormat.detect(rows, 3) is None for rows in (*wrong, build_vectors(3))] == [
        True
    ] * 7 + [False]


def test_caches_share_the_embeddings_in_a_folder(tmp_path: Path):
    keys, rows = build_keys(9), build_vectors(9)
    first, second = EmbeddingCache(tmp_path), EmbeddingCache(tmp_path)
    first.add(keys[:3], rows[:3])
    second.add(keys[2:6], rows[2:6])
    for cache in (first, second):
        cached = cache.look_up(keys)
        assert cached.missing.tolist() == [6, 7, 8]
        assert np.array_equal(cached.rows[:6], rows[:6])


@given(st.data())
def test_a_corrupt_file_never_returns_a_wrong_embedding(tmp_path_factory, data):
    file = tmp_path_factory.getbasetemp() / "damaged.arrow"
    keys, rows = build_keys(4, seed=1), np.arange(12, dtype=np.float32).reshape(4, 3)
    write_embeddings(file, EmbeddingFormat.detect(rows, 4), keys, rows)
    content = bytearray(file.read_bytes())
    if data.draw(st.booleans()):
        position = data.draw(st.integers(0, len(content) - 1))
        content[position] ^= data.draw(st.integers(1, 255))
    else:
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    file.write_bytes(content)
    try:
        read = read_embeddings(file)
    except (CorruptFileError, PosirError):
        return
    rows_by_key = {key.tobytes(): row.tolist() for key, row in zip(keys, rows, strict=True)}
    intact = compute_checksums(read.format, read.keys, read.rows) == read.checksums
    assert all(
        rows_by_key[key.tobytes()] == row.tolist()
        for key, row in zip(read.keys[intact], read.rows[intact], strict=True)
    )


def test_only_the_corrupt_embedding_in_a_file_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    keys, rows = build_keys(5), build_vectors(5)
    EmbeddingCache(tmp_path).add(keys, rows)
    (file,) = tmp_path.glob("*.arrow")
    damage(file, 2)
    # Nothing can be read from another file.
    (tmp_path / "cut.arrow").write_bytes(file.read_bytes()[:100])
    cache = EmbeddingCache(tmp_path)
    assert cache.look_up(keys[:2]).missing.size == 0
    assert cache.look_up(keys).missing.tolist() == [2]
    assert "is corrupt: 4 of its 5 embeddings are intact" in caplog.text
    assert all((tmp_path / f"{name}.damaged").exists() for name in (file.name, "cut.arrow"))
    assert not (tmp_path / "cut.arrow").exists()
    cache.add(keys[2:3], rows[2:3])
    for later in (cache, EmbeddingCache(tmp_path)):
        cached = later.look_up(keys)
        assert cached.missing.size == 0
        assert np.array_equal(cached.rows, rows)


def test_an_embedding_in_two_files_survives_corruption_of_one(tmp_path: Path):
    keys, rows = build_keys(5), build_vectors(5)
    files: list[Path] = []
    for part in ([0, 1, 2], [2, 3], [4]):
        EmbeddingCache(tmp_path).add(keys[part], rows[part])
        files += {*tmp_path.glob("*.arrow")} - {*files}
    for file, row, missing in ((files[0], 2, []), (files[1], 0, [2])):
        cache = EmbeddingCache(tmp_path)
        damage(file, row)
        cached = cache.look_up(keys)
        assert cached.missing.tolist() == missing
        intact = np.delete(np.arange(5), missing)
        assert np.array_equal(cached.rows[intact], rows[intact])


def test_a_deleted_cache_is_empty_and_keeps_finite_embeddings(
    tmp_path: Path,
):
    keys, rows = build_keys(3), build_vectors(3)
    cache = EmbeddingCache(tmp_path / "new")
    assert cache.look_up(keys).missing.tolist() == [0, 1, 2]
    cache.add(keys, rows)
    shutil.rmtree(tmp_path / "new")
    assert cache.look_up(keys).missing.tolist() == [0, 1, 2]
    rows[0, 2], rows[2, 0] = np.nan, np.inf
    for added in ([0, 1, 2], [0]):
        cache.add(keys[added], rows[added])
        assert cache.look_up(keys).missing.tolist() == [0, 2]
    assert len(list((tmp_path / "new").glob("*.arrow"))) == 1


def test_two_models_with_one_name_and_a_newer_file_are_errors(tmp_path: Path, monkeypatch):
    cache = EmbeddingCache(tmp_path)
    with monkeypatch.context() as newer:
        newer.setattr(module, "SCHEMA", 2)
        cache.add(build_keys(2), build_vectors(2))
    with pytest.raises(PosirError, match=r"5 dimensions in float32 and with 6 dim.*Delete"):
        cache.add(build_keys(2, seed=1), build_vectors(2, 6))
    with pytest.raises(PosirError, match=r"schema 2; .* up to 1"):
        EmbeddingCache(tmp_path).look_up(build_keys(2))
    assert len(list(tmp_path.glob("*.arrow"))) == 1


def test_any_arrow_reader_can_read_the_files(tmp_path: Path):
    rows = build_vectors(3)
    EmbeddingCache(tmp_path).add(build_keys(3), rows)
    (file,) = tmp_path.glob("*.arrow")
    with pa.memory_map(str(file)) as source:
        table = pa.ipc.open_file(source).read_all()
    assert table.column_names == ["key", "checksum", "embedding"]
    described = {"library": "numpy", "dtype": "float32", "dimensions": 5}
    header = {
        "schema": 1,
        "format": described,
        "checksum": EmbeddingFormat.detect(rows, 3).checksum,
    }
    assert json.loads(table.schema.metadata[b"posir"]) == header
    assert np.array_equal(np.array(table["embedding"].to_pylist(), np.float32), rows)
    # The rows were written without a copy.
    for given_rows in (rows, torch.from_numpy(rows)):
        form = EmbeddingFormat.detect(given_rows, 3)
        assert np.shares_memory(form.to_rows(given_rows), rows)


def test_a_full_disk_is_a_clear_error_and_leaves_a_usable_cache(tmp_path: Path):
    cache, (_, hard) = EmbeddingCache(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    cache.add(build_keys(100), build_vectors(100))
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(PosirError, match="not enough disk space"):
            cache.add(build_keys(10_000, seed=1), build_vectors(10_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert [file.suffix for file in tmp_path.iterdir()] == [".arrow"]
    cache.add(build_keys(100, seed=1), build_vectors(100))
    for seed in (0, 1):
        assert EmbeddingCache(tmp_path).look_up(build_keys(100, seed=seed)).missing.size == 0


def add_many(folder: Path) -> None:
    cache = EmbeddingCache(folder)
    for number in range(20):
        keys = build_keys(50, seed=number)
        missing = cache.look_up(keys).missing
        if missing.size:
            cache.add(keys[missing], keys[missing, :1].astype(np.float32).repeat(8, axis=1))


def test_many_processes_share_a_folder(tmp_path: Path):
    assert exit_codes(add_many, [(tmp_path,)] * 4) == [0] * 4
    for number in range(20):
        keys = build_keys(50, seed=number)
        cached = EmbeddingCache(tmp_path).look_up(keys)
        assert cached.missing.size == 0
        assert np.array_equal(cached.rows[:, 0], keys[:, 0].astype(np.float32))
