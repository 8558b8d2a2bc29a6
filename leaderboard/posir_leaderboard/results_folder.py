"""Folders of results, on this machine or copied from the Hub."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from posir_leaderboard.entries import PINS
from posir_tasks.base.errors import PosirError

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
#: Patterns of the files to copy from a repository.
RESULT_PATTERNS = ["results/**/*.json", "reproduced/**/*.json", PINS]


def is_repository(results: str) -> bool:
    """Return True for a valid repository name, unless a path with this name exists."""
    return not Path(results).exists() and REPOSITORY.fullmatch(results) is not None


@dataclass(frozen=True)
class ResultsFolder:
    """A folder of results, or a copy of a dataset repository."""

    folder: Path
    """The folder, or the temporary copy of the repository."""
    repository: str | None = None
    """Name of the repository; None for a folder."""
    commit: str | None = None
    """Commit of the repository; None for a folder or an empty repository."""

    def replace_path(self, text: str) -> str:
        """Replace the path of the copy with the name of the repository in a message."""
        if self.repository is None:
            return text
        return text.replace(f"{self.folder}/", f"{self.repository}: ")


@contextmanager
def open_results(results: str, patterns: list[str] = RESULT_PATTERNS) -> Iterator[ResultsFolder]:
    """Yield a folder of results, or a temporary copy of a dataset repository on the Hub.

    Args:
        results: The folder, or the name of the repository.
        patterns: Patterns of the files to copy.

    Raises:
        PosirError: The folder or repository does not exist, or the Hub does not answer.
    """
    if not is_repository(results):
        if not Path(results).is_dir():
            raise PosirError(
                f"{results}: no such folder. Give the --output-folder of `mteb run`, or ORG/NAME "
                "on the Hub."
            )
        yield ResultsFolder(Path(results))
        return
    # The Hub's client is slow to import.
    from posir_leaderboard.submission import copy_repository

    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder).resolve() / "results"
        copy.mkdir()
        yield ResultsFolder(copy, results, copy_repository(results, patterns, copy))
