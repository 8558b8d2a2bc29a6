"""What `posir doctor` says about autoload is what a new Python process does, and a check that raises is a finding."""

import sys
import venv

import pytest

from posir_tasks.command.doctor import AUTOLOAD_FILE, autoload, found, tasks
from posir_tasks.tasks import catalogue


@pytest.fixture
def bare_python(tmp_path):
    """A Python without packages."""
    venv.create(tmp_path, symlinks=True)
    return tmp_path / "bin" / "python"


def test_a_python_that_runs_the_autoload_file_passes():
    finding = next(autoload())
    assert finding.good
    assert finding.what.endswith(AUTOLOAD_FILE)


@pytest.mark.parametrize("importable", [True, False])
def test_a_python_that_does_not_run_the_autoload_file_fails(bare_python, monkeypatch, importable):
    monkeypatch.setattr(sys, "executable", str(bare_python))
    if importable:
        import posir_autoload

        monkeypatch.setenv("PYTHONPATH", posir_autoload.__file__.rpartition("/")[0])
    finding = next(autoload())
    assert finding.good is False
    assert f"Python did not run {AUTOLOAD_FILE}" in finding.what


def test_switched_off_is_not_a_failure(monkeypatch):
    monkeypatch.setenv("POSIR_AUTOLOAD", "0")
    finding = next(autoload())
    assert finding.good is None
    assert "switched off by POSIR_AUTOLOAD=0" in finding.what


def test_a_section_that_raises_is_a_finding(monkeypatch):
    def fail():
        raise ImportError("mteb moved it")

    monkeypatch.setattr(catalogue, "builtin_task_classes", fail)
    (finding,) = found(tasks)
    assert finding.good is False
    assert finding.what == "tasks: check failed (ImportError: mteb moved it)"
