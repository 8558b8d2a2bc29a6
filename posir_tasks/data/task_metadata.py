"""Metadata of position-aware tasks: default fields, and checks of names and languages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from mteb.abstasks.task_metadata import TaskMetadata
from pydantic import ValidationError

from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import get_cache_folder
from posir_tasks.data.declared import MINI, MINI_DESCRIPTION
from posir_tasks.text.languages import check_code
from posir_tasks.values.result_schema import SPLIT

if TYPE_CHECKING:
    from mteb.types.statistics import DescriptiveStatistics

#: Query instruction in the authors' code (arXiv 2601.08363). Its format depends on the model.
QUERY_PROMPT = "Given a web search query, retrieve relevant passages that answer the query"

#: Folder with descriptive statistics of tasks with data in this package.
SHIPPED_STATISTICS = Path(__file__).parent.parent / "descriptive_stats"

TASK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class PositionTaskMetadata(TaskMetadata):
    """mteb task metadata whose descriptive statistics are stored outside the mteb package."""

    @property
    def descriptive_stat_path(self) -> Path:
        """File with the descriptive statistics of the data revision, in the package or cache."""
        name = f"{self.name}@{quote(self.revision, safe='')}.json"
        file = SHIPPED_STATISTICS / name
        return file if file.exists() else get_cache_folder() / "descriptive_stats" / name

    @property
    def descriptive_stats(self) -> dict[str, DescriptiveStatistics] | None:
        """Descriptive statistics by split; None if the file is missing or incomplete."""
        try:
            return super().descriptive_stats
        except ValueError:
            return None


def build_metadata(
    name: str,
    *,
    dataset: str,
    revision: str,
    languages: Sequence[str] | Mapping[str, Sequence[str]],
    **fields: Any,
) -> PositionTaskMetadata:
    """Build the metadata of a task, with defaults for position-aware tasks.

    Args:
        name: Name of the task: letters, digits, `.`, `_` and `-`.
        dataset: Location of the data, such as a repository name.
        revision: Revision of the data.
        languages: Codes such as `eng-Latn`, or a mapping from subset to codes.
        fields: Additional fields of mteb's `TaskMetadata`, which override the defaults.

    Raises:
        PosirError: The name, a language code or a field is invalid.
    """
    defaults: dict[str, Any] = {
        "description": f"Position-aware retrieval: {name}. Every query has one relevant document "
        "and the span of its evidence.",
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
    defaults |= {
        "name": name,
        "dataset": {"path": dataset, "revision": revision},
        "eval_langs": languages,
    }
    try:
        metadata = PositionTaskMetadata(**(defaults | fields))
        check_name_and_languages(metadata)
    except ValidationError as error:
        problems = []
        for problem in error.errors():
            field = ".".join(map(str, problem["loc"]))
            problems.append(f"field '{field}': {problem['msg']}")
        raise PosirError(f"task '{name}': {'; '.join(problems)}") from error
    except ValueError as error:
        raise PosirError(f"task '{name}': {error}") from error
    return metadata


def check_name_and_languages(metadata: TaskMetadata) -> None:
    """Raise ValueError if the task name or a language code is invalid."""
    if not TASK_NAME.fullmatch(metadata.name):
        raise ValueError(
            f"the name '{metadata.name}' is not allowed; use A-Z, a-z, 0-9, '.', '_' and '-'"
        )
    for code in metadata.bcp47_codes:
        try:
            check_code(code)
        except PosirError as error:
            raise ValueError(error) from error


MINI_METADATA = build_metadata(
    **MINI.to_metadata(),
    description=MINI_DESCRIPTION,
    reference="https://pypi.org/project/posir/",
    date=("2026-11-20", "2026-11-20"),
    domains=["Fiction", "Written", "Constructed"],
    license="apache-2.0",
    annotations_creators="LM-generated",
    sample_creation="created",
)
