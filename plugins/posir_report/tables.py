"""The forms in which rows are printed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import groupby

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from posir_report.summary import BinRow, Row, TaskSummary, part

#: Level below which a PSI is said to stand above its noise floor.
LEVEL = 0.05
#: What is printed for a value that is undefined or that no plugin gave.
NONE = "–"
#: Headings of what is said of a row.
SCORES = ("Queries", "nDCG@10", "PSI", "PSI of noise", "p", "Position bias")
#: Headings of columns of numbers.
RIGHT = ("Queries", "p")
#: Characters of a model's name in a figure.
NAME_WIDTH = 72


class Format(StrEnum):
    """Forms in which rows are printed."""

    TABLE = "table"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"


class ReportFormat(StrEnum):
    """Forms of a report: those of `Format`, and the papers' tables."""

    TABLE = "table"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"
    LATEX = "latex"


@dataclass(frozen=True)
class Line:
    """A row as text."""

    model: str
    task: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Lines:
    """Rows as text, under headings."""

    headings: tuple[str, ...]
    lines: tuple[Line, ...]


def as_json(summaries: Sequence[TaskSummary]) -> str:
    """Return all pooled scores as JSON, not rounded."""
    return json.dumps(
        [
            {
                "model": one.model,
                "revision": one.revision,
                "task": one.task,
                "subsets": one.subsets,
                "missing_subsets": one.missing,
                "queries": one.profile.queries,
                "ndcg_at_10": one.profile.score(),
                **one.scores,
                "position_profile": one.profile.to_json(),
            }
            for one in summaries
        ],
        indent=2,
    )


def as_csv(rows: Sequence[Row | BinRow]) -> str:
    """Return rows as CSV, not rounded."""
    return pl.DataFrame([asdict(row) for row in rows], infer_schema_length=None).write_csv()


def length_lines(rows: Sequence[Row]) -> Lines:
    """Return rows as text: nDCG x 100 and PSI as the papers print them, with 95 % intervals."""
    return Lines(
        ("Length", *SCORES),
        tuple(
            Line(row.model, row.task + part(row.subsets, row.missing_subsets), (row.length, *score_cells(row))) for row in rows
        ),
    )


def overview_lines(rows: Sequence[Row]) -> Lines:
    """Return for each model that has several tasks, such as several languages, one row a task, all lengths."""
    of_all = sorted((row for row in rows if row.length == "all"), key=lambda row: row.model)
    tasks = Counter(row.model for row in of_all)
    return Lines(
        ("Task", *SCORES),
        tuple(
            Line(row.model, f"{tasks[row.model]} tasks", (row.task, *score_cells(row)))
            for row in of_all
            if tasks[row.model] > 1
        ),
    )


def score_cells(row: Row) -> tuple[str, ...]:
    """Return the text under each heading of `SCORES`."""
    return (
        count(row.queries),
        percent(row.ndcg_at_10) + interval(row.ndcg_at_10_low, row.ndcg_at_10_high, percent),
        plain(row.psi) + interval(row.psi_low, row.psi_high, plain),
        NONE if row.psi_null_mean is None else f"{plain(row.psi_null_mean)} to {plain(row.psi_null_p95)}",
        p_value(row.p_value),
        verdict(row),
    )


def bin_lines(rows: Sequence[BinRow]) -> Lines:
    """Return rows of position bins as text."""
    return Lines(
        ("Position", "Queries", "nDCG@10"),
        tuple(
            Line(
                row.model,
                row.task,
                (
                    row.position,
                    f"{row.queries:,}",
                    percent(row.ndcg_at_10) + interval(row.ndcg_at_10_low, row.ndcg_at_10_high, percent),
                ),
            )
            for row in rows
        ),
    )


def verdict(row: Row) -> str:
    """Say whether the PSI can be told from noise, and if so of what kind the bias is."""
    if row.p_value is None:
        return NONE
    if row.p_value >= LEVEL:
        return "not told from noise"
    return row.direction if row.direction and row.direction != "none" else "yes, no clear direction"


def percent(value: float | None) -> str:
    """Return a score x 100 with one decimal, as the papers print it."""
    return NONE if value is None else f"{value * 100:.1f}"


def count(value: int | None) -> str:
    """Return a number of queries as text."""
    return NONE if value is None else f"{value:,}"


def plain(value: float | None) -> str:
    """Return a PSI with three decimals."""
    return NONE if value is None else f"{value:.3f}"


def p_value(value: float | None) -> str:
    """Return a p-value with three decimals."""
    if value is None:
        return NONE
    return f"{value:.3f}" if value >= 0.001 else "<0.001"


def interval(low: float | None, high: float | None, form: Callable[[float | None], str]) -> str:
    """Return an interval behind a space; nothing where there is none."""
    return "" if low is None or high is None else f" [{form(low)}, {form(high)}]"


def shortened(name: str, width: int = NAME_WIDTH) -> str:
    """Return a name on one line of at most `width` characters; of a longer one both ends, since either tells models apart."""
    name = " ".join(name.split())
    if len(name) <= width:
        return name
    tail = (width - 1) // 2
    return f"{name[: width - 1 - tail]}…{name[-tail:]}"


def names_of(summaries: Iterable[TaskSummary], width: int = NAME_WIDTH) -> list[str]:
    """Return a name of at most `width` characters for each model, with its revision where a model was run in several.

    Names stay whole where they could not be told apart otherwise.
    """
    runs = [(one.model, one.revision) for one in summaries]
    several = {model for model, _ in runs if len({revision for name, revision in runs if name == model}) > 1}
    names = {run: f"{run[0]} @ {run[1][:12]}" if run[0] in several else run[0] for run in runs}
    short = {run: shortened(name, width) for run, name in names.items()}
    distinct = len(set(short.values())) == len(names)
    return [(short if distinct else names)[run] for run in runs]


def reach_sentences(names: Iterable[str], summaries: Iterable[TaskSummary]) -> Iterator[str]:
    """Yield how much of the evidence lies beyond each model's window, and whose window is unknown."""
    reaches = {name: one.scores["reach"] for name, one in zip(names, summaries, strict=True) if "reach" in one.scores}
    for model, reach in reaches.items():
        if reach["window"] is not None:
            seen = reach["seen"]
            yield (
                f"{model} reads {reach['window']:,} tokens of a document. Of {percent(reach['beyond']['all']['ends'])} % of "
                "the queries the evidence ends beyond them, which is truncation, not bias. Over the other "
                f"{seen['queries']:,}: nDCG@10 {percent(seen['ndcg_at_10'])}, PSI {plain(seen['psi'])}, PSI of noise "
                f"{plain(seen['psi_null_mean'])} to {plain(seen['psi_null_p95'])}."
            )
    unknown = [model for model, reach in reaches.items() if reach["window"] is None]
    if unknown:
        yield f"How many tokens of a document are read is not known of {', '.join(unknown)}."


def console_at_least(width: int) -> Console:
    """Return a console for tables: as wide as the terminal, or at least `width` columns where the output is none."""
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, width)
    return console


def print_tables(console: Console, text: Lines) -> None:
    """Print one Rich table for each model and task."""
    for (model, task), lines in groupby(text.lines, key=lambda line: (line.model, line.task)):
        table = Table(
            title=Text.assemble((model, "bold"), f" · {task}"),
            title_justify="left",
            title_style="",
            box=None,
            header_style="dim",
            pad_edge=False,
        )
        for heading in text.headings:
            table.add_column(heading, justify="right" if heading in RIGHT else "left", no_wrap=True)
        for line in lines:
            table.add_row(*line.cells)
        console.print(table)
        console.print()


def as_markdown(text: Lines) -> str:
    """Return lines as one Markdown table."""
    headings = ("Model", "Task", *text.headings)
    rows = (headings, ("---",) * len(headings), *((line.model, line.task, *line.cells) for line in text.lines))
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
