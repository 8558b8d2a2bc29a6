"""The forms in which the statistics are printed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl
from rich.console import Console
from rich.table import Table

from posir_stats.statistics import ALL, Statistics, by_language
from posir_stats.texts import CHARACTERS_A_WORD, KEYWORDS, QueryType

#: What is printed for a value that is undefined.
NONE = "–"
#: Characters of the longest bar.
BAR = 8
EIGHTHS = "▏▎▍▌▋▊▉█"


@dataclass(frozen=True)
class Described:
    """A dataset's statistics, and where they come from."""

    name: str
    source: str
    """Dataset or folder, and revision."""
    subsets: Sequence[Statistics]
    """Ordered by language."""


@dataclass(frozen=True)
class Sheet:
    """A table as text; its first column is text, too."""

    title: str
    headings: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    justify: Literal["left", "right"] = "right"


def as_json(described: Described) -> str:
    """Return all figures as JSON, not rounded, the histograms included."""
    return json.dumps(
        {
            "dataset": described.name,
            "source": described.source,
            "scheme": described.subsets[0].positions.scheme,
            "positions": list(described.subsets[0].positions.positions),
            "rows": [
                {**record(one), "histogram": one.histogram()} for group in by_language(described.subsets) for one in group
            ],
        },
        indent=2,
    )


def as_csv(described: Described) -> str:
    """Return one row per language, domain and total as CSV, not rounded."""
    rows = [record(one) for group in by_language(described.subsets) for one in group]
    return pl.DataFrame(rows, infer_schema_length=None).write_csv()


def record(one: Statistics) -> dict[str, Any]:
    """Return the figures under their names; shares in [0, 1], None where undefined."""
    quartiles = one.quartiles()
    return {
        "language": one.language,
        "domain": one.domain,
        "documents": one.documents.texts,
        "queries": one.queries.texts,
        "relevant_documents": len(one.lengths),
        "length_unit": one.length_unit,
        "length_25": quartiles[0],
        "length_50": quartiles[1],
        "length_75": quartiles[2],
        "length_max": one.longest(),
        "query_words": one.queries.mean_words,
        "query_characters": one.queries.mean_characters,
        "document_words": one.documents.mean_words,
        "document_characters": one.documents.mean_characters,
        **{f"queries_{name.lower()}": count for name, count in one.of_lengths().items()},
        **{str(kind): share for kind, share in zip(QueryType, shares_of_types(one), strict=True)},
    }


def shares_of_types(one: Statistics) -> list[float | None]:
    """Return the share of queries of each type, in [0, 1]; None without queries."""
    return [int(count) / one.queries.texts if one.queries.texts else None for count in one.types]


def sheets_of(described: Described) -> list[Sheet]:
    """Return the tables of each language, and of all languages pooled where there are several."""
    sheets = []
    for group in by_language(described.subsets):
        title = f"{described.name} · {'all languages' if group[0].language == ALL else group[0].language}"
        sheets += [sizes(title, group), queries(title, group), positions(title, group[-1])]
    return sheets


def sizes(title: str, group: Sequence[Statistics]) -> Sheet:
    """Return how many and how long documents and queries are."""
    unit = "words" if group[-1].queries.words is not None and group[-1].documents.words is not None else "characters"
    return Sheet(
        f"{title} · documents and queries; length of the relevant documents in {group[-1].length_unit}",
        ("Domain", "Documents", "Queries", "Relevant", "25 %", "50 %", "75 %", "longest", f"{unit}/query", f"{unit}/document"),
        tuple(
            (
                one.domain,
                f"{one.documents.texts:,}",
                f"{one.queries.texts:,}",
                f"{len(one.lengths):,}",
                *(_number(value, ",.0f") for value in (*(one.quartiles()), one.longest())),
                _number(getattr(one.queries, f"mean_{unit}"), ",.1f"),
                _number(getattr(one.documents, f"mean_{unit}"), ",.1f"),
            )
            for one in group
        ),
    )


def queries(title: str, group: Sequence[Statistics]) -> Sheet:
    """Return the queries by length bucket and by type."""
    by = "by length of the relevant document and by type" if group[-1].of_lengths() else "by type"
    return Sheet(
        f"{title} · queries {by}",
        ("Domain", *group[-1].of_lengths(), *QueryType),
        tuple(
            (
                one.domain,
                *(f"{count:,}" for count in one.of_lengths().values()),
                *(_number(share, ".1%") for share in shares_of_types(one)),
            )
            for one in group
        ),
    )


def positions(title: str, total: Statistics) -> Sheet:
    """Return the histogram of evidence positions, a column per length bucket that has queries."""
    columns = {name: counts for name, counts in total.histogram().items() if name == ALL or any(counts)}
    bars = [bars_of(counts) for counts in columns.values()]
    return Sheet(
        f"{title} · queries by position of the evidence",
        ("Position", *columns),
        tuple(zip(total.positions.positions, *bars, strict=True)),
        justify="left",
    )


def bars_of(counts: Sequence[int]) -> list[str]:
    """Return each count with a bar, the largest as long as a bar can be; every count but 0 shows something."""
    most, width = max(*counts, 1), max(len(f"{count:,}") for count in counts)
    return [f"{count:>{width},} {_bar(count / most)}".rstrip() for count in counts]


def _bar(share: float) -> str:
    """Return a bar of a share in [0, 1], in eighths of a character."""
    eighths = max(round(share * BAR * len(EIGHTHS)), share > 0)
    whole, rest = divmod(eighths, len(EIGHTHS))
    return EIGHTHS[-1] * whole + EIGHTHS[rest - 1] * (rest > 0)


def _number(value: float | None, form: str) -> str:
    return NONE if value is None else format(value, form)


def note_of(described: Described) -> str:
    """Return what the tables mean."""
    note = (
        f"Source: {described.source}. Lengths: of the relevant documents, each once, in {described.subsets[0].length_unit}"
        f"{' as the data states them' if described.subsets[0].length_unit == 'tokens' else ''}. Types, by our own rule: "
        f"question, ends in a question mark; keywords, does not and has at most {KEYWORDS} words "
        f"({KEYWORDS * CHARACTERS_A_WORD} characters in a script without spaces); statement, the rest. Bars: the longest in a "
        "column is its fullest bin."
    )
    if any(one.positions.counts.sum() != one.positions.queries for one in described.subsets):
        note += " A query that lies in several position buckets is counted in each, one that lies in none is not shown."
    return note


def as_markdown(described: Described) -> str:
    """Return the tables as Markdown, a heading above each and the note below."""
    return "\n\n".join([*(_markdown(sheet) for sheet in sheets_of(described)), note_of(described)])


def _markdown(sheet: Sheet) -> str:
    rule = ("---", *("---:" if sheet.justify == "right" else "---" for _ in sheet.headings[1:]))
    rows = (sheet.headings, rule, *sheet.lines)
    table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
    return f"### {sheet.title}\n\n{table}"


def print_tables(console: Console, described: Described) -> None:
    """Print the tables, and the note below."""
    for sheet in sheets_of(described):
        console.print(sheet.title, style="bold", highlight=False, markup=False)
        table = Table(box=None, header_style="dim", pad_edge=False)
        table.add_column(sheet.headings[0], overflow="fold")
        for heading in sheet.headings[1:]:
            table.add_column(heading, justify=sheet.justify, no_wrap=True)
        for line in sheet.lines:
            table.add_row(*line)
        console.print(table)
        console.print()
    console.print(note_of(described), style="dim", markup=False, highlight=False)
