"""File digests are cached and never outdated; dataset digests depend on the content only."""

import hashlib
import os
import time
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from posir_tasks.base import digests
from posir_tasks.base.digests import digest_file
from posir_tasks.data.data import PositionData, build_text_frame, digest_data, digest_texts
from posir_tasks.values.evidence import Evidence


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(digests, "MIN_CACHED_SIZE", 10)
    monkeypatch.setattr(digests, "MIN_CACHED_AGE", -1)
    return tmp_path / "cache" / "digests"


def digest_directly(content: bytes) -> bytes:
    return hashlib.blake2b(content).digest()


@pytest.fixture
def file(tmp_path) -> Path:
    (tmp_path / "large").write_bytes(b"0123456789")
    return tmp_path / "large"


def test_a_large_file_is_read_once(file, cache, monkeypatch):
    assert digest_file(file) == digest_directly(b"0123456789")
    monkeypatch.setattr(digests, "_digests", {})
    monkeypatch.setattr(digests, "_compute", None)
    assert digest_file(file) == digest_directly(b"0123456789")
    assert len(list(cache.iterdir())) == 1


def test_small_and_new_files_are_not_cached(tmp_path, cache, monkeypatch):
    (tmp_path / "small").write_bytes(b"012345678")
    assert digest_file(tmp_path / "small") == digest_directly(b"012345678")
    monkeypatch.setattr(digests, "MIN_CACHED_AGE", 2)
    (tmp_path / "new").write_bytes(b"0123456789")
    assert digest_file(tmp_path / "new") == digest_directly(b"0123456789")
    assert not cache.exists()


def test_changed_content_with_the_same_size_and_time_is_detected(file):
    before = file.stat()
    digest_file(file)
    time.sleep(0.02)
    file.write_bytes(b"9876543210")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert digest_file(file) == digest_directly(b"9876543210")


def test_a_damaged_or_unwritable_cache_is_ignored(file, cache, monkeypatch):
    digest_file(file)
    next(cache.iterdir()).write_bytes(b"short")
    monkeypatch.setattr(digests, "_digests", {})
    assert digest_file(file) == digest_directly(b"0123456789")
    next(cache.iterdir()).unlink()
    cache.rmdir()
    cache.write_text("a file")
    monkeypatch.setattr(digests, "_digests", {})
    assert digest_file(file) == digest_directly(b"0123456789")


# Dataset digests.

TEXTS = st.lists(
    st.tuples(st.text("ab", min_size=1, max_size=3), st.text("abä文", max_size=3)), max_size=6
)


def dataset(rows):
    rows = dict(rows)
    return build_text_frame([*rows], [*rows.values()])


@settings(max_examples=20)
@given(TEXTS, TEXTS)
def test_text_digests_are_equal_only_for_the_same_rows(first, other):
    assert (digest_texts(dataset(first)) == digest_texts(dataset(other))) == (
        dict(first) == dict(other)
    )
    assert digest_texts(dataset(sorted(dict(first).items()))) == digest_texts(dataset(first))


def test_selections_and_other_columns_do_not_change_digests(monkeypatch):
    rows = {f"d{number}": "text" * number for number in range(30)}
    expected = digest_texts(dataset(rows))
    monkeypatch.setattr("posir_tasks.data.data.BATCH_ROWS", 7)
    selected = Dataset.from_polars(dataset({"x": "y", **rows})).select(range(1, 31))
    assert digest_texts(selected.add_column("title", [""] * 30)) == expected


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"corpus": {"d1": "one", "d2": "another"}}, {"corpus"}),
        ({"corpus": {"d1": "one", "d2": "two", "d3": "one"}}, {"corpus"}),
        ({"queries": {"q1": "what"}}, {"queries"}),
        ({"document_ids": ["d2"]}, {"queries"}),
        ({"starts": np.array([1])}, {"queries"}),
        ({"tokens": np.array([9])}, {"queries"}),
        ({"labels": ("end",)}, {"queries"}),
        ({"clusters": ("article",)}, {"queries"}),
        ({}, set()),
    ],
)
def test_digests_cover_all_parts_of_the_data(changes, differs):
    def build(corpus=None, queries=None, **columns):
        fields = {
            "document_ids": ["d1"],
            "starts": np.array([0]),
            "ends": np.array([3]),
            "characters": np.array([3]),
        }
        evidence = Evidence(["q1"], **fields | columns)
        texts = dataset(corpus or {"d1": "one", "d2": "two"})
        data = PositionData(texts, dataset(queries or {"q1": "what is it"}), evidence, "")
        return digest_data(data)

    before, after = build(), build(**changes)
    assert {name for name in before if before[name] != after[name]} == differs
