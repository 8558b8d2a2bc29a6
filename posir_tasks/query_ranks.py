"""Per-query ranks: what `mteb run --prediction-folder` saves, one small parquet file per model and task.

A profile counts ranks without the queries; comparing two models query by query needs the ranks themselves.
"""

import json
import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from pyarrow.lib import ArrowException
from pydantic import TypeAdapter

from posir_tasks.errors import PosirError, check_schema, summarize_error
from posir_tasks.evidence import Evidence, Integers
from posir_tasks.files import atomic_write, folder_lock
from posir_tasks.profile import RANKS, PositionProfile, rank_columns
from posir_tasks.results import EXPERIMENTS, sanitize_names
from posir_tasks.schemes import Axes, PositionScheme

logger = logging.getLogger(__name__)

#: Version of the file's header. A reader refuses a newer one.
SCHEMA = 1
#: Key of the parquet metadata that holds the header.
METADATA_KEY = b"posir"
COLUMNS = pl.Schema(
    {"subset": pl.String(), "query_id": pl.String(), "rank": pl.Int32(), "length": pl.Int16(), "positions": pl.List(pl.Int16())}
)


@dataclass(frozen=True)
class RankFileHeader:
    """The run that a file of per-query ranks belongs to, and the axes that its cells refer to."""

    model: str
    revision: str
    task: str
    axes: Axes


HEADER = TypeAdapter(RankFileHeader)


@dataclass(frozen=True, eq=False)
class QueryRanks:
    """The ranks of one model on one task, query by query."""

    header: RankFileHeader
    table: pl.DataFrame
    """One row per query: `subset`, `query_id`, `rank` (from 1, 0 where the relevant document is not among the results),
    `length` (index of the length bucket), `positions` (indices of the position bins: several for a query on a shared
    boundary, none for a query in no bin)."""

    @property
    def subsets(self) -> frozenset[str]:
        """Names of the subsets in the table."""
        return frozenset(self.table["subset"].unique())

    def select_subset(self, subset: str) -> pl.DataFrame:
        """Return the rows of one subset."""
        return self.table.filter(pl.col("subset") == subset)

    def profile(self, subset: str) -> PositionProfile:
        """Return the profile of one subset's ranks, equal to the one in the run's result."""
        axes, rows = self.header.axes, self.select_subset(subset)
        rows = rows.with_columns(pl.Series("column", rank_columns(rows["rank"].to_numpy())))
        cells = rows.explode("positions").drop_nulls("positions")
        counts = np.zeros((len(axes.lengths), len(axes.positions), len(RANKS)), np.int64)
        np.add.at(counts, tuple(cells[name].to_numpy() for name in ("length", "positions", "column")), 1)
        totals = np.zeros((len(axes.lengths), len(RANKS)), np.int64)
        np.add.at(totals, (rows["length"].to_numpy(), rows["column"].to_numpy()), 1)
        return PositionProfile(axes, counts, totals)


def query_ranks_path(folder: Path, model_name: str, revision: str, task: str, experiment: str | None = None) -> Path:
    """Return the path of a model's ranks on a task: `<folder>/<org>__<model>/<revision>/<task>_ranks.parquet`.

    As in mteb's results, `/` becomes `__` and a space `_`, so that no name leads out of the folder, and a model with other
    settings than its own (`experiment_kwargs`) has the folder `<revision>/experiments/<experiment>`.

    Raises:
        PosirError: A name cannot be part of a file name.
    """
    settings = (EXPERIMENTS, _file_name(experiment)) if experiment else ()
    return folder.joinpath(_file_name(model_name), _file_name(revision), *settings, f"{_file_name(task)}_ranks.parquet")


def _file_name(name: str) -> str:
    safe = name.replace("/", "__").replace(" ", "_")
    if safe in ("", ".", "..") or set(safe) & set("\\:\0"):
        raise PosirError(
            f"'{name}' cannot be part of a file name: names of models, revisions and tasks are not empty, not '.' or '..', "
            "and have no backslash, colon or null character. Rename it."
        )
    return safe


def save_query_ranks(
    folder: Path,
    model_name: str,
    revision: str,
    task: str,
    subset: str,
    scheme: PositionScheme,
    evidence: Evidence,
    ranks: Integers,
    *,
    experiment: str | None = None,
) -> Path:
    """Save the ranks of one subset into the task's file, atomically; ranks of the same subset are replaced.

    A file that cannot be read, or that belongs to another scheme, is replaced with a warning: losing it is better than losing
    a finished run.

    Args:
        folder: The `--prediction-folder` of `mteb run`.
        model_name: Full name, such as `Qwen/Qwen3-Embedding-0.6B`.
        revision: Of the model.
        task: Name of the task.
        subset: Name of the subset.
        scheme: Assigns queries to cells.
        evidence: Of n queries.
        ranks: Rank of the relevant document of each query, from 1; 0 where it is not among the results. Shape (n,).
        experiment: mteb's name of the model's settings, None if they are its own.

    Returns:
        The file.

    Raises:
        PosirError: A name cannot be part of a file name.
    """
    file = query_ranks_path(folder, model_name, revision, task, experiment)
    header = RankFileHeader(model_name, revision, task, scheme.axes)
    rows = _build_rows(subset, scheme, evidence, ranks)
    with folder_lock(file.parent):
        others = _read_other_subsets(file, header, subset)
        table = rows if others is None else pl.concat([others, rows]).sort("subset", maintain_order=True)
        metadata = {METADATA_KEY: json.dumps({"schema": SCHEMA, **HEADER.dump_python(header)})}
        with atomic_write(file) as part:
            pq.write_table(table.to_arrow().replace_schema_metadata(metadata), part, compression="zstd")
    return file


def _build_rows(subset: str, scheme: PositionScheme, evidence: Evidence, ranks: Integers) -> pl.DataFrame:
    cells = scheme.cells(evidence)
    memberships = pl.DataFrame({"row": cells.query, "positions": cells.position})
    queries = pl.DataFrame(
        {
            "row": np.arange(len(evidence)),
            "subset": [subset] * len(evidence),
            "query_id": evidence.query_ids,
            "rank": ranks,
            "length": scheme.length_buckets(evidence),
        }
    )
    positions = memberships.group_by("row", maintain_order=True).agg("positions")
    joined = queries.join(positions, on="row", how="left", maintain_order="left")
    return joined.select(pl.col(name).cast(kind) for name, kind in COLUMNS.items()).with_columns(
        pl.col("positions").fill_null(pl.lit([], COLUMNS["positions"]))
    )


def _read_other_subsets(file: Path, header: RankFileHeader, subset: str) -> pl.DataFrame | None:
    if not file.exists():
        return None
    try:
        old = read_query_ranks(file)
    except PosirError as error:
        logger.warning("%s Replacing the file.", error)
        return None
    if old.header != header:
        before, now = (f"{run.model}, revision {run.revision}, scheme {run.axes.scheme}" for run in (old.header, header))
        logger.warning("%s: holds ranks of %s; replacing it by those of %s", file, before, now)
        return None
    return old.table.filter(pl.col("subset") != subset)


def read_query_ranks(file: Path) -> QueryRanks:
    """Read a file of per-query ranks.

    Raises:
        PosirError: The file is missing, damaged, of another kind or of a newer schema.
    """
    try:
        table = pq.read_table(file)
        header = json.loads((table.schema.metadata or {})[METADATA_KEY])
        check_schema(header["schema"], SCHEMA, f"{file}: this file of per-query ranks")
        ranks = QueryRanks(
            HEADER.validate_python(sanitize_names(header)),
            pl.DataFrame(table).select(pl.col(name).cast(kind) for name, kind in COLUMNS.items()),
        )
        _check_cells(ranks)
    except (OSError, ArrowException, pl.exceptions.PolarsError, ValueError, KeyError, TypeError) as error:
        raise PosirError(
            f"{file}: not a file of per-query ranks ({summarize_error(error)}). Such files are written by `mteb run "
            "--prediction-folder FOLDER`; remove this one or run again."
        ) from error
    return ranks


def _check_cells(ranks: QueryRanks) -> None:
    """Raise ValueError if a row is incomplete or lies in a cell that the scheme does not have."""
    columns = {"length": ranks.table["length"], "positions": ranks.table["positions"].explode().drop_nulls()}
    for name, known in (("length", ranks.header.axes.lengths), ("positions", ranks.header.axes.positions)):
        if not columns[name].is_between(0, len(known) - 1).all():
            raise ValueError(f"column '{name}' has an index outside 0 to {len(known) - 1}")
    if sum(ranks.table.null_count().row(0)):
        raise ValueError("a row has an empty field")
