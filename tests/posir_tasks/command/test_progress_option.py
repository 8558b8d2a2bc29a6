"""The option `--quiet`: one for all commands that may take long."""

import typer
from typer.testing import CliRunner

from posir_tasks.command.progress_option import with_progress
from posir_tasks.display.progress import track
from tests.support.cli import function_commands, leaf_commands

#: Commands that train, encode, evaluate, ask a language model or read many files; those that are public functions all have it.
LONG = {
    "train", "compose", "build run", "study rate-translations",
    "inspect", "run", "report", "import", "validate", "compare", "submit",
    "leaderboard build", "leaderboard pin",
}  # fmt: skip


def test_every_long_command_has_the_option():
    options = {name: {option for item in command.params for option in item.opts} for name, command in leaf_commands().items()}
    quiet = {name for name, given in options.items() if "--quiet" in given}
    assert function_commands().keys() <= quiet
    assert quiet - function_commands().keys() == LONG - function_commands().keys()


def build_example():
    app = typer.Typer()

    @app.command()
    @with_progress
    def example(name: str, *, loud: bool = False) -> None:
        """Work."""
        with track("Working"):
            typer.echo(f"{name} {loud}")

    return app


def test_a_log_has_the_stages_on_the_error_stream():
    done = CliRunner().invoke(build_example(), ["text", "--loud"])
    assert (done.stdout, done.stderr) == ("text True\n", "Working\n")


def test_quiet_shows_none():
    done = CliRunner().invoke(build_example(), ["text", "--quiet"])
    assert (done.stdout, done.stderr) == ("text False\n", "")
