"""Errors that end a command: one message and an exit status."""

import os
from pathlib import Path

import pytest

from posir_tasks.command.undecided import report_errors


@pytest.mark.parametrize(
    ("path", "said"), [("x" * 5_000, f"error: {'x' * 300}...: File name too long."), ("file/inside", "Not a directory.")]
)
def test_a_file_that_cannot_be_opened_is_named_with_the_reason(tmp_path: Path, monkeypatch, capsys, path: str, said: str):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as ended, report_errors(3):
        os.stat(path)  # noqa: PTH116 (a Path asks whether the name is too long)
    assert ended.value.code == 3
    assert said in capsys.readouterr().err


def test_another_error_of_the_system_is_no_mistake_of_the_user():
    with pytest.raises(ChildProcessError), report_errors():
        raise ChildProcessError
