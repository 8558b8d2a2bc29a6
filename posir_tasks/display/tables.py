"""Tables for terminal, Markdown and pages, data frames, CSV and JSON, and the sections of a
result.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum
from functools import lru_cache
from itertools import compress, groupby, zip_longest
from string import Formatter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, cast

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

from posir_tasks.base.records import Fields, Record
from posir_tasks.base.secrets import redact_collected
from posir_tasks.base.wording import (
    COMMAND,
    NO_BREAK,
    escape_controls,
    keep_together,
    shorten_names,
)
from posir_tasks.display.labels import Tone, change_text, find_tone
from posir_tasks.display.numbers import MISSING
from posir_tasks.display.strip import PositionCharts, explain_sketches, sketch_charts
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.scores import Unit, flatten, serialize_estimate

if TYPE_CHECKING:
    import polars as pl

    from posir_tasks.display.figures import Figure

#: Characters between two columns of a table, and minimum width of a folded column.
GAP, MIN_WIDTH = 2, 12
#: Maximum length of shortened names in a table that is split.
SPLIT_WIDTH = 20
#: Maximum width of a line of prose and, outside a terminal, of a chart.
PROSE = 100
#: A cell that a spreadsheet would run as a formula: it begins with an operator (or its full-width
#: form) or with white space, which a spreadsheet trims. Signed numbers do not match.
FORMULA = re.compile(
    r"(?![-+](?:\d*\.)?\d+(?:[eE][-+]?\d+)?$)[=+@\t\r\n\-\uff1d\uff0b\uff20\uff0d]"
)


class OutputFormat(StrEnum):
    """Output formats of commands."""

    TEXT = "text"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"
    LATEX = "latex"


class Role(StrEnum):
    """Meaning of a column, for its style on a page."""

    PLAIN = ""
    NAME = "name"
    """Names of models, tasks and the like."""
    EFFECT = "effect"
    """Position effects: on a drawn axis, each direction is named."""
    DIFFERENCE = "difference"
    """Differences: the table is compact."""
    STATE = "state"
    """States, shown in the cells of differences in the column before."""
    TRUNCATED = "truncated"
    """Truncated shares: a narrow page omits those without a color, which are 0."""
    COST = "cost"
    """Vectors per text. A narrow page shows costs, scores and changes in one row."""
    SCORE = "score"
    CHANGE = "change"


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    heading: str
    align: Literal["left", "right"] = "left"
    group: str = ""
    """In LaTeX, a heading above neighboring columns of one group. A terminal keeps a group together
    when it splits a table.
    """
    picture: bool = False
    """If true, the cells are text charts: shown if the table fits, and never on pages."""
    drawn: bool = False
    """If true, a page draws the intervals next to the column, on one axis with 0."""
    role: Role = Role.PLAIN


@dataclass(frozen=True)
class Table:
    """Rows of text below headings."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    """A row with text only in its first cell is the heading of the rows below it."""
    title: str = ""
    notes: tuple[str, ...] = ()
    """Paragraphs below the table."""
    split_by: str = ""
    """Title template such as `{Model} · {Task}`. A terminal prints a separate table for each run of
    rows with the same values in the named columns, without these columns.
    """
    keys: int = 1
    """Number of leading columns (after removing the columns of `split_by`) that identify a row.
    If a table is too wide for a terminal, each piece repeats these columns.
    """
    kind: Literal["", "changes", "changes models"] = ""
    """On a page, tables of changes by length or by model share a scale, and their title is a
    heading.
    """
    is_narrow: bool = False
    """If true, names in the first column are shortened to fit, except on pages."""
    recommended: int | None = None
    """Index of a row that a page highlights; None with `split_by`."""

    @property
    def headings(self) -> tuple[str, ...]:
        """Headings of all columns."""
        return tuple(column.heading for column in self.columns)

    @property
    def has_headings(self) -> bool:
        """True if some row is the heading of the rows below it."""
        return any(map(is_heading, self.rows))

    def parts(self) -> Iterator[Table]:
        """Yield a table for each title of `split_by`, or the table itself without `split_by`."""
        names = [name for _, name, _, _ in Formatter().parse(self.split_by) if name]
        if not names:
            yield self
            return
        keys = [self.headings.index(name) for name in names]
        for values, group in groupby(self.rows, key=lambda row: [row[key] for key in keys]):
            title = self.split_by.format_map(dict(zip(names, values, strict=True)))
            part = replace(self, rows=tuple(group), title=title, split_by="")
            yield part.without_columns(names).without_empty_columns()

    def without_empty_columns(self) -> Table:
        """Drop columns without values, except the columns that identify a row."""
        if not self.rows:
            return self
        columns = enumerate(zip(*self.rows, strict=True))
        return self._select(
            [index < self.keys or bool({*cells} - {"", MISSING}) for index, cells in columns]
        )

    def without_columns(self, headings: Collection[str]) -> Table:
        """Drop columns by their headings."""
        return self._select([column.heading not in headings for column in self.columns])

    def without_pictures(self) -> Table:
        """Drop columns of text charts."""
        return self._select([not column.picture for column in self.columns])

    def split(self, width: int) -> Iterator[Table]:
        """Split the columns into tables that fit a width, each with the columns that identify a
        row.
        """
        widths = self.column_widths()
        indices = range(len(widths))
        keys = list(indices[: self.keys])
        pieces = [keys]
        # The columns of a group stay together.
        for _, members in groupby(
            indices[self.keys :], lambda index: self.columns[index].group or index
        ):
            group = list(members)
            is_wide = total_width([widths[index] for index in (*pieces[-1], *group)]) > width
            if is_wide and pieces[-1] != keys:
                pieces.append(keys)
            pieces[-1] = [*pieces[-1], *group]
        for piece in pieces:
            yield self._select([index in piece for index in indices])

    def unwrap(self) -> Table:
        """Join the lines of each cell."""
        return self._change_text(lambda text: text.replace("\n", " "))

    def shorten_names(self, width: int) -> Table:
        """Shorten the names in the first column so that the table fits a width, whole or split."""
        room = width - total_width([0, *self.without_pictures().column_widths()[1:]])
        names = [row[0] for row in self.rows if not is_heading(row)]
        longest = room if room >= MIN_WIDTH else SPLIT_WIDTH
        short = dict(zip(names, shorten_names(names, longest), strict=True))
        return replace(self, rows=tuple((short.get(row[0], row[0]), *row[1:]) for row in self.rows))

    def escape(self) -> Table:
        """Escape control characters, except line breaks of cells."""
        table = self._change_text(escape_controls)
        notes = tuple(map(escape_controls, self.notes))
        return replace(table, title=escape_controls(self.title), notes=notes)

    def column_widths(self) -> list[int]:
        """Return the width of each column without folding."""
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
        """Keep the columns whose flags are true."""
        rows = tuple(tuple(compress(row, flags)) for row in self.rows)
        return replace(self, columns=tuple(compress(self.columns, flags)), rows=rows)


def is_heading(row: Sequence[str]) -> bool:
    """Return True for a row of several cells with text only in the first."""
    return len(row) > 1 and not any(row[1:])


def total_width(widths: Sequence[int]) -> int:
    """Return the width of a table from the widths of its columns."""
    return sum(widths) + GAP * (len(widths) - 1)


def build_columns(
    headings: Iterable[str],
    right: Collection[str] = (),
    drawn: Collection[str] = (),
    roles: Mapping[str, Role] = MappingProxyType({}),
) -> tuple[Column, ...]:
    """Build columns from headings, right-aligned if in `right`, with drawn intervals if in
    `drawn`, and with the role by heading in `roles`.
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
    """Build a table whose first `keys` columns identify a row; the others are right-aligned."""
    columns = build_columns(headings, headings[keys:])
    return Table(columns, tuple(rows), title=title, notes=tuple(notes), keys=keys)


def build_frame(records: Iterable[Any]) -> pl.DataFrame:
    """Build a data frame from dataclasses or mappings, unrounded. An estimate becomes three
    columns, and a missing field becomes null.
    """
    # Importing polars takes longer than printing a table.
    import polars as pl

    rows: list[Record] = []
    for record in records:
        row: Record = {}
        for key, value in _fields(record).items():
            row |= flatten(key, value)
        rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None)


def to_csv(records: Iterable[Any]) -> str:
    """Convert dataclasses or mappings to CSV with the columns of `build_frame`."""
    frame = build_frame(records)
    return format_csv(frame.columns, frame.iter_rows(), "\n") if frame.columns else "\n"


def format_csv(headings: Iterable[str], rows: Iterable[Iterable[Any]], end: str = "\r\n") -> str:
    """Format headings and rows as CSV that is safe to open in a spreadsheet.

    Text that a spreadsheet would run as a formula gets an apostrophe in front, and control
    characters are escaped. Numbers keep all digits; None becomes an empty cell, and booleans become
    `true` and `false`.
    """
    # Cached, since names of models and tasks repeat.
    escape = lru_cache(_escape_csv)

    def format_cell(cell: Any) -> Any:
        if isinstance(cell, str):
            return escape(cell)
        if isinstance(cell, bool):
            return str(cell).lower()
        return "NaN" if cell != cell else cell

    text = io.StringIO()
    writer = csv.writer(text, lineterminator=end)
    writer.writerows(map(format_cell, row) for row in (headings, *rows))
    return text.getvalue()


def _escape_csv(cell: str) -> str:
    return f"'{escape_controls(cell)}" if FORMULA.match(cell) else escape_controls(cell)


def to_json(document: object) -> str:
    """Convert a value with dataclasses to indented JSON, unrounded. An estimate `x` becomes `x` and
    `x_interval`.
    """
    return redact_collected(json.dumps(_plain(document), indent=2)).replace("\x7f", "\\u007f")


def _fields(value: Any) -> Fields:
    """Return the fields of a dataclass or the items of a mapping."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return cast("Fields", value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping) or (is_dataclass(value) and not isinstance(value, type)):
        plain: Record = {}
        for key, field in _fields(value).items():
            if isinstance(field, Estimate):
                plain |= serialize_estimate(key, field)
            else:
                plain[key] = _plain(field)
        return plain
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return [_plain(item) for item in value] if is_list else value


def print_tables(console: Console, tables: Iterable[Table], legend: Iterable[str] = ()) -> None:
    """Print tables with their notes, then the legend; notes and legend are dimmed.

    In a terminal, or with `COLUMNS` set, a table that is too wide is split. Elsewhere every row is
    one line. Nothing is cut off.
    """
    width = find_width(console)
    for table in map(Table.escape, tables):
        for part in table.parts():
            part = part.shorten_names(min(width, PROSE)) if part.is_narrow else part
            if total_width(part.column_widths()) > width:
                part = part.without_pictures()
            if total_width(part.unwrap().column_widths()) <= width:
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
    """Return the maximum width of output: outside a terminal, `COLUMNS` or else `PROSE`."""
    return console.width if console.is_terminal else _read_columns() or PROSE


def _read_columns() -> int:
    """Return `COLUMNS`, or 0 if it is not set or not a number."""
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() else 0


def _print_title(console: Console, title: str) -> None:
    if title:
        print_paragraph(console, title, bold=len(title.partition(" · ")[0]))


def print_paragraph(console: Console, text: str, style: str = "", bold: int = 0) -> None:
    """Print a wrapped paragraph, its first `bold` characters in bold."""
    width = min(find_width(console), PROSE)
    lines = ["\n".join(wrap(line, width)) for line in escape_controls(text).split("\n")]
    paragraph = Text("\n".join(lines), style=style)
    paragraph.stylize("bold", 0, bold)
    console.print(paragraph, soft_wrap=True)


def print_commands(console: Console, code: str) -> None:
    """Print commands below an empty line, indented and never wrapped, with dimmed comments."""
    block = Text(f"\n{textwrap.indent(escape_controls(code.rstrip()), '  ')}", style="cyan")
    block.highlight_regex("(?m)  #.*", "dim default")
    console.print(block, soft_wrap=True)


def wrap(text: str, width: int) -> list[str]:
    """Break a paragraph into lines between words.

    Names, paths and commands between backticks stay whole, and a number stays with its interval,
    unit or sign: `+4.2 [+1.0, +7.4]`, `58.9%`, `p 0.035`, `chunks(64) (+32.8)`.
    """
    unbreakable = COMMAND.sub(
        lambda command: command[0].replace(" ", NO_BREAK), keep_together(text)
    )
    lines = textwrap.wrap(unbreakable, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace(NO_BREAK, " ") for line in lines]


def _format_lines(table: Table, limit: int | None = None) -> Iterator[Text]:
    """Yield the lines of a table: headings in bold, labels in the color of their state.

    If the table exceeds the limit, the first column is folded, or a last column of words if it is
    at least as wide.
    """
    widths = table.column_widths()
    fold_index = -1 if table.columns[-1].align == "left" and widths[-1] >= widths[0] else 0
    fold = wrap if fold_index else chop_cells
    fold_width = widths[fold_index]
    if limit:
        room = limit - total_width(widths) + fold_width
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


#: Code in Markdown (a group of its own), HTML, character references, ends of link texts, addresses
#: that become links, and backticks.
MARKUP = re.compile(
    r"(?P<code>(?<!`)(?P<fence>`+)(?!`)[^\n]*?[^`\n](?P=fence)(?!`))"
    r"|<(?=[A-Za-z/!?])|&(?=#|\w+;)|\](?=[(\[:])|://|\bwww\.(?=\w)|`",
    re.IGNORECASE,
)
#: Markup in a cell: also escapes and emphasis.
CELL_MARKUP = re.compile(
    rf"{MARKUP.pattern}|[\\*]|~(?=~)|(?<=~)~|(?<![^\W_])_|_(?![^\W_])", re.IGNORECASE
)
#: Headings and quotations at the start of a line.
LINE_MARKUP = re.compile(r"^ *(?=#+ |>)", re.MULTILINE)
ENTITIES = {"<": "&lt;", "&": "&amp;", "://": "&#58;//"} | {
    www: f"{www[:3]}&#46;" for www in ("www.", "WWW.", "Www.")
}


def to_markdown(table: Table) -> str:
    """Convert a table to GitHub's Markdown, with its title as a heading and notes as paragraphs."""
    table = table.escape()
    rule = ["---:" if column.align == "right" else "---" for column in table.columns]
    headings = list(map(escape_markdown, table.headings))
    rows = [list(map(escape_markdown, row)) for row in table.rows]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in (headings, rule, *rows))
    title = " ".join(escape_prose(table.title).split())
    parts = [f"### {title}" if title else "", lines, *map(escape_prose, table.notes)]
    return "\n\n".join(filter(None, parts))


def escape_markdown(cell: str) -> str:
    """Escape a cell of a Markdown table. Code between backticks stays code."""
    return CELL_MARKUP.sub(_escape_markup, " ".join(cell.splitlines())).replace("|", r"\|")


def escape_prose(text: str) -> str:
    """Escape HTML, links and headings in a Markdown paragraph. Code between backticks stays
    code.
    """
    return LINE_MARKUP.sub(r"\\\g<0>", MARKUP.sub(_escape_markup, text))


def _escape_markup(match: re.Match[str]) -> str:
    return match["code"] or ENTITIES.get(match[0]) or f"\\{match[0]}"


def quote_code(code: str) -> str:
    """Build a code block in Markdown with a fence that the code does not contain."""
    longest = max(map(len, re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{code}\n{fence}"


class Medium(StrEnum):
    """An output medium that a section can be restricted to."""

    TEXT = "text"
    """A terminal and Markdown."""
    PAGE = "page"
    """A page and a notebook."""
    LATEX = "latex"


@dataclass(frozen=True)
class DisplaySection:
    """A section of a result: position charts, findings in sentences, tables and figures."""

    title: str = ""
    sentences: tuple[str, ...] = ()
    tables: Sequence[Table] = ()
    anchor: str = ""
    """Id of the section on a page, for the link of a `Label`."""
    entry: str = ""
    """Name of the section in a page's navigation; empty for no entry."""
    draw: Callable[[], Sequence[Figure]] | None = None
    """Builds the figures on demand, because Altair takes a second to import; None without
    figures.
    """
    lengths: tuple[tuple[str, int, float], ...] = ()
    """Name, number of tokens and unread share of each text, longest first: bars on a page."""
    code: str = ""
    """Code to paste."""
    is_command: bool = True
    """If true, the code is shell commands, which a terminal indents."""
    folded: bool = False
    """If true, a page shows only the title until the section is opened or printed."""
    group: str = ""
    """Heading on a page above neighboring sections of one group; folded without `drawn`."""
    drawn: tuple[float, ...] = ()
    """A difference that a page draws next to a folded title: its value, the ends of its interval,
    and published values.
    """
    unit: Unit = Unit.INDEX
    """The unit of `drawn`."""
    scale: str = ""
    """Name of the axis of `drawn`, shared by sections with the same name."""
    strips: PositionCharts = ()
    """Position charts, below each other on one axis. Pages and notebooks begin with them."""
    only: Medium | None = None
    """The only medium that shows the section, or None for all."""
    detailed: bool = False
    """If true, a terminal shows the section only with `--explain`."""

    @property
    def is_heading(self) -> bool:
        """True if the section has only a title."""
        return not (self.sentences or self.tables or self.draw or self.code or self.strips)

    def figures(self) -> Sequence[Figure]:
        """Build the figures."""
        return self.draw() if self.draw else ()

    def print_on(self, console: Console) -> None:
        """Print the section, except figures."""
        _print_title(console, self.title)
        if self.sentences:
            print_paragraph(console, " ".join(self.sentences))
        if self.strips:
            for line in sketch_charts(self.strips, min(find_width(console), PROSE)):
                console.print(escape_controls(line), markup=False, highlight=False, soft_wrap=True)
            print_paragraph(console, explain_sketches(self.strips), "dim")
        if self.code and self.is_command:
            print_commands(console, self.code)
        elif self.code:
            console.print(Text(escape_controls(self.code.rstrip())), soft_wrap=True)
        if self.tables and (self.sentences or self.strips):
            console.print()
        print_tables(console, self.tables)
        if not self.tables or self.tables[-1].notes:
            console.print()

    def to_markdown(self) -> str:
        """Convert the section, except figures, to GitHub's Markdown."""
        title = " ".join(escape_prose(escape_controls(self.title)).split())
        sentences = escape_prose(escape_controls(" ".join(self.sentences)))
        code = quote_code(escape_controls(self.code.rstrip())) if self.code else ""
        sketches = "\n".join(map(escape_controls, sketch_charts(self.strips)))
        picture = quote_code(sketches) if sketches else ""
        parts = [
            f"## {title}" if title else "",
            picture,
            sentences,
            code,
            *map(to_markdown, self.tables),
        ]
        return "\n\n".join(filter(None, parts))
