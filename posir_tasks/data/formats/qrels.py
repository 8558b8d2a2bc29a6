"""Read TREC qrels, with a query, an iteration, a document and a grade per line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from reprlib import repr as short_repr

from posir_tasks.base.errors import DataError
from posir_tasks.base.files import iterate_lines, open_decompressed, split_suffix
from posir_tasks.base.wording import sanitize
from posir_tasks.data.formats.passages import SkippedItem
from posir_tasks.data.formats.records import convert_errors, read_lines
from posir_tasks.data.grades import CollectedGrades, collect_grades, read_grade

QRELS_LINE = re.compile(rb"\s*\S+\s+\S+\s+\S+\s+[+-]?[\d.]+([eE][+-]?\d+)?\s*")
WITHOUT_GRADE = re.compile(rb"\s*\S+\s+Q?0\s+\S+\s*")
#: Number of lines to examine to recognize qrels.
MAX_LINES = 20
QRELS_NAME = re.compile(r"qrels?($|[^a-z])", re.IGNORECASE)
#: Suffixes of other formats.
OTHER_SUFFIXES = (".json", ".jsonl", ".ndjson", ".parquet", ".csv", ".tsv", ".md", ".html", ".pdf")
CELLS = 4
FORM = "query, iteration, document and grade, a number"
COMMENT = "#"


def split_lines(file: Path, columns: int, separator: str | None = None) -> Iterator[list[str]]:
    """Yield the cells of each line; raise DataError unless a line has `columns` cells."""
    for number, line in _read_lines(file):
        cells = line.strip().split(separator)
        if len(cells) != columns:
            problem = f"{len(cells)} cells ({sanitize(line.strip())}) instead of {columns}."
            raise DataError(f"{file}: line {number}: {problem}")
        yield cells


def _read_lines(file: Path) -> Iterator[tuple[int, str]]:
    with convert_errors(file, "", FORM):
        for number, line in read_lines(file, f"{file.name}:"):
            if isinstance(line, SkippedItem):
                raise DataError(f"{file}: line {number}: {line.reason} ({line.detail}).")
            yield number, line


def is_qrels(file: Path) -> bool:
    """Return True if the name of a file or most of its first lines look like qrels."""
    with convert_errors(file, "", "lines of text"), open_decompressed(file) as content:
        lines = [line for line in islice(iterate_lines(content, file), MAX_LINES) if line.strip()]
    rows = [line for line in lines if QRELS_LINE.fullmatch(line) or WITHOUT_GRADE.fullmatch(line)]
    comments = [line for line in lines if line.startswith(COMMENT.encode())]
    if 2 * len(rows) > len(lines) - len(comments):
        return True
    return split_suffix(file)[1] not in OTHER_SUFFIXES and bool(QRELS_NAME.search(file.name))


def check_qrels(file: Path) -> None:
    """Raise DataError if a file contains no judgment or a malformed line."""
    number = 0
    for number, line in _read_lines(file):
        if QRELS_LINE.fullmatch(line.encode()):
            continue
        quotation = sanitize(line.strip())
        raise DataError(f"{file}: line {number}: not a judgment ({quotation}). Expected: {FORM}.")
    if not number:
        raise DataError(f"{file}: has no judgment. Each line needs {FORM}.")


def read_qrels(*files: Path) -> CollectedGrades:
    """Read the grades in TREC qrels; raise DataError if a grade is not a number."""
    rows = []
    for file in files:
        for query, _, document, value in split_lines(file, CELLS):
            try:
                rows.append((query, document, read_grade(value)))
            except ValueError as error:
                location = f"{file}: query {query}, document {document}"
                raise DataError(f"{location}: grade {short_repr(value)} {error}.") from error
    return collect_grades(rows)
