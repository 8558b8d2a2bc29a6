"""Errors that users can fix. Messages state the problem, the allowed values and the next step."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

from posir_tasks.base.logs import sanitize_posir_records
from posir_tasks.base.secrets import collect_secrets
from posir_tasks.base.wording import escape_controls


class PosirError(Exception):
    """An error in the input, data or environment. Commands print the message without a traceback
    and exit with status 1.

    Secrets and control characters are removed from the message and from chained exceptions.
    """

    def __init__(self, *args: object) -> None:
        """Build the error, usually from a single message."""
        collect_secrets()
        super().__init__(*map(_sanitize, args))
        # The cause is the exception that is being handled.
        sanitize_chain(sys.exception())

    reason: str = ""
    """Message of the server if it rejected a request."""


class UsageError(PosirError):
    """An invalid command line. Commands exit with status 2."""

    def __init__(self, message: str, command: str = "") -> None:
        super().__init__(message)
        self.command = command
        """Command whose help explains the usage, or "" for the current command."""


class NoResponseError(PosirError):
    """A server accepted a request but did not respond in time."""


class DataError(PosirError):
    """The data violates its format. The message names file, row and field."""


class InputError(DataError):
    """Untrusted input is unreadable or ambiguous. The message names the source and the location."""

    def __init__(self, name: object, problem: str) -> None:
        """Build the message `name: problem`."""
        super().__init__(f"{name}: {problem}")
        self.problem = problem

    is_not_finite: bool = False
    """Whether the only problem is a number that is NaN or infinite."""


class ScoreError(PosirError):
    """A model's scores cannot be ranked (NaN)."""


class ProfileError(PosirError):
    """An additive value, such as a position profile, cannot be read or added."""

    def __init__(self, message: str, field: str = "") -> None:
        """Build the error. `field` is the key of the invalid value, or ""."""
        super().__init__(message)
        self.field = field


class NewerSchemaError(PosirError):
    """Data was written by a newer version of posir."""


def check_schema(schema: int, newest: int, subject: str) -> None:
    """Raise NewerSchemaError if a schema is newer than `newest`.

    The message begins with `subject`, such as `This profile`.
    """
    if schema > newest:
        raise NewerSchemaError(
            f"{subject} has schema {schema}; this version of posir reads up to {newest}. Update "
            "posir"
        )


def summarize_error(error: BaseException) -> str:
    """Summarize an error in a line: type and first line of the message, or for pydantic errors the
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
    """Remove secrets and control characters from an error and its causes, which tracebacks print.

    Causes that cannot be changed are removed from the chain.
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
    """Remove secrets and control characters from errors raised in the context."""
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
    if getattr(original_hook, "is_from_posir", False):
        return

    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, PosirError):
            print(f"error: {escape_controls(str(error))}", file=sys.stderr)
        else:
            original_hook(kind, error, traceback)

    hook.is_from_posir = True  # type: ignore[attr-defined]
    sys.excepthook = hook


# All modules that log import this module.
sanitize_posir_records()
