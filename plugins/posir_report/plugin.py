"""The hook implementation: `posir report`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from posir_report.latex import as_latex
from posir_report.published import among_published
from posir_report.summary import Row, TaskSummary, bin_rows_of, rows_of, summarise
from posir_report.tables import (
    Lines,
    ReportFormat,
    as_csv,
    as_json,
    as_markdown,
    bin_lines,
    console_at_least,
    length_lines,
    names_of,
    overview_lines,
    print_tables,
    reach_sentences,
)
from posir_tasks.errors import PosirError
from posir_tasks.plugin_api import hookimpl
from posir_tasks.plugin_api.panels import READ
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

    @app.command(rich_help_panel=READ)
    def report(
        results: Annotated[Path, typer.Argument(help="The --output-folder of `mteb run`.")],
        bins: Annotated[bool, typer.Option("--bins", help="Show nDCG@10 of every position bin.")] = False,
        format_: Annotated[ReportFormat | None, typer.Option("--format", help="Form of the report.  [default: table]")] = None,
        markdown: Annotated[bool, typer.Option("--markdown", help="The same as --format markdown.")] = False,
        csv: Annotated[bool, typer.Option("--csv", help="The same as --format csv.")] = False,
        latex: Annotated[bool, typer.Option("--latex", help="The same as --format latex: the papers' tables.")] = False,
        published: Annotated[bool, typer.Option("--published", help="Show the papers' models among these.")] = False,
        html: Annotated[
            Path | None, typer.Option(help="File for tables and figures as one page that needs no network.")
        ] = None,
        png: Annotated[Path | None, typer.Option(help="Folder for the figures as pictures.")] = None,
    ) -> None:
        """Show nDCG@10 and PSI of every model and task, overall and by length, with intervals and noise floor."""
        flags = {ReportFormat.MARKDOWN: markdown, ReportFormat.CSV: csv, ReportFormat.LATEX: latex}
        form = chosen({*([format_] if format_ else ()), *(form for form, given in flags.items() if given)})
        summaries = summarise(read_results(results))
        if html or png:
            write_figures(summaries, html, png)
        if published and bins:
            raise PosirError("The papers' PosIR bins are not published. Leave out --bins or --published.")
        if published:
            show_rows(among_published([row for one in summaries for row in rows_of(one)]), form)
        else:
            show(summaries, form, bins=bins)


def chosen(forms: set[ReportFormat]) -> ReportFormat:
    """Return the one form that was asked for.

    Raises:
        PosirError: Several were.
    """
    if len(forms) > 1:
        raise PosirError(f"Several forms of the report: {', '.join(sorted(forms))}. Give one; --html and --png go with any.")
    return forms.pop() if forms else ReportFormat.TABLE


def show(summaries: Sequence[TaskSummary], form: ReportFormat, *, bins: bool) -> None:
    """Print the report.

    Raises:
        PosirError: The form does not show position bins.
    """
    if form is ReportFormat.JSON:
        typer.echo(as_json(summaries))
        return
    if form is ReportFormat.LATEX:
        if bins:
            raise PosirError("LaTeX has the papers' tables only. Leave out --bins, or take --csv, --markdown or the table.")
        typer.echo(as_latex(summaries))
        return
    if bins:
        by_position = [row for one in summaries for row in bin_rows_of(one)]
        show_text(as_csv(by_position), bin_lines(by_position), form)
    else:
        rows = [row for one in summaries for row in rows_of(one)]
        if form is ReportFormat.TABLE:
            print_tables(console_at_least(WIDTH), overview_lines(rows))
        show_rows(rows, form, reach_notes(summaries))


def reach_notes(summaries: Sequence[TaskSummary]) -> Iterator[str]:
    """Yield for each task what the models' windows leave of the evidence."""
    for task in dict.fromkeys(one.task for one in summaries):
        of_task = [one for one in summaries if one.task == task]
        yield from (f"{task}: {sentence}" for sentence in reach_sentences(names_of(of_task), of_task))


def show_rows(rows: Sequence[Row], form: ReportFormat, notes: Iterable[str] = ()) -> None:
    """Print rows of models, tasks and lengths, in the table with notes below it.

    Raises:
        PosirError: The form shows results alone.
    """
    if form in (ReportFormat.JSON, ReportFormat.LATEX):
        raise PosirError(f"--published goes with table, markdown and csv, not with {form}.")
    show_text(as_csv(rows), length_lines(rows), form, notes)


def show_text(csv: str, text: Lines, form: ReportFormat, notes: Iterable[str] = ()) -> None:
    """Print rows in one of the forms that every report has."""
    if form is ReportFormat.CSV:
        typer.echo(csv, nl=False)
        return
    if form is ReportFormat.MARKDOWN:
        typer.echo(as_markdown(text))
        return
    console = console_at_least(WIDTH)
    print_tables(console, text)
    for note in (*notes, NOTE):
        console.print(Text(note, style="dim"))


def write_figures(summaries: Sequence[TaskSummary], html: Path | None, png: Path | None) -> None:
    """Write page and pictures, and say where.

    Raises:
        PosirError: A file cannot be written.
    """
    # Altair takes a second to import, which no other command should pay for.
    from posir_report.figure_export import figures_of, write_pictures
    from posir_report.page import write_page

    figures = figures_of(summaries)
    try:
        files = write_pictures(figures, png) if png else []
        if html:
            write_page(summaries, figures, html)
            files.append(html)
    except OSError as error:
        raise PosirError(
            f"{error.filename2 or error.filename}: cannot be written ({error.strerror}). Choose another --png or --html."
        ) from error
    for file in files:
        typer.echo(f"written: {file}", err=True)
