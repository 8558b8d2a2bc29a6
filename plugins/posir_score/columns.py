"""Columnar storage of a run's hits, which avoids an object for each of millions of lines."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from posir_score.hits import Hit, Order
from posir_score.orders import OrderCheck
from posir_tasks.base.arrays import Floats, Integers
from posir_tasks.base.table_files import parse_columns

#: Columns of a regular TREC run.
TYPES: dict[str, type[pl.DataType]] = {
    "query": pl.Categorical,
    "Q0": pl.Categorical,
    "document": pl.Categorical,
    "rank": pl.Int64,
    "score": pl.Float64,
    "tag": pl.Categorical,
}
TEXTS = [name for name, kind in TYPES.items() if kind is pl.Categorical]
#: Ids that every reader of run files parses in the same way.
ID = r"^[^\s\x00-\x20]+$"


@dataclass(frozen=True, eq=False)
class RankedHits(Collection[Hit]):
    """The hits of a query, best first, in columns. `Hit` objects are built on access."""

    names: NDArray[np.object_]
    """Ids of all documents in the run."""
    documents: Integers
    """Indices into `names`, shape (hits,)."""
    scores: Floats
    """Shape (hits,)."""
    ranks: Integers
    """Shape (hits,)."""
    is_strict: bool
    """True if scores strictly decrease in single precision."""

    def __len__(self) -> int:
        return len(self.documents)

    def __iter__(self) -> Iterator[Hit]:
        ids = self.names[self.documents].tolist()
        return map(Hit, ids, self.scores.tolist(), self.ranks.tolist())

    def __contains__(self, hit: object) -> bool:
        return hit in [*self]

    def rank_distinct(self, corpus: Collection[str], depth: int) -> dict[str, float] | None:
        """Return the scores of the first `depth` documents, or None if there are ties, repeated
        documents or unknown documents.
        """
        if not self.is_strict:
            return None
        ids = self.names[self.documents].tolist()
        distinct = frozenset(ids)
        if len(distinct) < len(ids) or not all(map(corpus.__contains__, ids)):
            return None
        return dict(zip(ids[:depth], self.scores[:depth].tolist(), strict=True))


@dataclass(frozen=True)
class RunColumns:
    """The lines of a run in the columns `query`, `document`, `rank` and `score`."""

    lines: pl.DataFrame

    @classmethod
    def parse(cls, content: bytes) -> RunColumns | None:
        """Parse a TREC run; None unless every line has six columns with single separators, an
        integer rank and a finite score.
        """
        separator = "\t" if b"\t" in content else " "
        # Stripping copies the content, so it is avoided if possible.
        if content[:1].isspace() or content[-2:].isspace():
            content = content.strip().replace(b"\r\n", b"\n")
        lines = parse_columns(content, TYPES, separator)
        if lines is None or not lines["score"].is_finite().all() or lines["rank"].min() < 0:  # type: ignore[operator]
            return None
        for name in TEXTS:
            ids = lines[name].unique(maintain_order=True).cast(pl.String)
            if not ids.str.contains(ID).all():
                return None
            if name in ("query", "document"):
                # The codes of an Enum are the indices of the ids.
                lines = lines.with_columns(pl.col(name).cast(pl.Enum(ids)))
        return cls(lines.drop("Q0", "tag"))

    def count_duplicates(self) -> int:
        """Count lines that repeat a query and a document."""
        query = pl.col("query").to_physical().cast(pl.UInt64)
        pair = query * len(self.lines) + pl.col("document").to_physical()
        return len(self.lines) - int(self.lines.select(pair.n_unique()).item())

    def check_order(self, check: OrderCheck) -> None:
        """Add the number of hits, and the queries whose scores contradict the ranks, to `check`."""
        check.scored_hits += len(self.lines)
        if check.order is not None:
            return
        scores = self.lines.group_by("query").agg(low=pl.min("score"), high=pl.max("score"))
        check.queries += int((scores["low"] < scores["high"]).sum())
        lines = self.lines.sort("query", "rank", "score", descending=[False, False, True])
        rises = pl.col("score").diff() > 0
        is_same = pl.col("query").to_physical() == pl.col("query").to_physical().shift()
        queries = lines.filter(rises & is_same)["query"].unique(maintain_order=True)
        check.contradictions += queries.to_list()

    def sort(self, order: Order | None) -> dict[str, RankedHits]:
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
        single = score.cast(pl.Float32)
        ranked = lines.group_by("query", maintain_order=True).agg(
            pl.col("document").to_physical(),
            "score",
            "rank",
            is_strict=single.is_finite().all() & (single.diff() < 0).all(),
        )
        names = np.array(_list_ids(self.lines["document"]), object)
        return {
            query: RankedHits(names, *(values.to_numpy() for values in columns), is_strict)
            for query, *columns, is_strict in zip(*ranked, strict=True)
        }


def _list_ids(column: pl.Series) -> list[str]:
    """List the distinct ids of a column in the order of their codes."""
    assert isinstance(column.dtype, pl.Enum)
    return column.dtype.categories.to_list()
