"""Commands of recipes: expanded as a shell does, and parsed without being run."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from string import Template
from typing import Any

from mteb.cli.build_cli import build_cli
from typer.main import get_command

from posir_recipes.api import Recipe
from posir_tasks.command.app import build_app

LOOP = re.compile(r"for (\w+) in (.+?); do (.+); done")
ASSIGNMENT = re.compile(r"[A-Z_]+=")


@dataclass(frozen=True)
class RecipeCommand:
    """A command of a recipe, its variables replaced."""

    environment: Mapping[str, str]
    arguments: tuple[str, ...]


def expand(line: str, variables: Mapping[str, str]) -> Iterator[RecipeCommand]:
    """Yield the commands of a line: several for a loop. KeyError: it has a variable that is not given."""
    if loop := LOOP.fullmatch(line):
        for value in Template(loop[2]).substitute(variables).split():
            yield from expand(loop[3], {**variables, loop[1]: value})
        return
    words = shlex.split(Template(line).substitute(variables))
    assigned = list(takewhile(ASSIGNMENT.match, words))
    yield RecipeCommand(dict(word.split("=", 1) for word in assigned), tuple(words[len(assigned) :]))


def expand_all(recipe: Recipe, *, scaled: bool) -> list[RecipeCommand]:
    """Return the commands of a recipe in order, as in the paper or scaled down; those that several items have once."""
    values = {name: variable.scaled if scaled else variable.default for name, variable in recipe.variables.items()}
    variables = {name: os.path.expandvars(value) for name, value in values.items()}
    lines = dict.fromkeys(line for item in recipe.items for line in item.commands)
    return [command for line in lines for command in expand(line, variables)]


@cache
def posir_command() -> Any:
    """The command `posir`."""
    return get_command(build_app())


def parse(arguments: tuple[str, ...]) -> None:
    """Parse a command without running it; click.ClickException or SystemExit: it is not valid."""
    program, *rest = arguments
    if program == "mteb":
        build_cli().parse_args(rest)
        return
    assert program == "posir", arguments
    command, name, context = posir_command(), program, None
    while True:
        context = command.make_context(name, rest, parent=context)
        if not hasattr(context.command, "commands"):
            return
        name, command, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
