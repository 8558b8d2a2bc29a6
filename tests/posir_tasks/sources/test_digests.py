"""Digests of files: cached for large files, and never outdated."""

import hashlib
import os
import time
from pathlib import Path

import pytest

from posir_tasks.sources import digests
from posir_tasks.sources.digests import digest_file


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(digests, "MIN_CACHED_SIZE", 10)
    monkeypatch.setattr(digests, "MIN_CACHED_AGE", -1)
    return tmp_path / "cache" / "digests"


@pytest.fixture
def new_process(monkeypatch):
    """Forget what is known in this process."""
    return lambda: monkeypatch.setattr(digests, "_known", {})


def expected(content: bytes) -> bytes:
    return hashlib.blake2b(content).digest()


def test_a_large_file_is_read_once(tmp_path, cache, monkeypatch, new_process):
    file = tmp_path / "large"
    file.write_bytes(b"0123456789")
    assert digest_file(file) == expected(b"0123456789")
    new_process()
    monkeypatch.setattr(digests, "_compute", None)
    assert digest_file(file) == expected(b"0123456789")
    assert len(list(cache.iterdir())) == 1


def test_a_small_file_and_a_file_just_written_are_not_cached(tmp_path, cache, monkeypatch):
    (tmp_path / "small").write_bytes(b"012345678")
    assert digest_file(tmp_path / "small") == expected(b"012345678")
    monkeypatch.setattr(digests, "MIN_CACHED_AGE", 2)
    (tmp_path / "new").write_bytes(b"0123456789")
    assert digest_file(tmp_path / "new") == expected(b"0123456789")
    assert not cache.exists()


def test_other_content_of_the_same_size_and_time_of_modification_is_seen(tmp_path):
    file = tmp_path / "large"
    file.write_bytes(b"0123456789")
    before = file.stat()
    digest_file(file)
    time.sleep(0.02)
    file.write_bytes(b"9876543210")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert digest_file(file) == expected(b"9876543210")


def test_a_damaged_or_unwritable_cache_only_costs_time(tmp_path, cache, new_process):
    file = tmp_path / "large"
    file.write_bytes(b"0123456789")
    digest_file(file)
    next(cache.iterdir()).write_bytes(b"short")
    new_process()
    assert digest_file(file) == expected(b"0123456789")
    next(cache.iterdir()).unlink()
    cache.rmdir()
    cache.write_text("a file")
    new_process()
    assert digest_file(file) == expected(b"0123456789")
