"""A public function is declared once: its command has the same names, defaults, ranges and help."""

import inspect
import re
import runpy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

import posir
from posir_tasks.base.errors import PosirError
from posir_tasks.base.public import DECLARATION, Option, describe_function, public, read_parameters
from posir_tasks.command.options import CARD, FIGURES, LAST, SHARED, build_command
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import Table, build_columns
from tests.support.cli import function_commands, invoke, leaf_commands

#: Names of functions that do not follow from that of the command: `import` is a keyword of Python.
NAMES = {"import": "import_data", "build run": "build"}


def test_every_command_but_that_of_mteb_is_a_function():
    assert {*leaf_commands()} - {"mteb"} == {*function_commands()}


@pytest.mark.parametrize("name", sorted(function_commands()))
def test_a_command_is_its_function(name):
    function, command = function_commands()[name], leaf_commands()[name]
    assert (
        getattr(posir, NAMES.get(name) or re.sub(r"[- ]", "_", name.removeprefix("study ")))
        is function
    )
    assert command.help == describe_function(function)
    expected = [
        parameter for parameter in read_parameters(function) if not parameter.option.python_only
    ]
    shared = {parameter.name for parameter in (*SHARED, *FIGURES, CARD, *LAST)} | {
        "quiet",
        "help",
        "set",
        "settings_help",
    }
    shared |= {*getattr(function, DECLARATION).flags}
    given = {
        parameter.name: parameter for parameter in command.params if parameter.name not in shared
    }
    assert list(given) == [parameter.name for parameter in expected]
    for parameter in expected:
        option = given[parameter.name]
        assert option.multiple if parameter.repeats and not parameter.is_argument else True
        assert parameter.help, f"{name}: {parameter.name} is not described"
        assert option.help.startswith(parameter.help)
        assert option.required == (parameter.default is inspect.Parameter.empty)
        assert option.required or option.default == (
            None if parameter.repeats else parameter.default
        )
        ranged = (
            option if hasattr(option, "min") else option.type
        )  # in newer and in older versions of typer
        limits = (getattr(ranged, "min", None), getattr(ranged, "max", None))
        assert limits == (parameter.option.min, parameter.option.max)
        if not parameter.is_argument:
            assert option.opts[0] == f"--{parameter.name.replace('_', '-')}"


#: Commands that write a model, data, settings files or a site.
WRITERS = ("train", "compose", "import", "recipe", "leaderboard build", "build sample")


def test_a_parameter_of_one_name_is_explained_alike_everywhere():
    texts = {}
    for name, function in function_commands().items():
        for parameter in read_parameters(function):
            # What `score` scores is no model, and states its revision; some write other things than
            # results.
            if (name, parameter.name) not in {
                ("score", "revision"),
                *((writer, "output") for writer in WRITERS),
            }:
                texts.setdefault(parameter.name, set()).add(parameter.help)
    alike = ("revision", "batch_size", "output")
    assert {
        name: len(texts[name]) for name in alike if name in texts and len(texts[name]) > 1
    } == {}


@public(undecided_by=("limit",))
def example(
    name: str | Path,
    *,
    size: Annotated[int, Option(min=1, max=9)] = 3,
    weight: Annotated[float | Iterable[float] | None, Option(min=0)] = None,
    pair: Annotated[
        tuple[int, int] | None,
        Option(metavar="LOW,HIGH", parse=lambda text: tuple(map(int, text.split(",")))),
    ] = None,
    tags: Sequence[str] = (),
    limit: int | None = None,
    fast: bool = False,
    show: Annotated[object, Option(python_only=True)] = None,
) -> Result:
    """Do it.

    In two paragraphs.

    Args:
        name: The `name` of it,
            in two lines.
        size: A size.
        weight: A weight.
        pair: A pair.
        tags: A tag.
        limit: A limit.
        fast: Fast.
        show: Called.

    Returns:
        Nothing.
    """
    if limit == 7:
        raise PosirError("too much")
    row = {
        "name": name,
        "size": size,
        "weight": weight,
        "pair": pair,
        "tags": tags,
        "fast": fast,
        "show": show,
    }
    return Result(
        title="It",
        rows=[row],
        tables=[Table(build_columns(tuple(row)), (tuple(map(str, row.values())),))],
    )


def run(*arguments):
    app = typer.Typer()
    app.command()(build_command(example))
    return CliRunner().invoke(app, arguments)


def test_the_function_gets_what_is_given_and_its_result_prints_itself():
    done = run(
        *[
            "a",
            "--size",
            "4",
            "--weight",
            "1",
            "--weight",
            "2",
            "--pair",
            "1,2",
            "--tags",
            "x",
            "--fast",
            "--format",
            "csv",
        ]
    )
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[1].split(",", 2)[:2] == ["a", "4"]
    (row,) = example("a").rows
    assert row == {
        "name": "a",
        "size": 3,
        "weight": None,
        "pair": None,
        "tags": (),
        "fast": False,
        "show": None,
    }
    assert '"tags": []' in run("a", "--format", "json").stdout


@pytest.mark.parametrize("size", [0, 10, 1.5, "3", True])
def test_python_and_the_command_refuse_the_same(size):
    with pytest.raises(PosirError, match="size"):
        example("a", size=size)
    if not isinstance(size, str | bool):
        assert run("a", "--size", str(size)).exit_code == 2


@pytest.mark.parametrize("weight", [-1, [1, -1], float("nan"), ["1"]])
def test_each_of_several_values_is_checked(weight):
    with pytest.raises(PosirError, match="weight"):
        example("a", weight=weight)


def test_an_error_of_a_check_is_undecided_and_else_the_users():
    assert run("a", "--limit", "7").exit_code == 2
    assert run("a", "--limit", "6").exit_code == 0


def test_help_is_the_docstring_without_its_sections():
    shown = run("--help").stdout
    assert "The name of it, in two lines." in " ".join(shown.split())
    assert "In two paragraphs." in shown
    assert "Returns" not in shown
    assert "--show " not in shown


def test_the_reference_page_has_every_option_of_every_command():
    file = Path(__file__).parents[3] / "docs_site" / "reference.py"
    page = runpy.run_path(str(file))["render_commands"]()
    for name, command in leaf_commands().items():
        shown = page.partition(f"`posir {name}`\n")[2].partition("\n## ")[0]
        options = {
            option
            for parameter in command.params
            for option in getattr(parameter, "opts", ())
            if option[:2] == "--"
        }
        assert [option for option in options if option not in shown] == [], name


def test_the_short_help_has_the_options_of_no_group_and_counts_all():
    shown, whole = (invoke("score", name) for name in ("-h", "--help"))
    assert [name in shown for name in ("--retriever", "--overwrite", "--format")] == [
        True,
        False,
        False,
    ]
    listed = re.findall(r"(?m)^  (?:-\w, )?--[a-z-]+", whole)
    assert shown.splitlines()[-1] == f"--help: all {len(listed)} options"
