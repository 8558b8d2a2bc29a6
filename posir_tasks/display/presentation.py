"""Results of public functions, for terminals, notebooks, pages, files and data frames.

Commands print a result with `print_result` and write its charts with `write_charts`, so Python and
the command line show the same output.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console

from posir_tasks.base.errors import PosirError
from posir_tasks.base.wording import escape_controls, pluralize
from posir_tasks.display.export import build_frame, to_csv, to_json
from posir_tasks.display.latex import to_latex
from posir_tasks.display.position_charts import (
    FigureFormat,
    FigureStyle,
    PositionChart,
    draw_card,
    render_png,
)
from posir_tasks.display.tables import (
    DisplaySection,
    Medium,
    OutputFormat,
    Table,
    escape_prose,
    print_commands,
    print_paragraph,
    print_tables,
)

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from posir_tasks.display.figures import Figure

Item = TypeVar("Item", covariant=True)
#: Lines of a `repr` below the title.
REPR_LINES = 8
#: Maximum number of position charts on a card.
MAX_ON_CARD = 6


class LazySequence(Sequence[Item]):
    """A sequence that is built on first access, for expensive fields of a result."""

    def __init__(self, build: Callable[[], Iterable[Item]]) -> None:
        self._build = build

    @cached_property
    def _items(self) -> tuple[Item, ...]:
        return tuple(self._build())

    def __getitem__(self, index: Any) -> Any:
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __bool__(self) -> bool:
        """Return True if there is any item. Builds at most one."""
        return any(True for _ in self.__dict__.get("_items") or self._build())


@dataclass(frozen=True, repr=False, kw_only=True)
class Result:
    """The result of a public function: rows, with findings, tables and charts.

    All output is derived from the fields. Expensive fields are `LazySequence`s. Subclasses add
    typed fields.
    """

    title: str = ""
    """Subject in a few words."""
    rows: Sequence[Any] = ()
    """Rows for the data frame and the CSV: dataclasses or mappings with equal fields, unrounded."""
    values: object = None
    """JSON document, or a function that builds it. If None, `rows` is used."""
    sentences: Sequence[str] = ()
    """Findings above the tables, one paragraph each."""
    tables: Sequence[Table] = ()
    draw: Callable[[], Sequence[Figure]] | None = None
    """Function that builds the figures next to the tables."""
    extra_sections: Sequence[DisplaySection] = ()
    """Sections below the tables, for all media or only one."""
    page_title: str = ""
    """Heading of the page. Defaults to the title."""
    notes: Sequence[str] = ()
    """Short paragraphs that explain the tables."""
    details: Sequence[str] = ()
    """Longer explanations, for pages and `--explain`."""
    footer: Sequence[str] = ()
    """Lines at the end, such as file names."""
    commands: Sequence[str] = ()
    """Commands to run next, printed below the footer."""
    warnings: Sequence[str] = ()
    """Lines that the command prints to standard error."""
    data: str = ""
    """Data and revision in a few words, for pages and cards. Cards default to the title."""
    full: bool = True
    """Whether all numbers are shown. If false, `--full` shows more."""
    exit_status: int = 0
    """Exit status of the command: 1 if a check fails, 2 if it is inconclusive."""

    def sections(self, medium: Medium = Medium.TEXT) -> tuple[DisplaySection, ...]:
        """Return the sections for a medium: sentences, tables, then `extra_sections`.

        LaTeX uses only the sections for LaTeX or, if there are none, the sections for text.
        """
        special = tuple(part for part in self.extra_sections if part.only is medium)
        if medium is Medium.LATEX:
            return special or self.sections()
        sections = list(to_paragraphs(self.sentences))
        if self.tables or self.draw:
            sections.append(DisplaySection(tables=tuple(self.tables), draw=self.draw))
        return (*sections, *(part for part in self.extra_sections if part.only in (None, medium)))

    def list_own_fields(self) -> dict[str, object]:
        """Return the fields that the subclass defines, by name."""
        base = {item.name for item in fields(Result)}
        return {name: value for name, value in vars(self).items() if name not in base}

    def records(self) -> Sequence[Any]:
        """Return the rows for the data frame and the CSV."""
        return self.rows

    def document(self) -> object:
        """Return the JSON document."""
        if callable(self.values):
            return self.values()
        return self.rows if self.values is None else self.values

    def position_charts(self) -> list[PositionChart]:
        """Return the position charts for pages and cards."""
        return [
            chart for section in self.sections(Medium.PAGE) for chart in section.position_charts
        ]

    def figures(self) -> list[Figure]:
        """Return the figures for a page."""
        return [figure for section in self.sections(Medium.PAGE) for figure in section.figures()]

    def to_polars(self) -> pl.DataFrame:
        """Convert the rows to a polars DataFrame.

        An estimate `x` has the columns `x`, `x_low` and `x_high`.
        """
        return build_frame(self.records())

    def to_pandas(self) -> pd.DataFrame:
        """Convert the rows to a pandas DataFrame with the columns of `to_polars`."""
        import pandas as pd

        return pd.DataFrame(self.to_polars().to_dict(as_series=False))

    def to_json(self) -> str:
        """Convert the result to unrounded JSON, the output of `--format json`."""
        return to_json(self.document())

    def to_markdown(self, *, explain: bool = False) -> str:
        """Convert the result to GitHub's Markdown, the output of `--format markdown`."""
        sections = [section.to_markdown() for section in self.sections()]
        paragraphs = map(escape_controls, self.paragraphs(explain=explain))
        return "\n\n".join([*sections, *map(escape_prose, paragraphs)])

    def to_latex(self) -> str:
        """Convert the tables to LaTeX that uses the packages booktabs and adjustbox.

        Raises:
            PosirError: There is no table.
        """
        tables: list[str] = []
        for section in self.sections(Medium.LATEX):
            notes = () if section.only is Medium.LATEX else self.notes
            for table in section.tables:
                title = table.title or f"{self.title}.".replace("?.", "?")
                complete = replace(table, title=title, notes=(*table.notes, *notes))
                tables.append(to_latex(complete, label=f"tab:posir-{len(tables) + 1}"))
        if not tables:
            raise PosirError("There is no table for LaTeX. Choose another --format.")
        return "\n\n".join(["% In the preamble: \\usepackage{booktabs,adjustbox}", *tables])

    def to_html(self) -> str:
        """Render a self-contained HTML page, the output of `--html`."""
        return self._render("sections.html")

    def to_card(self) -> bytes:
        """Draw position charts, data and date as a PNG of 1,200 x 630 pixels.

        Raises:
            PosirError: There is no position chart.
        """
        charts = self.position_charts()
        if not charts:
            raise PosirError(
                "Cannot draw a card: there are no results by position, or the output is another "
                "table. Omit --card, or use the default tables."
            )
        more = f"; {len(charts) - MAX_ON_CARD} more" if len(charts) > MAX_ON_CARD else ""
        source = f"{self.data or self.title}{more}; {date.today().isoformat()}"
        question = "Where in a document is evidence found?"
        return render_png(draw_card(charts[:MAX_ON_CARD], question, source))

    def save_figures(
        self,
        folder: str | Path,
        format: FigureFormat = "svg",
        *,
        bare: bool = False,
        width: float | None = None,
        font_size: float | None = None,
        font: str | None = None,
    ) -> list[Path]:
        """Write each chart to a file, as `--figures` does.

        Args:
            folder: Folder to write to.
            format: `svg`, `pdf` or `png`.
            bare: Omit title, explanation and source, which belong in a paper's caption.
            width: Width of a bare chart in inches. Defaults to 3, a column of a paper.
            font_size: Text size of a bare chart in points. Defaults to 8.
            font: Font of a bare chart, such as `Times New Roman`.

        Returns:
            The paths of the files.

        Raises:
            PosirError: There is no chart, or the folder is not writable.
        """
        from posir_tasks.display.figures import export, prepare_figures

        style = FigureStyle(format, bare, width, font_size, font)
        return export(prepare_figures(self.position_charts(), self.figures(), Path(folder), style))

    def print_on(
        self, console: Console, *, explain: bool = False, sections_printed: int = 0
    ) -> None:
        """Print sections and notes, and with `explain` also detailed sections and details.

        The first `sections_printed` sections are skipped.
        """
        for section in self.sections()[sections_printed:]:
            if explain or not section.detailed:
                section.print_on(console)
        print_tables(console, [], self.paragraphs(explain=explain))

    def paragraphs(self, *, explain: bool) -> list[str]:
        """Return the notes, and with `explain` also the details."""
        notes = [note for note in self.notes if note]
        return list(dict.fromkeys([*notes, *self.details] if explain else notes))

    def __str__(self) -> str:
        """Return the output of the command outside a terminal."""
        stream = io.StringIO()
        # With the default `force_jupyter`, Rich displays the text in a notebook and writes nothing.
        console = Console(file=stream, highlight=False, force_terminal=False, force_jupyter=False)
        self.print_on(console)
        return stream.getvalue().rstrip()

    def __repr__(self) -> str:
        """Return the title and the first lines of the printed text."""
        title = escape_controls(self.title)
        # The text may begin with the title.
        lines = [line for line in str(self).splitlines() if line not in ("", title)]
        summary = [f"{type(self).__name__}: {title}", *lines[:REPR_LINES]]
        if lines[REPR_LINES:]:
            more = pluralize(len(lines) - REPR_LINES, "line")
            summary.append(f"... and {more} more; print the result to see all")
        return "\n".join(summary)

    def _repr_html_(self) -> str:
        """Render a self-contained HTML fragment without scripts, for notebooks."""
        return self._render("fragment.html")

    def _render(self, template: str) -> str:
        # Importing Altair takes a second.
        from posir_tasks.display.figures import render_page

        sections = self.sections(Medium.PAGE)
        title = self.page_title or self.title
        # If the first section has only a title, it is the heading of the page.
        if sections and sections[0].is_heading:
            title = sections[0].title
            sections = sections[1:]
        return render_page(
            __package__,
            template,
            title=title,
            data=self.data,
            charts=self.position_charts(),
            sections=sections,
            legend=self.paragraphs(explain=True),
        )


def to_paragraphs(sentences: Iterable[str]) -> Iterator[DisplaySection]:
    """Yield a section per sentence, so that each becomes a paragraph."""
    for sentence in sentences:
        yield DisplaySection(sentences=(sentence,))


#: Renderers for all formats except text, which depends on the terminal.
RENDERERS: dict[OutputFormat, Callable[[Result, bool], str]] = {
    OutputFormat.JSON: lambda result, _: result.to_json(),
    OutputFormat.CSV: lambda result, _: to_csv(result.records()).removesuffix("\n"),
    OutputFormat.MARKDOWN: lambda result, explain: result.to_markdown(explain=explain),
    OutputFormat.LATEX: lambda result, _: result.to_latex(),
}


def print_result(
    result: Result, format_: OutputFormat, *, explain: bool = False, sections_printed: int = 0
) -> None:
    """Print a result in a format. The text format skips the first `sections_printed` sections."""
    if format_ in RENDERERS:
        print(RENDERERS[format_](result, explain))
        return
    console = Console(highlight=False)
    result.print_on(console, explain=explain, sections_printed=sections_printed)
    if result.details and not explain:
        full = "" if result.full else "; --full: all numbers"
        print_paragraph(console, f"--explain: all columns{full}.")
    for line in result.footer:
        print(escape_controls(line))
    for command in result.commands:
        print_commands(console, command)


def write_charts(
    result: Result,
    folder: Path | None,
    style: FigureStyle,
    html: Path | None,
    card: Path | None,
) -> None:
    """Write the figures to a folder, and the page and the card to files. Print the paths.

    Raises:
        PosirError: There is no chart, or a file cannot be written.
    """
    if not (folder or html or card):
        return
    from posir_tasks.display.figures import Renderers, export, prepare_figures

    files: Renderers = {}
    if folder:
        files |= prepare_figures(result.position_charts(), result.figures(), folder, style)
    if html:
        files[html] = lambda: result.to_html().encode()
    if card:
        files[card] = result.to_card
    for file in export(files):
        print(f"written: {escape_controls(str(file))}", file=sys.stderr)
