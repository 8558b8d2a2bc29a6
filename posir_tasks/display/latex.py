"""Format tables in LaTeX."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, zip_longest

from posir_tasks.display.labels import Label, Tone, find_tone, get_parts, is_estimate_text
from posir_tasks.display.numbers import BARS, HORIZONTAL_BARS, Format, format_estimate
from posir_tasks.display.tables import Column, Table
from posir_tasks.values.estimates import Estimate

LATEX_SPECIAL = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "–": "--",
        "…": r"\ldots{}",
        "✓": r"$\surd$",
        "✗": r"$\times$",
        **{character: "\\" + character for character in "&%$#_{}"},
        **{
            bar: rf"\rule{{{eighths / 20:.2f}em}}{{.8em}}"
            for eighths, bar in enumerate(HORIZONTAL_BARS, start=1)
        },
        **{
            bar: rf"\rule{{.4em}}{{{eighths / 10:.1f}em}}"
            for eighths, bar in enumerate(BARS, start=1)
        },
    }
)


def to_latex(table: Table, *, label: str) -> str:
    """Convert a table to LaTeX that uses the packages booktabs and adjustbox.

    The table is not wider than the text. Title and notes become the caption. The first column is
    left-aligned, other columns are centered. The first line of a cell has the normal size, other
    lines are smaller.
    """
    table = table.escape()
    return "\n".join(
        [
            r"\begin{table*}",
            r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
            rf"\caption{{{escape_latex(_write_caption(table))}}}",
            rf"\label{{{label}}}\smallskip",
            r"\begin{adjustbox}{max width=\textwidth}",
            rf"\begin{{tabular}}{{l{'c' * (len(table.columns) - 1)}}}",
            r"\toprule",
            *_format_groups(table.columns),
            _format_row(map(escape_latex, table.headings)),
            r"\midrule",
            "\n\\addlinespace\n".join(map(_format_lines, table.rows)),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{adjustbox}",
            r"\end{table*}",
        ]
    )


def _write_caption(table: Table) -> str:
    """Join title and notes. A title before notes ends like a sentence."""
    title = table.title
    if title and table.notes and not title.endswith((".", "?", "!")):
        title = f"{title}."
    return " ".join(filter(None, (title, *table.notes)))


def escape_latex(text: str) -> str:
    """Escape text for LaTeX, and typeset the minus signs of negative numbers."""
    return re.sub(r"(?<![\w.)-])-(?=\d)", "$-$", text.translate(LATEX_SPECIAL))


def stack_estimates(estimates: Sequence[Estimate | None], format_value: Format) -> list[str]:
    """Format estimates as cells with the interval in a second line. Intervals of width 0 are
    omitted.
    """
    cells = []
    for estimate in estimates:
        if estimate and estimate.interval == (estimate.value, estimate.value):
            estimate = Estimate(estimate.value)
        cells.append(stack_interval(format_estimate(estimate, format_value)))
    return cells


def stack_interval(cell: str) -> str:
    """Put the interval of a formatted estimate into a second line. Other cells stay the same."""
    return "\n".join(filter(None, get_parts(cell))) if is_estimate_text(cell) else cell


def mark_best(scores: Sequence[Estimate | None], cells: Sequence[str]) -> list[str]:
    """Mark the cells of the highest score as bold. A single score is not marked."""
    values = [score.value for score in scores if score]
    if len(values) < 2:
        return list(cells)
    return [
        Label(cell, Tone.BEST) if score and score.value == max(values) else cell
        for score, cell in zip(scores, cells, strict=True)
    ]


def _format_groups(columns: Sequence[Column]) -> Iterator[str]:
    """Yield a row of group headings and the rules below it. Yield nothing without groups."""
    cells = []
    rules = []
    start = 1
    for group, members in groupby(columns, key=lambda column: column.group):
        size = len(list(members))
        if group:
            cells.append(rf"\multicolumn{{{size}}}{{c}}{{{escape_latex(group)}}}")
            rules.append(rf"\cmidrule(lr){{{start}-{start + size - 1}}}")
        else:
            cells += [""] * size
        start += size
    if rules:
        yield _format_row(cells)
        yield " ".join(rules)


def _format_lines(row: Sequence[str]) -> str:
    """Format a row as several LaTeX rows, one per line of its cells."""
    columns = [_split_cell(cell) for cell in row]
    first_line, *small_lines = zip_longest(*columns, fillvalue="")
    # Braces, since LaTeX parses a bracket after a line break as an argument.
    small_rows = ([rf"\scriptsize {text}" if text else "" for text in line] for line in small_lines)
    first_row = [f"{{{first_line[0]}}}", *first_line[1:]]
    return "\n".join(map(_format_row, [first_row, *small_rows]))


def _split_cell(cell: str) -> list[str]:
    lines = escape_latex(cell).split("\n")
    if find_tone(cell) is Tone.BEST:
        lines[0] = rf"\textbf{{{lines[0]}}}"
    return lines


def _format_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"
