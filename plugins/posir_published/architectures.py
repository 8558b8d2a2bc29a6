"""Architectures of models: positional encoding, attention and pooling, of those in the papers and of one's own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from posir_published.scores import read_rows
from posir_tasks.csv_files import read_csv_rows

#: The columns of a file of one's own.
COLUMNS = ("model", "positional_encoding", "attention", "pooling")


class Kind(StrEnum):
    """Property that models are grouped by."""

    POSITIONAL_ENCODING = "positional_encoding"
    ATTENTION = "attention"
    POOLING = "pooling"


@dataclass(frozen=True)
class Architecture:
    """The architecture of a model; an empty string is unknown."""

    positional_encoding: str
    """`APE`, `RoPE`, `ALiBi` or `none`."""
    attention: str
    """`bidirectional` or `causal`."""
    pooling: str
    """`CLS`, `mean` or `last`."""
    source: str = ""


def short_name(model: str) -> str:
    """Return the name under which a model is looked up: without organization and settings, in lower case."""
    return model.split(" (")[0].split("/")[-1].casefold()


@cache
def read_architectures() -> Mapping[str, Architecture]:
    """Return the architectures in this package by `short_name`; `architectures.csv` names the source of each."""
    return _by_model(read_rows("architectures.csv"))


def read_architecture_file(file: Path) -> Mapping[str, Architecture]:
    """Return the architectures of a CSV file with `COLUMNS`, by `short_name`.

    Raises:
        DataError: The file cannot be read, or lacks a column.
    """
    return _by_model(read_csv_rows(file, COLUMNS, f"a file with the columns {','.join(COLUMNS)}"))


def _by_model(rows: Iterable[Mapping[str, str]]) -> dict[str, Architecture]:
    return {
        short_name(row["model"]): Architecture(
            row["positional_encoding"], row["attention"], row["pooling"], row.get("source", "")
        )
        for row in rows
    }
