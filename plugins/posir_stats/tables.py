"""Tables and records of dataset statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from posir_tasks.base.wording import pluralize
from posir_tasks.datasets.statistics import (
    ALL,
    CHARACTERS_PER_WORD,
    MAX_KEYWORDS,
    SUMMARY_KEYS,
    QueryType,
    Statistics,
    group_by_language,
    summarize_lengths,
)
from posir_tasks.display.labels import Term, Title
from posir_tasks.display.numbers import (
    HORIZONTAL_BARS,
    format_count,
    format_number,
    format_percent,
)
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.values.schemes import assign_thirds

#: Headings of the length statistics.
LENGTH_HEADINGS = ("Mean", "SD", "Min", "25%", "50%", "75%", "Max")
#: The spread of the evidence is uneven if the share in any third deviates by more than this.
MAX_DEVIATION = 0.05
#: Length of the longest bar in characters.
MAX_BAR_LENGTH = 8
POSITIONS_TITLE = "Queries by position of the evidence"
#: Heading, record key and number format of each column.
ColumnSpecs = Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class DatasetStatistics:
    """The statistics of a dataset."""

    name: str
    source: str
    """Location and revision of the data."""
    subsets: Sequence[Statistics]
    """Subsets ordered by language."""

    @cached_property
    def groups(self) -> list[list[Statistics]]:
        """Subsets by language. Each group ends with its total; the last one is the grand total."""
        return group_by_language(self.subsets)

    def title_group(self, group: Sequence[Statistics], contents: str) -> Title:
        """Title a table of a group: the dataset, then the language and the contents."""
        language = group[0].language
        name = "all languages" if language == ALL else language
        return Title(self.name, f"{name} · {contents}")


def build_document(statistics: DatasetStatistics) -> dict[str, Any]:
    """Build the JSON document: dataset, positions, and records with histograms."""
    axes = statistics.subsets[0].positions.axes
    return {
        "dataset": statistics.name,
        "source": statistics.source,
        "scheme": axes.scheme,
        "positions": axes.positions,
        "rows": [
            {**build_record(subset), "histogram": subset.count_positions()}
            for group in statistics.groups
            for subset in group
        ],
    }


def build_records(statistics: DatasetStatistics) -> list[dict[str, Any]]:
    """Build records for each language and domain, and for totals."""
    return [build_record(subset) for group in statistics.groups for subset in group]


def build_record(subset: Statistics) -> dict[str, Any]:
    """Return the unrounded statistics by name. Shares are in [0, 1]; undefined values are None."""
    lengths = summarize_lengths(subset.lengths)
    queries = subset.queries.texts
    record: dict[str, Any] = {
        "language": subset.language,
        "domain": subset.domain,
        "documents": subset.documents.texts,
        "queries": queries,
        "relevant_documents": subset.lengths.total(),
        "length_unit": subset.length_unit,
        **{f"length_{name}": lengths[name] for name in ("25", "50", "75", "max")},
    }
    for name, texts in (("query", subset.queries), ("document", subset.documents)):
        for unit, counts in texts.lengths.items():
            mean, *spread = summarize_lengths(counts).items()
            record[f"{name}_{unit}"] = mean[1]
            record |= {f"{name}_{unit}_{key}": value for key, value in spread}
    for name, count in subset.count_by_length().items():
        record[f"queries_{name.lower()}"] = count
    for kind, count in zip(QueryType, subset.types.tolist(), strict=True):
        record[str(kind)] = count / queries if queries else None
    return record


def describe_data(statistics: DatasetStatistics) -> str:
    """Describe the size of a dataset and the spread of its evidence."""
    total = statistics.groups[-1][-1]
    median = format_number(summarize_lengths(total.lengths)["50"], ",.0f")
    return (
        f"{statistics.name}: {total.queries.texts:,} queries on "
        f"{pluralize(total.lengths.total(), 'relevant document')} of "
        f"{total.documents.texts:,}, median {median} {total.length_unit}. {describe_spread(total)}."
    )


def describe_spread(total: Statistics) -> str:
    """Describe the spread of the evidence, without a final period: the share of each document
    third, or the largest bucket.
    """
    axes = total.positions.axes
    counts = np.array(total.count_positions()[ALL])
    if not counts.any():
        return "No evidence has a position"
    if not axes.equal_bins:
        largest = int(counts.argmax())
        share = format_percent(counts[largest] / counts.sum())
        return f"The most frequent position is {axes.positions[largest]}, {share}%"
    thirds = assign_thirds(len(counts))
    shares = np.bincount(thirds, counts, 3) / counts.sum()
    even_shares = np.bincount(thirds, minlength=3) / len(counts)
    is_uneven = np.abs(shares - even_shares).max() > MAX_DEVIATION
    first, middle, last = map(format_percent, shares)
    return (
        f"Evidence is {'not ' if is_uneven else ''}spread evenly: {first}% in the first "
        f"third of documents, {middle}% in the middle, {last}% in the last"
    )


def build_tables(statistics: DatasetStatistics) -> list[Table]:
    """Build the tables for each language, and for all languages pooled if there are several."""
    tables = []
    for group in statistics.groups:
        entitle = partial(statistics.title_group, group)
        total = group[-1]
        records = [build_record(subset) for subset in group]
        units = [
            unit
            for unit in ("tokens", "words", "characters")
            if total.documents.lengths[unit] and total.queries.lengths[unit]
        ]
        unit = "words" if "words" in units else "characters"
        sizes: ColumnSpecs = [
            ("Documents", "documents", ",.0f"),
            ("Queries", "queries", ",.0f"),
            ("Relevant", "relevant_documents", ",.0f"),
            ("25%", "length_25", ",.0f"),
            ("50%", "length_50", ",.0f"),
            ("75%", "length_75", ",.0f"),
            ("longest", "length_max", ",.0f"),
            (f"{unit}/query", f"query_{unit}", ",.1f"),
            (f"{unit}/document", f"document_{unit}", ",.1f"),
        ]
        buckets = total.count_by_length()
        queries: ColumnSpecs = [
            *((name, f"queries_{name.lower()}", ",.0f") for name in buckets),
            *((kind, kind, ".1%") for kind in QueryType),
        ]
        relevant = f"length of the relevant documents in {total.length_unit}"
        grouping = f"{'length of the relevant document and by ' if buckets else ''}type"
        tables += [
            _tabulate(entitle(f"documents and queries; {relevant}"), records, sizes),
            _tabulate_lengths(entitle(f"lengths of all texts in {units[0]}"), records, units[0]),
            _tabulate(entitle(f"queries by {grouping}"), records, queries),
        ]
    return tables


def build_position_tables(statistics: DatasetStatistics) -> list[Table]:
    """Build a histogram of evidence positions for each language, and for all languages if there are
    several.
    """
    contents = f"{POSITIONS_TITLE[0].lower()}{POSITIONS_TITLE[1:]}"
    return [
        _tabulate_positions(statistics.title_group(group, contents), group[-1])
        for group in statistics.groups
    ]


def _tabulate(title: str, records: Sequence[Mapping[str, Any]], columns: ColumnSpecs) -> Table:
    rows = [
        (record["domain"], *(format_number(record[key], spec) for _, key, spec in columns))
        for record in records
    ]
    headings = [heading for heading, _, _ in columns]
    return Table(build_columns(("Domain", *headings), headings), tuple(rows), title=title)


def _tabulate_lengths(title: str, records: Sequence[Mapping[str, Any]], unit: str) -> Table:
    rows = []
    for record in records:
        for name, texts in (("document", "documents"), ("query", "queries")):
            keys = [f"{name}_{unit}", *(f"{name}_{unit}_{key}" for key in SUMMARY_KEYS[1:])]
            lengths = (format_number(record[key], ",.1f") for key in keys)
            rows.append((record["domain"], texts, format_count(record[texts]), *lengths))
    numbers = ("Number", *LENGTH_HEADINGS)
    columns = build_columns(("Domain", "Texts", *numbers), numbers)
    return Table(columns, tuple(rows), title=title)


def _tabulate_positions(title: str, total: Statistics) -> Table:
    columns = {
        name: counts
        for name, counts in total.count_positions().items()
        if name == ALL or any(counts)
    }
    bars = map(_format_bars, columns.values())
    return Table(
        build_columns(("Position", *columns)),
        tuple(zip(total.positions.axes.positions, *bars, strict=True)),
        title=title,
    )


def _format_bars(counts: Sequence[int]) -> list[str]:
    """Format each count with a bar in eighths of a character, scaled to the largest count. Bars of
    counts above 0 have at least one eighth.
    """
    largest = max(*counts, 1)
    width = len(f"{largest:,}")
    lines = []
    for count in counts:
        blocks, eighths = divmod(
            max(round(count / largest * MAX_BAR_LENGTH * 8), int(count > 0)), 8
        )
        rest = HORIZONTAL_BARS[eighths - 1] if eighths else ""
        bar = HORIZONTAL_BARS[-1] * blocks + rest
        lines.append(f"{count:>{width},} {bar}".rstrip())
    return lines


def describe_tables(statistics: DatasetStatistics) -> str:
    """Explain the tables."""
    unit = statistics.subsets[0].length_unit
    return (
        "Lengths refer to the distinct relevant documents, in "
        f"{unit}{', as declared in the data' if unit == 'tokens' else ''}. Query types follow "
        "posir's own rule: a question ends in a question mark; other queries are keywords if they "
        f"have at most {MAX_KEYWORDS} words ({MAX_KEYWORDS * CHARACTERS_PER_WORD} characters in a "
        "script without spaces), else statements."
    )


def describe_source(statistics: DatasetStatistics) -> Term:
    """Name the data source, and explain the position histogram."""
    note = f"{statistics.source}. Bars are scaled to the largest bin of their column."
    profiles = [subset.positions for subset in statistics.subsets]
    if any(profile.counts.sum() != profile.queries for profile in profiles):
        note += (
            " A query in several position buckets counts in each of them; a query without a bucket "
            "is not shown."
        )
    return Term("Source", note)
