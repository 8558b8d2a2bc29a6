"""Select the documents with the highest similarities to queries."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

#: Number of columns whose maximum is compared first.
GROUP = 32


@dataclass(frozen=True)
class Candidates:
    """Pairs of a query and a document that may be among its nearest, in any order. All fields have
    shape (n,).
    """

    queries: Tensor
    """Rows of the queries."""
    documents: Tensor
    """Rows of the documents."""
    scores: Tensor
    """Scores in single precision."""

    @classmethod
    def join(cls, parts: Sequence[Candidates]) -> Candidates:
        """Join candidates of the same queries."""
        return cls(
            torch.cat([part.queries for part in parts]),
            torch.cat([part.documents for part in parts]),
            torch.cat([part.scores for part in parts]),
        )

    def arrange(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield tables of queries with similar numbers of candidates: the queries, shape (q,), and
        their scores and documents, both of shape (q, m). Empty cells are minus infinity and 0.
        """
        owners = self.queries.numpy()
        order = np.argsort(owners, kind="stable")
        queries, starts, counts = np.unique(owners[order], return_index=True, return_counts=True)
        _, exponents = np.frexp(counts)
        for exponent in np.unique(exponents):
            table = np.flatnonzero(exponents == exponent)
            columns = np.arange(counts[table].max())
            is_empty = columns >= counts[table, None]
            cells = order[np.where(is_empty, 0, starts[table, None] + columns)]
            mask = torch.from_numpy(is_empty)
            scores = self.scores[cells].masked_fill(mask, -torch.inf)
            documents = self.documents[cells].masked_fill(mask, 0)
            yield torch.from_numpy(queries[table]), scores, documents


class Nearest:
    """The `k` nearest documents of queries, updated with one part of the corpus at a time."""

    def __init__(self, queries: int, k: int) -> None:
        self.k = k
        self._scores = torch.empty((queries, 0))
        """Scores in single precision, shape (queries, documents). The first is the lowest."""
        self._rows = torch.empty((queries, 0), dtype=torch.int64)
        """Rows of the documents in the corpus, shape (queries, documents)."""
        self._candidates: list[Candidates] = []
        """Documents with a higher score than the lowest in `_scores`."""

    def add(self, similarities: Tensor, start: int) -> None:
        """Add documents with these similarities, shape (queries, documents). `start` is the row of
        the first document in the corpus.
        """
        minimum = self._scores[:, 0] if self._scores.shape[1] == self.k else None
        if minimum is None or minimum.isneginf().any():
            self._join_candidates()
            scores, columns = find_nearest(similarities, self.k)
            self._scores, self._rows = self._select(slice(None), scores, columns + start)
            return
        # Only documents with a higher score than the k-th best can change the result.
        candidates = find_higher(similarities, minimum, start)
        self._candidates.append(candidates)
        # With more candidates, comparing them with outdated scores would take longer than joining.
        if 2 * sum(len(part.scores) for part in self._candidates) > self._scores.numel():
            self._join_candidates()

    def sort(self) -> tuple[Tensor, Tensor]:
        """Return scores and corpus rows, nearest first, both of shape (queries, documents)."""
        self._join_candidates()
        scores, order = self._scores.sort(dim=1, descending=True)
        return scores, self._rows.gather(1, order)

    def _join_candidates(self) -> None:
        if not self._candidates:
            return
        candidates = Candidates.join(self._candidates)
        self._candidates = []
        for queries, scores, rows in candidates.arrange():
            self._scores[queries], self._rows[queries] = self._select(queries, scores, rows)

    def _select(
        self, queries: Tensor | slice, scores: Tensor, rows: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Select the nearest documents of queries among the present and further documents."""
        scores = torch.cat([self._scores[queries], scores], dim=1)
        rows = torch.cat([self._rows[queries], rows], dim=1)
        best = _find_highest(scores, self.k)
        return scores.gather(1, best), rows.gather(1, best)


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
    """Find the columns of the `k` highest values in each row, first the lowest of these, then in
    any order; NaN counts as highest.

    For short rows, NumPy is three times as fast as PyTorch.
    """
    count = min(k, values.shape[1])
    order = np.argpartition(values.numpy(), -count, axis=1)
    return torch.from_numpy(order[:, -count:])


def find_higher(similarities: Tensor, minimum: Tensor, start: int) -> Candidates:
    """Find the values of each row above its finite `minimum`. `start` is added to their columns.

    NaN counts as higher. The maxima of groups of columns are compared first.
    """
    rows, columns = similarities.shape
    groups = columns // GROUP
    limits = minimum.to(similarities.device)
    # A group contains every `groups`-th column. The last columns belong to no group.
    grouped = similarities[:, : GROUP * groups].reshape(rows, GROUP, groups)
    row, group = _is_higher(grouped.amax(dim=1), limits[:, None]).nonzero(as_tuple=True)
    members = grouped[row, :, group]
    hit, member = _is_higher(members, limits[row, None]).nonzero(as_tuple=True)
    last = similarities[:, GROUP * groups :]
    last_row, last_column = _is_higher(last, limits[:, None]).nonzero(as_tuple=True)
    column = torch.cat([group[hit] + groups * member, last_column + GROUP * groups])
    values = torch.cat([members[hit, member], last[last_row, last_column]])
    return Candidates(
        torch.cat([row[hit], last_row]).cpu(), column.cpu() + start, values.float().cpu()
    )


def _is_higher(values: Tensor, minimum: Tensor) -> Tensor:
    """Return True for values above the minimum and for NaN, unless the minimum is NaN."""
    return ~(values <= minimum) & ~minimum.isnan()
