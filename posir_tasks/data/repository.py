"""Access dataset files on the Hub or in the local folder `POSIR_DATA`."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TypeAlias

from posir_tasks.base.digests import digest, digest_files
from posir_tasks.base.errors import DataError, PosirError, summarize_error
from posir_tasks.base.files import find_files
from posir_tasks.base.progress import BRIEF_SECONDS, track

#: Folder to read instead of the Hub, with a subfolder per dataset (`PosIR-Benchmark-v1/`).
DATA_VARIABLE = "POSIR_DATA"
#: Overrides of pinned revisions, separated by spaces: `owner/name@<commit>`.
REVISIONS_VARIABLE = "POSIR_REVISIONS"
#: Timeout of Hub requests. After a timeout, the cache is used.
HUB_TIMEOUT_SECONDS = 20
#: Suffixes of data files: Parquet for most tasks, and all suffixes.
PARQUET = (".parquet",)
DATA_SUFFIXES = (*PARQUET, ".json", ".jsonl", ".json.gz", ".jsonl.gz")
#: Prefix of the revisions of local data.
LOCAL = "local"
#: Number of hexadecimal revision digits in a subset name.
REVISION_DIGITS = 8
REPOSITORY_NAME = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
COMMIT = re.compile("[0-9a-f]{40}")


class DataState(Enum):
    """Comparison of a subset's current data with the data of a saved result."""

    SAME = "same"
    CHANGED = "changed"
    """The data of the subset is different."""
    ABSENT = "absent"
    """The local folder does not contain the subset."""


def check_repository_name(repo_id: str) -> None:
    """Raise PosirError unless a name has the form `owner/name`."""
    if not REPOSITORY_NAME.fullmatch(repo_id):
        raise PosirError(
            f"repository '{repo_id}': not allowed; expected owner/name, as on the Hub."
        )


def is_hub_name(reference: str) -> bool:
    """Return True for `owner/name` or `owner/name:configuration`, unless it looks like a path."""
    return (
        REPOSITORY_NAME.fullmatch(reference.partition(":")[0]) is not None
        and not Path(reference).suffix
        and reference[0] not in ".~"
    )


@dataclass(frozen=True)
class LocalRepository:
    """A local folder."""

    root: Path
    prefix: str = ""
    """Path of `root` within the repository, such as `<language>/<domain>`."""

    @property
    def location(self) -> str:
        """The folder, for messages."""
        return f"folder {self.root}"

    def resolve_revision(self, paths: Iterable[str]) -> str:
        """Return `local-` and a digest of paths and contents, ignoring missing files."""
        located = {path: self.locate(path) for path in paths}
        files = {path: file for path, file in located.items() if file.is_file()}
        with track("Reading", delay=BRIEF_SECONDS):
            return f"{LOCAL}-{digest_files(files)}"

    def list_paths(self, folder: str = "", suffixes: tuple[str, ...] = PARQUET) -> list[str]:
        """List the files below a folder as sorted POSIX paths relative to the repository."""
        path_prefix = f"{self.prefix}/" if self.prefix else ""
        search_folder = self.root if self.prefix else self.root / folder
        files = find_files(search_folder, suffixes)
        paths = sorted(path_prefix + file.relative_to(self.root).as_posix() for file in files)
        return [path for path in paths if not folder or path.startswith(f"{folder}/")]

    def locate(self, path: str) -> Path:
        """Return the local path of a file, which may be missing."""
        return self.root / (path.removeprefix(f"{self.prefix}/") if self.prefix else path)

    def fetch(self, path: str) -> Path:
        """Return the local path of a file; raise ProblemsError if it is missing."""
        file = self.locate(path)
        if not file.is_file():
            fix = (
                f"Put the file there; if {DATA_VARIABLE} is set to this folder, unset it to read "
                "from the Hub instead."
            )
            # Imported lazily, since commands that only read results do not need polars.
            from posir_tasks.data.checks import DataProblem, raise_problems

            raise_problems([DataProblem(str(file), None, f"missing. {fix}")])
        return file


@dataclass(frozen=True)
class HubRepository:
    """A dataset repository on the Hugging Face Hub.

    If the Hub is unreachable, the cache is used. Methods raise DataError if it has no copy.
    """

    repo_id: str
    requested_revision: str
    """Branch, tag or commit."""

    @property
    def location(self) -> str:
        """The repository and revision, for messages."""
        return f"Hub dataset {self.repo_id}@{self.requested_revision}"

    def resolve_revision(self, paths: Iterable[str] = ()) -> str:  # noqa: ARG002
        """Return the commit of the requested revision."""
        return find_snapshot(self)[0]

    def list_paths(self, folder: str = "", suffixes: tuple[str, ...] = PARQUET) -> list[str]:
        """List the files below a folder as sorted paths; offline, only the cached files."""
        prefix = folder.rstrip("/") + "/" if folder else ""
        return [
            path
            for path in find_snapshot(self)[1]
            if path.startswith(prefix) and path.endswith(suffixes)
        ]

    def fetch(self, path: str) -> Path:
        """Download a file unless it is cached, and return its path; raise DataError on failure."""
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

        try:
            # A request by branch name stores the branch in the cache, for offline use.
            for revision in (self.requested_revision, self.resolve_revision()):
                file = hf_hub_download(self.repo_id, path, repo_type="dataset", revision=revision)
                if self.resolve_revision() in Path(file).parts:
                    break
            return Path(file)
        except DataError:
            raise
        except LocalEntryNotFoundError as error:
            raise self.make_access_error(error) from error
        except EntryNotFoundError as error:
            raise DataError(f"{self.location}: no such file: {path}.") from error
        # HTTP error types differ between versions of huggingface_hub.
        except Exception as error:
            raise self.make_access_error(error) from error

    def make_access_error(self, error: Exception) -> DataError:
        """Build the error for an unreadable repository, with advice."""
        folder = get_folder_name(self.repo_id)
        return DataError(
            f"{self.location}: cannot be read ({summarize_error(error)}). Check the network and, "
            f"for a private repository, `hf auth login`; or set {DATA_VARIABLE} to a folder that "
            f"contains `{folder}/` in the layout of the Hub, to read ${DATA_VARIABLE}/{folder} "
            "instead."
        )


Repository: TypeAlias = LocalRepository | HubRepository


@cache
def find_snapshot(repository: HubRepository) -> tuple[str, tuple[str, ...]]:
    """Return the commit and the data files of a repository, once per process.

    If the Hub is unreachable, the cache is used.

    Raises:
        DataError: The repository is neither reachable nor cached.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    name = repository.repo_id
    revision = repository.requested_revision
    try:
        info = HfApi().dataset_info(name, revision=revision, timeout=HUB_TIMEOUT_SECONDS)
    except HfHubHTTPError as error:
        raise repository.make_access_error(error) from error
    # HTTP error types differ between versions of huggingface_hub.
    except Exception as offline_error:
        try:
            cached = snapshot_download(
                name, repo_type="dataset", revision=revision, local_files_only=True
            )
        except LocalEntryNotFoundError as error:
            # Some versions raise an error for an incomplete download.
            cached = str(getattr(error, "snapshot_path", None) or "")
        if not cached:
            raise repository.make_access_error(offline_error) from offline_error
        paths = LocalRepository(Path(cached)).list_paths(suffixes=DATA_SUFFIXES)
        return Path(cached).name, tuple(paths)
    names = [sibling.rfilename for sibling in info.siblings or ()]
    return str(info.sha), tuple(sorted(name for name in names if name.endswith(DATA_SUFFIXES)))


def name_version(subset: str, revision: str) -> str:
    """Name one data revision of a subset."""
    digits = revision.removeprefix(f"{LOCAL}-")[:REVISION_DIGITS]
    return f"{subset}@{digits}"


def combine_revisions(revisions: Iterable[str]) -> str:
    """Join the distinct revisions of several subsets. Local revisions are combined into one."""
    distinct = sorted({*revisions})
    local = [revision for revision in distinct if revision.startswith(f"{LOCAL}-")]
    if len(local) > 1:
        combined = f"{LOCAL}-{digest(*local).hex()}"
        distinct = sorted({*distinct, combined} - {*local})
    return ", ".join(distinct)


def get_folder_name(repo_id: str) -> str:
    """Return the folder name of a repository below `POSIR_DATA`, which is its id without owner."""
    return repo_id.split("/")[-1]


def get_data_folder() -> Path | None:
    """Return the folder `POSIR_DATA`, or None."""
    value = os.environ.get(DATA_VARIABLE)
    return Path(value).expanduser().resolve() if value else None


def choose_revision(repo_id: str, pinned: str) -> str:
    """Return the revision from `POSIR_REVISIONS`, or else the pinned revision."""
    entries = os.environ.get(REVISIONS_VARIABLE, "").split()
    pairs = [entry.partition("@") for entry in entries]
    return {name: revision for name, _, revision in pairs}.get(repo_id) or pinned


def check_environment() -> None:
    """Raise PosirError if `POSIR_DATA` is not a folder or `POSIR_REVISIONS` is malformed."""
    folder = get_data_folder()
    if folder is not None and not folder.is_dir():
        raise PosirError(
            f"{DATA_VARIABLE}={folder}: no such folder. Set it to the folder with the datasets."
        )
    for entry in os.environ.get(REVISIONS_VARIABLE, "").split():
        name, _, revision = entry.partition("@")
        if not revision or "/" not in name:
            raise PosirError(
                f"{REVISIONS_VARIABLE}: '{entry}' is malformed; expected owner/name@revision."
            )


def open_repository(repo_id: str, pinned: str) -> Repository:
    """Open a dataset in `POSIR_DATA` if it is set, or else on the Hub.

    Raises:
        PosirError: `POSIR_DATA` or `POSIR_REVISIONS` is invalid.
    """
    check_environment()
    folder = get_data_folder()
    if folder is not None:
        return LocalRepository(locate_dataset(folder, repo_id))
    return HubRepository(repo_id, choose_revision(repo_id, pinned))


def locate_dataset(folder: Path, repo_id: str) -> Path:
    """Return the folder of a dataset below `folder`, or `folder` if it has the PosIR layout."""
    subfolder = folder / get_folder_name(repo_id)
    if not subfolder.exists() and any(folder.glob("*/*/queries.parquet")):
        return folder
    return subfolder
