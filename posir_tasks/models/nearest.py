"""Select the documents with the highest similarities to queries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

#: Number of columns whose maximum is compared first.
GROUP = 32


@dataclass(frozen=True)
class Nearest:
    """The nearest documents of queries. Both fields have shape (queries, documents)."""

    scores: Tensor
    """Scores in single precision."""
    rows: Tensor
    """Rows of the documents in the corpus."""

    @classmethod
    def begin(cls, queries: int) -> Nearest:
        """Return no documents for a number of queries."""
        return cls(torch.empty((queries, 0)), torch.empty((queries, 0), dtype=torch.int64))

    @classmethod
    def join(cls, candidates: Sequence[Nearest], k: int) -> Nearest:
        """Join documents of the same queries, and select the `k` nearest, nearest first."""
        scores = torch.cat([candidate.scores for candidate in candidates], dim=1)
        rows = torch.cat([candidate.rows for candidate in candidates], dim=1)
        scores, order = scores.topk(min(k, scores.shape[1]), dim=1)
        return cls(scores, rows.gather(1, order))


def find_nearest(similarities: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Find the highest values of each row and their columns, in any order.

    The `k` highest values are in the `k` groups of columns with the highest maxima. Searching only
    these groups takes half as long as `topk`.

    Returns:
        Values in single precision and columns, both of shape (rows, min(k, columns)).
    """
    rows, columns = similarities.shape
    size = max(1, math.isqrt(columns // k))
    groups = columns // size
    # A group contains every `groups`-th column. The last columns belong to no group.
    grouped_similarities = similarities[:, : size * groups].reshape(rows, size, groups)
    best_groups = _find_highest(grouped_similarities.amax(dim=1).float().cpu(), k)
    members = best_groups[:, None] + torch.arange(0, size * groups, groups)[:, None]
    last_columns = torch.arange(size * groups, columns).expand(rows, -1)
    candidates = torch.cat([members.flatten(1), last_columns], dim=1)
    values = similarities.gather(1, candidates.to(similarities.device)).float().cpu()
    best = _find_highest(values, k)
    return values.gather(1, best), candidates.gather(1, best)


def _find_highest(values: Tensor, k: int) -> Tensor:
    """Find the columns of the `k` highest values in each row, in any order; NaN counts as highest.

    For short rows, NumPy is three times as fast as PyTorch.
    """
    order = np.argpartition(values.numpy(), -min(k, values.shape[1]), axis=1)
    return torch.from_numpy(order[:, -k:])


def find_higher(similarities: Tensor, minimum: Tensor) -> tuple[Tensor, Tensor]:
    """Find the values of each row above its finite `minimum` and their columns, in any order.

    NaN counts as higher. The maxima of groups of columns are compared first.

    Returns:
        Values in single precision and columns, both of shape (rows, n). Rows with fewer than n
        higher values are filled with minus infinity and column 0.
    """
    rows, columns = similarities.shape
    groups = columns // GROUP
    limits = minimum.to(similarities.device)[:, None]
    grouped_similarities = similarities[:, : GROUP * groups].reshape(rows, GROUP, groups)
    row, group = _is_higher(grouped_similarities.amax(dim=1), limits).nonzero(as_tuple=True)
    members = groups * torch.arange(GROUP, device=group.device)
    # The last columns belong to no group.
    last_row, last = _is_higher(similarities[:, GROUP * groups :], limits).nonzero(as_tuple=True)
    row = torch.cat([row.repeat_interleave(GROUP), last_row])
    column = torch.cat([(group[:, None] + members).flatten(), last + GROUP * groups])
    values = similarities[row, column]
    selection = _is_higher(values, limits[row, 0])
    return _fill_rows(rows, *(array[selection].cpu() for array in (row, column, values.float())))


def _is_higher(values: Tensor, minimum: Tensor) -> Tensor:
    """Return True for values above the minimum and for NaN, unless the minimum is NaN."""
    return ~(values <= minimum) & ~minimum.isnan()


def _fill_rows(rows: int, row: Tensor, column: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Arrange values and columns by row. Empty cells are minus infinity and 0."""
    order = row.argsort()
    row = row[order]
    counts = row.bincount(minlength=rows)
    starts = counts.cumsum(0) - counts
    position = torch.arange(len(row)) - starts[row]
    shape = (rows, int(counts.max()))
    filled_values = torch.full(shape, -torch.inf)
    filled_values[row, position] = values[order]
    filled_columns = torch.zeros(shape, dtype=torch.int64)
    filled_columns[row, position] = column[order]
    return filled_values, filled_columns
