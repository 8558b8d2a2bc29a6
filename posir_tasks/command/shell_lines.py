"""Expand and check shell lines that call `posir` or `mteb`, without running them."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from string import Template

from posir_tasks.base.errors import PosirError
from posir_tasks.command.commands import check_words

#: Programs whose calls can be checked.
PROGRAMS = ("posir", "mteb")


@dataclass(frozen=True)
class Call:
    """A program call after variable expansion."""

    environment: Mapping[str, str]
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        assignments = (f"{name}={value}" for name, value in self.environment.items())
        return shlex.join([*assignments, *self.arguments])


def expand_line(line: str, variables: Mapping[str, str]) -> Iterator[Call]:
    """Yield the calls in a line, several if it is a loop, none if it is a comment.

    Raises:
        PosirError: A variable has no value.
    """
    if line.startswith("#"):
        return
    if loop := re.fullmatch(r"for (\w+) in (.+?); do (.+); done", line):
        for value in _substitute(loop[2], variables).split():
            yield from expand_line(loop[3], {**variables, loop[1]: value})
        return
    words = shlex.split(_substitute(line, variables))
    assignments = list(takewhile(partial(re.match, r"[A-Z_]+="), words))
    environment = dict(word.split("=", 1) for word in assignments)
    yield Call(environment, tuple(words[len(assignments) :]))


def _substitute(text: str, variables: Mapping[str, str]) -> str:
    try:
        return Template(text).substitute(variables)
    except (KeyError, ValueError) as error:
        raise PosirError(f"The variable {error} has no value: {text}") from error


def check_call(arguments: Sequence[str]) -> str | None:
    """Return the error message of a call, or None if it is valid.

    Args:
        arguments: The program and its arguments.
    """
    program, *program_arguments = arguments
    if program not in PROGRAMS:
        return f"'{program}' is not {' or '.join(PROGRAMS)}"
    output = io.StringIO()
    try:
        if program == "posir":
            check_words(program_arguments)
            return None
        from mteb.cli.build_cli import build_cli

        with redirect_stderr(output):
            build_cli().parse_args(program_arguments)
    except PosirError as error:
        return str(error)
    except SystemExit as exit_error:
        # `--help` also exits, with code 0.
        return " ".join(output.getvalue().split()) if exit_error.code else None
    return None
