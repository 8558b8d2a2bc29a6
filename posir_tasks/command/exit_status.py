"""Report errors of commands and choose the exit status."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distributions

#: Exit status for an inconclusive check and for invalid options.
INCONCLUSIVE_STATUS = 2

#: Operating system errors that an unsuitable path causes.
PATH_ERRORS = frozenset(
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
        with report_errors(INCONCLUSIVE_STATUS):
            yield
    except Exception:
        logger.exception("unexpected error: the check has no verdict")
        sys.exit(INCONCLUSIVE_STATUS)


@contextmanager
def report_errors(status: int = 1) -> Iterator[None]:
    """Print user errors, file errors and a full disk without a traceback; exit with `status`."""
    from posir_tasks.base.errors import PosirError, UsageError
    from posir_tasks.base.files import DISK_FULL

    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except UsageError as error:
        command = error.command or " ".join(["posir", *sys.argv[1:2]])
        exit_with(f"{error}\nSee `{command} --help`.", INCONCLUSIVE_STATUS)
    except PosirError as error:
        exit_with(str(error), status)
    except ModuleNotFoundError as error:
        # Installations of posir-gate and of mteb without models do not include all libraries.
        is_gate = any(distributions(name="posir-gate"))
        if not is_gate and str(error.name).partition(".")[0] not in MODEL_LIBRARIES:
            raise
        exit_with(
            f"This command needs {error.name}, which is not installed. Run `pip install posir "
            "torch sentence-transformers`, in a new environment if this one has posir-gate.",
            status,
        )
    except OSError as error:
        if error.filename and error.errno in PATH_ERRORS:
            # The path may be a long text by mistake.
            path = str(error.filename)
            if len(path) > MAX_NAME:
                path = f"{path[:MAX_NAME]}..."
            exit_with(
                f"{path}: {error.strerror}. Use another file or folder, or change its permissions.",
                status,
            )
        if error.errno not in DISK_FULL:
            raise
        # Otherwise, Python flushes standard output at exit and fails again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        exit_with(
            f"{error.filename or 'standard output'}: not enough disk space ({error.strerror}). "
            "Free some space.",
            status,
        )


def exit_with(message: str, status: int) -> None:
    """Print an error message and exit."""
    print_message(message, "error")
    sys.exit(status)


def print_message(message: str, kind: str = "") -> None:
    """Print a message to standard error, prefixed with its kind in red. Wrap it in a terminal."""
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
