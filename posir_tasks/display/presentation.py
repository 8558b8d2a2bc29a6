"""The result of a public function: it shows itself in terminal and notebook and becomes a data
frame.

A command prints it in the format that is asked for (`present`) and writes its charts
(`write_charts`), so that Python and the command line show the same.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rich.console import Console

from posir_tasks.base.errors import PosirError
from posir_tasks.base.wording import escape_controls, pluralize
from posir_tasks.display.latex import to_latex
from posir_tasks.display.strip import FigureFormat, FigureStyle, Strip, draw_card, render_png
from posir_tasks.display.tables import (
    DisplaySection,
    Medium,
    OutputFormat,
    Table,
    build_frame,
    escape_prose,
    print_commands,
    print_paragraph,
    print_tables,
    to_csv,
    to_json,
)

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from posir_tasks.display.figures import Figure

Item = TypeVar("Item", covariant=True)
#: Lines of a `repr` below the title.
REPR_LINES = 8
#: Maximum number of pictures on a card.
ON_CARD = 6


class Deferred(Sequence[Item]):
    """A sequence that is built when it is first read, for fields of a result that take long."""

    def __init__(self, build: Callable[[], Iterable[Item]]) -> None:
        self._build = build

    @cached_property
    def _items(self) -> tuple[Item, ...]:
        return tuple(self._build())

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, index: int | slice) -> Item | tuple[Item, ...]:
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __bool__(self) -> bool:
        """Return whether there is an item, of which at most the first is built."""
        return any(True for _ in self.__dict__.get("_items") or self._build())


@dataclass(frozen=True, repr=False, kw_only=True)
class Result:
    """What a public function returns: rows, and the findings, tables and charts that show them.

    All that is shown or exported follows from the fields. A function of the room builds them; where
    one takes long, it is `Deferred`. A subclass adds typed fields.
    """

    title: str = ""
    """Subject in a few words."""
    rows: Sequence[Any] = ()
    """Dataclasses or mappings of the same fields: the rows of data frame and CSV, not rounded."""
    values: object = None
    """The value that JSON holds; None for the rows. A function is called for it."""
    sentences: Sequence[str] = ()
    """Findings, a paragraph each, above the tables."""
    tables: Sequence[Table] = ()
    draw: Callable[[], Sequence[Figure]] | None = None
    """Draws the charts next to the tables; None if there are none."""
    parts: Sequence[DisplaySection] = ()
    """Sections below sentences and tables; one may be for a single medium."""
    page_title: str = ""
    """Heading of the page, if it is not the title."""
    notes: Sequence[str] = ()
    """Paragraphs on how to read the tables: few lines."""
    details: Sequence[str] = ()
    """All further paragraphs, for a page and `--explain`."""
    footer: Sequence[str] = ()
    """Lines below everything else, such as files."""
    commands: Sequence[str] = ()
    """Commands below the footer, as code."""
    warnings: Sequence[str] = ()
    """Lines that the command prints on the error stream."""
    data: str = ""
    """The data and its revision in a few words, for a page and a card; empty for the title."""
    full: bool = True
    """Whether `--full` would show no more."""
    exit_status: int = 0
    """1 if a check fails, 2 if it cannot be decided."""

    def sections(self, medium: Medium = Medium.TEXT) -> tuple[DisplaySection, ...]:
        """Return what a medium shows, in order: the sentences, the tables, then the other parts; in
        LaTeX the parts of its own, or else those of text.
        """
        special = tuple(part for part in self.parts if part.only is medium)
        if medium is Medium.LATEX:
            return special or self.sections()
        sections = list(to_paragraphs(self.sentences))
        if self.tables or self.draw:
            sections.append(DisplaySection(tables=tuple(self.tables), draw=self.draw))
        return (*sections, *(part for part in self.parts if part.only in (None, medium)))

    def records(self) -> Sequence[Any]:
        """Return the rows."""
        return self.rows

    def document(self) -> object:
        """Return what JSON holds."""
        if callable(self.values):
            return self.values()
        return self.rows if self.values is None else self.values

    def strips(self) -> list[Strip]:
        """Return the pictures of the answer that a page and a card show."""
        return [strip for section in self.sections(Medium.PAGE) for strip in section.strips]

    def figures(self) -> list[Figure]:
        """Return the charts that a page shows."""
        return [figure for section in self.sections(Medium.PAGE) for figure in section.figures()]

    def to_polars(self) -> pl.DataFrame:
        """Convert the rows to a polars DataFrame; an estimate `x` has the columns `x`, `x_low` and
        `x_high`.
        """
        return build_frame(self.records())

    def to_pandas(self) -> pd.DataFrame:
        """Convert the rows to a pandas DataFrame, as `to_polars` has them; raise PosirError if
        pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise PosirError(
                "pandas is not installed: pip install pandas. `to_polars` needs no further package."
            ) from error
        return pd.DataFrame(self.to_polars().to_dict(as_series=False))

    def to_json(self) -> str:
        """Convert everything to JSON, not rounded, as the command prints it with `--format
        json`.
        """
        return to_json(self.document())

    def to_markdown(self, *, explain: bool = False) -> str:
        """Convert everything to GitHub's Markdown, as the command prints it with `--format
        markdown`.
        """
        sections = [section.to_markdown() for section in self.sections()]
        paragraphs = map(escape_controls, self.paragraphs(explain=explain))
        return "\n\n".join([*sections, *map(escape_prose, paragraphs)])

    def to_latex(self) -> str:
        """Convert the tables for the packages booktabs and adjustbox; raise PosirError if there is
        none.
        """
        rendered = ["% In the preamble: \\usepackage{booktabs,adjustbox}"]
        for section in self.sections(Medium.LATEX):
            notes = () if section.only is Medium.LATEX else self.notes
            for table in section.tables:
                title = table.title or f"{self.title}.".replace("?.", "?")
                captioned = replace(table, title=title, notes=(*table.notes, *notes))
                rendered.append(to_latex(captioned, label=f"tab:posir-{len(rendered)}"))
        if not rendered[1:]:
            raise PosirError("There is no table for LaTeX. Choose another --format.")
        return "\n\n".join(rendered)

    def to_html(self) -> str:
        """Render a page of a single file that needs no network, as the command writes it with
        `--html`.
        """
        return self._render("sections.html")

    def to_card(self) -> bytes:
        """Draw the picture of the answer as a PNG of 1,200 x 630 pixels, with data and date, to be
        pasted into a message.

        Raises:
            PosirError: There is no such picture, as nothing has positions.
        """
        strips = self.strips()
        if not strips:
            raise PosirError(
                "There is no picture for a card: no results by position, or a table of its own "
                "was asked for."
            )
        more = f"; {len(strips) - ON_CARD} more" if len(strips) > ON_CARD else ""
        source = f"{self.data or self.title}{more}; {date.today().isoformat()}"
        question = "Where in a document is evidence found?"
        return render_png(draw_card(strips[:ON_CARD], question, source))

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
        """Write each chart to a file, as the command does with `--figures`.

        Args:
            folder: Where to write them.
            format: `svg`, `pdf` or `png`.
            bare: For a paper, which has a caption: without title, explanation and source.
            width: Inches of a bare chart, by default 3, a column.
            font_size: Points of its text, by default 8.
            font: Name of its font, such as `Times New Roman`.

        Returns:
            The files.

        Raises:
            PosirError: There is no chart, or the folder cannot be written to.
        """
        from posir_tasks.display.figures import export, prepare_figures

        style = FigureStyle(format, bare, width, font_size, font)
        return export(prepare_figures(self.strips(), self.figures(), Path(folder), style))

    def print_on(self, console: Console, *, explain: bool = False, printed: int = 0) -> None:
        """Print sections and notes; with `explain`, detailed sections and all paragraphs, too.

        The first `printed` sections are left out.
        """
        for section in self.sections()[printed:]:
            if explain or not section.detailed:
                section.print_on(console)
        print_tables(console, [], self.paragraphs(explain=explain))

    def paragraphs(self, *, explain: bool) -> list[str]:
        """Return how to read the tables; if asked to explain, all of it."""
        notes = [note for note in self.notes if note]
        return [*notes, *self.details] if explain else notes

    def __str__(self) -> str:
        """Return the complete text, as the command prints it outside a terminal."""
        stream = io.StringIO()
        # In a notebook, Rich would show the text there and write nothing.
        console = Console(file=stream, highlight=False, force_terminal=False, force_jupyter=False)
        self.print_on(console)
        return stream.getvalue().rstrip()

    def __repr__(self) -> str:
        """Return the title and the first lines of the text."""
        title = escape_controls(self.title)
        # The text may begin with the title.
        lines = [line for line in str(self).splitlines() if line not in ("", title)]
        shown = [f"{type(self).__name__}: {title}", *lines[:REPR_LINES]]
        if lines[REPR_LINES:]:
            more = pluralize(len(lines) - REPR_LINES, "line")
            shown.append(f"... and {more} more; print it to see all")
        return "\n".join(shown)

    def _repr_html_(self) -> str:
        """Render tables and charts for a notebook: a fragment without scripts, with images, that
        loads nothing.
        """
        return self._render("fragment.html")

    def _render(self, template: str) -> str:
        # Altair takes a second to import.
        from posir_tasks.display.figures import render_page

        sections = self.sections(Medium.PAGE)
        title = self.page_title or self.title
        # A title without anything below it is the heading of the page.
        if sections and sections[0].is_heading:
            title = sections[0].title
            sections = sections[1:]
        return render_page(
            __package__,
            template,
            title=title,
            data=self.data,
            strips=self.strips(),
            sections=sections,
            legend=self.paragraphs(explain=True),
        )


def to_paragraphs(sentences: Iterable[str]) -> Iterator[DisplaySection]:
    """Yield a section for each finding, so that it is a paragraph of its own."""
    for sentence in sentences:
        yield DisplaySection(sentences=(sentence,))


#: How a result is rendered in each format, but for text, which depends on the terminal.
RENDERERS: dict[OutputFormat, Callable[[Result, bool], str]] = {
    OutputFormat.JSON: lambda result, _: result.to_json(),
    OutputFormat.CSV: lambda result, _: to_csv(result.records()).removesuffix("\n"),
    OutputFormat.MARKDOWN: lambda result, explain: result.to_markdown(explain=explain),
    OutputFormat.LATEX: lambda result, _: result.to_latex(),
}


def present(
    result: Result, format_: OutputFormat, *, explain: bool = False, printed: int = 0
) -> None:
    """Print a result in a format; of text, without the sections that a terminal shows already.

    Text has explanations only if asked to.
    """
    if format_ in RENDERERS:
        print(RENDERERS[format_](result, explain))
        return
    console = Console(highlight=False)
    result.print_on(console, explain=explain, printed=printed)
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
    html: Path | None = None,
    card: Path | None = None,
) -> None:
    """Write charts to a folder, page and card to a file, each if given, and print their names;
    raise PosirError if it fails.
    """
    if not (folder or html or card):
        return
    from posir_tasks.display.figures import export, prepare_figures

    files: dict[Path, Callable[[], bytes]] = {}
    if folder:
        files |= prepare_figures(result.strips(), result.figures(), folder, style)
    if html:
        files[html] = lambda: result.to_html().encode()
    if card:
        files[card] = result.to_card
    for file in export(files):
        print(f"written: {escape_controls(str(file))}", file=sys.stderr)
