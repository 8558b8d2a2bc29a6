"""`posir mteb` is mteb's command line with the tasks, where autoload is off."""

import subprocess

from tests.support.commands import BIN, CLEAN, run

OFF = CLEAN | {"POSIR_AUTOLOAD": "0"}


def call(*command, **options):
    return subprocess.run([BIN / command[0], *command[1:]], capture_output=True, text=True, env=OFF, check=False, **options)


def test_it_knows_the_tasks_where_autoload_is_off(tmp_path):
    arguments = ("run", "-t", "PosIR-Mini", "-m", "mteb/baseline-bm25s", "--output-folder", str(tmp_path))
    done = call("posir", "mteb", *arguments)
    assert done.returncode == 0, done.stderr
    assert len([*tmp_path.rglob("PosIR-Mini.json")]) == 1


def test_arguments_output_and_exit_status_are_those_of_mteb():
    for arguments in (("--help",), ("run", "--help"), ("run", "--", "-x"), ("no-such-command",), ()):
        forwarded, plain = run("posir", "mteb", *arguments), run("mteb", *arguments)
        assert (forwarded.returncode, forwarded.stdout) == (plain.returncode, plain.stdout)
        assert forwarded.stderr.splitlines()[-1:] == plain.stderr.splitlines()[-1:]
