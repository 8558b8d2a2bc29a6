"""`posir stats`: the statistics of a dataset."""

from pathlib import Path
from typing import Annotated

import typer

from posir_stats import api
from posir_tasks.command.explain_option import Explain
from posir_tasks.command.format_option import TableFormat
from posir_tasks.command.progress_option import with_progress
from posir_tasks.display.presentation import present, write_charts
from posir_tasks.display.tables import OutputFormat


@with_progress
def stats(
    dataset: Annotated[
        str,
        typer.Argument(
            help="A task, such as PosIR-English; a folder in the PosIR layout or of BEIR; a file or folder of questions "
            "with their evidence; or a dataset on the Hub."
        ),
    ],
    tokenizer: Annotated[
        str | None,
        typer.Option(help="Also count the tokens of all texts with this tokenizer: a name on the Hub or a folder."),
    ] = None,
    format_: TableFormat = OutputFormat.TEXT,
    png: Annotated[Path | None, typer.Option(help="Folder for the histogram of positions, a PNG per language.")] = None,
    html: Annotated[Path | None, typer.Option(help="File for the histograms as one page that needs no network.")] = None,
    explain: Explain = False,
) -> None:
    """Show a dataset's size, document lengths, query types and evidence positions."""
    statistics = api.stats(dataset, tokenizer=tokenizer)
    present(statistics, format_, explain=explain)
    write_charts(statistics, png, html)
