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
from itertools import takewhile
from string import Template

from posir_tasks.base.errors import PosirError
from posir_tasks.command.commands import check_words

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
        assignments = (f"{name}={value}" for name, value in self.environment.items())
        return shlex.join([*assignments, *self.arguments])


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
    """Describe why a program does not take these arguments; None if it takes them.

    Args:
        arguments: A program and its arguments.
    """
    program, *rest = arguments
    if program not in PROGRAMS:
        return f"'{program}' is not {' or '.join(PROGRAMS)}"
    if program == "mteb":
        return _check_mteb(rest)
    try:
        check_words(rest)
    except PosirError as error:
        return str(error)
    return None


def _check_mteb(arguments: list[str]) -> str | None:
    from mteb.cli.build_cli import build_cli

    printed = io.StringIO()
    try:
        with redirect_stderr(printed):
            build_cli().parse_args(arguments)
    except SystemExit as ended:
        # `--help` ends the program, too.
        return " ".join(printed.getvalue().split()) if ended.code else None
    return None
