"""Tables for terminal, Markdown and LaTeX, and the rows behind them as CSV and JSON."""

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
from itertools import groupby
from string import Formatter
from typing import TYPE_CHECKING, Any, Literal, cast

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

from posir_tasks.base.secrets import redact_collected
from posir_tasks.base.wording import (
    COMMAND,
    NO_BREAK,
    bind,
    escape_controls,
    shorten_names,
)
from posir_tasks.display.labels import Tone, change_text, find_tone
from posir_tasks.display.numbers import MISSING
from posir_tasks.display.strip import Strip, explain_sketches, sketch_strips
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.scores import Unit, estimate_to_json, flatten

if TYPE_CHECKING:
    import polars as pl

    from posir_tasks.display.figures import Figure

#: Columns between two columns of a table, and fewest columns of a first column that is folded.
GAP, MIN_WIDTH = 2, 12
#: Columns of shortened names in a table that is divided.
DIVIDED_WIDTH = 20
#: Most columns of a line of prose and, outside a terminal, of a picture.
PROSE = 100
#: A cell that a spreadsheet would run: it begins with an operator, also at full width, or with a
#: white space that is trimmed before one is looked for. A number with a sign is none.
FORMULA = re.compile(
    r"(?![-+](?:\d*\.)?\d+(?:[eE][-+]?\d+)?$)[=+@\t\r\n\-\uff1d\uff0b\uff20\uff0d]"
)
#: Styles of labels in a terminal.
TONE_STYLES = {Tone.GOOD: "green", Tone.BAD: "red", Tone.OPEN: "dim", Tone.BEST: "bold", None: ""}


class OutputFormat(StrEnum):
    """Output formats of all commands; each supports some of them."""

    TEXT = "text"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"
    LATEX = "latex"


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    heading: str
    align: Literal["left", "right"] = "left"
    group: str = ""
    """Heading above this column and its neighbors of the same group, which LaTeX prints; a terminal
    does not part them.
    """
    picture: bool = False
    """Whether its cells are sketches: shown where a table with them fits, and not on pages, which
    have drawings.
    """
    drawn: bool = False
    """Whether a page draws its intervals beside it, on one axis with 0."""


@dataclass(frozen=True)
class Table:
    """Rows of text below headings."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    """A row with a first cell alone is the heading of the rows below it."""
    title: str = ""
    notes: tuple[str, ...] = ()
    """Paragraphs below the table."""
    split_by: str = ""
    """Title of each part in a terminal, such as `{Model} · {Task}`: there every run of rows that
    agree in the columns it names is a table of its own, without these columns.
    """
    keys: int = 1
    """Number of first columns, without those of `split_by`, that identify a row. A table too wide
    for a terminal is divided between columns, and every part repeats these.
    """
    kind: Literal["", "changes", "changes models"] = ""
    """Changes by length or of models share a scale on a page, and their title is a heading."""
    is_narrow: bool = False
    """Whether names in its first column are shortened so that it fits; never on a page."""

    @property
    def headings(self) -> tuple[str, ...]:
        """Headings of all columns."""
        return tuple(column.heading for column in self.columns)

    @property
    def has_headings(self) -> bool:
        """Whether a row is the heading of those below it."""
        return any(map(is_heading, self.rows))

    def parts(self) -> Iterator[Table]:
        """Yield the tables that a terminal shows: one per title of `split_by`, or the table
        itself.
        """
        names = [name for _, name, _, _ in Formatter().parse(self.split_by) if name]
        if not names:
            yield self
            return
        keys = [self.headings.index(name) for name in names]
        remaining = [index for index in range(len(self.columns)) if index not in keys]
        for values, rows in groupby(self.rows, key=lambda row: [row[key] for key in keys]):
            part = replace(self, rows=tuple(rows))._select(remaining)
            title = self.split_by.format_map(dict(zip(names, values, strict=True)))
            yield replace(part, title=title, split_by="").without_empty_columns()

    def without_empty_columns(self) -> Table:
        """Leave out columns in which no row has a value; those that identify a row stay."""
        kept = []
        for at in range(len(self.columns)):
            has_value = any(row[at] not in ("", MISSING) for row in self.rows)
            if at < self.keys or has_value or not self.rows:
                kept.append(at)
        return self._select(kept)

    def without_columns(self, headings: Collection[str]) -> Table:
        """Leave out the columns of these headings."""
        kept = [at for at, heading in enumerate(self.headings) if heading not in headings]
        return self._select(kept)

    def without_pictures(self) -> Table:
        """Leave out columns of sketches."""
        return self._select([at for at, column in enumerate(self.columns) if not column.picture])

    def divided(self, width: int) -> Iterator[Table]:
        """Yield the table if it fits a width, or else tables with consecutive columns of it; no
        column is left out.
        """
        widths = self.column_widths()
        keys = list(range(self.keys))
        chosen = keys
        rest = range(self.keys, len(self.columns))
        # Neighbors of a group stay together.
        for _, members in groupby(rest, lambda at: self.columns[at].group or at):
            together = [*chosen, *members]
            is_wide = total_width([widths[column] for column in together]) > width
            if is_wide and len(chosen) > self.keys:
                yield self._select(chosen)
                together = [*keys, *together[len(chosen) :]]
            chosen = together
        yield self._select(chosen)

    def flattened(self) -> Table:
        """Put each row in one line."""
        return self._change_text(lambda text: text.replace("\n", " "))

    def narrowed(self, width: int) -> Table:
        """Shorten the names in the first column, so that the table fits a width or, if that is not
        possible, fits it when it is divided.
        """
        room = width - total_width([0, *self.without_pictures().column_widths()[1:]])
        names = [row[0] for row in self.rows if not is_heading(row)]
        longest = room if room >= MIN_WIDTH else DIVIDED_WIDTH
        short = dict(zip(names, shorten_names(names, longest), strict=True))
        return replace(self, rows=tuple((short.get(row[0], row[0]), *row[1:]) for row in self.rows))

    def escaped(self) -> Table:
        """Escape control characters; the lines of a cell stay."""
        table = self._change_text(escape_controls)
        notes = tuple(map(escape_controls, self.notes))
        return replace(table, title=escape_controls(self.title), notes=notes)

    def column_widths(self) -> list[int]:
        """Measure how wide each column is if nothing is folded."""
        cells = zip(self.headings, *(row for row in self.rows if not is_heading(row)), strict=True)
        return [
            max(cell_len(line) for cell in column for line in cell.split("\n")) for column in cells
        ]

    def _change_text(self, change: Callable[[str], str]) -> Table:
        """Change headings and cells."""
        columns = tuple(
            replace(column, heading=change(column.heading), group=change(column.group))
            for column in self.columns
        )
        rows = tuple(tuple(change_text(cell, change) for cell in row) for row in self.rows)
        return replace(self, columns=columns, rows=rows)

    def _select(self, indices: Sequence[int]) -> Table:
        rows = tuple(tuple(row[index] for index in indices) for row in self.rows)
        return replace(self, columns=tuple(self.columns[index] for index in indices), rows=rows)


def is_heading(row: Sequence[str]) -> bool:
    """Tell whether a row is the heading of those below it: its first cell alone has a text, of
    several.
    """
    return len(row) > 1 and not any(row[1:])


def total_width(widths: Sequence[int]) -> int:
    """Measure how wide a table with columns of these widths is."""
    return sum(widths) + GAP * (len(widths) - 1)


def build_columns(
    headings: Iterable[str], right: Collection[str] = (), drawn: Collection[str] = ()
) -> tuple[Column, ...]:
    """Build a column for each heading; those in `right` are aligned to the right, those in `drawn`
    have intervals that a page draws.
    """
    columns = []
    for name in headings:
        align: Literal["left", "right"] = "right" if name in right else "left"
        columns.append(Column(name, align, drawn=name in drawn))
    return tuple(columns)


def build_frame(records: Iterable[Any]) -> pl.DataFrame:
    """Build a data frame of dataclasses or mappings, not rounded: an estimate has three columns, a
    missing field is null.
    """
    # Polars takes longer to import than a table to print.
    import polars as pl

    rows: list[dict[str, Any]] = []
    for record in records:
        row: dict[str, Any] = {}
        for key, value in _fields(record).items():
            row |= flatten(key, value)
        rows.append(row)
    names = dict.fromkeys(name for row in rows for name in row)
    return pl.DataFrame(
        [{name: row.get(name) for name in names} for row in rows], infer_schema_length=None
    )


def to_csv(records: Iterable[Any]) -> str:
    """Convert dataclasses or mappings of the same fields to CSV, as `build_frame` arranges them."""
    frame = build_frame(records)
    return format_csv(frame.columns, frame.iter_rows(), "\n") if frame.columns else "\n"


def format_csv(headings: Iterable[str], rows: Iterable[Iterable[Any]], end: str = "\r\n") -> str:
    """Write rows below headings as CSV that a spreadsheet shows as it is; all CSV of posir is
    written here.

    Text that would be run as a formula begins with an apostrophe, and control characters are
    escaped. Numbers have all digits; None is an empty cell, and booleans are `true` and `false`.
    """
    text = io.StringIO()
    # A long file repeats names of models and tasks.
    escape = lru_cache(_escape_csv)
    csv.writer(text, lineterminator=end).writerows(
        [escape(cell) if isinstance(cell, str) else _csv_number(cell) for cell in row]
        for row in (headings, *rows)
    )
    return text.getvalue()


def _csv_number(cell: Any) -> Any:
    if isinstance(cell, bool):
        return str(cell).lower()
    return "NaN" if cell != cell else cell


def _escape_csv(cell: str) -> str:
    return f"'{escape_controls(cell)}" if FORMULA.match(cell) else escape_controls(cell)


def to_json(document: object) -> str:
    """Build a JSON value with dataclasses as indented text, not rounded; an estimate `x` becomes
    `x` and `x_interval`.
    """
    return redact_collected(json.dumps(_plain(document), indent=2)).replace("\x7f", "\\u007f")


def _fields(value: Any) -> Mapping[str, Any]:
    """List names and values of a dataclass or a mapping."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return cast("Mapping[str, Any]", value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping) or (is_dataclass(value) and not isinstance(value, type)):
        plain: dict[str, Any] = {}
        for key, field in _fields(value).items():
            if isinstance(field, Estimate):
                plain |= estimate_to_json(key, field)
            else:
                plain[key] = _plain(field)
        return plain
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return [_plain(item) for item in value] if is_list else value


def print_tables(console: Console, tables: Iterable[Table], legend: Iterable[str] = ()) -> None:
    """Print tables below one another, the notes of each and the legend dimmed.

    A table that is too wide for a terminal, or for `COLUMNS`, is divided; elsewhere every row is
    one line. Nothing is cut off.
    """
    width = find_width(console)
    for table in map(Table.escaped, tables):
        for part in table.parts():
            part = part.narrowed(min(width, PROSE)) if part.is_narrow else part
            if total_width(part.column_widths()) > width:
                part = part.without_pictures()
            if total_width(part.flattened().column_widths()) <= width:
                part = part.flattened()
            _print_title(console, part.title)
            if not console.is_terminal and not _read_columns():
                lines = (line.plain for line in _format_lines(part))
                console.out("\n".join(lines), "\n", sep="", end="\n", highlight=False)
                continue
            for divided in part.divided(width):
                text = Text("\n").join(_format_lines(divided, width))
                console.print(text, "\n", sep="", soft_wrap=True)
        for note in table.notes:
            print_paragraph(console, note, "dim")
    for paragraph in legend:
        print_paragraph(console, paragraph, "dim")


def find_width(console: Console) -> int:
    """Find how wide output may be: outside a terminal `COLUMNS`, or else that of prose, for a file,
    a pipe and a string alike.
    """
    return console.width if console.is_terminal else _read_columns() or PROSE


def _read_columns() -> int:
    """Read `COLUMNS`; 0 if it is not set, or no number."""
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() else 0


def _print_title(console: Console, title: str) -> None:
    if title:
        print_paragraph(console, title, bold=len(title.partition(" · ")[0]))


def print_paragraph(console: Console, text: str, style: str = "", bold: int = 0) -> None:
    """Print a paragraph, broken by `wrap`, some characters of it in bold."""
    width = min(find_width(console), PROSE)
    lines = [
        line for part in escape_controls(text).split("\n") for line in wrap(part, width) or [""]
    ]
    printed = Text("\n".join(lines), style=style)
    printed.stylize("bold", 0, bold)
    console.print(printed, soft_wrap=True)


def print_commands(console: Console, code: str) -> None:
    """Print commands with their comments, set off and indented; no line is broken."""
    printed = Text(f"\n{textwrap.indent(escape_controls(code.rstrip()), '  ')}", style="cyan")
    printed.highlight_regex("(?m)  #.*", "dim default")
    console.print(printed, soft_wrap=True)


def wrap(text: str, width: int) -> list[str]:
    """Break a paragraph into lines between words only, so that a path or a name can be
    copied.

    A figure stays with its interval, unit or sign: `+4.2 [+1.0, +7.4]`, `58.9%`, `p 0.035`,
    `chunks(64) (+32.8)`; and a command between backticks is whole.
    """
    bound = COMMAND.sub(lambda command: command[0].replace(" ", NO_BREAK), bind(text))
    lines = textwrap.wrap(bound, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace(NO_BREAK, " ") for line in lines]


def _format_lines(table: Table, limit: int | None = None) -> Iterator[Text]:
    """Yield the lines of a table: headings are bold, labels have the color of their state.

    Its first column, or the words of a wider last one, are folded if it would exceed a limit.
    """
    widths = table.column_widths()
    at = -1 if table.columns[-1].align == "left" and widths[-1] >= widths[0] else 0
    if limit:
        widths[at] = min(widths[at], max(MIN_WIDTH, limit - total_width(widths) + widths[at]))
    for row in (table.headings, *table.rows):
        style = "bold" if row is table.headings else ""
        if is_heading(row) and not style:
            yield Text()
            for part in wrap(row[0], limit or len(row[0])):
                yield Text(part, "bold")
            continue
        cells = [cell.split("\n") for cell in row]
        if cell_len(row[at]) > widths[at]:
            fold = wrap if at else chop_cells
            cells[at] = [part for line in cells[at] for part in fold(line, widths[at])]
        for number in range(max(map(len, cells))):
            line = Text(style=style)
            for column, cell, lines, width in zip(table.columns, row, cells, widths, strict=True):
                text = lines[number] if number < len(lines) else ""
                gap = " " * (width - cell_len(text))
                line.append(" " * GAP if column is not table.columns[0] else "")
                line.append(gap if column.align == "right" else "")
                line.append(text, TONE_STYLES[find_tone(cell)])
                line.append("" if column.align == "right" else gap)
            line.rstrip()
            yield line


#: Code in Markdown: between runs of as many backticks, on one line.
CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(?:[^\n]*?[^`\n])\1(?!`)")
#: What would be HTML, a character reference, the end of a link's text, an address that becomes a
#: link, or code without an end.
MARKUP = re.compile(r"<(?=[A-Za-z/!?])|&(?=#|\w+;)|\](?=[(\[:])|://|\bwww\.(?=\w)|`", re.IGNORECASE)
#: The same in a cell, and what would be an escape or emphasis.
CELL_MARKUP = re.compile(
    rf"{MARKUP.pattern}|[\\*]|~(?=~)|(?<=~)~|(?<![^\W_])_|_(?![^\W_])", re.IGNORECASE
)
#: What would be a heading or a quotation at the start of a line.
LINE_MARKUP = re.compile(r"^ *(?=#+ |>)", re.MULTILINE)
ENTITIES = {"<": "&lt;", "&": "&amp;", "://": "&#58;//"} | {
    www: f"{www[:3]}&#46;" for www in ("www.", "WWW.", "Www.")
}


def to_markdown(table: Table) -> str:
    """Build a table in GitHub's Markdown: title as a heading above, notes as paragraphs below."""
    table = table.escaped()
    rule = ["---:" if column.align == "right" else "---" for column in table.columns]
    headings = list(map(escape_markdown, table.headings))
    rows = [list(map(escape_markdown, row)) for row in table.rows]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in (headings, rule, *rows))
    title = " ".join(escape_prose(table.title).split())
    parts = [f"### {title}" if title else "", lines, *map(escape_prose, table.notes)]
    return "\n\n".join(filter(None, parts))


def escape_markdown(cell: str) -> str:
    """Escape text, so that it stays in its cell of a Markdown table and is shown as it is; code
    between backticks stays code.
    """
    return _escape_outside_code(" ".join(cell.splitlines()), CELL_MARKUP).replace("|", r"\|")


def escape_prose(text: str) -> str:
    """Escape a paragraph for Markdown, so that names are neither HTML nor links; code between
    backticks stays code.
    """
    return LINE_MARKUP.sub(r"\\\g<0>", _escape_outside_code(text, MARKUP))


def _escape_outside_code(text: str, markup: re.Pattern[str]) -> str:
    parts = []
    end = 0
    for code in CODE_SPAN.finditer(text):
        parts.append(markup.sub(_escape_markup, text[end : code.start()]))
        parts.append(code[0])
        end = code.end()
    parts.append(markup.sub(_escape_markup, text[end:]))
    return "".join(parts)


def _escape_markup(match: re.Match[str]) -> str:
    return ENTITIES.get(match[0]) or f"\\{match[0]}"


def quote_code(code: str) -> str:
    """Build a block of code in Markdown, which no line of the code can end."""
    longest = max(map(len, re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{code}\n{fence}"


class Medium(StrEnum):
    """The media that may have sections of their own."""

    TEXT = "text"
    """A terminal and Markdown."""
    PAGE = "page"
    """A page and a notebook."""
    LATEX = "latex"


@dataclass(frozen=True)
class DisplaySection:
    """A part of what is shown: pictures of the answer, findings in sentences, tables and charts."""

    title: str = ""
    sentences: tuple[str, ...] = ()
    tables: Sequence[Table] = ()
    anchor: str = ""
    """Address of the section on a page, for the link of a `Label`."""
    entry: str = ""
    """Name of the section in the navigation of a page; empty for none."""
    draw: Callable[[], Sequence[Figure]] | None = None
    """Draws its charts, on demand because Altair takes a second to import; None if it has none."""
    lengths: tuple[tuple[str, int, float], ...] = ()
    """Name, tokens, and the share after its first part that is never read of each text, the longest
    first: bars on a page.
    """
    code: str = ""
    """Code to be pasted, shown as it is."""
    is_command: bool = True
    """Whether the code is commands of a shell, which a terminal indents."""
    folded: bool = False
    """Whether a page shows the title alone until it is opened or printed."""
    group: str = ""
    """Heading that a page has above this section and its neighbors of the same group; without a
    difference it is folded.
    """
    drawn: tuple[float, ...] = ()
    """A difference that a page draws next to a folded title: its value, the ends of its interval,
    and published values.
    """
    unit: Unit = Unit.INDEX
    """How this difference is printed."""
    scale: str = ""
    """The axis that it is drawn on, which it shares with those of the same name."""
    strips: Sequence[Strip] = ()
    """Pictures of the answer, below each other on one axis; a page and a notebook begin with
    them.
    """
    only: Medium | None = None
    """The medium that shows it alone; None for all."""
    detailed: bool = False
    """Whether a terminal shows it only with `--explain`."""

    @property
    def is_heading(self) -> bool:
        """Whether it has nothing but a title."""
        return not (self.sentences or self.tables or self.draw or self.code or self.strips)

    def figures(self) -> Sequence[Figure]:
        """Return its charts."""
        return self.draw() if self.draw else ()

    def print_on(self, console: Console) -> None:
        """Print title, sentences and tables."""
        _print_title(console, self.title)
        if self.sentences:
            print_paragraph(console, " ".join(self.sentences))
        if self.strips:
            for line in sketch_strips(self.strips, min(find_width(console), PROSE)):
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
        """Return title, sentences and tables in GitHub's Markdown."""
        title = " ".join(escape_prose(escape_controls(self.title)).split())
        sentences = escape_prose(escape_controls(" ".join(self.sentences)))
        code = quote_code(escape_controls(self.code.rstrip())) if self.code else ""
        sketches = "\n".join(map(escape_controls, sketch_strips(self.strips)))
        picture = quote_code(sketches) if sketches else ""
        parts = [
            f"## {title}" if title else "",
            picture,
            sentences,
            code,
            *map(to_markdown, self.tables),
        ]
        return "\n\n".join(filter(None, parts))
