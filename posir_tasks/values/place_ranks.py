"""Additive ranks for queries with several places of evidence: each of the n places has weight 1/n
and the rank of its document.

First places are biased toward the start of documents, mean positions toward the middle. In FiRA
(arXiv 2008.05363), the thirds of documents contain 61.1, 26.7 and 12.3% of first places, 25.1, 57.4
and 17.4% of mean positions, and 36.1, 36.1 and 27.7% of all places weighted 1/n.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from posir_tasks.base.arrays import Floats, Integers
from posir_tasks.base.errors import ProfileError
from posir_tasks.values.document_ranks import MAX_QUERIES, PLACE_FIELDS, PLACE_WEIGHT, DocumentRanks
from posir_tasks.values.evidence import Evidence, ReadEvidence
from posir_tasks.values.profile import NDCG_AT_10, reading_json
from posir_tasks.values.result_schema import PLACES_KEY, SCHEMA
from posir_tasks.values.schemes import Axes, PositionScheme

#: Suffix to a task's name for its queries with several places of evidence.
PLACES = ", several places"
#: Maximum number of places per query; `PLACE_WEIGHT` is divisible by each number up to it.
MAX_PLACES = 12


def rank_places(
    scheme: PositionScheme,
    evidence: Evidence,
    queries: Sequence[str],
    ranks: Integers,
    placed: ReadEvidence | None = None,
    subset: str = "default",
    texts: Mapping[str, str] | None = None,
) -> DocumentRanks:
    """Group the document ranks of n places.

    Other arguments are as in `DocumentRanks.from_ranks`, with a row for each place.

    Args:
        queries: The query id of each place, length n.

    Returns:
        Ranks with query numbers and weights. The profile counts weights. Queries with more than
        `MAX_PLACES` places are left out.
    """
    counts = Counter(queries)
    rows = [row for row, query in enumerate(queries) if counts[query] <= MAX_PLACES]
    if placed and len(placed.twelfths):
        placed = replace(placed, twelfths=placed.twelfths[rows])
    places = DocumentRanks.from_ranks(
        scheme,
        evidence.select(rows),
        ranks[rows],
        placed,
        subset,
        texts,
        [queries[row] for row in rows],
    )
    return replace(places, left_out=sum(count > MAX_PLACES for count in counts.values()))


def count_queries(places: DocumentRanks) -> int:
    """Count the queries, without those left out."""
    return round(float(places.columns.shares.sum()))


def average_places(places: DocumentRanks, gains: Floats = NDCG_AT_10) -> float:
    """Average the mean gain of a query's places over queries; NaN without queries.

    `gains` has the gain of each rank column.
    """
    columns = places.columns
    if not len(columns.ranks):
        return math.nan
    return float(np.average(gains[columns.ranks], weights=columns.shares))


def share_thirds(places: DocumentRanks) -> Floats:
    """Compute the share of the evidence in each third of documents, each place weighted 1/n.

    Shape (3,), or (0,) if positions are unknown.
    """
    columns = places.columns
    if not len(columns.thirds):
        return np.zeros(0)
    sums = np.bincount(columns.thirds, columns.shares, minlength=3).astype(np.float64)
    shares: Floats = sums / sums.sum()
    return shares


def places_to_json(places: DocumentRanks) -> dict[str, Any]:
    """Return places as plain JSON. The axes are stored with the profile."""
    return {"schema": SCHEMA, "left_out": places.left_out, **places.to_json(PLACE_FIELDS)}


def places_from_json(data: Mapping[str, Any], axes: Axes) -> DocumentRanks:
    """Read the output of `places_to_json`.

    Raises:
        ProfileError: The JSON is damaged.
        NewerSchemaError: A newer version of posir wrote it.
    """
    with reading_json(data, SCHEMA, field=PLACES_KEY):
        left_out = int(data["left_out"])
        if not 0 <= left_out <= MAX_QUERIES:
            raise ValueError(f"'left_out' is {left_out}, not a number of queries")
    ranks = DocumentRanks.from_json(data, axes, fields=PLACE_FIELDS)
    for part in ranks.sets:
        numbers = np.bincount(part.questions)[part.questions]
        in_range = (numbers >= 2) & (numbers <= MAX_PLACES)
        if not np.all(in_range & (part.weights * numbers == PLACE_WEIGHT)):
            raise ProfileError(
                f"Field '{PLACES_KEY}': each query must have 2 to {MAX_PLACES} places with weight "
                "1/n.",
                PLACES_KEY,
            )
    return replace(ranks, left_out=left_out)
