"""Tables for terminals, Markdown and pages; data frames, CSV and JSON; and sections of results."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import compress, groupby, zip_longest
from string import Formatter
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

from posir_tasks.base.wording import (
    COMMAND,
    NO_BREAK,
    escape_controls,
    keep_together,
    shorten_names,
)
from posir_tasks.display.labels import Title, Tone, change_text, find_tone, get_parts
from posir_tasks.display.numbers import MISSING
from posir_tasks.display.position_charts import PositionCharts, explain_sketches, sketch_charts
from posir_tasks.values.scores import Unit

if TYPE_CHECKING:
    from posir_tasks.display.figures import Figure

#: In characters: gap between two columns, and minimum width of a folded column.
GAP, MIN_WIDTH = 2, 12
#: Maximum length of shortened names if a table must be split.
SPLIT_WIDTH = 20
#: Maximum width of prose and, outside a terminal, of charts.
PROSE_WIDTH = 100


class OutputFormat(StrEnum):
    """Output formats of commands."""

    TEXT = "text"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"
    LATEX = "latex"


class Role(StrEnum):
    """What a column contains, which determines its style on pages."""

    PLAIN = ""
    NAME = "name"
    """Names, such as those of models and tasks."""
    EFFECT = "effect"
    """Position effects. The axis names both directions."""
    DIFFERENCE = "difference"
    """Differences. The table is compact."""
    STATE = "state"
    """States, shown in the cells of the previous column if it contains differences."""
    TRUNCATED = "truncated"
    """Truncated shares. Narrow pages omit shares of 0, which have no color."""
    COST = "cost"
    """Vectors per text. Narrow pages show costs, scores and changes in one row."""
    SCORE = "score"
    CHANGE = "change"


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    heading: str
    align: Literal["left", "right"] = "left"
    group: str = ""
    """Heading above neighboring columns with the same group, in LaTeX. Terminals keep groups
    together when they split a table.
    """
    picture: bool = False
    """Whether cells are text charts, which pages and narrow terminals omit."""
    drawn: bool = False
    """Whether pages draw the intervals next to the column, on one axis that includes 0."""
    role: Role = Role.PLAIN


@dataclass(frozen=True)
class Table:
    """Rows of strings below headings."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    """A row with text only in its first cell is the heading of the rows below it."""
    title: str = ""
    notes: tuple[str, ...] = ()
    """Paragraphs below the table."""
    split_by: str = ""
    """Title template such as `{Model} · {Task}`. Consecutive rows with the same values in these
    columns become a separate table, without these columns.
    """
    keys: int = 1
    """Number of leading columns that identify a row, not counting the columns of `split_by`.
    Terminals repeat them if they split a wide table.
    """
    kind: Literal["", "changes", "changes models"] = ""
    """Kind of changes, by length or by model. On pages, tables of changes share a scale, and their
    titles are headings.
    """
    is_narrow: bool = False
    """Whether to shorten names in the first column to fit, except on pages."""
    recommended: int | None = None
    """Index of the row that pages highlight. Not for tables with `split_by`."""

    @property
    def headings(self) -> tuple[str, ...]:
        """Column headings."""
        return tuple(column.heading for column in self.columns)

    @property
    def has_headings(self) -> bool:
        """True if any row is the heading of the rows below it."""
        return any(map(is_heading, self.rows))

    def split_rows(self) -> Iterator[Table]:
        """Yield a table per title of `split_by`. Without `split_by`, yield the table itself."""
        names = [name for _, name, _, _ in Formatter().parse(self.split_by) if name]
        if not names:
            yield self
            return
        keys = [self.headings.index(name) for name in names]
        for values, group in groupby(self.rows, key=lambda row: [row[key] for key in keys]):
            cells = dict(zip(names, values, strict=True))
            title = Title(*(part.format_map(cells) for part in get_parts(self.split_by)))
            part = replace(self, rows=tuple(group), title=title, split_by="")
            yield part.drop_columns(names).drop_empty_columns()

    def drop_empty_columns(self) -> Table:
        """Drop columns without values, except those that identify a row."""
        if not self.rows:
            return self
        columns = enumerate(zip(*self.rows, strict=True))
        return self._select(
            [index < self.keys or bool({*cells} - {"", MISSING}) for index, cells in columns]
        )

    def drop_columns(self, headings: Collection[str]) -> Table:
        """Drop columns by heading."""
        return self._select([column.heading not in headings for column in self.columns])

    def drop_pictures(self) -> Table:
        """Drop columns of text charts."""
        return self._select([not column.picture for column in self.columns])

    def split(self, width: int) -> Iterator[Table]:
        """Split the columns into tables that fit a width. Each begins with the columns that
        identify a row.
        """
        widths = self.compute_column_widths()
        indices = range(len(widths))
        keys = list(indices[: self.keys])
        pieces = [keys]
        # Keep groups together.
        for _, members in groupby(
            indices[self.keys :], lambda index: self.columns[index].group or index
        ):
            group = list(members)
            is_wide = (
                compute_total_width([widths[index] for index in (*pieces[-1], *group)]) > width
            )
            if is_wide and pieces[-1] != keys:
                pieces.append(keys)
            pieces[-1] = [*pieces[-1], *group]
        for piece in pieces:
            yield self._select([index in piece for index in indices])

    def unwrap(self) -> Table:
        """Join the lines of each cell."""
        return self._change_text(lambda text: text.replace("\n", " "))

    def shorten_names(self, width: int) -> Table:
        """Shorten the names in the first column to fit a width, after splitting if necessary."""
        room = width - compute_total_width([0, *self.drop_pictures().compute_column_widths()[1:]])
        names = [row[0] for row in self.rows if not is_heading(row)]
        longest = room if room >= MIN_WIDTH else SPLIT_WIDTH
        short = dict(zip(names, shorten_names(names, longest), strict=True))
        return replace(self, rows=tuple((short.get(row[0], row[0]), *row[1:]) for row in self.rows))

    def escape(self) -> Table:
        """Escape control characters, except line breaks of cells."""
        table = self._change_text(escape_controls)
        notes = tuple(map(escape_controls, self.notes))
        return replace(table, title=change_text(self.title, escape_controls), notes=notes)

    def compute_column_widths(self) -> list[int]:
        """Compute the width of each column without folding."""
        cells = zip(self.headings, *(row for row in self.rows if not is_heading(row)), strict=True)
        return [
            max(cell_len(line) for cell in column for line in cell.split("\n")) for column in cells
        ]

    def _change_text(self, change: Callable[[str], str]) -> Table:
        """Apply a function to headings and cells."""
        columns = tuple(
            replace(column, heading=change(column.heading), group=change(column.group))
            for column in self.columns
        )
        rows = tuple(tuple(change_text(cell, change) for cell in row) for row in self.rows)
        return replace(self, columns=columns, rows=rows)

    def _select(self, flags: Sequence[bool]) -> Table:
        """Select the columns whose flags are true."""
        rows = tuple(tuple(compress(row, flags)) for row in self.rows)
        return replace(self, columns=tuple(compress(self.columns, flags)), rows=rows)


def is_heading(row: Sequence[str]) -> bool:
    """Return True if a row has several cells, but only the first is not empty."""
    return len(row) > 1 and not any(row[1:])


def compute_total_width(widths: Sequence[int]) -> int:
    """Compute the width of a table from the widths of its columns."""
    return sum(widths) + GAP * (len(widths) - 1)


def build_columns(
    headings: Iterable[str],
    right: Collection[str] = (),
    drawn: Collection[str] = (),
    roles: Mapping[str, Role] = MappingProxyType({}),
) -> tuple[Column, ...]:
    """Build columns. `right` and `drawn` contain the headings of right-aligned columns and of those
    with drawn intervals, `roles` the role by heading.
    """
    return tuple(
        Column(
            name,
            "right" if name in right else "left",
            drawn=name in drawn,
            role=roles.get(name, Role.PLAIN),
        )
        for name in headings
    )


def build_numeric_table(
    headings: Sequence[str],
    rows: Iterable[tuple[str, ...]],
    *,
    keys: int = 1,
    title: str = "",
    notes: Iterable[str] = (),
) -> Table:
    """Build a table in which all columns except the first `keys` are right-aligned."""
    columns = build_columns(headings, headings[keys:])
    return Table(columns, tuple(rows), title=title, notes=tuple(notes), keys=keys)


def print_tables(console: Console, tables: Iterable[Table], legend: Iterable[str] = ()) -> None:
    """Print tables with their notes, then the legend, with notes and legend dimmed.

    In a terminal, or if `COLUMNS` is set, tables that are too wide are split. Otherwise, each row
    is one line. Nothing is truncated.
    """
    width = find_width(console)
    for table in map(Table.escape, tables):
        for part in table.split_rows():
            part = part.shorten_names(min(width, PROSE_WIDTH)) if part.is_narrow else part
            if compute_total_width(part.compute_column_widths()) > width:
                part = part.drop_pictures()
            if compute_total_width(part.unwrap().compute_column_widths()) <= width:
                part = part.unwrap()
            _print_title(console, part.title)
            is_limited = console.is_terminal or _read_columns()
            for piece in part.split(width) if is_limited else [part]:
                lines = _format_lines(piece, width if is_limited else None)
                console.print(Text("\n").join(lines), "\n", sep="", soft_wrap=True)
        for note in table.notes:
            print_paragraph(console, note, "dim")
    for paragraph in legend:
        print_paragraph(console, paragraph, "dim")


def find_width(console: Console) -> int:
    """Return the maximum width of output: that of the terminal, `COLUMNS` or `PROSE_WIDTH`."""
    return console.width if console.is_terminal else _read_columns() or PROSE_WIDTH


def _read_columns() -> int:
    """Return the environment variable `COLUMNS`, or 0 if it is not a number."""
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() else 0


def _print_title(console: Console, title: str) -> None:
    if title:
        print_paragraph(console, title, bold=len(get_parts(title)[0]))


def print_paragraph(console: Console, text: str, style: str = "", bold: int = 0) -> None:
    """Print a wrapped paragraph with the first `bold` characters in bold."""
    width = min(find_width(console), PROSE_WIDTH)
    lines = ["\n".join(wrap(line, width)) for line in escape_controls(text).split("\n")]
    paragraph = Text("\n".join(lines), style=style)
    paragraph.stylize("bold", 0, bold)
    console.print(paragraph, soft_wrap=True)


def print_commands(console: Console, code: str) -> None:
    """Print an empty line, then commands: indented, not wrapped, with dimmed comments."""
    block = Text(f"\n{textwrap.indent(escape_controls(code.rstrip()), '  ')}", style="cyan")
    block.highlight_regex("(?m)  #.*", "dim default")
    console.print(block, soft_wrap=True)


def wrap(text: str, width: int) -> list[str]:
    """Split a paragraph into lines between words.

    Names, paths and code between backticks are not broken. Numbers are not separated from their
    interval, unit or sign: `+4.2 [+1.0, +7.4]`, `58.9%`, `p 0.035`, `chunks(64) (+32.8)`.
    """
    unbreakable = COMMAND.sub(
        lambda command: command[0].replace(" ", NO_BREAK), keep_together(text)
    )
    lines = textwrap.wrap(unbreakable, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace(NO_BREAK, " ") for line in lines]


def _format_lines(table: Table, limit: int | None = None) -> Iterator[Text]:
    """Yield the lines of a table, with bold headings and colored labels.

    If the table exceeds the limit, the first column is folded, or the last column if it is
    left-aligned and not narrower.
    """
    widths = table.compute_column_widths()
    fold_index = -1 if table.columns[-1].align == "left" and widths[-1] >= widths[0] else 0
    fold = wrap if fold_index else chop_cells
    fold_width = widths[fold_index]
    if limit:
        room = limit - compute_total_width(widths) + fold_width
        fold_width = min(fold_width, max(MIN_WIDTH, room))
        widths[fold_index] = fold_width
    for row in (table.headings, *table.rows):
        style = "bold" if row is table.headings else ""
        if is_heading(row) and not style:
            yield Text()
            for text in wrap(row[0], limit or len(row[0])):
                yield Text(text, "bold")
            continue
        cells = [cell.split("\n") for cell in row]
        if cell_len(row[fold_index]) > fold_width:
            lines = cells[fold_index]
            cells[fold_index] = [text for line in lines for text in fold(line, fold_width)]
        for texts in zip_longest(*cells, fillvalue=""):
            parts = []
            for column, cell, text, width in zip(table.columns, row, texts, widths, strict=True):
                tone = find_tone(cell) or ""
                part = Text(text, "dim" if tone is Tone.OPEN else tone)
                part.align(column.align, width)
                parts.append(part)
            line = Text(" " * GAP, style).join(parts)
            line.rstrip()
            yield line


#: Code in Markdown (as a group), HTML, character references, ends of link texts, URLs that become
#: links, backticks, escapes and emphasis.
MARKDOWN_MARKUP = re.compile(
    r"(?P<code>(?<!`)(?P<fence>`+)(?!`)[^\n]*?[^`\n](?P=fence)(?!`))"
    r"|<(?=[A-Za-z/!?])|&(?=#|\w+;)|\](?=[(\[:])|://|\bwww\.(?=\w)|`"
    r"|[\\*]|~(?=~)|(?<=~)~|(?<![^\W_])_|_(?![^\W_])",
    re.IGNORECASE,
)
#: Headings and quotations at the start of a line.
LINE_MARKUP = re.compile(r"^ *(?=#+ |>)", re.MULTILINE)
ENTITIES = {"<": "&lt;", "&": "&amp;", "://": "&#58;//"} | {
    www: f"{www[:3]}&#46;" for www in ("www.", "WWW.", "Www.")
}


def to_markdown(table: Table) -> str:
    """Convert a table to GitHub's Markdown, with the title as heading and notes as paragraphs."""
    table = table.escape()
    rule = ["---:" if column.align == "right" else "---" for column in table.columns]
    headings = list(map(escape_markdown, table.headings))
    rows = [list(map(escape_markdown, row)) for row in table.rows]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in (headings, rule, *rows))
    title = " ".join(escape_prose(table.title).split())
    parts = [f"### {title}" if title else "", lines, *map(escape_prose, table.notes)]
    return "\n\n".join(filter(None, parts))


def escape_markdown(cell: str) -> str:
    """Escape a cell of a Markdown table, except code between backticks."""
    return MARKDOWN_MARKUP.sub(_escape_markup, " ".join(cell.splitlines())).replace("|", r"\|")


def escape_prose(text: str) -> str:
    """Escape markup in a Markdown paragraph, except code between backticks."""
    return LINE_MARKUP.sub(r"\\\g<0>", MARKDOWN_MARKUP.sub(_escape_markup, text))


def _escape_markup(match: re.Match[str]) -> str:
    return match["code"] or ENTITIES.get(match[0]) or f"\\{match[0]}"


def quote_code(code: str) -> str:
    """Build a Markdown code block with a fence that the code does not contain."""
    longest = max(map(len, re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{code}\n{fence}"


class Medium(StrEnum):
    """An output medium that a section can be restricted to."""

    TEXT = "text"
    """Terminals and Markdown."""
    PAGE = "page"
    """Pages and notebooks."""
    LATEX = "latex"


@dataclass(frozen=True)
class DisplaySection:
    """A section of a result, with position charts, sentences, tables and figures."""

    title: str = ""
    sentences: tuple[str, ...] = ()
    tables: Sequence[Table] = ()
    anchor: str = ""
    """Id of the section on a page, to link from a `Label`."""
    entry: str = ""
    """Name of the section in the navigation of a page. If empty, there is no entry."""
    draw: Callable[[], Sequence[Figure]] | None = None
    """Function that builds the figures. They are built on demand, since importing Altair takes a
    second.
    """
    lengths: tuple[tuple[str, int, float], ...] = ()
    """Name, number of tokens and unread share of each text, longest first. Pages show bars."""
    code: str = ""
    """Code to copy that consists of no shell commands."""
    commands: tuple[str, ...] = ()
    """Shell commands to copy. A command with a comment is a `ShellCommand`."""
    folded: bool = False
    """Whether pages show only the title until the section is opened or printed."""
    group: str = ""
    """Heading on pages above neighboring sections with the same group. Groups without any `drawn`
    are folded.
    """
    drawn: tuple[float, ...] = ()
    """Difference that pages draw next to a folded title: its value, the bounds of its interval, and
    published values.
    """
    unit: Unit = Unit.INDEX
    """Unit of `drawn`."""
    scale: str = ""
    """Name of the axis of `drawn`. Sections with the same name share an axis."""
    position_charts: PositionCharts = ()
    """Position charts, shown first on pages and in notebooks."""
    only: Medium | None = None
    """The only medium that shows the section. If None, all do."""
    detailed: bool = False
    """Whether terminals show the section only with `--explain`."""

    @property
    def is_heading(self) -> bool:
        """True if the section has only a title."""
        contents = (self.sentences, self.tables, self.draw, self.code, self.commands)
        return not any((*contents, self.position_charts))

    def figures(self) -> Sequence[Figure]:
        """Build the figures."""
        return self.draw() if self.draw else ()

    def print_on(self, console: Console) -> None:
        """Print the section, except figures."""
        _print_title(console, self.title)
        if self.sentences:
            print_paragraph(console, " ".join(self.sentences))
        if self.position_charts:
            for line in sketch_charts(self.position_charts, min(find_width(console), PROSE_WIDTH)):
                console.print(escape_controls(line), markup=False, highlight=False, soft_wrap=True)
            print_paragraph(console, explain_sketches(self.position_charts), "dim")
        if self.commands:
            print_commands(console, "\n".join(self.commands))
        if self.code:
            console.print(Text(escape_controls(self.code.rstrip())), soft_wrap=True)
        if self.tables and (self.sentences or self.position_charts):
            console.print()
        print_tables(console, self.tables)
        if not self.tables or self.tables[-1].notes:
            console.print()

    def to_markdown(self) -> str:
        """Convert the section, except figures, to GitHub's Markdown."""
        title = " ".join(escape_prose(escape_controls(self.title)).split())
        lines = " ".join(self.sentences).split("\n")
        paragraphs = [escape_prose(escape_controls(line)) for line in lines]
        code = self.code or "\n".join(self.commands)
        code_block = quote_code(escape_controls(code.rstrip())) if code else ""
        sketches = "\n".join(map(escape_controls, sketch_charts(self.position_charts)))
        picture = quote_code(sketches) if sketches else ""
        parts = [
            f"## {title}" if title else "",
            picture,
            *paragraphs,
            code_block,
            *map(to_markdown, self.tables),
        ]
        return "\n\n".join(filter(None, parts))
