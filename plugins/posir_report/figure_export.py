"""All figures of a report, and their pictures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import altair as alt

from posir_report.cells import cells_of
from posir_report.charts import curves, heat_map, models_over_position, psi_against_ndcg
from posir_report.summary import TaskSummary
from posir_report.tables import names_of
from posir_tasks.display.progress import progress
from posir_tasks.errors import PosirError
from posir_tasks.files import atomic_write

#: Pixels of a picture for each pixel of a figure.
SCALE = 2
#: Characters of a task or model in a file name.
SLUG = 80


@dataclass(frozen=True)
class Figure:
    """A chart and what it is of."""

    kind: str
    """`models`, `curves`, `heat-map` or `psi-against-ndcg`."""
    task: str | None
    """None: of all tasks."""
    model: str | None
    """As a legend has it. None: of all models."""
    chart: alt.VConcatChart

    @property
    def slug(self) -> str:
        """Name of its picture without suffix: letters, digits, dots, dashes and underscores; not unique."""
        parts = (re.sub(r"[^A-Za-z0-9.-]+", "_", part or "").strip("._")[:SLUG] for part in (self.task, self.model, self.kind))
        return ".".join(part for part in parts if part)


def figures_of(summaries: Sequence[TaskSummary]) -> list[Figure]:
    """Return the figures of a report: task by task the models together and each by itself, then all tasks together."""
    answered = sorted((one for one in summaries if one.profile.queries), key=_cells_of_task)
    groups = [list(group) for _, group in groupby(answered, key=_cells_of_task)]
    figures = [figure for group in progress(groups, "Drawing") for figure in _figures_of_task(group)]
    scored = [one for one in answered if one.scores.get("psi") is not None]
    return [*figures, Figure("psi-against-ndcg", None, None, psi_against_ndcg(scored))] if scored else figures


def _cells_of_task(summary: TaskSummary) -> tuple[str, str]:
    """Return what summaries must share to lie over each other: a task may have been run before in another scheme."""
    return summary.task, summary.profile.scheme


def _figures_of_task(summaries: list[TaskSummary]) -> Iterator[Figure]:
    task = summaries[0].task
    if len(summaries) > 1:
        yield Figure("models", task, None, models_over_position(summaries))
    for one, name in zip(summaries, names_of(summaries), strict=True):
        cells = cells_of(one)
        yield Figure("curves", task, name, curves(one, cells))
        yield Figure("heat-map", task, name, heat_map(one, cells))


def write_pictures(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """Write a PNG for each figure.

    Raises:
        PosirError: The folder is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise PosirError(f"{folder}: a file, not a folder. --png takes the folder to write pictures to.")
    paths = [folder / f"{name}.png" for name in unique([figure.slug for figure in figures])]
    for path, figure in progress(list(zip(paths, figures, strict=True)), "Writing pictures"):
        with atomic_write(path) as part:
            figure.chart.save(part, format="png", scale_factor=SCALE)
    return paths


def unique(names: Sequence[str]) -> list[str]:
    """Return names that differ also where letters of either case are the same: the second of a name gets `-2`."""
    seen: Counter[str] = Counter()
    result = []
    for name in names:
        seen[name.lower()] += 1
        times = seen[name.lower()]
        result.append(name if times == 1 else f"{name}-{times}")
    return result
