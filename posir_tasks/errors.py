"""Errors for the user to fix: what was wrong, what is allowed, what to do."""

import sys
from types import TracebackType

from posir_tasks.display.wording import escape_controls


class PosirError(Exception):
    """A mistake in input, data or environment. Commands print its text, without a traceback, and exit with status 1."""

    reason: str = ""
    """The own message of a server that refuses what it was sent."""


class UsageError(PosirError):
    """A wrong value of an option. Commands exit with status 2, as for an option that there is not."""


class DataError(PosirError):
    """The data violates its format. The message names file, row and field."""


class ScoreError(PosirError):
    """A model's scores cannot be ranked (NaN)."""


class ProfileError(PosirError):
    """A profile, or another value counted per cell, cannot be read, or two of them cannot be added."""

    def __init__(self, message: str, field: str = "") -> None:
        """Make the error; `field` is the key of the value that is wrong, as far as it is known."""
        super().__init__(message)
        self.field = field


class NewerSchemaError(PosirError):
    """Data was written by a newer version of posir."""


def check_schema(schema: int, newest: int, what: str) -> None:
    """Raise NewerSchemaError if data has a newer schema than is read; `what` is the subject, such as `This profile`."""
    if schema > newest:
        raise NewerSchemaError(f"{what} has schema {schema}; this version of posir reads up to {newest}. Update posir")


def summarize_error(error: BaseException) -> str:
    """Return the type of an error and the first line of its message; of a pydantic error the first field and its problem."""
    # Pydantic takes longer to import than the rest of the command line.
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'JSON'}: {first['msg']}"
    return ": ".join([type(error).__name__, *str(error).splitlines()[:1]])


def hide_tracebacks() -> None:
    """Make Python print an uncaught `PosirError` as one message without a traceback."""
    before = sys.excepthook
    if getattr(before, "of_posir", False):
        return

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if isinstance(error, PosirError):
            print(f"error: {escape_controls(str(error))}", file=sys.stderr)
        else:
            before(kind, error, traceback)

    hook.of_posir = True  # type: ignore[attr-defined]
    sys.excepthook = hook
