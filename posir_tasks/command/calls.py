"""Calls of `posir` and `mteb` in lines of a shell: expanded as a shell does, and parsed without
being run.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from string import Template
from typing import Any

import typer

from posir_tasks.base.errors import PosirError

LOOP = re.compile(r"for (\w+) in (.+?); do (.+); done")
ASSIGNMENT = re.compile(r"[A-Z_]+=")
#: Programs whose calls can be checked.
PROGRAMS = ("posir", "mteb")


@dataclass(frozen=True)
class Call:
    """A call of a program, its variables replaced."""

    environment: Mapping[str, str]
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(
            [*(f"{name}={value}" for name, value in self.environment.items()), *self.arguments]
        )


def expand_line(line: str, variables: Mapping[str, str]) -> Iterator[Call]:
    """Yield the calls of a line: several for a loop, none for a comment. Raise PosirError for a
    variable that is not given.
    """
    if line.startswith("#"):
        return
    if loop := LOOP.fullmatch(line):
        for value in _substitute(loop[2], variables).split():
            yield from expand_line(loop[3], {**variables, loop[1]: value})
        return
    words = shlex.split(_substitute(line, variables))
    assigned = list(takewhile(ASSIGNMENT.match, words))
    yield Call(dict(word.split("=", 1) for word in assigned), tuple(words[len(assigned) :]))


def _substitute(text: str, variables: Mapping[str, str]) -> str:
    try:
        return Template(text).substitute(variables)
    except (KeyError, ValueError) as error:
        raise PosirError(f"{text}: the variable {error} has no value.") from error


def check_call(arguments: Sequence[str]) -> str | None:
    """Return why a program does not take these arguments; None if it does, or is neither `posir`
    nor `mteb`.
    """
    program, *rest = arguments
    if program not in PROGRAMS:
        return f"'{program}' is none of the programs {' and '.join(PROGRAMS)}"
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            _parse_mteb(rest) if program == "mteb" else _parse_posir(rest)
    except (typer.Exit, SystemExit) as ended:
        # `--help` ends the program, too.
        failed = getattr(ended, "exit_code", getattr(ended, "code", 0))
        return " ".join(said.getvalue().split()) if failed else None
    except PosirError as error:
        return str(error)
    except Exception as error:  # Click has its own errors, and typer may hold a copy of Click
        if not hasattr(error, "format_message"):
            raise
        return str(error.format_message())
    return None


def _parse_mteb(arguments: list[str]) -> None:
    from mteb.cli.build_cli import build_cli

    build_cli().parse_args(arguments)


@cache
def _build_command() -> Any:
    from posir_tasks.command.app import build_app

    return typer.main.get_command(build_app())


def _parse_posir(arguments: list[str]) -> None:
    command, name, context = _build_command(), "posir", None
    while True:
        context = command.make_context(name, arguments, parent=context)
        if not hasattr(context.command, "commands"):
            return
        name, command, arguments = context.command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
