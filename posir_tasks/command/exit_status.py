"""Error messages and exit status of commands."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distributions

#: Exit status for an inconclusive check and for invalid options.
UNDECIDED = 2

#: Operating system errors caused by a path that the user gave.
REFUSED = frozenset(
    {
        errno.ENAMETOOLONG,
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
    }
)
#: Model libraries that may not be installed.
MODEL_LIBRARIES = frozenset({"torch", "transformers", "sentence_transformers"})
#: Maximum number of characters of a path in a message.
MAX_NAME = 300

logger = logging.getLogger(__name__)


@contextmanager
def exit_inconclusive_on_error() -> Iterator[None]:
    """Exit with status 2 on any error, since status 1 means that a check failed."""
    try:
        with report_errors(UNDECIDED):
            yield
    except Exception:
        logger.exception("unexpected error: the check has no verdict")
        sys.exit(UNDECIDED)


@contextmanager
def report_errors(status: int = 1) -> Iterator[None]:
    """Print user errors, unusable files and a full disk as messages, and exit with `status`."""
    from posir_tasks.base.errors import PosirError, UsageError
    from posir_tasks.base.files import DISK_FULL

    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except UsageError as error:
        command = error.command or " ".join(["posir", *sys.argv[1:2]])
        exit_with(f"{error}\nSee `{command} --help`.", UNDECIDED)
    except PosirError as error:
        exit_with(str(error), status)
    except ModuleNotFoundError as error:
        # `posir-gate` lacks some libraries, mteb-core has no model libraries.
        is_gate = any(distributions(name="posir-gate"))
        if not is_gate and str(error.name).partition(".")[0] not in MODEL_LIBRARIES:
            raise
        exit_with(
            f"This command needs {error.name}, which is not installed. Run `pip install posir "
            "torch sentence-transformers`, in a new environment if this one has posir-gate.",
            status,
        )
    except OSError as error:
        if error.filename and error.errno in REFUSED:
            # The user may have passed a long text as a path.
            path = str(error.filename)
            if len(path) > MAX_NAME:
                path = f"{path[:MAX_NAME]}..."
            exit_with(
                f"{path}: {error.strerror}. Use another file or folder, or change its permissions.",
                status,
            )
        if error.errno not in DISK_FULL:
            raise
        # Python would flush standard output at exit, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        exit_with(
            f"{error.filename or 'standard output'}: not enough disk space ({error.strerror}). "
            "Free some space.",
            status,
        )


def exit_with(message: str, status: int) -> None:
    """Print an error and exit with a status."""
    print_message(message, "error")
    sys.exit(status)


def print_message(message: str, kind: str = "") -> None:
    """Print a message to standard error, after its kind in red; wrap only in a terminal."""
    from rich.console import Console
    from rich.text import Text

    from posir_tasks.base.wording import escape_controls
    from posir_tasks.display.tables import wrap

    console = Console(stderr=True)
    text = escape_controls(f"{kind}: {message}" if kind else message)
    lines = text.split("\n")
    if console.is_terminal:
        lines = [part for line in lines for part in wrap(line, console.width)]
    output = Text("\n".join(lines))
    output.stylize("bold red", 0, len(kind))
    console.print(output, soft_wrap=True)
