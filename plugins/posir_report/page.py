"""The report as one page that opens without a network: tables, figures and how to read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined

from posir_report.cells import FEW
from posir_report.figure_export import Figure
from posir_report.summary import TaskSummary, part, rows_of
from posir_report.tables import LEVEL, RIGHT, length_lines, names_of, reach_sentences
from posir_tasks.files import atomic_write


@dataclass(frozen=True)
class Drawing:
    """A figure as the page holds it."""

    id: str
    task: str | None
    model: str | None
    label: str
    """What a screen reader says."""
    spec: Mapping[str, Any]
    """Of Vega-Lite."""


@dataclass(frozen=True)
class ModelPart:
    """One model's rows in the table of a task."""

    name: str
    lines: tuple[tuple[str, ...], ...]
    figures: tuple[Drawing, ...]


@dataclass(frozen=True)
class TaskPart:
    """What the page says of one task."""

    name: str
    models: tuple[ModelPart, ...]
    reach: tuple[str, ...]
    figures: tuple[Drawing, ...]
    """Of all models together."""


def write_page(summaries: Sequence[TaskSummary], figures: Sequence[Figure], path: Path) -> None:
    """Write the page."""
    text = page_of(summaries, figures)
    with atomic_write(path) as part_of_file:
        part_of_file.write_text(text, encoding="utf-8")


def page_of(summaries: Sequence[TaskSummary], figures: Sequence[Figure]) -> str:
    """Return the page as HTML; whatever comes from results is escaped."""
    # Everything that a template prints is escaped, but for the JavaScript of Vega.
    environment = Environment(
        loader=PackageLoader("posir_report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    ordered = sorted(summaries, key=lambda one: one.task)
    drawings = [_drawing(number, figure) for number, figure in enumerate(figures, start=1)]
    return environment.get_template("page.html").render(
        tasks=[_task(task, list(group), drawings) for task, group in groupby(ordered, key=lambda one: one.task)],
        across=[one for one in drawings if one.task is None],
        models=len({one.model for one in summaries}),
        headings=length_lines([]).headings,
        right=RIGHT,
        level=LEVEL,
        few=FEW,
        sources=ordered,
        version=version("posir"),
        # Without the patch version, as vl-convert names the Vega-Lite it holds.
        bundle=vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", ".".join(alt.SCHEMA_VERSION.split(".")[:2])),
    )


def _drawing(number: int, figure: Figure) -> Drawing:
    label = ", ".join(filter(None, [figure.kind, figure.task, figure.model]))
    return Drawing(f"figure-{number}", figure.task, figure.model, label, figure.chart.to_dict())


def _task(task: str, summaries: Sequence[TaskSummary], drawings: Sequence[Drawing]) -> TaskPart:
    own = [one for one in drawings if one.task == task]
    names = names_of(summaries)
    models = [
        _model(name, summary, [one for one in own if one.model == name]) for name, summary in zip(names, summaries, strict=True)
    ]
    return TaskPart(
        task, tuple(models), tuple(reach_sentences(names, summaries)), tuple(one for one in own if one.model is None)
    )


def _model(name: str, summary: TaskSummary, drawings: Iterable[Drawing]) -> ModelPart:
    return ModelPart(
        name + part(len(summary.subsets), len(summary.missing)),
        tuple(line.cells for line in length_lines(rows_of(summary)).lines),
        tuple(drawings),
    )
