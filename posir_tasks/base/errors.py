"""Errors for the user to fix: what was wrong, what is allowed, what to do."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

from posir_tasks.base.logs import sanitize_own_records
from posir_tasks.base.secrets import collect_secrets
from posir_tasks.base.wording import escape_controls


class PosirError(Exception):
    """A mistake in input, data or environment. Commands print its text, without a traceback, and
    exit with status 1.

    The text has neither secrets nor control characters, and neither have the errors that it is
    raised from.
    """

    def __init__(self, *args: object) -> None:
        """Make the error, usually of one message."""
        collect_secrets()
        super().__init__(*map(_sanitize_argument, args))
        # It is made where the cause is handled.
        sanitize_chain(sys.exception())

    reason: str = ""
    """The own message of a server that refuses what it was sent."""


class UsageError(PosirError):
    """A wrong command line. Commands exit with status 2."""

    def __init__(self, message: str, command: str = "") -> None:
        super().__init__(message)
        self.command = command
        """The command whose help says more; empty for that of the process."""


class NoAnswerError(PosirError):
    """A server accepted a request and did not answer it in time: neither a refusal nor a
    failure.
    """


class DataError(PosirError):
    """The data violates its format. The message names file, row and field."""


class ScoreError(PosirError):
    """A model's scores cannot be ranked (NaN)."""


class ProfileError(PosirError):
    """A profile, or another value counted per cell, cannot be read, or two of them cannot be
    added.
    """

    def __init__(self, message: str, field: str = "") -> None:
        """Make the error; `field` is the key of the value that is wrong, as far as it is known."""
        super().__init__(message)
        self.field = field


class NewerSchemaError(PosirError):
    """Data was written by a newer version of posir."""


def check_schema(schema: int, newest: int, what: str) -> None:
    """Raise NewerSchemaError if data has a newer schema than is read; `what` is the subject, such
    as `This profile`.
    """
    if schema > newest:
        raise NewerSchemaError(
            f"{what} has schema {schema}; this version of posir reads up to {newest}. Update posir"
        )


def summarize_error(error: BaseException) -> str:
    """Name the type of an error and the first line of its message; of a pydantic error the first
    field and its problem.
    """
    # Pydantic takes longer to import than the rest of the command line.
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'JSON'}: {first['msg']}"
    return ": ".join([type(error).__name__, *str(error).splitlines()[:1]])


def _sanitize_argument(argument: object) -> object:
    return escape_controls(argument) if isinstance(argument, str) else argument


def sanitize_chain(error: BaseException | None) -> None:
    """Remove secrets and control characters from an error and those that it was raised from.

    Python prints all of them in a traceback. A cause that cannot be changed is detached.
    """
    passed: set[int] = set()
    while error is not None and id(error) not in passed:
        passed.add(id(error))
        _sanitize_error(error)
        for name in ("__context__", "__cause__"):
            cause = getattr(error, name)
            if cause is not None and not _sanitize_error(cause):
                setattr(error, name, None)
        error = error.__cause__ or error.__context__


@contextmanager
def sanitize_errors() -> Iterator[None]:
    """Remove secrets and control characters from whatever error leaves the context."""
    try:
        yield
    except Exception as error:
        collect_secrets()
        sanitize_chain(error)
        raise


def _sanitize_error(error: BaseException) -> bool:
    """Remove secrets and control characters from an error; return whether that was possible."""
    if _is_clean(error):
        return True
    with suppress(Exception):
        error.args = tuple(map(_sanitize_argument, error.args))
        for name in ("strerror", "filename", "msg", "text", "__notes__"):
            value = getattr(error, name, None)
            if isinstance(value, list):
                setattr(error, name, list(map(_sanitize_argument, value)))
            elif isinstance(value, str):
                setattr(error, name, escape_controls(value))
    return _is_clean(error)


def _is_clean(error: BaseException) -> bool:
    texts = (str(error), *getattr(error, "__notes__", ()))
    return all(escape_controls(text) == text for text in texts)


def hide_tracebacks() -> None:
    """Make Python print an uncaught `PosirError` as one message without a traceback."""
    before = sys.excepthook
    if getattr(before, "of_posir", False):
        return

    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, PosirError):
            print(f"error: {escape_controls(str(error))}", file=sys.stderr)
        else:
            before(kind, error, traceback)

    hook.of_posir = True  # type: ignore[attr-defined]
    sys.excepthook = hook


# Every module that logs imports this one.
sanitize_own_records()
