"""The hook implementation: `posir report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from posir_report.formats import Format, as_csv, as_json, as_markdown, bin_lines, length_lines, print_tables
from posir_report.summary import bin_rows_of, rows_of, summarise
from posir_tasks.hooks import hookimpl
from posir_tasks.results import read_results

#: Columns of a table where the output is no terminal.
WIDTH = 110
NOTE = (
    "nDCG@10 x 100 and PSI = 1 - worst / best position bin, each with its 95 % interval; a part of every PSI is chance, so the "
    "interval of the true one mostly lies below it. PSI of noise: what these counts show when position has no effect, on "
    "average and in 95 of 100 cases. Read PSI beside nDCG@10."
)


@hookimpl
def posir_commands(app: typer.Typer) -> None:
    """Add `posir report`."""

    @app.command()
    def report(
        results: Annotated[Path, typer.Argument(help="The --output-folder of `mteb run`.")],
        bins: Annotated[bool, typer.Option("--bins", help="Show nDCG@10 of every position bin.")] = False,
        format_: Annotated[Format, typer.Option("--format", help="Form of the report.")] = Format.TABLE,
    ) -> None:
        """Show nDCG@10 and PSI of every model and task, overall and by length, with intervals and noise floor."""
        summaries = summarise(read_results(results))
        if format_ is Format.JSON:
            typer.echo(as_json(summaries))
            return
        by_length = [row for one in summaries for row in rows_of(one)]
        by_position = [row for one in summaries for row in bin_rows_of(one)]
        if format_ is Format.CSV:
            typer.echo(as_csv(by_position if bins else by_length), nl=False)
            return
        text = bin_lines(by_position) if bins else length_lines(by_length)
        if format_ is Format.MARKDOWN:
            typer.echo(as_markdown(text))
            return
        console = Console()
        if not console.is_terminal:
            console.width = max(console.width, WIDTH)
        print_tables(console, text)
        console.print(f"[dim]{NOTE}[/]")
