"""Options: one name, one meaning and one set of values in all commands."""

import typer
from typer.testing import CliRunner

from posir_tasks.base.progress import track
from posir_tasks.base.public import public
from posir_tasks.command.options import build_command
from posir_tasks.display.presentation import Result
from tests.support.cli import function_commands, leaf_commands


def test_every_long_command_has_the_option():
    options = {
        name: {option for item in command.params for option in item.opts}
        for name, command in leaf_commands().items()
    }
    quiet = {name for name, given in options.items() if "--quiet" in given}
    assert quiet == {*function_commands()}


def test_a_log_has_the_stages_on_the_error_stream_unless_quiet():
    app = typer.Typer()

    @public()
    def example(name: str, *, loud: bool = False) -> Result:
        """Work."""
        with track("Working"):
            return Result(rows=(), tables=(), footer=[f"{name} {loud}"])

    app.command()(build_command(example))
    for option, printed in (
        ("--loud", ("text True\n", "Working\n")),
        ("--quiet", ("text False\n", "")),
    ):
        done = CliRunner().invoke(app, ["text", option])
        assert (done.stdout, done.stderr) == printed


#: Names that are refused, and the one that all commands use.
SYNONYMS = {
    "--output": {
        "--output-folder",
        "--output-dir",
        "--output-file",
        "--out",
        "--folder",
        "--output-path",
    },
    "--format": {"--json", "--output-format"},
    "--html": {"--page", "--html-file"},
    "--figures": {"--png", "--pictures"},
    "--language": {"--languages", "--lang"},
    "--documents": {"--max-documents", "--docs"},
    "--data": {"--dataset", "--datasets"},
    "--revision": {"--model-revision"},
    "--task": {"--tasks"},
    "--benchmark": {"--benchmarks"},
    "--config": {"--settings"},
    "--quiet": {"--silent", "--no-progress"},
}
#: Pairs that only look like singular and plural: a field of the texts and scores to show; a view
#: and a table of models; a seed and a number of seeds.
DIFFERENT = {"--columns", "--architectures", "--seeds"}


def test_no_command_has_a_synonym_of_another_commands_option():
    names = {}
    for name, command in leaf_commands().items():
        for option in (
            option for parameter in command.params for option in getattr(parameter, "opts", ())
        ):
            if option.startswith("--"):
                names.setdefault(option, set()).add(name)
    assert {
        name: names[name] for refused in SYNONYMS.values() for name in refused & names.keys()
    } == {}
    assert {name for name in names if f"{name}s" in names and f"{name}s" not in DIFFERENT} == set()


def test_an_option_has_the_same_short_name_in_all_commands():
    short = {}
    for command in leaf_commands().values():
        for option in command.params:
            flags = [name for name in getattr(option, "opts", ()) if name.startswith("-")]
            for letter in (name for name in flags if not name.startswith("--")):
                short.setdefault(letter, set()).update(
                    name for name in flags if name.startswith("--")
                )
    assert {letter: names for letter, names in short.items() if len(names) > 1} == {}
