"""Columnar storage for a run's hits, which avoids millions of objects."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from posir_score.hits import MAX_RANK_DIGITS, Hit, OrderChoice
from posir_score.orders import OrderCheck
from posir_tasks.base.table_files import parse_columns

#: Columns of a regular TREC run.
COLUMN_TYPES: dict[str, type[pl.DataType]] = {
    "query": pl.Categorical,
    "Q0": pl.Categorical,
    "document": pl.Categorical,
    "rank": pl.Categorical,
    "score": pl.Float64,
    "tag": pl.Categorical,
}
#: Ids that all run file readers parse in the same way.
ID_PATTERN = r"^[^\s\x00-\x20]+$"
#: Ranks that polars and `read_rank` parse in the same way.
RANK_PATTERN = rf"^\+?[0-9]{{1,{MAX_RANK_DIGITS}}}$"


@dataclass(frozen=True, eq=False)
class RankedHits(Collection[Hit]):
    """The hits of a query, best first, in columns. Iterating builds `Hit` objects."""

    lines: pl.DataFrame
    """The hits of all queries, with columns `document`, `score` and `rank`."""
    rows: slice
    """The rows of this query."""
    is_strict: bool
    """True if the scores strictly decrease in float32."""

    def __len__(self) -> int:
        return int(self.rows.stop - self.rows.start)

    def __iter__(self) -> Iterator[Hit]:
        return map(Hit, *(self._read(name) for name in ("document", "score", "rank")))

    def __contains__(self, hit: object) -> bool:
        return hit in [*self]

    def _read(self, name: str) -> list[Any]:
        return self.lines[name][self.rows].to_list()

    def get_top_scores(self, corpus: Collection[str], depth: int) -> dict[str, float] | None:
        """Return the scores of the first `depth` documents. Return None if there are ties, repeated
        documents or unknown documents.
        """
        if not self.is_strict:
            return None
        ids = self._read("document")
        distinct = frozenset(ids)
        if len(distinct) < len(ids) or not all(map(corpus.__contains__, ids)):
            return None
        return dict(zip(ids[:depth], self._read("score")[:depth], strict=True))


@dataclass(frozen=True)
class RunColumns:
    """The lines of a run, with columns `query`, `document`, `rank` and `score`."""

    lines: pl.DataFrame

    @classmethod
    def parse(cls, content: bytes) -> RunColumns | None:
        """Parse a TREC run. Return None unless every line has six columns with single separators,
        an integer rank and a finite score.
        """
        separator = "\t" if b"\t" in content else " "
        content = content.removeprefix(BOM_UTF8)
        # Strip only if necessary, since it copies the content.
        if content[:1].isspace() or content[-2:].isspace():
            content = content.strip().replace(b"\r\n", b"\n")
        return cls._parse(content, COLUMN_TYPES, separator)

    @classmethod
    def parse_table(cls, content: bytes, names: Sequence[str], separator: str) -> RunColumns | None:
        """Parse the data rows of an unquoted table, without its header. Columns that `lines` does
        not have are ignored. Return None unless every cell has a value, every rank is an
        integer and every score is finite.
        """
        types = {name: COLUMN_TYPES.get(name, pl.String) for name in names}
        return cls._parse(content, types, separator)

    @classmethod
    def _parse(
        cls, content: bytes, types: Mapping[str, type[pl.DataType]], separator: str
    ) -> RunColumns | None:
        lines = parse_columns(content, types, separator)
        if lines is None:
            return None
        if "rank" in types:
            if not lines["rank"].unique().cast(pl.String).str.contains(RANK_PATTERN).all():
                return None
            lines = lines.with_columns(pl.col("rank").cast(pl.String).cast(pl.Int64))
        return cls.from_lines(lines, ID_PATTERN)

    @classmethod
    def from_lines(cls, lines: pl.DataFrame, id_pattern: str) -> RunColumns | None:
        """Build from parsed lines. Return None unless ids match the pattern, ranks are not negative
        and scores are finite.

        Args:
            lines: The columns `query`, `document`, `score` and possibly `rank` of `COLUMN_TYPES`.
            id_pattern: Pattern of ids that a row reader parses in the same way.
        """
        if not lines["score"].is_finite().all():
            return None
        if "rank" not in lines.columns:
            lines = lines.with_columns(rank=pl.lit(None, pl.Int64))
        if lines.select((pl.col("rank") < 0).any()).item():
            return None
        for name in lines.select(pl.col(pl.Categorical)).columns:
            ids = lines[name].unique(maintain_order=True).cast(pl.String)
            if not ids.str.contains(id_pattern).all():
                return None
            if name == "query":
                # An Enum sorts queries in the order of the file.
                lines = lines.with_columns(pl.col(name).cast(pl.Enum(ids)))
        return cls(lines.select("query", "document", "rank", "score"))

    def count_duplicates(self) -> int:
        """Count lines that repeat a query and a document."""
        repeated_lines = pl.len() - pl.col("document").n_unique()
        return int(self.lines.group_by("query").agg(repeated=repeated_lines)["repeated"].sum())

    def check_order(self, check: OrderCheck) -> None:
        """Add the hits, and the queries whose scores contradict the ranks, to `check`."""
        check.scored_hits += len(self.lines)
        if check.order is not None:
            return
        score = pl.col("score")
        queries = self.lines.group_by("query", maintain_order=True).agg(
            distinct=score.n_unique(),
            is_varied=score.min() < score.max(),
            is_contradictory=(score.sort_by("rank", -score).diff() > 0).any(),
            is_rising=(score.diff() >= 0).all(),
        )
        queries = queries.filter("is_varied")
        check.queries += len(queries)
        if self.lines["rank"].null_count():
            distinct_counts = queries.filter("is_rising")["distinct"].to_list()
            check.add_unranked(len(queries), distinct_counts)
        else:
            check.contradictions += queries.filter("is_contradictory")["query"].to_list()

    def sort(self, order: OrderChoice) -> dict[str, RankedHits]:
        """Sort the hits of each query, as `sort_hits` does."""
        score = pl.col("score")
        key = {"rank": pl.col("rank"), "distance": score}.get(order or "score", -score)
        lines = self.lines.sort("query", key, maintain_order=True)
        if order == "distance":
            lines = lines.with_columns(-score)
        if order == "rank":
            lines = lines.with_columns(
                score=pl.int_range(pl.len(), 0, -1).over("query").cast(float)
            )
        float32 = score.cast(pl.Float32)
        queries = lines.group_by("query", maintain_order=True).agg(
            end=pl.len(), is_strict=float32.is_finite().all() & (float32.diff() < 0).all()
        )
        queries = queries.with_columns(pl.col("end").cum_sum())
        starts = queries["end"].shift(1, fill_value=0)
        return {
            query: RankedHits(lines, slice(start, end), is_strict)
            for start, (query, end, is_strict) in zip(starts, queries.iter_rows(), strict=True)
        }
