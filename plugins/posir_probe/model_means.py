"""Mean scores over groups of models, as reported in papers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.display.numbers import format_percent
from posir_tasks.display.tables import Role, Table, build_columns
from posir_tasks.values.scores import ALL


@dataclass(frozen=True)
class ModelMean:
    """The main score of a task, averaged over a group of models."""

    group: str
    """Common suffix of the model names, or `all` for all models."""
    task: str
    """Name of the task, or `mean of N tasks`."""
    models: int
    score: float
    """Unweighted mean over models, splits and subsets, in [0, 1]."""


def average_models(source: Path, endings: Sequence[str]) -> list[ModelMean]:
    """Average mteb's main scores over groups of models in a folder.

    A model is included only if it has results for all tasks of its group.

    Args:
        source: Output folder of `mteb run`.
        endings: Suffixes of model names. Each suffix defines a group. If empty, all models form a
            group.

    Raises:
        PosirError: There are no results, or no model of a group has results for all tasks.
    """
    frame = read_main_scores(source) if source.is_dir() else None
    if frame is None:
        raise PosirError(f"{source}: no results of mteb. Give the --output-folder of `mteb run`.")
    scores = frame.groupby(["model_name", "task_name"])["score"].mean().unstack()
    rows = []
    for ending in endings or ("",):
        group = scores[[str(name).endswith(ending) for name in scores.index]]
        complete = group.dropna(axis="columns", how="all").dropna()
        if complete.empty:
            raise PosirError(
                f"{source}: no model whose name ends in '{ending}' has results for all tasks. The "
                f"models are {', '.join(scores.index)}."
            )
        means = complete.mean().to_dict()
        if len(means) > 1:
            means[f"mean of {len(means)} tasks"] = float(np.mean(list(means.values())))
        for task, score in means.items():
            rows.append(ModelMean(ending or ALL, task, len(complete), float(score)))
    return rows


def build_mean_table(rows: Sequence[ModelMean]) -> Table:
    """Build a table with a row per group and task."""
    cells = [(row.group, row.task, str(row.models), format_percent(row.score)) for row in rows]
    columns = build_columns(
        ("Models", "Task", "Number", "Score"), ("Number", "Score"), roles={"Task": Role.NAME}
    )
    return Table(columns, tuple(cells))


def read_main_scores(source: Path) -> Any:
    """Read mteb's main scores from a folder into a pandas DataFrame, or return None.

    The DataFrame has a row per model, task, split and subset.
    """
    from mteb import ResultCache

    try:
        results = ResultCache(source).load_results(include_remote=False)
    except (KeyError, ValueError) as error:
        raise PosirError(
            f"{source}: a result file is not from mteb ({summarize_error(error)}). Remove it, or "
            "give the --output-folder of `mteb run`."
        ) from error
    return results.to_dataframe("subset", format="long") if results.model_results else None
