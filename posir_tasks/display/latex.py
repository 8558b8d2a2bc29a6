"""Tables in LaTeX."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, zip_longest

from posir_tasks.display.labels import Label, Tone, find_tone
from posir_tasks.display.numbers import MISSING, Format, format_interval
from posir_tasks.display.tables import Column, Table
from posir_tasks.values.estimates import Estimate

#: The hyphen before a negative number.
NEGATIVE = re.compile(r"(?<![\w.)-])-(?=\d)")
LATEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": "--",
    "…": r"\ldots{}",
    **{character: "\\" + character for character in "&%$#_{}"},
}


def to_latex(table: Table, *, label: str) -> str:
    """Build a table for the packages booktabs and adjustbox, as wide as the text at most.

    Title and notes are its caption. The first column is aligned to the left, the others are
    centered. Of a cell with several lines the first is printed in the table's size and the others
    below it, smaller.
    """
    table = table.escaped()
    return "\n".join(
        [
            r"\begin{table*}",
            r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
            rf"\caption{{{escape_latex(' '.join([table.title, *table.notes]))}}}",
            rf"\label{{{label}}}\smallskip",
            r"\begin{adjustbox}{max width=\textwidth}",
            rf"\begin{{tabular}}{{l{'c' * (len(table.columns) - 1)}}}",
            r"\toprule",
            *_latex_groups(table.columns),
            _latex_row(map(escape_latex, table.headings)),
            r"\midrule",
            "\n\\addlinespace\n".join(map(_latex_rows, table.rows)),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{adjustbox}",
            r"\end{table*}",
        ]
    )


def escape_latex(text: str) -> str:
    """Return LaTeX that prints the text as it is, with a minus before a negative number."""
    escaped = "".join(LATEX_SPECIAL.get(character, character) for character in text)
    return NEGATIVE.sub("$-$", escaped)


def stack_estimates(estimates: Sequence[Estimate | None], form: Format) -> list[str]:
    """Format estimates as cells with their intervals on a second line; an exact value has none."""
    cells = []
    for estimate in estimates:
        is_exact = estimate is not None and estimate.interval == (estimate.value, estimate.value)
        interval = "" if is_exact else format_interval(estimate, form)
        cells.append(f"{form(estimate.value)}\n{interval}".rstrip() if estimate else MISSING)
    return cells


def mark_best(scores: Sequence[Estimate | None], cells: Sequence[str]) -> list[str]:
    """Mark the cells of the highest score, which are printed in bold; none of a single one."""
    values = [score.value for score in scores if score]
    if len(values) < 2:
        return list(cells)
    return [
        Label(cell, Tone.BEST) if score and score.value == max(values) else cell
        for score, cell in zip(scores, cells, strict=True)
    ]


def _latex_groups(columns: Sequence[Column]) -> Iterator[str]:
    """Yield the line of the groups' headings and the rules below them."""
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
        yield _latex_row(cells)
        yield " ".join(rules)


def _latex_rows(row: Sequence[str]) -> str:
    """Write a row; the lines of its cells become rows below one another."""
    columns = [_split_cell(cell) for cell in row]
    first, *others = zip_longest(*columns, fillvalue="")
    # In braces: a name that starts with a bracket would be read as an argument of the line break
    # before it.
    small = ([rf"\scriptsize {text}" if text else "" for text in line] for line in others)
    return "\n".join([_latex_row([f"{{{first[0]}}}", *first[1:]]), *map(_latex_row, small)])


def _split_cell(cell: str) -> list[str]:
    first, *others = escape_latex(cell).split("\n")
    return [rf"\textbf{{{first}}}" if find_tone(cell) is Tone.BEST else first, *others]


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"
