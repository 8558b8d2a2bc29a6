"""Cells of queries, and the order of queries by document."""

from __future__ import annotations

from itertools import groupby

import numpy as np

from posir_tasks.base.arrays import Integers
from posir_tasks.base.digests import digest
from posir_tasks.values.evidence import Evidence
from posir_tasks.values.schemes import PositionScheme

#: Key of a cell: the length bucket and the position bins of its queries.
CellKey = tuple[int, tuple[int, ...]]


def list_cells(scheme: PositionScheme, evidence: Evidence) -> tuple[list[CellKey], Integers]:
    """Return the sorted cell keys, and the index of each query's cell, shape (n,)."""
    cells = scheme.cells(evidence)
    lengths = scheme.length_buckets(evidence)
    bins: list[list[int]] = [[] for _ in range(len(evidence))]
    for query, position in zip(cells.query.tolist(), cells.position.tolist(), strict=True):
        bins[query].append(position)
    sorted_bins = (tuple(sorted(positions)) for positions in bins)
    query_cells = list(zip(lengths.tolist(), sorted_bins, strict=True))
    cell_keys = sorted(set(query_cells))
    indices = {key: index for index, key in enumerate(cell_keys)}
    return cell_keys, np.array([indices[key] for key in query_cells], np.int64)


def order_queries(scheme: PositionScheme, evidence: Evidence) -> list[list[int]]:
    """Group query rows by document, in the order of `DocumentSet`."""
    return group_by_document(evidence, list_cells(scheme, evidence)[1])[0]


def group_by_document(
    evidence: Evidence, cells: Integers
) -> tuple[list[list[int]], list[tuple[bytes, int, bytes]]]:
    """Group query rows by document, sorted by key. Also return the key of each query: the hash of
    the document's id and length, the cell, and the hash of the query id.
    """
    characters = evidence.characters.tolist() or [0] * len(evidence)
    documents_and_sizes = list(zip(evidence.document_ids, characters, strict=True))
    # Hash repeated documents once.
    hashes = {row: digest(*row) for row in set(documents_and_sizes)}
    document_keys = [hashes[row] for row in documents_and_sizes]
    query_keys = [digest(name) for name in evidence.query_ids]
    keys = list(zip(document_keys, cells.tolist(), query_keys, strict=True))
    order = sorted(range(len(keys)), key=keys.__getitem__)
    groups = groupby(order, key=document_keys.__getitem__)
    return [list(rows) for _, rows in groups], keys
