"""Errors that a user can fix. Messages state the problem, the allowed values and advice."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

from posir_tasks.base.logs import sanitize_own_records
from posir_tasks.base.secrets import collect_secrets
from posir_tasks.base.wording import escape_controls


class PosirError(Exception):
    """A mistake in input, data or environment. Commands print the message without a traceback and
    exit with status 1.

    Secrets and control characters are removed from the message and from the chain of errors.
    """

    def __init__(self, *args: object) -> None:
        """Build the error, usually from one message."""
        collect_secrets()
        super().__init__(*map(_sanitize, args))
        # The cause is the exception that is being handled.
        sanitize_chain(sys.exception())

    reason: str = ""
    """Message of a server that rejected a request."""


class UsageError(PosirError):
    """A wrong command line. Commands exit with status 2."""

    def __init__(self, message: str, command: str = "") -> None:
        super().__init__(message)
        self.command = command
        """Command whose help explains the usage; empty for the current command."""


class NoResponseError(PosirError):
    """A server accepted a request but did not respond in time."""


class DataError(PosirError):
    """The data violates its format. The message names file, row and field."""


class GateError(DataError):
    """Untrusted input is unreadable or ambiguous. The message names source and location."""

    def __init__(self, name: object, problem: str) -> None:
        """Build the message `name: problem`."""
        super().__init__(f"{name}: {problem}")
        self.problem = problem

    is_not_finite: bool = False
    """If true, the only problem is a number that is NaN or infinite."""


class ScoreError(PosirError):
    """A model's scores cannot be ranked (NaN)."""


class ProfileError(PosirError):
    """An additive value, such as a profile, cannot be read or added."""

    def __init__(self, message: str, field: str = "") -> None:
        """Build the error; `field` is the key of the invalid value, or empty."""
        super().__init__(message)
        self.field = field


class NewerSchemaError(PosirError):
    """Data was written by a newer version of posir."""


def check_schema(schema: int, newest: int, what: str) -> None:
    """Raise NewerSchemaError if a schema is newer than `newest`. `what` is the subject of the
    message, such as `This profile`.
    """
    if schema > newest:
        raise NewerSchemaError(
            f"{what} has schema {schema}; this version of posir reads up to {newest}. Update posir"
        )


def summarize_error(error: BaseException) -> str:
    """Summarize an error: its type and the first line of its message. For pydantic errors, the
    first field and its problem.
    """
    # The import is slow.
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'JSON'}: {first['msg']}"
    return ": ".join([type(error).__name__, *str(error).splitlines()[:1]])


def _sanitize(value: object) -> object:
    return escape_controls(value) if isinstance(value, str) else value


def sanitize_chain(error: BaseException | None) -> None:
    """Remove secrets and control characters from an error and its causes.

    Tracebacks print the whole chain. Causes that cannot be changed are detached.
    """
    visited: set[int] = set()
    while error is not None and id(error) not in visited:
        visited.add(id(error))
        _sanitize_error(error)
        for name in ("__context__", "__cause__"):
            cause = getattr(error, name)
            if cause is not None and not _sanitize_error(cause):
                setattr(error, name, None)
        error = error.__cause__ or error.__context__


@contextmanager
def sanitize_errors() -> Iterator[None]:
    """Remove secrets and control characters from errors that are raised in the context."""
    try:
        yield
    except Exception as error:
        collect_secrets()
        sanitize_chain(error)
        raise


def _sanitize_error(error: BaseException) -> bool:
    """Remove secrets and control characters from an error; return True on success."""
    if _is_clean(error):
        return True
    with suppress(Exception):
        error.args = tuple(map(_sanitize, error.args))
        for name in ("strerror", "filename", "msg", "text", "__notes__"):
            value = getattr(error, name, None)
            safe = [*map(_sanitize, value)] if isinstance(value, list) else _sanitize(value)
            if safe != value:
                setattr(error, name, safe)
    return _is_clean(error)


def _is_clean(error: BaseException) -> bool:
    texts = (str(error), *getattr(error, "__notes__", ()))
    return all(escape_controls(text) == text for text in texts)


def hide_tracebacks() -> None:
    """Make Python print an uncaught `PosirError` without a traceback."""
    original_hook = sys.excepthook
    if getattr(original_hook, "of_posir", False):
        return

    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, PosirError):
            print(f"error: {escape_controls(str(error))}", file=sys.stderr)
        else:
            original_hook(kind, error, traceback)

    hook.of_posir = True  # type: ignore[attr-defined]
    sys.excepthook = hook


# All modules that log import this module.
sanitize_own_records()
