"""Reading CSV files that users write, or that spreadsheets saved."""

import csv
from collections.abc import Sequence
from pathlib import Path

from posir_tasks.errors import DataError, summarize_error


def read_csv_rows(file: Path, columns: Sequence[str], expected: str) -> list[dict[str, str]]:
    """Return the given columns of a CSV file, stripped, by row; cells are separated by commas or semicolons.

    Args:
        file: The file, in UTF-8.
        columns: Columns that it must have; others are left out.
        expected: What the file must be, for the message, such as `a file with the columns model,score`.

    Raises:
        DataError: The file cannot be read, or lacks a column.
    """
    try:
        with file.open(encoding="utf-8-sig", newline="") as opened:
            heading = opened.readline()
            opened.seek(0)
            reader = csv.DictReader(opened, delimiter=";" if heading.count(";") >= len(columns) - 1 else ",")
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file}: cannot be read as CSV in UTF-8 ({summarize_error(error)}). Expected {expected}.") from error
    missing = [column for column in columns if column not in (reader.fieldnames or ())]
    if missing:
        raise DataError(f"{file}: no column {', '.join(missing)}. Expected {expected}.")
    return [{column: (row[column] or "").strip() for column in columns} for row in rows]
