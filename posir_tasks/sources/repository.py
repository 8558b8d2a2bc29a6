"""Files of a dataset: on the Hub, or below the local folder `POSIR_DATA`, in the layout of the Hub."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Protocol

from posir_tasks.digests import digest, digest_files
from posir_tasks.display.progress import BRIEF_SECONDS, track
from posir_tasks.errors import DataError, PosirError, summarize_error
from posir_tasks.files import find_files

#: Folder with a subfolder per dataset, such as `PosIR-Benchmark-v1/`; if set, it is read instead of the Hub.
DATA_VARIABLE = "POSIR_DATA"
#: Revisions to read instead of the pinned ones, separated by spaces: `infgrad/PosIR-Benchmark-v1@<commit>`.
REVISIONS_VARIABLE = "POSIR_REVISIONS"
#: Timeout of a request to the Hub; after it the cache is used.
HUB_TIMEOUT_SECONDS = 20
#: How the names of data files end: those of all tasks but one, and of all.
PARQUET = (".parquet",)
DATA_SUFFIXES = (*PARQUET, ".json", ".jsonl", ".json.gz", ".jsonl.gz")
#: Prefix of the revisions of local data.
LOCAL = "local"
REPOSITORY_NAME = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


class DataState(Enum):
    """The relation of the data that a task reads now to the data of a saved result on a subset."""

    SAME = "same"
    CHANGED = "changed"
    """The subset's data is there, and it is other data."""
    ABSENT = "absent"
    """The local folder does not have the subset."""


def check_repository_name(repo_id: str) -> None:
    """Raise PosirError if a name is not `owner/name`."""
    if not REPOSITORY_NAME.fullmatch(repo_id):
        raise PosirError(f"repository '{repo_id}': not allowed; expected owner/name, as on the Hub.")


class Repository(Protocol):
    """Files of one dataset."""

    @property
    def location(self) -> str:
        """Location of the files, for messages."""

    def revision(self, paths: Iterable[str]) -> str:
        """Return the revision of files: a commit of the Hub, or `local-` and a digest of their content."""

    def paths(self, folder: str = "", suffixes: tuple[str, ...] = PARQUET) -> list[str]:
        """Return the paths of the files of some formats below a folder, sorted, with `/`, relative to the repository."""

    def fetch(self, path: str) -> Path:
        """Return the local path of a file.

        Raises:
            DataError: There is no such file, or it cannot be downloaded.
        """


@dataclass(frozen=True)
class LocalRepository:
    """A folder on this machine."""

    root: Path

    @property
    def location(self) -> str:
        """The folder."""
        return f"folder {self.root}"

    def revision(self, paths: Iterable[str]) -> str:
        """Return `local-` and a digest of the paths and contents of files; missing ones are ignored."""
        files = {path: file for path in paths if (file := self.locate(path)).is_file()}
        with track("Reading", delay=BRIEF_SECONDS):
            return f"{LOCAL}-{digest_files(files)}"

    def paths(self, folder: str = "", suffixes: tuple[str, ...] = PARQUET) -> list[str]:
        """Return the paths of the files of some formats below a folder, sorted."""
        return sorted(path.relative_to(self.root).as_posix() for path in find_files(self.root / folder, suffixes))

    def locate(self, path: str) -> Path:
        """Return where a file is, or would be."""
        return self.root / path

    def fetch(self, path: str) -> Path:
        """Return the file's path.

        Raises:
            ProblemsError: There is no such file.
        """
        file = self.locate(path)
        if not file.is_file():
            fix = f"Put the file there; if {DATA_VARIABLE} is set to this folder, unset it to read from the Hub instead."
            # It imports polars, which reading results should not cost.
            from posir_tasks.sources.checks import DataProblem, raise_problems

            raise_problems([DataProblem(str(file), None, f"missing. {fix}")])
        return file


@dataclass(frozen=True)
class Snapshot:
    """A commit of a repository on the Hub."""

    commit: str
    paths: tuple[str, ...]
    """Its data files; without a network those in the cache of the Hub."""


@dataclass(frozen=True)
class HubRepository:
    """A dataset repository on the Hugging Face Hub; its files are cached by huggingface_hub."""

    repo_id: str
    requested: str
    """Branch, tag or commit."""

    @property
    def location(self) -> str:
        """The repository and revision."""
        return f"Hub dataset {self.repo_id}@{self.requested}"

    def revision(self, paths: Iterable[str] = ()) -> str:  # noqa: ARG002
        """Return the commit of the requested revision.

        Raises:
            DataError: The repository cannot be reached and nothing of it is in the cache.
        """
        return find_snapshot(self).commit

    def paths(self, folder: str = "", suffixes: tuple[str, ...] = PARQUET) -> list[str]:
        """Return the paths of the files of some formats below a folder, sorted; without a network those in the cache.

        Raises:
            DataError: The repository cannot be reached and nothing of it is in the cache.
        """
        prefix = folder.rstrip("/") + "/" if folder else ""
        return [path for path in find_snapshot(self).paths if path.startswith(prefix) and path.endswith(suffixes)]

    def fetch(self, path: str) -> Path:
        """Return the local path of a file; it is downloaded unless it is in the cache.

        Raises:
            DataError: There is no such file, or it cannot be downloaded.
        """
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

        try:
            # Requested by its name, a branch is recorded in the cache, which then works without a network.
            file = Path(hf_hub_download(self.repo_id, path, repo_type="dataset", revision=self.requested))
            if find_snapshot(self).commit not in file.parts:
                file = Path(hf_hub_download(self.repo_id, path, repo_type="dataset", revision=find_snapshot(self).commit))
            return file
        except LocalEntryNotFoundError as error:
            raise self.access_error(error) from error
        except EntryNotFoundError as error:
            raise DataError(f"{self.location}: there is no file {path}.") from error
        except DataError:
            raise
        except Exception as error:  # the HTTP library's own errors differ between versions of huggingface_hub
            raise self.access_error(error) from error

    def access_error(self, error: Exception) -> DataError:
        """Return the error that says what to do if the Hub cannot be read."""
        folder = folder_name(self.repo_id)
        return DataError(
            f"{self.location}: cannot be read ({summarize_error(error)}). Check the network and, for a private repository, "
            f"`hf auth login`; or set {DATA_VARIABLE} to a folder that holds `{folder}/` in the layout of the Hub, to read "
            f"${DATA_VARIABLE}/{folder} instead."
        )


@cache
def find_snapshot(repository: HubRepository) -> Snapshot:
    """Look up the commit and files of a repository, once per process, so that a run reads one commit.

    Raises:
        DataError: The repository cannot be reached and nothing of it is in the cache.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        info = HfApi().dataset_info(repository.repo_id, revision=repository.requested, timeout=HUB_TIMEOUT_SECONDS)
    except HfHubHTTPError as error:
        raise repository.access_error(error) from error
    except Exception as offline:  # the HTTP library's own errors differ between versions of huggingface_hub
        root = find_cached_folder(repository)
        if root is None:
            raise repository.access_error(offline) from offline
        return Snapshot(root.name, tuple(LocalRepository(root).paths(suffixes=DATA_SUFFIXES)))
    names = [sibling.rfilename for sibling in info.siblings or ()]
    return Snapshot(str(info.sha), tuple(sorted(name for name in names if name.endswith(DATA_SUFFIXES))))


def find_cached_folder(repository: HubRepository) -> Path | None:
    """Return the folder of a repository in the cache of the Hub, None if nothing of it was downloaded."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(repository.repo_id, repo_type="dataset", revision=repository.requested, local_files_only=True)
        )
    except LocalEntryNotFoundError as error:
        # Some versions raise for a partly downloaded repository, and give its folder in the error.
        partial = getattr(error, "snapshot_path", None)
        return Path(partial) if partial else None


def combine_revisions(revisions: Iterable[str]) -> str:
    """Return one text for the revisions of several subsets; those of local data become one digest."""
    distinct = {*revisions}
    local = sorted(revision for revision in distinct if revision.startswith(f"{LOCAL}-"))
    if len(local) > 1:
        distinct = distinct - {*local} | {f"{LOCAL}-{digest(*local).hex()}"}
    return ", ".join(sorted(distinct))


def folder_name(repo_id: str) -> str:
    """Return the name of a repository's folder below `POSIR_DATA`: its id without the owner."""
    return repo_id.split("/")[-1]


def data_folder() -> Path | None:
    """Return the folder `POSIR_DATA`, None if the variable is not set."""
    value = os.environ.get(DATA_VARIABLE)
    return Path(value).expanduser().resolve() if value else None


def requested_revision(repo_id: str, pinned: str) -> str:
    """Return the revision to read: the one in `POSIR_REVISIONS` if there is one, else the pinned one."""
    entries = (entry.partition("@") for entry in os.environ.get(REVISIONS_VARIABLE, "").split())
    return {name: revision for name, _, revision in entries}.get(repo_id) or pinned


def check_environment() -> None:
    """Check the environment variables for data.

    Raises:
        PosirError: `POSIR_DATA` is not a folder, or `POSIR_REVISIONS` is malformed.
    """
    folder = data_folder()
    if folder is not None and not folder.is_dir():
        raise PosirError(f"{DATA_VARIABLE}={folder}: no such folder. Set it to the folder that holds the datasets.")
    for entry in os.environ.get(REVISIONS_VARIABLE, "").split():
        name, _, revision = entry.partition("@")
        if not revision or "/" not in name:
            raise PosirError(f"{REVISIONS_VARIABLE}: '{entry}' is not of the form owner/name@revision.")


def open_repository(repo_id: str, pinned: str) -> Repository:
    """Open a dataset: the local folder if `POSIR_DATA` is set, else the Hub.

    Raises:
        PosirError: `POSIR_DATA` is not a folder, or `POSIR_REVISIONS` is malformed.
    """
    check_environment()
    folder = data_folder()
    if folder is not None:
        return LocalRepository(locate_dataset(folder, repo_id))
    return HubRepository(repo_id, requested_revision(repo_id, pinned))


def locate_dataset(folder: Path, repo_id: str) -> Path:
    """Return the folder of a dataset below `POSIR_DATA`; that folder itself if it holds data in the PosIR layout instead."""
    named = folder / folder_name(repo_id)
    return folder if not named.exists() and any(folder.glob("*/*/queries.parquet")) else named
