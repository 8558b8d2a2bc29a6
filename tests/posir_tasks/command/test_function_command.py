"""Commands have the names, defaults, ranges and help of their public functions."""

import inspect
import re
import runpy
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import pytest

import posir
from posir_tasks.base.errors import PosirError
from posir_tasks.base.public import Option, public, read_parameters
from posir_tasks.command.commands import build_app, call_app, list_commands, load_command
from posir_tasks.command.help import find_example, render_command
from posir_tasks.command.options import list_function_options
from posir_tasks.command.shell_lines import check_call
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import Table, build_columns
from tests.support.cli import (
    call_posir,
    command_parameters,
    function_commands,
    invoke,
    name_option,
)

#: Function names that differ from the command name. (`import` is a keyword.)
NAMES = {"import": "import_data", "build run": "build"}


@pytest.mark.parametrize("name", sorted(function_commands()))
def test_a_command_has_the_parameters_of_its_function(name):
    function = function_commands()[name]
    attribute = NAMES.get(name) or re.sub(r"[- ]", "_", name.removeprefix("study "))
    assert getattr(posir, attribute) is function
    arguments = build_app(function, name).assemble_argument_collection()
    by_name = {argument.field_info.name: argument for argument in arguments}
    for parameter in list_function_options(function):
        argument = by_name[parameter.name]
        assert parameter.help, f"{name}: {parameter.name} is not described"
        assert argument.parameter.help == parameter.help
        assert argument.required == (parameter.default is inspect.Parameter.empty)
        assert argument.names[0] == name_option(parameter)
        is_argument = argument.field_info.kind is not inspect.Parameter.KEYWORD_ONLY
        assert is_argument == parameter.is_argument


#: Commands that write models, data, settings files or a site.
WRITERS = ("train", "compose", "import", "recipe", "leaderboard build", "build sample")


def test_parameters_with_the_same_name_have_the_same_help():
    texts = {}
    for name, function in function_commands().items():
        for parameter in read_parameters(function):
            # `score` needs no model and sets its own revision; some commands do not write results.
            if (name, parameter.name) not in {
                ("score", "revision"),
                *((writer, "output") for writer in WRITERS),
            }:
                texts.setdefault(parameter.name, set()).add(parameter.help)
    alike = ("revision", "batch_size", "output")
    assert {
        name: len(texts[name]) for name in alike if name in texts and len(texts[name]) > 1
    } == {}


@public(check_options=("limit",))
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


APP = build_app(example, "example")


def run(*arguments):
    return call_posir(arguments, run=lambda words: call_app(APP, "example", example, words))


def test_the_function_is_called_with_the_values_of_the_command():
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
def test_python_and_the_command_reject_the_same_values(size):
    with pytest.raises(PosirError, match="size"):
        example("a", size=size)
    if not isinstance(size, str | bool):
        assert run("a", "--size", str(size)).exit_code == 2


@pytest.mark.parametrize("weight", [-1, [1, -1], float("nan"), ["1"]])
def test_each_of_several_values_is_checked(weight):
    with pytest.raises(PosirError, match="weight"):
        example("a", weight=weight)


def test_errors_exit_with_status_2_only_in_checks():
    assert run("a", "--limit", "7").exit_code == 2
    assert run("a", "--limit", "6").exit_code == 0


def test_help_is_the_docstring_without_its_sections():
    shown = render_command("example", example)
    assert "The name of it, in two lines." in " ".join(shown.split())
    assert "In two paragraphs." in shown
    assert "Returns" not in shown
    assert "--show " not in shown


def test_the_reference_pages_contain_every_option(monkeypatch):
    folder = Path(__file__).parents[3] / "docs_site"
    monkeypatch.syspath_prepend(str(folder))
    render = runpy.run_path(str(folder / "reference.py"))["render_command"]
    commands = {command.name: command for command in list_commands()}
    for name, parameters in command_parameters():
        shown = render(name, load_command(commands[name]))
        options = {name_option(parameter) for parameter in parameters if not parameter.is_argument}
        assert [option for option in options if option not in shown] == [], name


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["a", "--sizes", "4"], 2),
        (["a", "--size", "4", "--size", "5"], 2),
        (["a", "--size", "10"], 2),
        (["a", "--size", "four"], 2),
        (["a", "b"], 2),
        ([], 2),
        (["a", "--tags=x", "--tags", "y", "--weight=1"], 0),
        (["--name", "a"], 0),
    ],
)
def test_invalid_command_lines_exit_with_status_2(words, status):
    assert run(*words).exit_code == status


@pytest.mark.parametrize("name", sorted(function_commands()))
def test_the_example_of_a_command_calls_it(name):
    example = find_example(function_commands()[name], name)
    assert example or name.partition(" ")[0] in ("study", "build", "leaderboard")
    assert not example or check_call(shlex.split(example)) is None


def test_the_short_help_contains_common_options():
    shown, whole = (invoke("score", name) for name in ("-h", "--help"))
    for name in ("--retriever", "--format", "--html", "--figures"):
        assert name in shown
    for name in ("--overwrite", "--explain"):
        assert name not in shown
    listed = re.findall(r"(?m)^  (?:-\w, )?--[a-z-]+", whole)
    assert shown.splitlines()[-1] == f"--help: all {len(listed)} options"
