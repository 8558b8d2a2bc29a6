"""Places of evidence of the queries that have several: the rank of each place's own document, with
weight 1/n; they add.

The first place alone makes an early bias, and the mean of the places one to the middle: on FiRA
(arXiv 2008.05363), 61.1, 26.7 and 12.3% of first places are in the thirds of their documents, of
the means 25.1, 57.4 and 17.4%, and of all places at 1/n 36.1, 36.1 and 27.7%. Queries with one
place are not among them; they are in `DocumentRanks`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posir_tasks.base.arrays import Floats, Integers
from posir_tasks.base.errors import ProfileError
from posir_tasks.values.document_ranks import MAX_QUERIES, PLACE_FIELDS, PLACE_WEIGHT, DocumentRanks
from posir_tasks.values.evidence import Evidence, ReadEvidence
from posir_tasks.values.profile import NDCG_AT_10, reading_json
from posir_tasks.values.result_schema import PLACES_KEY
from posir_tasks.values.schemes import Axes, PositionScheme

#: What follows the name of a task if its queries with several places of evidence are meant.
PLACES = ", several places"
#: Version of the JSON form. A reader refuses a newer one.
SCHEMA = 1
#: Most places of a query: of each number up to it, `PLACE_WEIGHT` is a multiple.
MOST_PLACES = 12


@dataclass(frozen=True, eq=False)
class PlaceRanks:
    """Ranks by place of queries with several places of evidence. Values over the same axes add."""

    ranks: DocumentRanks
    """A row for each place, with the number of its query and its weight; the profile counts
    weights.
    """
    left_out: int = 0
    """Queries with more than `MOST_PLACES` places."""

    @classmethod
    def from_ranks(
        cls,
        scheme: PositionScheme,
        evidence: Evidence,
        queries: Sequence[str],
        ranks: Integers,
        placed: ReadEvidence | None = None,
        subset: str = "default",
        texts: Mapping[str, str] | None = None,
    ) -> PlaceRanks:
        """Group the ranks of the documents of n places; arguments as in `DocumentRanks.from_ranks`,
        a row for each place.

        `queries` are the ids of the places' queries, length n.
        """
        counts = Counter(queries)
        rows = [row for row, query in enumerate(queries) if counts[query] <= MOST_PLACES]
        if placed and len(placed.twelfths):
            placed = ReadEvidence(placed.read, placed.twelfths[rows], placed.counted_with)
        kept = DocumentRanks.from_ranks(
            scheme,
            evidence.select(rows),
            ranks[rows],
            placed,
            subset,
            texts,
            [queries[row] for row in rows],
        )
        return cls(kept, sum(count > MOST_PLACES for count in counts.values()))

    def __add__(self, other: PlaceRanks) -> PlaceRanks:
        return PlaceRanks(self.ranks + other.ranks, self.left_out + other.left_out)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlaceRanks) and (self.left_out, self.ranks) == (
            other.left_out,
            other.ranks,
        )

    def __hash__(self) -> int:
        return hash((self.ranks, self.left_out))

    @property
    def weights(self) -> Floats:
        """Weight 1/n of each place of a query with n places, shape (places,); those of a query sum
        to 1.
        """
        return self.ranks.columns.weights / PLACE_WEIGHT

    @property
    def queries(self) -> int:
        """Number of queries whose places are counted."""
        return round(float(self.weights.sum()))

    def mean(self, gains: Floats = NDCG_AT_10) -> float:
        """Return the mean over queries of the mean gain of their places, by the gain of each rank
        column; NaN without any.
        """
        weights = self.weights
        return (
            float(np.average(gains[self.ranks.columns.ranks], weights=weights))
            if len(weights)
            else float("nan")
        )

    def thirds(self) -> Floats:
        """Return the share of the evidence in each third of its document, each place at 1/n, shape
        (3,); (0,) if unknown.
        """
        columns = self.ranks.columns
        if not len(columns.thirds):
            return np.zeros(0)
        sums = np.bincount(columns.thirds, self.weights, minlength=3).astype(np.float64)
        shares: Floats = sums / sums.sum()
        return shares

    def to_json(self) -> dict[str, Any]:
        """Return the value as plain JSON; its axes are those of the profile beside it."""
        return {"schema": SCHEMA, "left_out": self.left_out, **self.ranks.to_json(PLACE_FIELDS)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], axes: Axes) -> PlaceRanks:
        """Read what `to_json` returned; raise ProfileError if it is damaged, NewerSchemaError if
        newer.
        """
        with reading_json(data, SCHEMA, f"field '{PLACES_KEY}'", PLACES_KEY):
            left_out = int(data["left_out"])
            if not 0 <= left_out <= MAX_QUERIES:
                raise ValueError(f"'left_out' is {left_out}; it is a number of queries")
        ranks = DocumentRanks.from_json(data, axes, fields=PLACE_FIELDS)
        for part in ranks.sets:
            numbers = np.bincount(part.questions)[part.questions]
            in_range = (numbers >= 2) & (numbers <= MOST_PLACES)
            if not np.all(in_range & (part.weights * numbers == PLACE_WEIGHT)):
                raise ProfileError(
                    f"Field '{PLACES_KEY}': a query has a number of places other than 2 to "
                    f"{MOST_PLACES}, or weights that are "
                    "not 1/n of it.",
                    PLACES_KEY,
                )
        return cls(ranks, left_out)
