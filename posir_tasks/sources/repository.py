"""Files of a dataset: on the Hub, or in the local folder that `POSIR_DATA` names, in the Hub's own layout."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from posir_tasks.errors import DataError, PosirError
from posir_tasks.sources.checks import Problem, raise_problems

#: Folder that holds a subfolder per dataset, such as `PosIR-Benchmark-v1/`; read instead of the Hub when set.
DATA_VARIABLE = "POSIR_DATA"
#: Revisions to read instead of the pinned ones: `infgrad/PosIR-Benchmark-v1@<commit>`, several separated by spaces.
REVISIONS_VARIABLE = "POSIR_REVISIONS"
#: How long to wait for the Hub before its cache is used.
LOOK_UP_SECONDS = 20
#: What a result names as revision of a local folder.
LOCAL = "local"


class Repository(Protocol):
    """Files of one dataset."""

    @property
    def location(self) -> str:
        """Where the files are, for messages."""

    @property
    def revision(self) -> str:
        """What is read: a commit of the Hub where it is known, or `local`."""

    def paths(self, folder: str = "") -> list[str]:
        """Return the paths of the parquet files below a folder, sorted, with `/`, relative to the repository."""

    def fetch(self, path: str) -> Path:
        """Return a local path of the file.

        Raises:
            DataError: There is no such file, or it cannot be reached.
        """


@dataclass(frozen=True)
class LocalRepository:
    """A folder on this machine."""

    root: Path

    @property
    def location(self) -> str:
        """The folder."""
        return f"folder {self.root}"

    @property
    def revision(self) -> str:
        """Always `local`: a folder has no revision."""
        return LOCAL

    def paths(self, folder: str = "") -> list[str]:
        """Return the paths of the parquet files below a folder, sorted."""
        return sorted(path.relative_to(self.root).as_posix() for path in (self.root / folder).rglob("*.parquet"))

    def fetch(self, path: str) -> Path:
        """Return the file's path.

        Raises:
            ProblemsError: There is no such file.
        """
        file = self.root / path
        if not file.is_file():
            what = f"missing. Put the file there; if {DATA_VARIABLE} names the folder, unset it to read from the Hub instead."
            raise_problems([Problem(str(file), None, what)])
        return file


@dataclass(frozen=True)
class Snapshot:
    """A commit of a repository on the Hub."""

    commit: str
    paths: tuple[str, ...]
    """Its parquet files; without a network those that the Hub's cache has of it."""


@dataclass(frozen=True)
class HubRepository:
    """A dataset repository on the Hugging Face Hub; files are kept in the Hub's own cache."""

    repo_id: str
    requested: str
    """Branch, tag or commit."""

    @property
    def location(self) -> str:
        """The repository and revision."""
        return f"Hub dataset {self.repo_id}@{self.requested}"

    @property
    def revision(self) -> str:
        """The commit that is read.

        Raises:
            DataError: The repository cannot be reached and nothing of it is in the cache.
        """
        return snapshot(self).commit

    def paths(self, folder: str = "") -> list[str]:
        """Return the paths of the parquet files below a folder, sorted; without a network those in the Hub's cache.

        Raises:
            DataError: The repository cannot be reached and nothing of it is in the cache.
        """
        prefix = folder.rstrip("/") + "/" if folder else ""
        return [path for path in snapshot(self).paths if path.startswith(prefix)]

    def fetch(self, path: str) -> Path:
        """Download the file, unless the Hub's cache has it.

        Raises:
            DataError: It cannot be had.
        """
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

        try:
            # RunRequest for by its name, a branch is remembered in the cache, which is then of use without a network.
            file = Path(hf_hub_download(self.repo_id, path, repo_type="dataset", revision=self.requested))
            if snapshot(self).commit not in file.parts:
                file = Path(hf_hub_download(self.repo_id, path, repo_type="dataset", revision=snapshot(self).commit))
            return file
        except LocalEntryNotFoundError as error:
            raise self.unreachable(error) from error
        except EntryNotFoundError as error:
            raise DataError(f"{self.location}: there is no file {path}.") from error
        except DataError:
            raise
        except Exception as error:  # the HTTP library's own errors differ between versions of huggingface_hub
            raise self.unreachable(error) from error

    def unreachable(self, error: Exception) -> DataError:
        """Return the error that says what to do when the Hub does not give what is wanted."""
        folder = folder_name(self.repo_id)
        return DataError(
            f"{self.location}: cannot be read ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}). "
            f"Check the network and, for a private repository, `hf auth login`; or set {DATA_VARIABLE} to a folder that "
            f"holds `{folder}/` in the Hub's layout, and it is read from ${DATA_VARIABLE}/{folder} instead."
        )


@cache
def snapshot(repository: HubRepository) -> Snapshot:
    """Look a repository's commit and files up, once in a process: a whole run reads one commit.

    Raises:
        DataError: The repository cannot be reached and nothing of it is in the cache.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        info = HfApi().dataset_info(repository.repo_id, revision=repository.requested, timeout=LOOK_UP_SECONDS)
    except HfHubHTTPError as error:
        raise repository.unreachable(error) from error
    except Exception as offline:  # the HTTP library's own errors differ between versions of huggingface_hub
        root = cached_folder(repository)
        if root is None:
            raise repository.unreachable(offline) from offline
        return Snapshot(root.name, tuple(LocalRepository(root).paths()))
    names = [sibling.rfilename for sibling in info.siblings or ()]
    return Snapshot(str(info.sha), tuple(sorted(name for name in names if name.endswith(".parquet"))))


def cached_folder(repository: HubRepository) -> Path | None:
    """Return the folder of the Hub's cache that holds what was downloaded of a repository, None if nothing was."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(repository.repo_id, repo_type="dataset", revision=repository.requested, local_files_only=True)
        )
    except LocalEntryNotFoundError as error:
        # Some versions tell a part of a repository from the whole, and name its folder in the error.
        part = getattr(error, "snapshot_path", None)
        return Path(part) if part else None


def folder_name(repo_id: str) -> str:
    """Return the name of a repository's folder below `POSIR_DATA`: its id without the owner."""
    return repo_id.split("/")[-1]


def data_folder() -> Path | None:
    """Return the folder that `POSIR_DATA` names, None where it is not set."""
    value = os.environ.get(DATA_VARIABLE)
    return Path(value).expanduser().resolve() if value else None


def requested_revision(repo_id: str, pinned: str) -> str:
    """Return the revision to read: the one `POSIR_REVISIONS` names for this repository, or else the pinned one."""
    entries = (entry.partition("@") for entry in os.environ.get(REVISIONS_VARIABLE, "").split())
    return {name: revision for name, _, revision in entries}.get(repo_id) or pinned


def check_environment() -> None:
    """Check what the environment says about data.

    Raises:
        PosirError: `POSIR_DATA` is no folder, or `POSIR_REVISIONS` is malformed.
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
        PosirError: The environment names a folder or a revision that cannot be.
    """
    check_environment()
    folder = data_folder()
    if folder is not None:
        return LocalRepository(folder / folder_name(repo_id))
    return HubRepository(repo_id, requested_revision(repo_id, pinned))
