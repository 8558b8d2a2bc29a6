"""`posir report`: the tables and charts of results."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from posir_report import tables
from posir_report.api import CURVE_NOTE, NOTE, Results, read_results
from posir_report.page import render_latex
from posir_report.published import merge_published, merge_published_bins
from posir_tasks.command.options import Explain, format_option, with_progress
from posir_tasks.display.presentation import TableResult, present, write_charts
from posir_tasks.display.tables import OutputFormat, Table, build_columns, to_latex
from posir_tasks.errors import PosirError
from posir_tasks.scores import ScoreInfo


@with_progress
def report(
    results: Annotated[Path, typer.Argument(help="The --output-folder of `mteb run`.")],
    bins: Annotated[bool, typer.Option("--bins", help="Show nDCG@10 of every position bin.")] = False,
    recall: Annotated[bool, typer.Option("--recall", help="Show Recall@5, @10 and @100 of every position bin.")] = False,
    format_: Annotated[OutputFormat, format_option(*OutputFormat)] = OutputFormat.TEXT,
    markdown: Annotated[bool, typer.Option("--markdown", help="Short for --format markdown.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Short for --format csv.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Short for --format latex: tables as in the papers.")] = False,
    published: Annotated[bool, typer.Option("--published", help="Include the published results of the same tasks.")] = False,
    columns: Annotated[
        str, typer.Option(help="Keys of the scores to show, separated by commas; `--columns help` lists them.")
    ] = "",
    full: Annotated[bool, typer.Option("--full", help="Show PSI, what chance alone gives, and p-values, too.")] = False,
    margin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POINTS",
            help="Smallest difference that matters: of the bias, such as 5, or KEY=POINTS for ndcg_at_10, start_to_end or psi.",
        ),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="File for tables and charts as one page that needs no network.")] = None,
    png: Annotated[Path | None, typer.Option(help="Folder for the charts as PNG files.")] = None,
    explain: Explain = False,
) -> None:
    """Show how well models retrieve, what is lost from start to end and not read, and whether they are biased by position."""
    flags = {OutputFormat.MARKDOWN: markdown, OutputFormat.CSV: csv, OutputFormat.LATEX: latex}
    chosen = choose_format({format_, *(name for name, given in flags.items() if given)} - {OutputFormat.TEXT})
    check_options(chosen, bins=bins, recall=recall, published=published)
    if columns == "help":
        present(TableResult(tables=[column_table()], rows=()), OutputFormat.TEXT)
        return
    chosen_columns = tables.choose_columns([key.strip() for key in columns.split(",") if key.strip()], full=full)
    keys = [column.key for column in chosen_columns] if columns else ()
    shown = read_results(results, columns=keys, full=full, margins=margin or ())
    write_charts(shown, png, html)
    if chosen is OutputFormat.LATEX and not columns:
        typer.echo(render_latex(shown.summaries))
    elif chosen is OutputFormat.LATEX:
        table = tables.length_table(shown.rows, chosen_columns)
        typer.echo(to_latex(replace(table, notes=(NOTE, tables.build_legend(chosen_columns))), label="tab:posir"))
    elif recall:
        present(shown.recall(), chosen, explain=explain)
    elif bins and published:
        present(tabulate_bins_with_published(shown), chosen, explain=explain)
    elif bins:
        present(shown.bins(), chosen, explain=explain)
    elif published:
        curves = chosen is OutputFormat.TEXT
        present(tabulate_with_published(shown, chosen_columns, curves=curves), chosen, explain=explain)
    else:
        present(shown, chosen, explain=explain)


def choose_format(requested: set[OutputFormat]) -> OutputFormat:
    """Return the requested format, or the default; raise PosirError if several are requested."""
    if len(requested) > 1:
        raise PosirError(f"Several output formats: {', '.join(sorted(requested))}. Give one; --html and --png go with any.")
    return requested.pop() if requested else OutputFormat.TEXT


def check_options(format_: OutputFormat, *, bins: bool, recall: bool, published: bool) -> None:
    """Raise PosirError if options cannot be combined."""
    if recall and (bins or published or format_ is OutputFormat.LATEX):
        raise PosirError("--recall is a table of its own. Omit --bins, --published and --latex.")
    if published and format_ in (OutputFormat.JSON, OutputFormat.LATEX):
        raise PosirError(f"--published goes with text, markdown and csv, not with {format_}.")
    if bins and format_ is OutputFormat.LATEX:
        raise PosirError("LaTeX output has only the tables of the papers. Omit --bins, or use --csv, --markdown or the table.")


def tabulate_with_published(shown: Results, columns: Sequence[ScoreInfo], *, curves: bool) -> TableResult:
    """Return a row per length, the published results among them, with curves over position if wanted."""
    merged = merge_published(shown.rows)
    scores = tables.with_published_scores(columns, merged)
    legend = [tables.build_legend(scores), *([CURVE_NOTE] if curves else [])]
    return shown.tabulate(merged, tables.length_table(merged, scores, curves=curves), scores, further=legend)


def tabulate_bins_with_published(shown: Results) -> TableResult:
    """Return a row per position bin, by length as the papers give them, with the published ones after one's own."""
    rows = merge_published_bins(shown.summaries)
    columns = [column for column in tables.bin_columns() if any(row.scores.get(column.key) is not None for row in rows)]
    return shown.tabulate(rows, tables.bin_table(rows, columns), columns)


def column_table() -> Table:
    """Return a table of everything that `--columns` takes."""
    return Table(
        build_columns(("Key", "Title", "Shown by default", "Description", "Source")),
        tuple(
            (column.key, column.title, "yes" if column.column else "", column.description, column.citation)
            for column in tables.known_columns()
        ),
    )
