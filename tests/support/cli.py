"""The commands of `posir` with their options, imported."""

from collections.abc import Iterator, Mapping
from functools import cache
from pkgutil import resolve_name
from typing import Any

from typer.testing import CliRunner

from posir_tasks.base.public import DECLARATION
from posir_tasks.command.app import build_app
from posir_tasks.command.lazy import LazyCommand, declared_commands


@cache
def leaf_commands() -> Mapping[str, Any]:
    """Return every command that runs something, by its name with those of its groups, such as
    `build sample`.
    """
    return dict(
        leaves({command.name: LazyCommand(command).load() for command in declared_commands()})
    )


def leaves(commands: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the commands in a mapping and in the groups among them, by name."""
    for name, command in commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command.commands, (*path, name))
        else:
            yield " ".join((*path, name)), command


@cache
def function_commands() -> Mapping[str, Any]:
    """Return the public function of every command that is one, by the command's name."""
    targets = {command.name: resolve_name(command.target) for command in declared_commands()}
    return {name: target for name, target in targets.items() if hasattr(target, DECLARATION)}


def invoke(*arguments: object) -> str:
    """Run a command and return what it prints; raise what it raises."""
    result = CliRunner().invoke(build_app(), list(map(str, arguments)))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout
