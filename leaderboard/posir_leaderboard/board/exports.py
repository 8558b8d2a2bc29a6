"""Everything as files: a line per model, task and length, and a line per position bin."""

import csv
import gzip
import io
from collections.abc import Iterable, Sequence
from typing import Any

from posir_leaderboard.board.columns import column_names
from posir_leaderboard.board.records import CELL, BoardRecord
from posir_report.columns import known_columns

#: What names a line.
RUN = ("model", "revision", "published", "task", "data_revision", "length")
#: A spreadsheet would run a text that starts with one of these as a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def scores_csv(records: Iterable[BoardRecord]) -> bytes:
    """Return every declared score of every model, task and length."""
    names = [name for column in known_columns() for name in column_names(column)]
    rows = ((record, length, row.columns()) for record in records for length, row in record.rows_by_length.items())
    lines = ((*_run(record, length), *(_cell(columns.get(name)) for name in names)) for record, length, columns in rows)
    return _compressed((*RUN, *names), lines)


def positions_csv(records: Iterable[BoardRecord]) -> bytes:
    """Return nDCG@10, its interval, the null band and the queries of every position bin of every model, task and length."""
    lines = (
        (*_run(record, row.length), position, *(panel[name][place] for name in CELL))
        for record in records
        for row, panel in zip(record.rows, record.detail["panels"], strict=False)
        if panel
        for place, position in enumerate(record.detail["positions"])
    )
    return _compressed((*RUN, "position", *CELL), lines)


def _run(record: BoardRecord, length: str) -> tuple[Any, ...]:
    model = record.model
    return (
        _inert(model.name),
        _inert(model.revision),
        model.published,
        _inert(record.task),
        record.detail["data_revision"],
        length,
    )


def _cell(value: Any) -> Any:
    return _inert(value) if isinstance(value, str) else value


def _inert(text: str) -> str:
    """Return a text that a spreadsheet shows as it is."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return f"'{text}" if text.startswith(FORMULA) else text


def _compressed(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows(lines)
    return gzip.compress(text.getvalue().encode(), compresslevel=6, mtime=0)
