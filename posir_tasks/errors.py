"""Errors that are the user's to mend: what was wrong, what is allowed, what to do."""

import sys
from types import TracebackType


class PosirError(Exception):
    """A mistake in input, data or environment. Commands print its text, without a traceback, and exit with status 1."""


class DataError(PosirError):
    """The data is not what the loader demands. Names file, row and field."""


class ScoreError(PosirError):
    """A model's scores cannot be ranked (NaN)."""


class ProfileError(PosirError):
    """A stored profile cannot be read, or two profiles cannot be added."""


def summarize_error(error: BaseException) -> str:
    """Return another library's error in one line: its type, and the first line of its message."""
    return ": ".join([type(error).__name__, *str(error).splitlines()[:1]])


def hide_tracebacks() -> None:
    """Have Python print an uncaught `PosirError` as one message; every other error is printed as before."""
    before = sys.excepthook
    if getattr(before, "of_posir", False):
        return

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if isinstance(error, PosirError):
            print(f"error: {error}", file=sys.stderr)
        else:
            before(kind, error, traceback)

    hook.of_posir = True  # type: ignore[attr-defined]
    sys.excepthook = hook
