"""The forms in which a comparison is printed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby

import polars as pl
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from posir_compare.comparison import Comparison, Metric, Row
from posir_report.tables import NONE

HEADINGS = ("Length", "Queries", "Metric", "A", "B", "PSI of noise (A, B)", "B - A", "p", "p corrected")


def as_json(comparison: Comparison) -> str:
    """Return rows and notes as JSON, not rounded."""
    return json.dumps({"comparisons": [asdict(row) for row in comparison.rows], "notes": comparison.notes}, indent=2)


def as_csv(rows: Sequence[Row]) -> str:
    """Return rows as CSV, not rounded."""
    return pl.DataFrame([asdict(row) for row in rows], infer_schema_length=None).write_csv()


def cells_of(row: Row) -> tuple[str, ...]:
    """Return a row as text under the headings: nDCG@10 x 100 and PSI as the papers print them."""
    noise = f"{_value(row.metric, row.a_noise_mean)}, {_value(row.metric, row.b_noise_mean)}"
    return (
        row.length,
        f"{row.queries:,}",
        row.metric.value,
        _with_interval(row.metric, row.a, row.a_low, row.a_high),
        _with_interval(row.metric, row.b, row.b_low, row.b_high),
        "" if row.metric is Metric.NDCG else noise,
        _with_interval(row.metric, row.difference, row.difference_low, row.difference_high, sign="+"),
        _p_value(row.p_value),
        _p_value(row.p_corrected),
    )


def _value(metric: Metric, value: float | None, sign: str = "") -> str:
    if value is None:
        return NONE
    return f"{value * 100:{sign}.1f}" if metric is Metric.NDCG else f"{value:{sign}.3f}"


def _with_interval(metric: Metric, value: float | None, low: float | None, high: float | None, sign: str = "") -> str:
    ends = "" if low is None else f" [{_value(metric, low, sign)}, {_value(metric, high, sign)}]"
    return _value(metric, value, sign) + ends


def _p_value(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:.3f}" if value >= 0.001 else "<0.001"


def print_tables(console: Console, rows: Sequence[Row]) -> None:
    """Print one Rich table for each pair and task."""
    for (a, b, task, method), lines in groupby(rows, key=lambda row: (row.model_a, row.model_b, row.task, row.method)):
        table = Table(
            title=f"[bold]{escape(task)}[/] · {method.value}\nA: {escape(a)}\nB: {escape(b)}",
            title_justify="left",
            title_style="",
            box=None,
            header_style="dim",
            pad_edge=False,
        )
        for heading in HEADINGS:
            table.add_column(heading, justify="right" if heading in ("Queries", "p", "p corrected") else "left", no_wrap=True)
        for line in lines:
            table.add_row(*map(escape, cells_of(line)))
        console.print(table)
        console.print()


def as_markdown(rows: Sequence[Row]) -> str:
    """Return rows as one Markdown table."""
    headings = ("Model A", "Model B", "Task", "Method", *HEADINGS)
    lines = ((row.model_a, row.model_b, row.task, row.method.value, *cells_of(row)) for row in rows)
    table = (headings, ("---",) * len(headings), *lines)
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in table)
