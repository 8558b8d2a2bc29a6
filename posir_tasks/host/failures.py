"""Record what could not be added to mteb, so that mteb itself keeps working and `posir doctor` can report it."""

import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

from posir_tasks.errors import PosirError

T = TypeVar("T")

#: The newest version of mteb that posir was tested with.
NEWEST_TESTED = "2.26.24"
#: What could not be added to mteb in this process, and why.
failures: list[str] = []


def record_failure(patch: str, error: Exception) -> None:
    """Record that a patch failed; the first failure is also printed, as one line on stderr."""
    if not failures:
        print(
            f"posir: {patch} failed for mteb {installed_mteb()} ({type(error).__name__}: {error}). mteb works without it. "
            "Run `posir doctor`, install versions that fit (`pip install 'mteb>=2.26.24,<3'` and the newest posir), or silence "
            "this with POSIR_AUTOLOAD=0.",
            file=sys.stderr,
        )
    if (failure := f"{patch}: {type(error).__name__}: {error}") not in failures:
        failures.append(failure)


def step_aside(patch: str, function: Callable[..., T], *arguments: Any, otherwise: T) -> T:
    """Call a function of a patch; if the installed mteb is not as it expects, record that and return what mteb alone has.

    Raises:
        PosirError: The function raises it, for the user.
    """
    try:
        return function(*arguments)
    except PosirError:
        raise
    except Exception as error:  # any change of mteb may be behind it
        record_failure(patch, error)
        return otherwise


def installed_mteb() -> str:
    """Return the version of the installed mteb."""
    try:
        return version("mteb")
    except PackageNotFoundError:
        return "(of an unknown version)"


def describe_untested() -> str | None:
    """Return a sentence if the installed mteb is newer than any that posir was tested with, else None."""
    from packaging.version import InvalidVersion, Version

    try:
        newer = Version(installed_mteb()) > Version(NEWEST_TESTED)
    except InvalidVersion:
        return None
    return (
        f"mteb {installed_mteb()} is newer than {NEWEST_TESTED}, the newest that posir was tested with. If anything fails, run "
        "`posir doctor` and install the newest posir."
        if newer
        else None
    )


def warn_untested() -> None:
    """Print one line on stderr if mteb is newer than any that posir was tested with."""
    if sentence := describe_untested():
        print(f"posir: {sentence}", file=sys.stderr)
