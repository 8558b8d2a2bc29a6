"""What `DATASET` names: one of the tasks, or a folder in the PosIR layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from posir_tasks.errors import DataError, PosirError
from posir_tasks.schemes import PositionScheme, RelativePositions
from posir_tasks.sources.data import PositionData
from posir_tasks.sources.folder import resolve_folder
from posir_tasks.sources.posir import REPO_ID, REVISION, list_domains, read_domain
from posir_tasks.sources.repository import LocalRepository, Repository, open_repository
from posir_tasks.tasks.catalogue import builtin_tasks, plugin_tasks

if TYPE_CHECKING:
    from posir_tasks.tasks.base import PositionTask
    from posir_tasks.tasks.posir import PosirTask


@dataclass(frozen=True)
class Subset:
    """One language and domain, not read yet."""

    query_language: str
    corpus_language: str
    domain: str
    read: Callable[[], PositionData]
    """Reads and checks it.

    Raises:
        DataError: It is missing or something in it is wrong.
    """

    @property
    def language(self) -> str:
        """The language of the queries, with that of the corpus where the two differ."""
        return "-".join(dict.fromkeys((self.query_language, self.corpus_language)))


@dataclass(frozen=True)
class DatasetToRead:
    """Subsets of one position scheme."""

    name: str
    place: str
    """Where the data comes from: a dataset's id, or a folder."""
    scheme: PositionScheme
    subsets: tuple[Subset, ...]
    """Ordered by language and domain; at least one."""


def find_dataset(named: str) -> DatasetToRead:
    """Find what is named; a folder that exists goes before a task.

    Raises:
        PosirError: There is no such task or folder.
        DataError: It holds no data.
    """
    folder = Path(named).expanduser()
    return dataset_of_folder(folder.resolve()) if folder.is_dir() else dataset_of_task(named)


def dataset_of_folder(folder: Path) -> DatasetToRead:
    """Return what a folder in the PosIR layout holds: the data, one language of it, or one domain.

    Raises:
        PosirError: It is none of these.
    """
    found = resolve_folder(folder)
    repository = LocalRepository(found.root)
    own = [key for key in found.subset_keys() if key.language == key.corpus_language]
    subsets = tuple(_subset(repository, one.language, one.language, one.domain) for one in own)
    return DatasetToRead(folder.name, repository.location, RelativePositions(), subsets)


def _subset(repository: Repository, language: str, corpus_language: str, domain: str) -> Subset:
    return Subset(language, corpus_language, domain, partial(read_domain, repository, language, corpus_language, domain))


def dataset_of_task(name: str) -> DatasetToRead:
    """Return the dataset of a task.

    Raises:
        PosirError: There is no such task.
        DataError: A language has no data.
    """
    from posir_tasks.tasks.posir import PosirTask

    task = _task_class(name)
    if issubclass(task, PosirTask):
        return DatasetToRead(name, REPO_ID, task.scheme, _subsets_of_languages(task))
    instance = task()
    subsets = tuple(
        Subset(languages[0], languages[-1], subset, partial(instance.read_subset, subset))
        for subset, languages in instance.metadata.hf_subsets_to_langscripts.items()
    )
    return DatasetToRead(name, instance.metadata.dataset["path"], task.scheme, subsets)


def _task_class(name: str) -> type[PositionTask]:
    known = builtin_tasks() | plugin_tasks()
    if name not in known:
        lowered = {task.lower(): task for task in known}
        close = [lowered[match] for match in get_close_matches(name.lower(), lowered)]
        raise PosirError(
            f"'{name}' is neither a folder nor a task with evidence positions. "
            + (f"Did you mean {', '.join(close)}? " if close else "")
            + "`posir tasks` lists the tasks; a folder holds <language>/<domain>/ in the PosIR layout."
        )
    return known[name]


def _subsets_of_languages(task: type[PosirTask]) -> tuple[Subset, ...]:
    """Return the domains that the data has in the task's languages."""
    repository = open_repository(REPO_ID, REVISION)
    language, corpus_language = task.language.code, task.corpus_language.code
    domains = sorted({*list_domains(repository, language)} & {*list_domains(repository, corpus_language)})
    if not domains:
        raise DataError(
            f"{repository.location}: has no data of {task.metadata.name}; wanted are {language}/<domain>/queries.parquet, "
            f"{language}/<domain>/qrels/test.parquet and {corpus_language}/<domain>/corpus.parquet. Make them with `posir "
            "import-squad`, or download them."
        )
    return tuple(_subset(repository, language, corpus_language, domain) for domain in domains)
