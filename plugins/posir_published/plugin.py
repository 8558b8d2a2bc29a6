"""The hook implementation: `posir published`."""

from __future__ import annotations

from typing import Annotated

import typer

from posir_published.mmteb import correlations
from posir_published.rows import published_bins, published_rows, published_tasks
from posir_published.tables import Sheet, as_csv, as_json, as_markdown, bins_sheet, correlations_sheet, print_tables, rows_sheet
from posir_report.tables import Format, console_at_least
from posir_tasks.errors import PosirError
from posir_tasks.plugin_api import hookimpl
from posir_tasks.plugin_api.panels import READ

#: Columns of a table where the output is no terminal.
WIDTH = 110


@hookimpl
def posir_commands(app: typer.Typer) -> None:
    """Add `posir published`."""

    @app.command(rich_help_panel=READ)
    def published(
        task: Annotated[list[str] | None, typer.Option("--task", "-t", help="Show this task alone; may be repeated.")] = None,
        lengths: Annotated[bool, typer.Option("--lengths", help="Show the length buckets Q1 to Q4 of PosIR.")] = False,
        bins: Annotated[bool, typer.Option("--bins", help="Show nDCG@10 of every position bucket of PosQ.")] = False,
        mmteb: Annotated[bool, typer.Option("--mmteb", help="Show how PosIR and MMTEB order the models.")] = False,
        format_: Annotated[Format, typer.Option("--format", help="Form of the figures.")] = Format.TABLE,
    ) -> None:
        """Show nDCG@10 and PSI of the models and tasks in the papers, with their source."""
        check_views(task=bool(task), lengths=lengths, bins=bins, mmteb=mmteb)
        if mmteb:
            show(correlations_sheet(correlations()), format_)
        elif bins:
            show(positions(wanted(task)), format_)
        else:
            rows = [row for name in wanted(task) for row in published_rows(name)]
            show(rows_sheet([row for row in rows if lengths or row.length == "all"]), format_)


def check_views(*, task: bool, lengths: bool, bins: bool, mmteb: bool) -> None:
    """Refuse options that do not go together.

    Raises:
        PosirError: They do not.
    """
    if mmteb and (task or lengths or bins):
        raise PosirError(
            "--mmteb is about PosIR's average over tasks, at every length; use it without --task, --lengths and --bins."
        )
    if lengths and bins:
        raise PosirError("--lengths is of PosIR and --bins of PosQ, and no paper gives both; use one of the two.")


def wanted(tasks: list[str] | None) -> list[str]:
    """Return the tasks to show, all where none is named.

    Raises:
        PosirError: Nothing is published of one.
    """
    known = published_tasks()
    for name in tasks or ():
        if name not in known:
            raise PosirError(f"Nothing is published of a task '{name}'. Published are: {', '.join(known)}.")
    return list(dict.fromkeys(tasks or known))


def positions(tasks: list[str]) -> Sheet:
    """Return the position buckets of those tasks of which any are published.

    Raises:
        PosirError: There is none.
    """
    rows = [row for name in tasks for row in published_bins(name)]
    if not rows:
        raise PosirError(
            f"No position buckets are published of {', '.join(tasks)}; they are of SQuAD-PosQ, FineWeb-PosQ and, for "
            "rerankers, their Tiny samples."
        )
    return bins_sheet(rows)


def show(sheet: Sheet, format_: Format) -> None:
    """Print the figures in the wanted form."""
    text = {Format.CSV: as_csv, Format.JSON: as_json, Format.MARKDOWN: as_markdown}.get(format_)
    if text:
        typer.echo(text(sheet).rstrip("\n"))
        return
    console = console_at_least(WIDTH)
    print_tables(console, sheet)
