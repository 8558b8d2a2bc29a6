"""`posir doctor` reports if Python autoloads posir, and continues after a failed check."""

import sys
import venv

import pytest

from posir_tasks.command import api
from posir_tasks.command.api import AUTOLOAD_FILE, check_autoload, check_data, doctor
from posir_tasks.tasks import catalog


def test_autoload_passes_if_python_runs_the_file(monkeypatch):
    finding = next(check_autoload())
    assert finding.passed
    assert finding.text.endswith(AUTOLOAD_FILE)
    monkeypatch.setenv("POSIR_AUTOLOAD", "0")
    finding = next(check_autoload())
    assert finding.passed is None
    assert "disabled by POSIR_AUTOLOAD=0" in finding.text


@pytest.mark.parametrize("importable", [True, False])
def test_autoload_fails_if_python_does_not_run_the_file(tmp_path, monkeypatch, importable):
    venv.create(tmp_path, symlinks=True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    if importable:
        import posir_autoload

        monkeypatch.setenv("PYTHONPATH", posir_autoload.__file__.rpartition("/")[0])
    finding = next(check_autoload())
    assert finding.passed is False
    assert f"Python did not run {AUTOLOAD_FILE}" in finding.text


def test_a_check_that_raises_fails(monkeypatch):
    def fail():
        raise ImportError("mteb moved it")

    monkeypatch.setattr(catalog, "builtin_task_classes", fail)
    for check in ("check_autoload", "check_plugins", "check_data"):
        monkeypatch.setattr(api, check, list)
    (failed,) = [finding for finding in doctor().rows if finding.passed is False]
    assert failed.text == "check_tasks failed (ImportError: mteb moved it)"


def test_local_data_is_reported_and_a_missing_folder_fails(monkeypatch, tmp_path):
    (tmp_path / "squad_v2").mkdir()
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))
    posir, squad, fineweb = check_data()
    assert (posir.passed, squad.passed, fineweb.passed) == (None, None, None)
    assert f"{tmp_path / 'squad_v2'} (found; POSIR_DATA is set)" in squad.text
    assert "(not found; " in posir.text
    monkeypatch.setenv("POSIR_DATA", str(tmp_path / "missing"))
    (finding,) = check_data()
    assert finding.passed is False
    assert "no such folder" in finding.text
