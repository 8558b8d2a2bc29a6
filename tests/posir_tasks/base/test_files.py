"""Atomic writes, folder locks and file search."""

import errno
import os
import re
import signal
import stat
import sys
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import (
    LOCK_FILE,
    PART_SUFFIX,
    check_writable,
    find_files,
    lock_folder,
    remove_all_parts,
    remove_parts_of,
    remove_stale_parts,
    split_suffix,
    update_atomically,
    write_atomically,
    write_text,
)
from tests.support.processes import exit_codes


def list_names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_a_file_appears_only_at_the_end(tmp_path: Path):
    with write_atomically(tmp_path / "new" / "file") as part:
        part.write_text("half")
        assert not (tmp_path / "new" / "file").exists()
        part.write_text("whole")
    assert (tmp_path / "new" / "file").read_text() == "whole"
    assert list_names(tmp_path / "new") == ["file"]


def test_after_an_error_only_the_old_file_remains(tmp_path: Path):
    (tmp_path / "file").write_text("old")

    with pytest.raises(TypeError), write_atomically(tmp_path / "file") as part:
        part.write_text(None)
    assert (tmp_path / "file").read_text() == "old"
    assert list_names(tmp_path) == ["file"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG])
def test_a_full_disk_raises_a_posir_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
):
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(number, os.strerror(number))))
    with pytest.raises(
        PosirError,
        match=re.escape(f"{tmp_path / 'file'}: not enough disk space ({os.strerror(number)}"),
    ):
        write(tmp_path / "file", b"text")
    assert list_names(tmp_path) == []


def write(file: Path, content: bytes) -> None:
    with write_atomically(file) as part:
        part.write_bytes(content)


def test_only_old_unfinished_files_of_posir_are_removed(tmp_path: Path):
    old, new, folder = (f".{name}.abcdefgh{PART_SUFFIX}" for name in ("file", "new", "folder"))
    foreign = (".download.part", f".mine{PART_SUFFIX}", f"file.abcdefgh{PART_SUFFIX}")
    for name in (old, new, *foreign):
        (tmp_path / name).write_text("half")
    (tmp_path / folder).mkdir()
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / f".link.abcdefgh{PART_SUFFIX}"
    link.symlink_to(tmp_path / "elsewhere")
    for name in (old, folder, "elsewhere", *foreign):
        os.utime(tmp_path / name, (time.time() - 3_600,) * 2)
    remove_stale_parts(tmp_path)
    assert list_names(tmp_path) == sorted((new, *foreign, "elsewhere", link.name))


def test_all_unfinished_files_of_an_ended_process_are_removed(tmp_path: Path):
    part = tmp_path / "model" / f".model.a9k2g38z{PART_SUFFIX}"
    (part / "1_Pooling").mkdir(parents=True)
    (part / "1_Pooling" / f".config.json.a9k2g38z{PART_SUFFIX}").write_text("{")
    (tmp_path / f".run.json.a9k2g38z{PART_SUFFIX}").write_text("{")
    foreign = (f"run{PART_SUFFIX}", ".hidden", "run.json")
    for name in foreign:
        (tmp_path / name).write_text("{}")
    remove_all_parts(tmp_path)
    assert list_names(tmp_path) == sorted((*foreign, "model"))
    assert not list_names(tmp_path / "model")


def test_only_unfinished_versions_of_the_target_are_removed(tmp_path: Path):
    others = (f".sports.news.a9k2g38z{PART_SUFFIX}", f".law.a9k2g38z{PART_SUFFIX}", "sports")
    for name in (f".sports.a9k2g38z{PART_SUFFIX}", *others):
        (tmp_path / name).mkdir()
    remove_parts_of(tmp_path / "sports")
    assert list_names(tmp_path) == sorted(others)


def test_an_update_in_place_is_atomic(tmp_path: Path):
    (tmp_path / "file").write_text("old")
    with update_atomically(tmp_path / "file") as folder:
        assert (folder / "file").read_text() == "old"
        (folder / "file").write_text("new")
        assert (tmp_path / "file").read_text() == "old"
    assert (tmp_path / "file").read_text() == "new"
    assert list_names(tmp_path) == [LOCK_FILE, "file"]


def count(folder: Path, times: int) -> None:
    for _ in range(times):
        with lock_folder(folder):
            number = int((folder / "number").read_text())
            time.sleep(0.001)
            (folder / "number").write_text(str(number + 1))


def test_one_process_at_a_time_holds_the_lock(tmp_path: Path):
    (tmp_path / "number").write_text("0")
    assert exit_codes(count, [(tmp_path, 20)] * 4) == [0] * 4
    assert (tmp_path / "number").read_text() == "80"


def die_with_the_lock(folder: Path) -> None:
    with lock_folder(folder):
        os.kill(os.getpid(), signal.SIGKILL)


def test_the_lock_of_a_killed_process_is_released(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    assert exit_codes(die_with_the_lock, [(tmp_path,)]) == [-signal.SIGKILL]
    with lock_folder(tmp_path):
        pass
    assert not caplog.records


def test_a_write_without_a_lock_continues_with_a_warning(
    tmp_path: Path, monkeypatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("posir_tasks.base.files.LOCK_TIMEOUT", 0.01)
    with lock_folder(tmp_path), lock_folder(tmp_path):
        (tmp_path / "file").write_text("result")
    assert "Cannot lock" in caplog.text


def test_links_are_followed_without_endless_loops(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    for file in ("a/b/1.json", "other/2.json", "a/3.txt"):
        (tmp_path / file).write_text("{}")
    (tmp_path / "a" / "link").symlink_to(tmp_path / "other")
    (tmp_path / "a" / "b" / "up").symlink_to(tmp_path / "a")
    (tmp_path / "other" / "back").symlink_to(tmp_path / "a" / "b")
    (tmp_path / "a" / "gone").symlink_to(tmp_path / "nothing")
    result = [file.relative_to(tmp_path).as_posix() for file in find_files(tmp_path / "a", ".json")]
    assert result == ["a/b/1.json", "a/link/2.json"]
    assert find_files(tmp_path / "nothing", ".json") == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(PosirError, match=r"Cannot write .*file/results: "):
        check_writable(tmp_path / "file" / "results")
    with pytest.raises(
        PosirError, match=re.escape(f"Cannot write {tmp_path / 'file'}: File exists.")
    ):
        write(tmp_path / "file" / "new", b"text")
    check_writable(tmp_path / "new" / "results")
    assert list_names(tmp_path / "new" / "results") == []


def test_split_suffix_ignores_case_and_gz():
    assert [split_suffix(Path(name)) for name in ("A.JSON.GZ", "a.gz", "a")] == [
        ("A", ".json"),
        ("a", ""),
        ("a", ""),
    ]


def read_fifo(fifo: Path, contents: list[bytes]) -> threading.Thread:
    thread = threading.Thread(target=lambda: contents.append(fifo.read_bytes()), daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("linked", [False, True])
def test_content_is_written_to_a_fifo_without_replacing_it(tmp_path: Path, linked: bool):
    fifo, contents = tmp_path / "fifo", []
    os.mkfifo(fifo)
    path = tmp_path / "link" if linked else fifo
    if linked:
        path.symlink_to("fifo")
    thread = read_fifo(fifo, contents)
    write(path, b"x" * 1_000_000)
    thread.join(10)
    assert contents == [b"x" * 1_000_000]
    assert stat.S_ISFIFO(fifo.lstat().st_mode)
    assert path.is_symlink() == linked


def test_a_fifo_without_a_reader_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("posir_tasks.base.files.READER_TIMEOUT", 0.1)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(PosirError, match="nothing read from it"):
        write_text(tmp_path / "fifo", "x")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(PosirError, match="nothing read from it"):
        write(tmp_path / "fifo", b"x" * 1_000_000)
    os.close(reader)


def test_content_is_written_to_a_device_and_errors_are_reported(tmp_path: Path):
    for name in ("null", "full"):
        (tmp_path / name).symlink_to(f"/dev/{name}")
    write_text(tmp_path / "null", "x")
    with pytest.raises(PosirError, match="not enough disk space"):
        write_text(tmp_path / "full", "x")
    assert [stat.S_ISCHR(Path(f"/dev/{name}").lstat().st_mode) for name in ("null", "full")] == [
        True,
        True,
    ]


def test_content_is_appended_to_an_open_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    sys.stdout.write("before\n")
    for path in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", f"/proc/{os.getpid()}/fd/1"):
        write_text(Path(path), f"{path}\n")
    sys.stdout.write("after\n")
    sys.stdout.flush()
    lines = capfd.readouterr().out.splitlines()
    assert lines == [
        "before",
        "/dev/stdout",
        "/dev/fd/1",
        "/proc/self/fd/1",
        f"/proc/{os.getpid()}/fd/1",
        "after",
    ]
    with (tmp_path / "file").open("wb", buffering=0) as opened:
        opened.write(b"first ")
        write_text(Path(f"/dev/fd/{opened.fileno()}"), "second ")
        opened.write(b"third")
    assert (tmp_path / "file").read_text() == "first second third"
    with pytest.raises(PosirError, match="Cannot write"):
        write_text(Path("/dev/fd/987"), "x")


def test_a_link_is_kept_and_its_target_is_replaced(tmp_path: Path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("old")
    (tmp_path / "near").symlink_to("far")
    (tmp_path / "far").symlink_to("there/file")
    (tmp_path / "new").symlink_to("missing/file")
    (tmp_path / "folder").symlink_to("later")
    for name in ("near", "new", "folder/file"):
        write_text(tmp_path / name, name)
    with update_atomically(tmp_path / "near") as folder:
        (folder / "near").write_text((folder / "near").read_text() + " and more")
    assert [(tmp_path / name).is_symlink() for name in ("near", "far", "new", "folder")] == [
        True
    ] * 4
    assert (tmp_path / "there" / "file").read_text() == "near and more"
    assert (tmp_path / "missing" / "file").read_text() == "new"
    assert (tmp_path / "later" / "file").read_text() == "folder/file"
    assert list_names(tmp_path / "missing") == ["file"]
    (tmp_path / "output").symlink_to("to-come")
    check_writable(tmp_path / "output")
    assert (tmp_path / "to-come").is_dir()


def test_loops_folders_and_protected_files_are_errors(tmp_path: Path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "protected").write_text("old")
    (tmp_path / "protected").chmod(0o444)
    os.mkfifo(tmp_path / "fifo")
    before = list_names(tmp_path)
    cases = {"a": "leads back", "a/b": "Cannot write", "x\0y": "zero byte"}
    cases |= dict.fromkeys(("folder", "link", "."), "is a folder")
    for name, problem in (cases | {"protected": "write-protected"}).items():
        with pytest.raises(PosirError, match=problem):
            write_text(tmp_path / name, "new")
        with pytest.raises(PosirError, match=problem), update_atomically(tmp_path / name):
            pytest.fail("nothing must be written")
    with pytest.raises(PosirError, match="FIFO"), update_atomically(tmp_path / "fifo"):
        pytest.fail("nothing must be written")
    assert (tmp_path / "protected").read_text() == "old"
    assert list_names(tmp_path) == before


def test_a_replaced_file_keeps_its_mode_and_owner(tmp_path: Path):
    for name, mode in (("private", 0o600), ("shared", 0o664), ("script", 0o755)):
        file = tmp_path / name
        file.write_text("old")
        file.chmod(mode)
        if os.getuid() == 0:
            os.chown(file, 1234, 4321)
        write_text(file, "new")
        with update_atomically(file):
            pass
        state = file.stat()
        assert (file.read_text(), stat.S_IMODE(state.st_mode)) == ("new", mode)
        if os.getuid() == 0:
            assert (state.st_uid, state.st_gid) == (1234, 4321)


def test_a_mount_point_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        Path, "replace", Mock(side_effect=OSError(errno.EBUSY, os.strerror(errno.EBUSY)))
    )
    (tmp_path / "mounted").write_text("old and longer")
    write_text(tmp_path / "mounted", "new")
    assert (tmp_path / "mounted").read_text() == "new"
    assert list_names(tmp_path) == ["mounted"]


def test_the_longest_allowed_file_name_can_be_written(tmp_path: Path):
    name = "ä" * 127
    write_text(tmp_path / name, "x")
    assert list_names(tmp_path) == [name]
    with pytest.raises(PosirError, match="Cannot write"):
        write_text(tmp_path / (2 * name), "x")


def test_an_unknown_suffix_is_part_of_the_name():
    names = (
        "input.InexpC2.gz",
        "input.fub03IeOLKe3.gz",
        "qrels.test",
        "qrels.rel_level",
        "run.v1.5",
        "run.v1.5.trec",
        ".hidden",
    )
    stems = [
        "input.InexpC2",
        "input.fub03IeOLKe3",
        "qrels.test",
        "qrels.rel_level",
        "run.v1.5",
        "run.v1.5",
        ".hidden",
    ]
    assert [split_suffix(Path(name))[0] for name in names] == stems
    assert split_suffix(Path("input.InexpC2.gz"))[1] == ".inexpc2"
