"""Where results come from: a folder, or a dataset repository of the Hub."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError

from posir_tasks.errors import PosirError

#: Name of a dataset repository.
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
#: What is downloaded of one.
RESULTS = "results/**/*.json"


def is_repository(results: str) -> bool:
    """Say whether results are to be read from a dataset repository: there is no such folder, and it can be the name of one."""
    return not Path(results).exists() and REPOSITORY.fullmatch(results) is not None


@contextmanager
def results_folder(results: str) -> Iterator[Path]:
    """Give the folder of results: the one named, or a copy of a dataset repository's.

    Args:
        results: A folder, or the name of a dataset repository on the Hub.

    Raises:
        PosirError: It is neither, or the repository cannot be read.
    """
    if not is_repository(results):
        if not Path(results).is_dir():
            raise PosirError(f"{results}: no such folder. Give the --output-folder of `mteb run`, or ORG/NAME on the Hub.")
        yield Path(results)
        return
    with tempfile.TemporaryDirectory() as folder:
        # In the Hub's cache files are links, which nobody who reads untrusted files should follow; so they are copied.
        snapshot = download(results)
        yield Path(shutil.copytree(snapshot, Path(folder) / "results"))


def download(repository: str) -> str:
    """Download the results of a dataset repository to the Hub's cache, and return their folder.

    Raises:
        PosirError: It cannot be read.
    """
    try:
        return snapshot_download(repository, repo_type="dataset", allow_patterns=[RESULTS])
    except (OSError, HfHubHTTPError) as error:
        raise PosirError(
            f"{repository}: no such folder, and no dataset repository of the Hub that can be read ({type(error).__name__}). "
            "Give the --output-folder of `mteb run`, or ORG/NAME; for a private repository, log in with `hf auth login`."
        ) from error
