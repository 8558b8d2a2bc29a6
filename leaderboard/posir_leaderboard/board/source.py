"""Sources of results: a folder, or a dataset repository of the Hub."""

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
#: Files that are downloaded from one.
RESULTS = "results/**/*.json"


def is_repository(results: str) -> bool:
    """Return whether results name a dataset repository: there is no such folder, and the name is valid."""
    return not Path(results).exists() and REPOSITORY.fullmatch(results) is not None


@contextmanager
def open_results(results: str) -> Iterator[Path]:
    """Yield a folder of results, or a temporary copy of a dataset repository on the Hub.

    Raises:
        PosirError: It is neither, or the repository cannot be read.
    """
    if not is_repository(results):
        if not Path(results).is_dir():
            raise PosirError(f"{results}: no such folder. Give the --output-folder of `mteb run`, or ORG/NAME on the Hub.")
        yield Path(results)
        return
    with tempfile.TemporaryDirectory() as folder:
        # Files in the Hub's cache are links, which are refused in untrusted results; so they are copied.
        snapshot = download(results)
        yield Path(shutil.copytree(snapshot, Path(folder) / "results"))


def download(repository: str) -> str:
    """Download a dataset repository's results to the Hub's cache; return their folder; raise PosirError on failure."""
    try:
        return snapshot_download(repository, repo_type="dataset", allow_patterns=[RESULTS])
    except (OSError, HfHubHTTPError) as error:
        raise PosirError(
            f"{repository}: no such folder, and no dataset repository of the Hub that can be read ({type(error).__name__}). "
            "Give the --output-folder of `mteb run`, or ORG/NAME; for a private repository, log in with `hf auth login`."
        ) from error
