"""Additive ranks for queries with several evidence spans: each of the n spans has weight 1/n
and the rank of its document.

Using only first spans would be biased toward the start of documents, and mean positions toward the
middle. In FiRA (arXiv 2008.05363), the thirds of documents contain 61.1, 26.7 and 12.3% of first
spans, 25.1, 57.4 and 17.4% of mean positions, and 36.1, 36.1 and 27.7% of all spans weighted 1/n.
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
from posir_tasks.values.profile import NDCG_AT_10, validate_json
from posir_tasks.values.result_schema import PLACES_KEY, SCHEMA
from posir_tasks.values.schemes import Axes, PositionScheme

#: Suffix of the task name for queries with several evidence spans.
SEVERAL_SPANS = ", several places"
#: Maximum number of spans per query. `PLACE_WEIGHT` is divisible by all numbers up to it.
MAX_PLACES = 12


def rank_places(
    scheme: PositionScheme,
    evidence: Evidence,
    queries: Sequence[str],
    ranks: Integers,
    read_evidence: ReadEvidence | None = None,
    subset: str = "default",
    texts: Mapping[str, str] | None = None,
) -> DocumentRanks:
    """Group the document ranks of n evidence spans.

    For other arguments see `DocumentRanks.from_ranks`; each place is a row.

    Args:
        queries: Query id of each place, length n.

    Returns:
        Ranks with query numbers and weights. Their profile counts weights. Queries with more than
        `MAX_PLACES` places are excluded.
    """
    counts = Counter(queries)
    rows = [row for row, query in enumerate(queries) if counts[query] <= MAX_PLACES]
    if read_evidence and len(read_evidence.twelfths):
        read_evidence = replace(read_evidence, twelfths=read_evidence.twelfths[rows])
    places = DocumentRanks.from_ranks(
        scheme,
        evidence.select(rows),
        ranks[rows],
        read_evidence,
        subset,
        texts,
        [queries[row] for row in rows],
    )
    return replace(places, left_out=sum(count > MAX_PLACES for count in counts.values()))


def count_queries(places: DocumentRanks) -> int:
    """Count the queries, except excluded ones."""
    return round(float(places.columns.shares.sum()))


def average_places(places: DocumentRanks, gains: Floats = NDCG_AT_10) -> float:
    """Average gains over the spans of each query, then over queries; NaN without queries.

    `gains` contains the gain of each column of `profile.RANKS`.
    """
    columns = places.columns
    if not len(columns.ranks):
        return math.nan
    return float(np.average(gains[columns.ranks], weights=columns.shares))


def compute_third_shares(places: DocumentRanks) -> Floats:
    """Compute the share of evidence in each third of documents, with weight 1/n per span.

    Returns:
        Shape (3,), or (0,) if positions are unknown.
    """
    columns = places.columns
    if not len(columns.thirds):
        return np.zeros(0)
    sums = np.bincount(columns.thirds, columns.shares, minlength=3).astype(np.float64)
    shares: Floats = sums / sums.sum()
    return shares


def serialize_places(places: DocumentRanks) -> dict[str, Any]:
    """Return places as plain JSON, without the axes, which are stored with the profile."""
    return {"schema": SCHEMA, "left_out": places.left_out, **places.to_json(PLACE_FIELDS)}


def parse_places(data: Mapping[str, Any], axes: Axes) -> DocumentRanks:
    """Read the output of `serialize_places`.

    Raises:
        ProfileError: The JSON is damaged.
        NewerSchemaError: A newer version of posir wrote it.
    """
    with validate_json(data, SCHEMA, field=PLACES_KEY):
        left_out = int(data["left_out"])
        if not 0 <= left_out <= MAX_QUERIES:
            raise ValueError(f"'left_out' is {left_out}, not a number of queries")
    ranks = DocumentRanks.from_json(data, axes, fields=PLACE_FIELDS)
    for document_set in ranks.sets:
        place_counts = np.bincount(document_set.questions)[document_set.questions]
        is_valid = (place_counts >= 2) & (place_counts <= MAX_PLACES)
        if not np.all(is_valid & (document_set.weights * place_counts == PLACE_WEIGHT)):
            raise ProfileError(
                f"Field '{PLACES_KEY}': each query must have 2 to {MAX_PLACES} spans with weight "
                "1/n.",
                PLACES_KEY,
            )
    return replace(ranks, left_out=left_out)
