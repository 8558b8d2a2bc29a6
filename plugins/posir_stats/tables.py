"""The tables of a dataset's statistics, and the records behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posir_tasks.base.wording import pluralize
from posir_tasks.datasets.statistics import (
    ALL,
    CHARACTERS_PER_WORD,
    KEYWORDS,
    SUMMARY,
    LengthCounts,
    QueryType,
    Statistics,
    group_by_language,
)
from posir_tasks.display.numbers import MISSING, format_count, format_number, format_percent
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.values.schemes import assign_thirds

#: Headings of the spread of lengths.
LENGTH_HEADINGS = ("Mean", "SD", "Min", "25%", "50%", "75%", "Max")
#: Evidence is not spread evenly if a third of documents has this much more or less of it than its
#: share of the bins.
UNEVEN = 0.05
#: Characters of the longest bar.
BAR = 8
EIGHTHS = "▏▎▍▌▋▊▉█"


@dataclass(frozen=True)
class DatasetStatistics:
    """The statistics of a dataset and their source."""

    name: str
    source: str
    """Dataset or folder, and revision."""
    subsets: Sequence[Statistics]
    """Ordered by language."""


def build_document(statistics: DatasetStatistics) -> dict[str, Any]:
    """Return everything for JSON: dataset, positions, and the records with their histograms."""
    axes = statistics.subsets[0].positions.axes
    subsets = [subset for group in group_by_language(statistics.subsets) for subset in group]
    rows = [{**build_record(subset), "histogram": subset.histogram()} for subset in subsets]
    described = {"dataset": statistics.name, "source": statistics.source}
    return {**described, "scheme": axes.scheme, "positions": axes.positions, "rows": rows}


def build_records(statistics: DatasetStatistics) -> list[dict[str, Any]]:
    """Return a record per language, domain and total."""
    return [
        build_record(subset) for group in group_by_language(statistics.subsets) for subset in group
    ]


def build_record(subset: Statistics) -> dict[str, Any]:
    """Return the statistics by name, not rounded; shares in [0, 1], None where undefined."""
    lengths = subset.lengths.summary
    return {
        "language": subset.language,
        "domain": subset.domain,
        "documents": subset.documents.texts,
        "queries": subset.queries.texts,
        "relevant_documents": subset.lengths.texts,
        "length_unit": subset.length_unit,
        **{f"length_{name}": lengths[name] for name in ("25", "50", "75", "max")},
        **{
            f"{name}_{unit}" + ("" if key == "mean" else f"_{key}"): value
            for name, texts in (("query", subset.queries), ("document", subset.documents))
            for unit, counts in texts.units.items()
            for key, value in summarize_lengths(counts).items()
        },
        **{f"queries_{name.lower()}": count for name, count in subset.queries_by_length().items()},
        **{str(kind): share for kind, share in zip(QueryType, _type_shares(subset), strict=True)},
    }


def summarize_lengths(lengths: LengthCounts | None) -> dict[str, float | None]:
    """Return the statistics of lengths by their names in `SUMMARY`; None where they are unknown."""
    return dict.fromkeys(SUMMARY) if lengths is None else lengths.summary


def _type_shares(subset: Statistics) -> list[float | None]:
    """Return the share of queries of each type, in [0, 1]; None if there are no queries."""
    return [
        int(count) / subset.queries.texts if subset.queries.texts else None
        for count in subset.types
    ]


def describe_data(statistics: DatasetStatistics) -> str:
    """Return the size of a dataset in a sentence."""
    total = group_by_language(statistics.subsets)[-1][-1]
    median = format_number(total.lengths.summary["50"], ",.0f")
    return (
        f"{statistics.name}: {total.queries.texts:,} queries on "
        f"{pluralize(total.lengths.texts, 'relevant document')} of "
        f"{total.documents.texts:,}, median {median} {total.length_unit}. {describe_spread(total)}."
    )


def describe_spread(total: Statistics) -> str:
    """Return where the evidence is, without a final stop: the shares of the thirds of documents, or
    the largest bucket.
    """
    axes, counts = total.positions.axes, np.array(total.histogram()[ALL])
    if not counts.any():
        return "No evidence has a position"
    if not axes.equal_bins:
        place = int(counts.argmax())
        return (
            f"The most frequent position is {axes.positions[place]}, "
            f"{format_percent(counts[place] / counts.sum())}%"
        )
    thirds = assign_thirds(len(counts))
    shares = np.bincount(thirds, counts, 3) / counts.sum()
    uneven = np.abs(shares - np.bincount(thirds, minlength=3) / len(counts)).max() > UNEVEN
    first, middle, last = (format_percent(share) for share in shares)
    return (
        f"Evidence is {'not ' if uneven else ''}spread evenly: {first}% in the first third of "
        f"documents, {middle}% in the middle, {last}% in the last"
    )


def build_tables(statistics: DatasetStatistics) -> list[Table]:
    """Return the tables of each language, and of all languages pooled if there are several."""
    tables = []
    for group in group_by_language(statistics.subsets):
        title = (
            f"{statistics.name} · "
            f"{'all languages' if group[0].language == ALL else group[0].language}"
        )
        tables += [
            _sizes(title, group),
            _lengths(title, group),
            _queries(title, group),
            _positions(title, group[-1]),
        ]
    return tables


def _sizes(title: str, group: Sequence[Statistics]) -> Table:
    """Return the numbers and lengths of documents and queries."""
    total = group[-1]
    unit = (
        "words"
        if total.queries.words is not None and total.documents.words is not None
        else "characters"
    )
    counts, lengths = ("Documents", "Queries", "Relevant"), ("25%", "50%", "75%", "longest")
    numbers = (*counts, *lengths, f"{unit}/query", f"{unit}/document")
    return Table(
        build_columns(("Domain", *numbers), numbers),
        tuple(
            (
                subset.domain,
                format_count(subset.documents.texts),
                format_count(subset.queries.texts),
                format_count(subset.lengths.texts),
                *(
                    format_number(value, ",.0f")
                    for value in map(subset.lengths.summary.get, ("25", "50", "75", "max"))
                ),
                *(
                    format_number(summarize_lengths(lengths)["mean"], ",.1f")
                    for lengths in (subset.queries.units[unit], subset.documents.units[unit])
                ),
            )
            for subset in group
        ),
        title=f"{title} · documents and queries; length of the relevant documents in "
        f"{total.length_unit}",
    )


def _lengths(title: str, group: Sequence[Statistics]) -> Table:
    """Return the spread of the lengths of all documents and queries: in tokens if counted, else in
    words or characters.
    """
    total = group[-1]
    known = [
        unit
        for unit in ("tokens", "words", "characters")
        if total.documents.units[unit] and total.queries.units[unit]
    ]
    rows = [
        (
            subset.domain,
            name,
            format_count(texts.texts),
            *(format_number(value, ",.1f") for value in spread.values()),
        )
        for subset in group
        for name, texts in (("documents", subset.documents), ("queries", subset.queries))
        for spread in [summarize_lengths(texts.units[known[0]])]
    ]
    columns = build_columns(("Domain", "Texts", "Number", *LENGTH_HEADINGS), LENGTH_HEADINGS)
    return Table(columns, tuple(rows), title=f"{title} · lengths of all texts in {known[0]}")


def _queries(title: str, group: Sequence[Statistics]) -> Table:
    """Return the queries by length bucket and by type."""
    lengths = group[-1].queries_by_length()
    return Table(
        build_columns(("Domain", *lengths, *QueryType), (*lengths, *QueryType)),
        tuple(
            (
                subset.domain,
                *map(format_count, subset.queries_by_length().values()),
                *(
                    MISSING if share is None else f"{format_percent(share)}%"
                    for share in _type_shares(subset)
                ),
            )
            for subset in group
        ),
        title=f"{title} · queries by "
        f"{'length of the relevant document and by ' if lengths else ''}type",
    )


def _positions(title: str, total: Statistics) -> Table:
    """Return the histogram of evidence positions, with a column per length bucket that has
    queries.
    """
    columns = {
        name: counts for name, counts in total.histogram().items() if name == ALL or any(counts)
    }
    bars = map(_format_bars, columns.values())
    return Table(
        build_columns(("Position", *columns)),
        tuple(zip(total.positions.axes.positions, *bars, strict=True)),
        title=f"{title} · queries by position of the evidence",
    )


def _format_bars(counts: Sequence[int]) -> list[str]:
    """Return each count with a bar in eighths of a character, the longest for the largest; only a
    count of 0 has none.
    """
    most, width = max(*counts, 1), max(len(f"{count:,}") for count in counts)
    lines = []
    for count in counts:
        whole, rest = divmod(max(round(count / most * BAR * len(EIGHTHS)), count > 0), len(EIGHTHS))
        lines.append(
            f"{count:>{width},} {EIGHTHS[-1] * whole}{EIGHTHS[rest - 1] * (rest > 0)}".rstrip()
        )
    return lines


def describe_tables(statistics: DatasetStatistics) -> str:
    """Return an explanation of the tables."""
    unit = statistics.subsets[0].length_unit
    return (
        "Lengths: of the distinct relevant documents, in "
        f"{unit}{' as stated in the data' if unit == 'tokens' else ''}. Types, by a rule of "
        "posir: question, if it ends in a question mark; keywords, if it does not and has at "
        f"most {KEYWORDS} words ({KEYWORDS * CHARACTERS_PER_WORD} characters in a script without "
        "spaces); otherwise statement."
    )


def describe_source(statistics: DatasetStatistics) -> str:
    """Return where the data is from, and how to read the histogram of positions."""
    note = f"Source: {statistics.source}. Bars are scaled to the largest bin of their column."
    if any(
        subset.positions.counts.sum() != subset.positions.queries for subset in statistics.subsets
    ):
        note += (
            " A query in several position buckets is counted in each of them; a query in none is "
            "not shown."
        )
    return note
