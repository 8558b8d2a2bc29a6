"""Record what could not be added to mteb, so that mteb itself keeps working and `posir doctor` can report it."""

import sys
from importlib.metadata import version

#: What could not be added to mteb in this process, and why.
failures: list[str] = []


def record_failure(patch: str, error: Exception) -> None:
    """Record that a patch failed; the first failure is also printed, as one line on stderr."""
    if not failures:
        print(
            f"posir: {patch} failed for mteb {version('mteb')} ({type(error).__name__}: {error}). mteb works without it. "
            "Run `posir doctor`, install versions that fit (`pip install 'mteb>=2.26.24,<3'` and the newest posir), or silence "
            "this with POSIR_AUTOLOAD=0.",
            file=sys.stderr,
        )
    failures.append(f"{patch}: {type(error).__name__}: {error}")
