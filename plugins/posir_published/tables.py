"""The published figures in the forms in which they are printed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

import polars as pl
from rich.console import Console
from rich.table import Table

from posir_published.mmteb import Correlation
from posir_published.queries import Queries
from posir_published.rows import PublishedBin, PublishedRow

#: What is printed where the papers say nothing.
NOT_SAID = "not said"
#: Columns of text; the others are numbers.
TEXTS = ("Model", "Length", "Position")


@dataclass(frozen=True)
class Line:
    """A row as text."""

    task: str
    source: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Sheet:
    """Rows, and the same as text under headings."""

    rows: Sequence[PublishedRow | PublishedBin | Correlation]
    headings: tuple[str, ...]
    lines: tuple[Line, ...]
    note: str


ROWS_NOTE = (
    "nDCG@10 x 100 and PSI = 1 - worst / best position bin, as published. The papers give no intervals and no counts per "
    "model; the queries are the data's. So these PSI have no noise floor, but some can be bounded. PSI of noise at most: where "
    "the queries of each position bucket are known (PosQ), what PSI shows at most when position has no effect, on average and "
    "in 95 of 100 cases; a published PSI below that may be chance. In PosIR's 20 bins chance alone shows about 0.07 with "
    "42,000 queries and 0.14 with 10,000 at an nDCG@10 near 50, and 0.01 and 0.03 near 94; so a length bucket's PSI, of fewer "
    "queries, holds more chance than that of all."
)
POSQ_NOTE = (
    "Of PosQ the paper prints buckets; nDCG@10 is their mean, weighted by queries. Its rerankers ran on the Tiny samples."
)
BINS_NOTE = "nDCG@10 x 100 as published, without intervals. The queries are the dataset's; the paper gives none per model."
MMTEB_NOTE = (
    "Spearman's rho of the macro average of nDCG@10 over PosIR's ten monolingual tasks with the MMTEB retrieval score; p is "
    "two-sided and not corrected for the five tests. The paper cuts its p-values to one digit, where we round to three."
)


def rows_sheet(rows: Sequence[PublishedRow]) -> Sheet:
    """Return rows of models by task, with one line per length."""
    note = f"{ROWS_NOTE} {POSQ_NOTE}" if any(row.psi_null_mean_at_most is not None for row in rows) else ROWS_NOTE
    return Sheet(
        rows,
        ("Model", "Length", "Queries", "nDCG@10", "PSI", "PSI of noise at most"),
        tuple(
            Line(
                row.task,
                row.source,
                (
                    row.model,
                    row.length,
                    _queries(row.queries, exact=row.queries_exact),
                    f"{row.ndcg_at_10 * 100:.2f}",
                    f"{row.psi:.3f}",
                    _noise(row),
                ),
            )
            for row in rows
        ),
        note,
    )


def bins_sheet(rows: Sequence[PublishedBin]) -> Sheet:
    """Return rows of position buckets."""
    return Sheet(
        rows,
        ("Model", "Position", "Queries", "nDCG@10"),
        tuple(
            Line(
                row.task,
                row.source,
                (row.model, row.position, _queries(row.queries, exact=row.queries_exact), f"{row.ndcg_at_10 * 100:.2f}"),
            )
            for row in rows
        ),
        BINS_NOTE,
    )


def correlations_sheet(rows: Sequence[Correlation]) -> Sheet:
    """Return rows of rank correlations."""
    return Sheet(
        rows,
        ("Length", "Models", "Spearman", "p", "printed Spearman", "printed p"),
        tuple(
            Line(
                "PosIR and MMTEB retrieval",
                row.source,
                (
                    row.length,
                    str(row.models),
                    f"{row.rho:.2f}",
                    f"{row.p_value:.3f}",
                    f"{row.printed_rho:.2f}",
                    str(row.printed_p_value),
                ),
            )
            for row in rows
        ),
        MMTEB_NOTE,
    )


def _queries(number: int | None, *, exact: bool) -> str:
    return NOT_SAID if number is None else str(Queries(number, exact))


def _noise(row: PublishedRow) -> str:
    if row.psi_null_mean_at_most is None:
        return NOT_SAID
    return f"{row.psi_null_mean_at_most:.3f} to {row.psi_null_p95_at_most:.3f}"


def as_csv(sheet: Sheet) -> str:
    """Return the rows as CSV, not rounded."""
    return pl.DataFrame([asdict(row) for row in sheet.rows], infer_schema_length=None).write_csv()


def as_json(sheet: Sheet) -> str:
    """Return the rows as JSON, not rounded."""
    return json.dumps([asdict(row) for row in sheet.rows], indent=2)


def as_markdown(sheet: Sheet) -> str:
    """Return the lines as one Markdown table, the note below it."""
    headings = ("Task", *sheet.headings, "Source")
    rows = (headings, ("---",) * len(headings), *((line.task, *line.cells, line.source) for line in sheet.lines))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + f"\n\n{sheet.note}"


def print_tables(console: Console, sheet: Sheet) -> None:
    """Print one Rich table for each task, the note below them."""
    for (task, source), lines in groupby(sheet.lines, key=lambda line: (line.task, line.source)):
        console.print(f"[bold]{task}[/] · {source}", highlight=False)
        table = Table(box=None, header_style="dim", pad_edge=False)
        for heading in sheet.headings:
            table.add_column(heading, justify="left" if heading in TEXTS else "right", no_wrap=True)
        for line in lines:
            table.add_row(*line.cells)
        console.print(table)
        console.print()
    console.print(f"[dim]{sheet.note}[/]")
