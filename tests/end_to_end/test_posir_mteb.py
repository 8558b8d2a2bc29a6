"""`posir mteb` is mteb's command line with the tasks, where autoload is off."""

import pytest

from tests.support.commands import run


@pytest.mark.slow
def test_it_knows_the_tasks_where_autoload_is_off():
    done = run("posir", "mteb", "available-tasks", "-t", "PosIR-Mini", POSIR_AUTOLOAD="0")
    assert "- PosIR-Mini," in done.stdout, done.stderr


def test_arguments_output_and_exit_status_are_those_of_mteb():
    for arguments in (("--help",), ("run", "--help"), ("run", "--", "-x"), ("no-such-command",)):
        forwarded, plain = run("posir", "mteb", *arguments), run("mteb", *arguments)
        assert (forwarded.returncode, forwarded.stdout) == (plain.returncode, plain.stdout)
        assert forwarded.stderr.splitlines()[-1:] == plain.stderr.splitlines()[-1:]
    assert run("posir", "mteb").stdout == run("mteb", "--help").stdout, (
        "mteb itself ends in a traceback"
    )


def test_a_run_without_a_model_is_one_line():
    done = run("mteb", "run", "-t", "PosIR-Mini")
    assert (done.returncode, done.stderr.splitlines()[-1:]) == (
        2,
        ["error: Missing option '-m', a model, such as mteb/baseline-bm25s."],
    )


def test_an_unknown_task_is_one_line_with_the_nearest_name():
    done = run("mteb", "run", "-t", "PosIR-Mni", "-m", "baseline/bm25s")
    said = (
        "error: There is no task or benchmark 'PosIR-Mni'. Did you mean PosIR-Mini? `posir tasks` "
        "lists those with positions."
    )
    assert (done.returncode, done.stderr.splitlines()[-1:]) == (1, [said])
    assert not {"Traceback", "Namespace"} & {*done.stderr.replace("(", " ").split()}
