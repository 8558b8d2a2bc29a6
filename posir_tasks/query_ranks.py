"""Kept ranks: the rank of every query's relevant document, one small parquet file per model and task.

A profile counts ranks and forgets which query had which; comparing two models query by query needs the ranks themselves.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from pyarrow.lib import ArrowException

from posir_tasks.errors import PosirError
from posir_tasks.evidence import Evidence, Integers
from posir_tasks.files import atomic_write, folder_lock
from posir_tasks.profile import RANKS, PositionProfile, rank_columns
from posir_tasks.schemes import PositionScheme

logger = logging.getLogger(__name__)

#: Version of the file's form. A reader refuses a newer one.
SCHEMA = 1
#: Key of the parquet metadata under which the file says what it is of.
METADATA_KEY = b"posir"
COLUMNS = pl.Schema(
    {
        "subset": pl.String(),
        "query_id": pl.String(),
        "rank": pl.Int32(),
        "length": pl.Int16(),
        "positions": pl.List(pl.Int16()),
    }
)


@dataclass(frozen=True)
class RankFileHeader:
    """What a file of ranks is of: a model, a task, and the scheme whose cells it names."""

    model: str
    revision: str
    task: str
    scheme: str
    """Name of the `PositionScheme`."""
    lengths: tuple[str, ...]
    """Names of the length buckets."""
    positions: tuple[str, ...]
    """Names of the position bins."""


@dataclass(frozen=True, eq=False)
class QueryRanks:
    """The ranks of one model on one task, query by query."""

    of: RankFileHeader
    table: pl.DataFrame
    """One row per query: `subset`, `query_id`, `rank` (from 1, 0 where the relevant document is not among the results),
    `length` (index of the length bucket), `positions` (indices of the position bins, several for a query on a shared
    boundary, none for one in no bin)."""

    @property
    def subsets(self) -> frozenset[str]:
        """The subsets that are kept."""
        return frozenset(self.table["subset"].unique())

    def of_subset(self, subset: str) -> pl.DataFrame:
        """Return the rows of one subset."""
        return self.table.filter(pl.col("subset") == subset)

    def profile(self, subset: str) -> PositionProfile:
        """Return the profile that one subset's ranks make: the one in the result of the same run."""
        rows = self.of_subset(subset).with_columns(pl.Series("column", rank_columns(self.of_subset(subset)["rank"].to_numpy())))
        cells = rows.explode("positions").drop_nulls("positions")
        counts = np.zeros((len(self.of.lengths), len(self.of.positions), len(RANKS)), np.int64)
        np.add.at(counts, tuple(cells[name].to_numpy() for name in ("length", "positions", "column")), 1)
        totals = np.zeros((len(self.of.lengths), len(RANKS)), np.int64)
        np.add.at(totals, (rows["length"].to_numpy(), rows["column"].to_numpy()), 1)
        return PositionProfile(self.of.scheme, self.of.lengths, self.of.positions, counts, totals)


def ranks_path(folder: Path, model_name: str, revision: str, task: str) -> Path:
    """Return the file of a model's ranks on a task: `<folder>/<org>__<model>/<revision>/<task>_ranks.parquet`.

    As in mteb's results, `/` becomes `__` and a space `_`, so that no name leads out of the folder.

    Raises:
        PosirError: A name is no name of a file.
    """
    return folder / _file_name(model_name) / _file_name(revision) / f"{_file_name(task)}_ranks.parquet"


def _file_name(name: str) -> str:
    safe = name.replace("/", "__").replace(" ", "_")
    if safe in ("", ".", "..") or set(safe) & set("\\:\0"):
        raise PosirError(
            f"'{name}' cannot be part of a file's name: names of models, revisions and tasks are not empty, not '.' or '..', "
            "and have no backslash, colon or null character. Rename it."
        )
    return safe


def save_ranks(
    folder: Path,
    model_name: str,
    revision: str,
    task: str,
    subset: str,
    scheme: PositionScheme,
    evidence: Evidence,
    ranks: Integers,
) -> Path:
    """Keep the ranks of one subset beside those of the task's other subsets; the file is written whole or not at all.

    A subset that is kept already is replaced. A file that cannot be read, or whose cells are of another scheme, is replaced
    as a whole, with a warning: the run that made these ranks has been paid for.

    Args:
        folder: The `--prediction-folder` of `mteb run`.
        model_name: Full name, such as `Qwen/Qwen3-Embedding-0.6B`.
        revision: Of the model.
        task: Name of the task.
        subset: Name of the subset.
        scheme: Says in which cells each query lies.
        evidence: Of n queries.
        ranks: Rank of the relevant document of each query, from 1; 0 where it is not among the results. Shape (n,).

    Returns:
        The file.

    Raises:
        PosirError: A name is no name of a file.
    """
    file = ranks_path(folder, model_name, revision, task)
    of = RankFileHeader(model_name, revision, task, scheme.name, scheme.lengths, scheme.positions)
    rows = _rows(subset, scheme, evidence, ranks)
    with folder_lock(file.parent):
        others = _other_subsets(file, of, subset)
        _write(file, QueryRanks(of, rows if others is None else pl.concat([others, rows]).sort("subset", maintain_order=True)))
    return file


def _rows(subset: str, scheme: PositionScheme, evidence: Evidence, ranks: Integers) -> pl.DataFrame:
    cells = scheme.cells(evidence)
    memberships = pl.DataFrame({"row": cells.query, "positions": cells.position})
    queries = pl.DataFrame(
        {
            "row": np.arange(len(evidence)),
            "subset": [subset] * len(evidence),
            "query_id": evidence.query_ids,
            "rank": ranks,
            "length": scheme.length_of(evidence),
        }
    )
    positions = memberships.group_by("row", maintain_order=True).agg("positions")
    joined = queries.join(positions, on="row", how="left", maintain_order="left")
    return joined.select(pl.col(name).cast(kind) for name, kind in COLUMNS.items()).with_columns(
        pl.col("positions").fill_null(pl.lit([], COLUMNS["positions"]))
    )


def _other_subsets(file: Path, of: RankFileHeader, subset: str) -> pl.DataFrame | None:
    if not file.exists():
        return None
    try:
        kept = read_ranks(file)
    except PosirError as error:
        logger.warning("%s The file is written anew.", error)
        return None
    if kept.of != of:
        was, now = (f"{one.model}, revision {one.revision}, scheme {one.scheme}" for one in (kept.of, of))
        logger.warning("%s: its ranks are of %s; these are of %s. The file is written anew.", file, was, now)
        return None
    return kept.table.filter(pl.col("subset") != subset)


def _write(file: Path, kept: QueryRanks) -> None:
    of = json.dumps({"schema": SCHEMA, **vars(kept.of)}).encode()
    with atomic_write(file) as part:
        pq.write_table(kept.table.to_arrow().replace_schema_metadata({METADATA_KEY: of}), part, compression="zstd")


def read_ranks(file: Path) -> QueryRanks:
    """Read kept ranks.

    Raises:
        PosirError: There is no such file, or it is damaged, of another kind or newer than this program.
    """
    try:
        table = pq.read_table(file)
        of = json.loads((table.schema.metadata or {})[METADATA_KEY])
        if of["schema"] > SCHEMA:
            raise PosirError(
                f"{file}: these ranks have schema {of['schema']}; this version of posir reads up to {SCHEMA}. Update it: "
                "pip install -U posir"
            )
        kept = QueryRanks(
            RankFileHeader(
                model=str(of["model"]),
                revision=str(of["revision"]),
                task=str(of["task"]),
                scheme=str(of["scheme"]),
                lengths=tuple(map(str, of["lengths"])),
                positions=tuple(map(str, of["positions"])),
            ),
            pl.DataFrame(table).select(pl.col(name).cast(kind) for name, kind in COLUMNS.items()),
        )
        _check_cells(kept)
    except (OSError, ArrowException, pl.exceptions.PolarsError, ValueError, KeyError, TypeError) as error:
        raise PosirError(
            f"{file}: no file of kept ranks ({type(error).__name__}: {error}). Such files are written by `mteb run "
            "--prediction-folder FOLDER`; remove this one or run again."
        ) from error
    return kept


def _check_cells(kept: QueryRanks) -> None:
    """Raise ValueError where a row is incomplete or in a cell that the scheme does not have."""
    columns = {"length": kept.table["length"], "positions": kept.table["positions"].explode().drop_nulls()}
    for name, known in (("length", kept.of.lengths), ("positions", kept.of.positions)):
        if not columns[name].is_between(0, len(known) - 1).all():
            raise ValueError(f"column '{name}' has an index outside 0 to {len(known) - 1}")
    if sum(kept.table.null_count().row(0)):
        raise ValueError("a row has an empty field")
