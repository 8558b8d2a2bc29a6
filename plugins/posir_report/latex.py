"""LaTeX in the papers' table shapes: models as rows; nDCG@10 and PSI by length (PosIR), or position buckets and PSI (PosQ)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from posir_report.summary import BinRow, Row, TaskSummary, bin_rows_of, part, rows_of
from posir_report.tables import LEVEL, NONE, count, interval, names_of, percent, plain

#: Characters of a model's name; the middle of a longer one is left out, so that the table fits a page.
NAME_WIDTH = 44
SPECIAL = {
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


@dataclass(frozen=True)
class Entry:
    """What stands in one cell of a table, on three lines."""

    score: str
    interval: str
    below: str
    """Number of queries under nDCG@10, PSI of noise under PSI."""


def as_latex(summaries: Iterable[TaskSummary]) -> str:
    """Return one table for each task, for the packages booktabs and adjustbox."""
    ordered = sorted(summaries, key=_shape)
    tables = [_table(list(group)) for _, group in groupby(ordered, key=_shape)]
    return "\n\n".join(["% In the preamble: \\usepackage{booktabs,adjustbox}", *tables])


def _shape(summary: TaskSummary) -> tuple[str, str]:
    return summary.task, summary.profile.scheme


def escaped(text: str) -> str:
    """Return text that LaTeX prints as it stands."""
    return "".join(SPECIAL.get(character, character) for character in text)


def _table(summaries: Sequence[TaskSummary]) -> str:
    """Return the table of one task."""
    first = summaries[0]
    by_length = len(first.profile.lengths) > 1
    lengths = ["All", *first.profile.lengths] if by_length else ["All"]
    scores = lengths if by_length else [*first.profile.positions, "All"]
    spans = (len(scores), len(lengths))
    rules = f"\\cmidrule(lr){{2-{spans[0] + 1}}} \\cmidrule(lr){{{spans[0] + 2}-{sum(spans) + 1}}}"
    named = zip(names_of(summaries, NAME_WIDTH), summaries, strict=True)
    body = "\n\\addlinespace\n".join("\n".join(_lines(name, one, by_length)) for name, one in named)
    return "\n".join(
        [
            r"\begin{table*}",
            r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
            rf"\caption{{{_caption(summaries, by_length)}}}",
            rf"\label{{tab:{re.sub(r'[^a-z0-9]+', '-', first.task.lower()).strip('-')}}}",
            r"\begin{adjustbox}{max width=\textwidth}",
            rf"\begin{{tabular}}{{l{'c' * sum(spans)}}}",
            r"\toprule",
            rf" & \multicolumn{{{spans[0]}}}{{c}}{{nDCG@10}} & \multicolumn{{{spans[1]}}}{{c}}{{PSI}} \\",
            rules,
            _line("Model", map(escaped, [*scores, *lengths])),
            r"\midrule",
            body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{adjustbox}",
            r"\end{table*}",
        ]
    )


def _caption(summaries: Sequence[TaskSummary], by_length: bool) -> str:
    revisions = ", ".join(sorted({one.data_revision for one in summaries}))
    by = "length of the relevant document" if by_length else "position of the evidence"
    text = f"{summaries[0].task}, data revision {revisions}: nDCG@10 (x 100) by {by}, under it the number of queries; and PSI."
    if any("psi_significance" in one.scores for one in summaries):
        text += (
            " In brackets 95 % intervals; under PSI what it shows when position has no effect, from the average to the 95th "
            f"percentile. *: above that, p < {LEVEL}."
        )
    return escaped(text)


def _lines(name: str, summary: TaskSummary, by_length: bool) -> Iterator[str]:
    """Yield the lines of one model: scores, intervals, queries and noise."""
    rows = rows_of(summary)
    scored: list[Row | BinRow] = [*rows] if by_length else [*bin_rows_of(summary), rows[0]]
    entries = [*map(_score, scored), *map(_psi, rows)]
    whole_name = escaped(name + part(len(summary.subsets), len(summary.missing)))
    # In braces: a name that starts with a bracket would be read as an argument of the line break before it.
    yield _line(f"{{{whole_name}}}", [escaped(entry.score) for entry in entries])
    if any(entry.interval for entry in entries):
        yield _line(r"\scriptsize 95\,\% interval", [_small(entry.interval) for entry in entries])
    yield _line(r"\scriptsize queries; PSI of noise", [_small(entry.below) for entry in entries])


def _score(row: Row | BinRow) -> Entry:
    ends = interval(row.ndcg_at_10_low, row.ndcg_at_10_high, percent)
    return Entry(percent(row.ndcg_at_10), ends, count(row.queries))


def _psi(row: Row) -> Entry:
    above = row.p_value is not None and row.p_value < LEVEL
    noise = NONE if row.psi_null_mean is None else f"{plain(row.psi_null_mean)}–{plain(row.psi_null_p95)}"
    return Entry(plain(row.psi) + "*" * above, interval(row.psi_low, row.psi_high, plain), noise)


def _line(name: str, cells: Iterable[str]) -> str:
    """Return a line of a table from LaTeX."""
    return " & ".join([name, *cells]) + r" \\"


def _small(text: str) -> str:
    return rf"\scriptsize {escaped(text.strip())}" if text else ""
