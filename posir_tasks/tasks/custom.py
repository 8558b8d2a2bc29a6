"""Tasks on data of one's own, in the PosIR layout: made from a folder or from a repository on the Hub."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from mteb.abstasks.task_metadata import TaskMetadata
from mteb.languages.check_language_code import check_language_code
from pydantic import ValidationError

from posir_tasks.errors import PosirError
from posir_tasks.languages import CODE
from posir_tasks.schemes import PositionScheme, RelativePositions
from posir_tasks.sources.data import PositionData
from posir_tasks.sources.folder import domains_to_run, open_folder
from posir_tasks.sources.posir import read_domain
from posir_tasks.sources.repository import LOCAL, HubRepository, LocalRepository, Repository, open_repository
from posir_tasks.tasks.base import SPLIT, PositionTask
from posir_tasks.tasks.posir import QUERY_PROMPT

TASK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
REPOSITORY_NAME = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
PAPERS_SCHEME = RelativePositions()
#: Hexadecimal digits of the revision in the name of a subset.
DIGITS = 8

#: Tasks that were made in this process, by name: they may be made again.
made: dict[str, type[PositionTask]] = {}


class LayoutTask(PositionTask):
    """Data in the PosIR layout, one subset per domain.

    A subset's name ends with the revision of the data, `letters@1f0c8a52`: mteb takes a result for finished where it has
    every subset of the task, and so must not find those of other data.
    """

    repository: ClassVar[Repository]
    language: ClassVar[str]

    def read_subset(self, subset: str) -> PositionData:
        """Read one domain.

        Raises:
            DataError: It is missing or something in it is wrong.
        """
        return read_domain(self.repository, self.language, self.language, subset.rpartition("@")[0])


def custom_metadata(
    name: str, *, dataset: str, revision: str, languages: Sequence[str] | Mapping[str, Sequence[str]], **fields: Any
) -> TaskMetadata:
    """Return metadata for a task with the fields that position-aware tasks share.

    Args:
        name: Of the task: letters, digits, `.`, `_` and `-`.
        dataset: Where the data is, such as a repository's name.
        revision: Of the data.
        languages: Codes such as `eng-Latn`, or such codes by subset.
        fields: Further fields of mteb's `TaskMetadata`, and others than the shared ones.

    Raises:
        PosirError: The name is not allowed, a language's code is unknown to mteb, or a field is not one of mteb's.
    """
    shared = {
        "description": f"Position-aware retrieval: {name}. Every query has one relevant document and the span of its evidence.",
        "type": "Retrieval",
        "category": "t2t",
        "modalities": ["text"],
        "eval_splits": [SPLIT],
        "main_score": "ndcg_at_10",
        "domains": ["Written"],
        "task_subtypes": ["Article retrieval", "Question Answering Retrieval"],
        "license": "not specified",
        "dialect": [],
        "prompt": {"query": QUERY_PROMPT},
        "bibtex_citation": "",
    }
    given = {"name": name, "dataset": {"path": dataset, "revision": revision}, "eval_langs": languages}
    try:
        metadata = TaskMetadata(**{**shared, **given, **fields})
        check_names(metadata)
    except ValidationError as error:
        wrong = "; ".join(f"field '{'.'.join(map(str, one['loc']))}': {one['msg']}" for one in error.errors())
        raise PosirError(f"task '{name}': {wrong}") from error
    except ValueError as error:
        raise PosirError(f"task '{name}': {error}") from error
    return metadata


def check_names(metadata: TaskMetadata) -> None:
    """Check the name of a task, which is a file's name too, and the codes of its languages.

    Raises:
        ValueError: The name is not allowed, or mteb does not know a code of language and script.
    """
    if not TASK_NAME.fullmatch(metadata.name):
        raise ValueError(f"the name '{metadata.name}' is not allowed; a name is of A-Z, a-z, 0-9, '.', '_' and '-'")
    for code in metadata.bcp47_codes:
        if not CODE.fullmatch(code):
            raise ValueError(f"Invalid language code: '{code}'; wanted are language and script, such as eng-Latn")
        check_language_code(code)


def layout_task(
    repository: Repository, *, name: str, language: str, scheme: PositionScheme = PAPERS_SCHEME, **fields: Any
) -> type[PositionTask]:
    """Make the class of a task on data in the PosIR layout.

    Args:
        repository: Where the data is.
        name: Of the task, as `mteb run -t` has it.
        language: Code of the data's language, such as `eng-Latn`.
        scheme: How evidence becomes a position; by default PosIR's, 20 bins and four lengths.
        fields: Further fields of mteb's `TaskMetadata`.

    Raises:
        PosirError: Name, language or a field are not allowed.
        DataError: The repository has no data of the language, or cannot be reached.
    """
    domains = domains_to_run(repository, language)
    ending = repository.revision.removeprefix(f"{LOCAL}-")[:DIGITS]
    metadata = custom_metadata(
        name,
        dataset=repository.repo_id if isinstance(repository, HubRepository) else repository.place,
        revision=repository.revision,
        languages={f"{domain}@{ending}": [language] for domain in domains},
        **fields,
    )
    facts = {"metadata": metadata, "scheme": scheme, "repository": repository, "language": language}
    return type(name, (LayoutTask,), {"__doc__": metadata.description, "__module__": __name__, **facts})


def folder_task(folder: str | Path, *, name: str, language: str, **options: Any) -> type[PositionTask]:
    """Make the class of a task on a folder in the PosIR layout; see `PositionTask.from_folder`."""
    return layout_task(open_folder(Path(folder), language), name=name, language=language, **options)


def hub_task(repo_id: str, *, name: str, language: str, revision: str, **options: Any) -> type[PositionTask]:
    """Make the class of a task on a repository of the Hub in the PosIR layout; see `PositionTask.from_hub`."""
    if not REPOSITORY_NAME.fullmatch(repo_id):
        raise PosirError(f"repository '{repo_id}': not allowed; wanted is owner/name, as the Hub has it.")
    repository = open_repository(repo_id, revision)
    if isinstance(repository, LocalRepository):
        repository = open_folder(repository.root, language)
    return layout_task(repository, name=name, language=language, **options)


def register_task(task: type[PositionTask]) -> PositionTask:
    """Let mteb find a task by its name, as its results do, and return an instance.

    Raises:
        PosirError: Another task has the name.
    """
    from mteb.get_tasks import _TASKS_REGISTRY

    name = task.metadata.name
    known = _TASKS_REGISTRY.get(name)
    if known is not None and known is not made.get(name):
        raise PosirError(f"task name '{name}': taken by a task of {known.__module__}; choose another.")
    _TASKS_REGISTRY[name] = made[name] = task
    return task()
