"""The `posir` command: its own subcommands, and those that plugins add.

The module imports nothing slow, so that Ctrl-C ends the command without a traceback while the rest is imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

#: Exit status after Ctrl-C, by convention of the shell.
INTERRUPTED = 130


def build_app() -> typer.Typer:
    """Return the application with every plugin's commands, none of which is imported yet."""
    import typer

    from posir_tasks.command.lazy import LazyGroup

    def posir() -> None:
        """Does an embedding model read to the end of a document, and does it prefer its beginning?"""

    app = typer.Typer(cls=LazyGroup, add_completion=False, pretty_exceptions_enable=False)
    app.callback()(posir)
    return app


def main() -> None:
    """Run the command. A user's mistake is reported as one message, with exit status 1."""
    try:
        run_app()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)


def run_app() -> None:
    """Run the command, and report a user's mistake and a full disk."""
    from posir_tasks.display.encoding import make_output_encodable

    make_output_encodable()
    with report_errors():
        build_app()(sys.argv[1:] or ["--help"])


@contextmanager
def report_errors(status: int = 1) -> Iterator[None]:
    """Report a user's mistake and a full disk on the error stream, and exit with a status."""
    from posir_tasks.errors import PosirError
    from posir_tasks.files import DISK_FULL

    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except PosirError as error:
        exit_with(str(error), status)
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        # Python flushes standard output at exit, and would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        exit_with(f"{error.filename or 'standard output'}: not enough disk space ({error.strerror}). Free some space.", status)


def exit_with(message: str, status: int) -> None:
    """Print an error and exit with a status."""
    from rich.console import Console
    from rich.text import Text

    from posir_tasks.display.wording import escape_controls

    Console(stderr=True).print(Text.assemble(("error", "bold red"), f": {escape_controls(message)}"), soft_wrap=True)
    sys.exit(status)
