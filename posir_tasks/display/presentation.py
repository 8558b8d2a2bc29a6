"""The base of all objects that public functions return: each shows itself in terminal and notebook
and becomes a data frame.

A command prints such an object in the format that is asked for (`present`) and writes its charts
(`write_charts`), so that Python and the command line show the same.
"""

from __future__ import annotations

import io
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rich.console import Console

from posir_tasks.base.errors import PosirError
from posir_tasks.base.wording import escape_controls, pluralize
from posir_tasks.display.strip import FigureFormat, FigureStyle, Strip, draw_card, render_png
from posir_tasks.display.tables import (
    DisplaySection,
    Medium,
    OutputFormat,
    Table,
    build_frame,
    escape_prose,
    print_code,
    print_paragraph,
    print_tables,
    to_csv,
    to_json,
    to_latex,
)

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from posir_tasks.display.figures import Figure

Item = TypeVar("Item", covariant=True)
#: Rows and columns of characters of the table in a `repr`.
REPR_ROWS, REPR_WIDTH = 5, 100
#: Most pictures on a card.
ON_CARD = 6


class Presentable(ABC):
    """An immutable result of a public function.

    Subclasses are frozen dataclasses with `repr=False`; whatever is shown or exported follows from
    title, sections and records.
    """

    @property
    @abstractmethod
    def title(self) -> str:
        """Subject in a few words: the heading of the page."""

    @abstractmethod
    def sections(self) -> Sequence[DisplaySection]:
        """Return what a terminal, Markdown and a page show, in order."""

    @property
    def page_title(self) -> str:
        """Heading of the page: the subject, or a finding."""
        return self.title

    full = True
    """Whether `--full` would show no more."""

    def page_sections(self) -> Sequence[DisplaySection]:
        """Return what a page and a notebook show, in order."""
        return self.sections()

    @abstractmethod
    def records(self) -> Sequence[Any]:
        """Return dataclasses or mappings of the same fields: the rows of data frame and CSV, not
        rounded.
        """

    def document(self) -> object:
        """Return what JSON holds; the records, unless there is more to it than rows."""
        return self.records()

    def legend(self) -> Sequence[str]:
        """Return the paragraphs on how to read the tables that a terminal always shows: few
        lines.
        """
        return ()

    def explanation(self) -> Iterable[str]:
        """Return all further paragraphs, for a page and `--explain`; an iterator makes those alone
        that are asked for.
        """
        return ()

    def warnings(self) -> Sequence[str]:
        """Return what the command says on the error stream, a line each."""
        return ()

    def closing(self) -> Sequence[str]:
        """Return what the command prints below everything else in a terminal, each in a line of its
        own: files, commands.
        """
        return ()

    @property
    def exit_status(self) -> int:
        """Exit status of the command: 0, or 1 if a check fails, 2 if it cannot be decided."""
        return 0

    def to_polars(self) -> pl.DataFrame:
        """Return the rows as a polars DataFrame; an estimate `x` has the columns `x`, `x_low` and
        `x_high`.
        """
        return build_frame(self.records())

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame, as `to_polars` has them; raise PosirError if
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
        """Return everything as JSON, not rounded, as the command prints it with `--format json`."""
        return to_json(self.document())

    def to_markdown(self, *, explain: bool = False) -> str:
        """Return everything as GitHub's Markdown, as the command prints it with `--format
        markdown`.
        """
        paragraphs = [
            escape_prose(escape_controls(text)) for text in self.paragraphs(explain=explain)
        ]
        return "\n\n".join([*(section.to_markdown() for section in self.sections()), *paragraphs])

    def to_latex(self) -> str:
        """Return the tables for the packages booktabs and adjustbox; raise PosirError if there is
        none.
        """
        return _render_latex(self, self.sections(), self.legend())

    def to_html(self) -> str:
        """Return a page of a single file that needs no network, as the command writes it with
        `--html`.
        """
        return self._render("sections.html")

    def strips(self) -> list[Strip]:
        """Return the pictures of the answer of all sections."""
        return [strip for section in self.sections() for strip in section.strips]

    def describe_data(self) -> str:
        """Return the data and its revision in a few words, for a card."""
        return self.title

    def to_card(self) -> bytes:
        """Return the picture of the answer as a PNG of 1,200 x 630 pixels, with data and date, to
        be pasted into a message.

        Raises:
            PosirError: There is no such picture, as nothing has positions.
        """
        strips = self.strips()
        if not strips:
            raise PosirError(
                "There is no picture for a card: no results by position, or a table of its own "
                "was asked for."
            )
        omitted = (
            f"; {pluralize(len(strips) - ON_CARD, 'more', 'more')}" if len(strips) > ON_CARD else ""
        )
        source = f"{self.describe_data()}{omitted}; {date.today().isoformat()}"
        return render_png(
            draw_card(strips[:ON_CARD], "Where in a document is evidence found?", source)
        )

    def figures(self) -> list[Figure]:
        """Return the charts of all sections."""
        return [figure for section in self.sections() for figure in section.figures()]

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
            width: Inches of a bare chart, by default 3.3, a column.
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

    def print_on(self, console: Console, *, explain: bool = False) -> None:
        """Print sections and legend; with `explain`, detailed sections and all paragraphs, too."""
        for section in self.sections():
            if explain or not section.detailed:
                section.print_on(console)
        self.print_legend(console, explain=explain)

    def print_legend(self, console: Console, *, explain: bool) -> None:
        """Print the legend, and all further paragraphs if asked to explain."""
        print_tables(console, [], self.paragraphs(explain=explain))

    def paragraphs(self, *, explain: bool) -> list[str]:
        """Return how to read the tables; if asked to explain, all of it."""
        return [*filter(None, self.legend()), *(self.explanation() if explain else ())]

    def __str__(self) -> str:
        """Return the complete text, as the command prints it outside a terminal."""
        return _print_wide(self.print_on)

    def __repr__(self) -> str:
        """Return the findings in a few lines, or the beginning of the first table if there are
        none.
        """
        sections = self.sections()
        # The first section may repeat the title.
        titles = ("" if part.title == self.title else part.title for part in sections)
        titled = [
            (part, [title, *part.said, *part.sentences])
            for title, part in zip(titles, sections, strict=True)
        ]
        findings = [
            ": ".join(filter(None, parts[:2]))
            for part, parts in titled
            if not part.folded and (parts[1:] or (parts[0] and not part.tables))
        ]
        shown = findings or _abbreviate(
            next((table for section in sections for table in section.tables), None)
        )
        return escape_controls("\n".join([f"{type(self).__name__}: {self.title}", *shown]))

    def _repr_html_(self) -> str:
        """Return tables and charts for a notebook: a fragment without scripts, with images, that
        loads nothing.
        """
        return self._render("fragment.html")

    def _render(self, template: str) -> str:
        # Altair takes a second to import.
        from posir_tasks.display.figures import render_page

        data = self.describe_data().removeprefix(self.title)
        sections = self.page_sections()
        # A title without anything below it is the heading of the page.
        heading = sections[0].title if sections and sections[0].is_heading else ""
        sections = sections[1:] if heading else sections
        shown = {
            "title": heading or self.page_title or self.title,
            "kind": type(self)
            .__module__.partition(".")[0]
            .removeprefix("posir_")
            .replace("tasks", ""),
            "data": data,
            "strips": self.strips(),
            "sections": sections,
            "legend": self.paragraphs(explain=True),
        }
        return render_page(__package__, template, **shown)


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


@dataclass(frozen=True, repr=False, kw_only=True)
class Result(Presentable):
    """What a public function returns: rows, and the findings, tables and charts that show them.

    All that is shown or exported follows from the fields. A function of the room builds them; where
    one takes long, it is `Deferred`. A subclass adds typed fields, and overrides `records` at most.
    """

    title: str = ""
    """Subject in a few words."""
    rows: Sequence[Any] = ()
    """Dataclasses or mappings of the same fields: the rows of data frame and CSV, not rounded."""
    values: object = None
    """The value that JSON holds; None for the records. A function is called for it."""
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
    warnings: Sequence[str] = ()  # type: ignore[assignment]  # a method of Presentable
    """Lines that the command prints on the error stream."""
    data: str = ""
    """The data and its revision in a few words, for a page and a card; empty for the title."""
    full: bool = True
    """Whether `--full` would show no more."""
    exit_status: int = 0
    """1 if a check fails, 2 if it cannot be decided."""

    def all_sections(self) -> tuple[DisplaySection, ...]:
        """Return the sentences, then the tables, then the other parts, for all media."""
        is_filled = self.tables or self.draw
        section = DisplaySection(tables=tuple(self.tables), draw=self.draw)
        return (*to_paragraphs(self.sentences), *([section] if is_filled else []), *self.parts)

    def select_sections(self, medium: Medium) -> tuple[DisplaySection, ...]:
        """Return the sections that a medium shows; in LaTeX those of its own, or else of text."""
        every = self.all_sections()
        special = tuple(section for section in every if section.only is medium)
        if medium is Medium.LATEX:
            return special or self.select_sections(Medium.TEXT)
        return tuple(section for section in every if section.only in (None, medium))

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return what a terminal and Markdown show, in order."""
        return self.select_sections(Medium.TEXT)

    def page_sections(self) -> tuple[DisplaySection, ...]:
        """Return what a page and a notebook show, in order."""
        return self.select_sections(Medium.PAGE)

    def records(self) -> Sequence[Any]:
        """Return the rows."""
        return self.rows

    def document(self) -> object:
        """Return what JSON holds."""
        if callable(self.values):
            return self.values()
        return self.records() if self.values is None else self.values

    def legend(self) -> Sequence[str]:
        """Return how to read the tables."""
        return self.notes

    def explanation(self) -> Sequence[str]:
        """Return all further paragraphs."""
        return self.details

    def closing(self) -> Sequence[str]:
        """Return the lines below everything else."""
        return self.footer

    def describe_data(self) -> str:
        """Return the data and its revision in a few words."""
        return self.data or self.title

    def strips(self) -> list[Strip]:
        """Return the pictures of the answer that a page and a card show."""
        return [strip for section in self.page_sections() for strip in section.strips]

    def figures(self) -> list[Figure]:
        """Return the charts that a page shows."""
        return [figure for section in self.page_sections() for figure in section.figures()]

    def to_latex(self) -> str:
        """Return the tables for the packages booktabs and adjustbox; raise PosirError if there is
        none.
        """
        sections = self.select_sections(Medium.LATEX)
        is_special = any(section.only is Medium.LATEX for section in sections)
        return _render_latex(self, sections, () if is_special else self.notes)


def to_paragraphs(sentences: Iterable[str]) -> Iterator[DisplaySection]:
    """Yield a section for each finding, so that it is a paragraph of its own."""
    for sentence in sentences:
        yield DisplaySection(sentences=(sentence,))


def _render_latex(
    result: Presentable, sections: Sequence[DisplaySection], notes: Sequence[str]
) -> str:
    tables = [table for section in sections for table in section.tables]
    if not tables:
        raise PosirError("There is no table for LaTeX. Choose another --format.")
    rendered = []
    for number, table in enumerate(tables, 1):
        title = table.title or f"{result.title}.".replace("?.", "?")
        captioned = replace(table, title=title, notes=(*table.notes, *notes))
        rendered.append(to_latex(captioned, label=f"tab:posir-{number}"))
    return "\n\n".join(["% In the preamble: \\usepackage{booktabs,adjustbox}", *rendered])


def _print_wide(print_on: Callable[[Console], None]) -> str:
    stream = io.StringIO()
    print_on(Console(file=stream, highlight=False, force_terminal=False))
    return stream.getvalue().rstrip()


def _abbreviate(table: Table | None) -> list[str]:
    """Return the lines of a table's first rows, in those of its columns that fit; without a table,
    none.
    """
    part = next(table.parts(), None) if table else None
    if table is None or part is None:
        return []
    first = next(replace(part, rows=part.rows[:REPR_ROWS], notes=()).divided(REPR_WIDTH))
    lines = _print_wide(lambda console: print_tables(console, [first])).splitlines()
    omitted = len(table.rows) - len(first.rows)
    return [
        *lines,
        *([f"... and {pluralize(omitted, 'row')} more; print it to see all"] if omitted else []),
    ]


#: How a result is rendered in each format, but for text, which depends on the terminal.
RENDERERS: dict[OutputFormat, Callable[[Presentable, bool], str]] = {
    OutputFormat.JSON: lambda result, _: result.to_json(),
    OutputFormat.CSV: lambda result, _: to_csv(result.records()).removesuffix("\n"),
    OutputFormat.MARKDOWN: lambda result, explain: result.to_markdown(explain=explain),
    OutputFormat.LATEX: lambda result, _: result.to_latex(),
}


def present(
    result: Presentable, format_: OutputFormat, *, explain: bool = False, printed: int = 0
) -> None:
    """Print a result in a format; of text, without the sections that a terminal shows already.

    Text has explanations only if asked to.
    """
    if format_ in RENDERERS:
        print(RENDERERS[format_](result, explain))
        return
    console = Console(highlight=False)
    if printed:
        for section in result.sections()[printed:]:
            section.print_on(console)
        result.print_legend(console, explain=explain)
    else:
        result.print_on(console, explain=explain)
    if not explain and next(iter(result.explanation()), None):
        full = "" if result.full else "; --full: all numbers"
        print_paragraph(console, f"--explain: all columns{full}.")
    for line in result.closing():
        print(escape_controls(line))
    for command in result.commands if isinstance(result, Result) else ():
        print_code(console, command)


def write_charts(
    shown: Presentable,
    folder: Path | None,
    style: FigureStyle,
    html: Path | None = None,
    card: Path | None = None,
) -> None:
    """Write charts to a folder, page and card to a file, each if given, and print their names;
    raise PosirError if it fails.
    """
    if folder or html or card:
        from posir_tasks.display.figures import export, prepare_figures

        files = prepare_figures(shown.strips(), shown.figures(), folder, style) if folder else {}
        files |= {html: lambda: shown.to_html().encode()} if html else {}
        for file in export(files | ({card: shown.to_card} if card else {})):
            print(f"written: {escape_controls(str(file))}", file=sys.stderr)
