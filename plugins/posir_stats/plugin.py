"""The hook implementation: `posir stats`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posir_report.tables import Format, console_at_least
from posir_stats.dataset import find_dataset
from posir_stats.statistics import Statistics
from posir_stats.tables import Described, as_csv, as_json, as_markdown, print_tables
from posir_tasks.display.progress import progress
from posir_tasks.errors import PosirError
from posir_tasks.files import atomic_write
from posir_tasks.plugin_api import hookimpl
from posir_tasks.plugin_api.panels import DATA

#: Columns of a table where the output is no terminal.
WIDTH = 110


@hookimpl
def posir_commands(app: typer.Typer) -> None:
    """Add `posir stats`."""

    @app.command(rich_help_panel=DATA)
    def stats(
        dataset: Annotated[
            str, typer.Argument(help="A task, such as PosIR-English or SQuAD-PosQ, or a folder in the PosIR layout.")
        ],
        format_: Annotated[Format, typer.Option("--format", help="Form of the statistics.")] = Format.TABLE,
        png: Annotated[Path | None, typer.Option(help="Folder for the histogram of positions, a PNG per language.")] = None,
        html: Annotated[Path | None, typer.Option(help="File for the histograms as one page that needs no network.")] = None,
    ) -> None:
        """Show a dataset's sizes, lengths, types of queries, and where its evidence stands."""
        described = describe(dataset)
        show(described, format_)
        if png or html:
            write_figures(described, png, html)


def describe(named: str) -> Described:
    """Read what is named, one subset at a time.

    Raises:
        PosirError: There is no such dataset, or something in it is wrong.
    """
    dataset = find_dataset(named)
    revisions, subsets = set(), []
    for subset in progress(dataset.subsets, "Reading"):
        data = subset.read()
        revisions.add(data.revision)
        subsets.append(Statistics.of(data, subset, dataset.scheme))
    source = f"{dataset.place}, revision {', '.join(sorted(revisions))}"
    return Described(dataset.name, source, subsets)


def show(described: Described, format_: Format) -> None:
    """Print the statistics in the wanted form."""
    text = {Format.CSV: as_csv, Format.JSON: as_json, Format.MARKDOWN: as_markdown}.get(format_)
    if text:
        typer.echo(text(described).rstrip("\n"))
        return
    console = console_at_least(WIDTH)
    print_tables(console, described)


def write_figures(described: Described, png: Path | None, html: Path | None) -> None:
    """Write the histograms, and say where.

    Raises:
        PosirError: A file cannot be written.
    """
    # Altair takes a second to import, which no other command should pay for.
    from posir_report.figure_export import write_pictures
    from posir_stats.charts import figures_of, page_of

    try:
        files = write_pictures(figures_of(described), png) if png else []
        if html:
            with atomic_write(html) as part:
                page_of(described).save(part, format="html", inline=True)
            files.append(html)
    except OSError as error:
        place = error.filename2 or error.filename  # of a renaming, the target
        raise PosirError(f"{place}: cannot be written ({error.strerror}). Choose another --png or --html.") from error
    for file in files:
        typer.echo(f"written: {file}", err=True)
