"""Atomic writes, and folders locked by one process at a time."""

import errno
import os
import re
import signal
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from posir_tasks.errors import PosirError
from posir_tasks.files import (
    LOCK_FILE,
    atomic_update,
    atomic_write,
    check_writable,
    find_files,
    folder_lock,
    remove_stale_parts,
    split_suffix,
)
from tests.support.processes import exit_codes


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_a_file_is_there_only_at_the_end(tmp_path: Path):
    with atomic_write(tmp_path / "new" / "file") as part:
        part.write_text("half")
        assert not (tmp_path / "new" / "file").exists()
        part.write_text("whole")
    assert (tmp_path / "new" / "file").read_text() == "whole"
    assert names_in(tmp_path / "new") == ["file"]


def test_after_an_error_the_old_file_is_there_and_nothing_else(tmp_path: Path):
    (tmp_path / "file").write_text("old")

    with pytest.raises(TypeError), atomic_write(tmp_path / "file") as part:
        part.write_text(None)
    assert (tmp_path / "file").read_text() == "old"
    assert names_in(tmp_path) == ["file"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG])
def test_a_full_disk_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int):
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(number, os.strerror(number))))
    with pytest.raises(PosirError, match=re.escape(f"{tmp_path / 'file'}: not enough disk space ({os.strerror(number)}")):
        write(tmp_path / "file", b"text")
    assert names_in(tmp_path) == []


def write(file: Path, content: bytes) -> None:
    with atomic_write(file) as part:
        part.write_bytes(content)


def test_old_unfinished_files_of_killed_processes_are_removed(tmp_path: Path):
    for name in (".file.abc.part", ".new.abc.part"):
        (tmp_path / name).write_text("half")
    (tmp_path / ".file.def.part").mkdir()
    (tmp_path / "file").write_text("whole")
    for name in (".file.abc.part", ".file.def.part", "file"):
        os.utime(tmp_path / name, (time.time() - 3_600,) * 2)
    remove_stale_parts(tmp_path)
    assert names_in(tmp_path) == [".new.abc.part", "file"]


def test_an_update_in_place_is_atomic(tmp_path: Path):
    (tmp_path / "file").write_text("old")
    with atomic_update(tmp_path / "file") as folder:
        assert (folder / "file").read_text() == "old"
        (folder / "file").write_text("new")
        assert (tmp_path / "file").read_text() == "old"
    assert (tmp_path / "file").read_text() == "new"
    assert names_in(tmp_path) == [LOCK_FILE, "file"]


def count(folder: Path, times: int) -> None:
    for _ in range(times):
        with folder_lock(folder):
            number = int((folder / "number").read_text())
            time.sleep(0.001)
            (folder / "number").write_text(str(number + 1))


def test_one_process_at_a_time_holds_the_lock(tmp_path: Path):
    (tmp_path / "number").write_text("0")
    assert exit_codes(count, [(tmp_path, 20)] * 4) == [0] * 4
    assert (tmp_path / "number").read_text() == "80"


def die_with_the_lock(folder: Path) -> None:
    with folder_lock(folder):
        os.kill(os.getpid(), signal.SIGKILL)


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    assert exit_codes(die_with_the_lock, [(tmp_path,)]) == [-signal.SIGKILL]
    with folder_lock(tmp_path):
        pass
    assert not caplog.records


def test_without_a_lock_the_write_continues_with_a_warning(tmp_path: Path, monkeypatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setattr("posir_tasks.files.LOCK_TIMEOUT", 0.01)
    with folder_lock(tmp_path), folder_lock(tmp_path):
        (tmp_path / "file").write_text("result")
    assert "cannot be locked" in caplog.text


def test_files_are_found_through_links_and_loops_end(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    for file in ("a/b/1.json", "other/2.json", "a/3.txt"):
        (tmp_path / file).write_text("{}")
    (tmp_path / "a" / "link").symlink_to(tmp_path / "other")
    (tmp_path / "a" / "b" / "up").symlink_to(tmp_path / "a")
    (tmp_path / "other" / "back").symlink_to(tmp_path / "a" / "b")
    (tmp_path / "a" / "gone").symlink_to(tmp_path / "nothing")
    result = [file.relative_to(tmp_path).as_posix() for file in find_files(tmp_path / "a", ".json")]
    assert result == ["a/b/1.json", "a/link/2.json", "a/link/back/1.json"]
    assert find_files(tmp_path / "nothing", ".json") == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(PosirError, match=r"file/results: cannot be written to .* writable folder"):
        check_writable(tmp_path / "file" / "results")
    with pytest.raises(PosirError, match=re.escape(f"{tmp_path / 'file'}: cannot be written to (File exists).")):
        write(tmp_path / "file" / "new", b"text")
    check_writable(tmp_path / "new" / "results")
    assert names_in(tmp_path / "new" / "results") == []


def test_the_suffix_of_the_format():
    assert [split_suffix(Path(name)) for name in ("A.JSON.GZ", "a.gz", "a")] == [("A", ".json"), ("a", ""), ("a", "")]


def test_a_suffix_that_is_no_format_is_part_of_a_name():
    names = (
        "input.InexpC2.gz",
        "input.fub03IeOLKe3.gz",
        "qrels.test",
        "qrels.rel_level",
        "run.v1.5",
        "run.v1.5.trec",
        ".hidden",
    )
    stems = ["input.InexpC2", "input.fub03IeOLKe3", "qrels.test", "qrels.rel_level", "run.v1.5", "run.v1.5", ".hidden"]
    assert [split_suffix(Path(name))[0] for name in names] == stems
    assert split_suffix(Path("input.InexpC2.gz"))[1] == ".inexpc2"
