"""`posir mteb` is mteb's command line with the tasks, where autoload is off."""

import pytest

from tests.support.commands import run


@pytest.mark.slow
def test_it_knows_the_tasks_where_autoload_is_off():
    done = run("posir", "mteb", "available-tasks", "-t", "PosIR-Mini", POSIR_AUTOLOAD="0")
    assert "- PosIR-Mini," in done.stdout, done.stderr


def test_arguments_output_and_exit_status_are_those_of_mteb():
    for arguments in (("--help",), ("run", "--help"), ("run", "--", "-x"), ("no-such-command",), ()):
        forwarded, plain = run("posir", "mteb", *arguments), run("mteb", *arguments)
        assert (forwarded.returncode, forwarded.stdout) == (plain.returncode, plain.stdout)
        assert forwarded.stderr.splitlines()[-1:] == plain.stderr.splitlines()[-1:]
