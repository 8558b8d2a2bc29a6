"""The commands of `posir` with their options, imported, and calls of them in this process."""

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest import mock

from posir_tasks.base.errors import UsageError
from posir_tasks.base.public import DECLARATION, Declaration, Parameter
from posir_tasks.command.app import INTERRUPTED
from posir_tasks.command.commands import list_commands, load_command, run_command
from posir_tasks.command.options import list_function_options, list_shared_options


@dataclass(frozen=True)
class Called:
    """A call of a command that has ended."""

    exit_code: int
    stdout: str
    stderr: str
    exception: BaseException | None

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


@cache
def function_commands() -> Mapping[str, Any]:
    """Return the public function of every command by its name, such as `build sample`."""
    targets = {command.name: load_command(command) for command in list_commands()}
    return {name: target for name, target in targets.items() if hasattr(target, DECLARATION)}


def command_parameters() -> Iterator[tuple[str, list[Parameter]]]:
    """Yield every command with its arguments and options."""
    for name, function in function_commands().items():
        declaration: Declaration = getattr(function, DECLARATION)
        yield name, [*list_function_options(function), *list_shared_options(declaration)]


def name_option(parameter: Parameter) -> str:
    """Return the long name of an option."""
    return f"--{parameter.name.replace('_', '-')}"


def call_posir(
    words: Iterable[object],
    *,
    env: Mapping[str, str] | None = None,
    catch_exceptions: bool = True,
    run: Callable[[list[str]], int] = run_command,
) -> Called:
    """Run a command line in this process, as the program `posir` does."""
    stdout = io.StringIO()
    stderr = io.StringIO()
    exception: BaseException | None = None
    status: Any = 1
    with redirect_stdout(stdout), redirect_stderr(stderr), mock.patch.dict(os.environ, env or {}):
        try:
            status = run(list(map(str, words)))
        except SystemExit as ended:
            exception = ended
            status = ended.code
        except KeyboardInterrupt as interruption:
            exception = interruption
            status = INTERRUPTED
            print(interruption, file=sys.stderr)
        except UsageError as error:
            exception = error
            status = 2
            print(error, file=sys.stderr)
        except Exception as error:
            if not catch_exceptions:
                raise
            exception = error
    return Called(status or 0, stdout.getvalue(), stderr.getvalue(), exception)


def invoke(*arguments: object) -> str:
    """Run a command and return what it prints; raise what it raises."""
    called = call_posir(arguments)
    if called.exception and not isinstance(called.exception, SystemExit):
        raise called.exception
    return called.stdout
