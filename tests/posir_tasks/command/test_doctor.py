"""What `posir doctor` says of the start-up hook is what a Python that starts now does, and it survives what it looks at."""

import sys
import venv

import pytest

from posir_tasks.command.doctor import AUTOLOAD_FILE, found, hook, tasks
from posir_tasks.tasks import catalogue


@pytest.fixture
def bare_python(tmp_path):
    """A Python without packages."""
    venv.create(tmp_path, symlinks=True)
    return tmp_path / "bin" / "python"


def test_a_python_that_runs_the_hook_is_well():
    finding = next(hook())
    assert finding.good
    assert finding.what.endswith(AUTOLOAD_FILE)


@pytest.mark.parametrize("importable", [True, False])
def test_a_python_that_does_not_run_the_hook_is_not_well(bare_python, monkeypatch, importable):
    monkeypatch.setattr(sys, "executable", str(bare_python))
    if importable:
        import posir_autoload

        monkeypatch.setenv("PYTHONPATH", posir_autoload.__file__.rpartition("/")[0])
    finding = next(hook())
    assert finding.good is False
    assert f"Python has not run a {AUTOLOAD_FILE}" in finding.what


def test_a_hook_that_is_switched_off_is_no_fault(monkeypatch):
    monkeypatch.setenv("POSIR_AUTOLOAD", "0")
    finding = next(hook())
    assert finding.good is None
    assert "switched off by POSIR_AUTOLOAD=0" in finding.what


def test_a_section_that_cannot_be_had_is_a_finding(monkeypatch):
    def fail():
        raise ImportError("mteb moved it")

    monkeypatch.setattr(catalogue, "builtin_task_classes", fail)
    (finding,) = found(tasks)
    assert finding.good is False
    assert finding.what == "tasks: cannot be looked at (ImportError: mteb moved it)"
