"""The end of a command by an error: a message and an exit status, of their own for a check that
cannot be decided.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distributions

#: Exit status if a check cannot be decided, and for wrong options.
UNDECIDED = 2

#: Errors of the operating system for a file or folder that the user named.
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
#: Libraries of models, which an installation may lack.
MODEL_LIBRARIES = frozenset({"torch", "transformers", "sentence_transformers"})
#: Most characters of its name that are shown.
MAX_NAME = 300

logger = logging.getLogger(__name__)


@contextmanager
def undecided_on_error() -> Iterator[None]:
    """Exit with the status of an undecided check if anything fails: status 1 says that the check
    fails.
    """
    try:
        with report_errors(UNDECIDED):
            yield
    except Exception:
        logger.exception("an unexpected error, which is no verdict")
        sys.exit(UNDECIDED)


@contextmanager
def report_errors(status: int = 1) -> Iterator[None]:
    """Report a user's mistake, a file that cannot be used and a full disk on the error stream, and
    exit with a status.
    """
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
        # `posir-gate` has a part of the modules and libraries, mteb-core none for models.
        is_part = any(distributions(name="posir-gate"))
        if not is_part and str(error.name).partition(".")[0] not in MODEL_LIBRARIES:
            raise
        exit_with(
            f"this needs {error.name}, which is not installed. Run `pip install posir torch "
            "sentence-transformers`, instead of posir-gate in another environment.",
            status,
        )
    except OSError as error:
        if error.filename and error.errno in REFUSED:
            # A name may be a text that was given in its place.
            name = str(error.filename)
            shown = name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}..."
            exit_with(
                f"{shown}: {error.strerror}. Give another file or folder, or change its "
                "permissions.",
                status,
            )
        if error.errno not in DISK_FULL:
            raise
        # Python flushes standard output at exit, and would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        exit_with(
            f"{error.filename or 'standard output'}: not enough disk space ({error.strerror}). "
            "Free some space.",
            status,
        )


def exit_with(message: str, status: int) -> None:
    """Print an error and exit with a status."""
    say(message, "error")
    sys.exit(status)


def say(message: str, kind: str = "") -> None:
    """Print a message on the error stream, after its kind in red, in lines as wide as a terminal; a
    log has it as it is.
    """
    from rich.console import Console
    from rich.text import Text

    from posir_tasks.base.wording import escape_controls
    from posir_tasks.display.tables import wrap

    console = Console(stderr=True)
    text = escape_controls(f"{kind}: {message}" if kind else message)
    lines = text.split("\n")
    if console.is_terminal:
        lines = [part for line in lines for part in wrap(line, console.width)]
    printed = Text("\n".join(lines))
    printed.stylize("bold red", 0, len(kind))
    console.print(printed, soft_wrap=True)
