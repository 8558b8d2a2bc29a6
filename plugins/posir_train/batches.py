"""Sample the training questions, and form the batches of an epoch.

The method follows 'Built-in or learned?' (arXiv 2605.26578, sections 3.1.4, 3.2.2 and 4.2). There
are five length bins, in characters. Every bin has the same number of questions: the size of the
smallest cell of length bin and position (8,189 in the paper). Training on begin, middle, end or
uniform positions therefore uses equally many questions. Every batch comes from one bin. In contrast
to the paper, the positions may have any shares.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, cycle, islice, zip_longest

import numpy as np
import pandas as pd
from datasets import Dataset
from sentence_transformers.base.sampler import DefaultBatchSampler

from posir_tasks.base.batches import split_batches
from posir_tasks.base.errors import PosirError
from posir_train.examples import Example
from posir_train.settings import Position, PositionWeights, QuestionBudget

#: Upper bounds of the length bins except the last, in characters. The paper's bins (section 3.1.1)
#: are 256 to 512, 512 to 1,024, and so on up to 8,192. Here, shorter documents are also in the
#: first bin, and longer documents in the last.
CHARACTER_BOUNDS = (512, 1024, 2048, 4096)
#: Drop the smallest length bins if this multiplies the number of questions by at least this factor.
MIN_GAIN = 2
#: Maximum number of passes over the examples to fill the batches of an epoch.
MAX_PASSES = 4
#: Rows of the training data, by position.
RowsByPosition = tuple[list[int], list[int], list[int]]


def format_counts(counts: Mapping[Position, int]) -> str:
    """Format the number of examples by position."""
    return ", ".join(f"{position.title} {counts[position]:,}" for position in Position)


def sample_examples(
    examples: Sequence[Example],
    lengths: Sequence[int],
    weights: PositionWeights,
    budget: QuestionBudget | int,
    seed: int,
) -> dict[int, list[int]]:
    """Sample the training questions, once for all epochs. Return their rows by length bin.

    Args:
        examples: All examples.
        lengths: Document length of each example, in characters.
        weights: Shares of the positions in each bin.
        budget: Number of questions per bin. If it is a number, bins with fewer questions at any
            position are left out.
        seed: Random seed.

    Raises:
        PosirError: A position has no questions, no bin has enough questions, or all questions are
            about one article.
    """
    positions = [example.position for example in examples]
    by_cell = pd.DataFrame(
        {"bin": np.searchsorted(CHARACTER_BOUNDS, lengths), "position": positions}
    ).groupby(["bin", "position"])
    cell_sizes = by_cell.size().unstack(fill_value=0).reindex(columns=list(Position), fill_value=0)
    complete_bins = cell_sizes[(cell_sizes[[*weights.positions]] > 0).all(axis="columns")]
    counts = Counter(positions)
    sizes = _choose_sizes(complete_bins, weights, budget)
    if not sizes:
        missing = [position.title for position in weights.positions if not counts[position]]
        reason = "no length bin contains questions at all positions to train on"
        if missing:
            reason = f"no question has evidence at {' or '.join(missing)}"
        elif len(complete_bins):
            largest = complete_bins.min(axis="columns").max()
            reason = (
                f"no length bin has {budget:,} questions at every position; the largest possible "
                f"budget is {largest:,}"
            )
        raise PosirError(
            f"positions {weights.name}: {reason} ({format_counts(counts)}). Choose other "
            "positions, or compose documents with `posir compose`."
        )
    rng = np.random.default_rng(seed)
    sample: dict[int, list[int]] = {}
    for length_bin, size in sizes.items():
        sample[length_bin] = []
        for position in weights.positions:
            # The small term compensates for rounding errors, which could lose an example.
            count = max(1, int(size * weights.shares[position] + 1e-6))
            rows = by_cell.indices[length_bin, position]
            sample[length_bin] += rng.permutation(rows)[:count].tolist()
    articles = {examples[row].document.article for bin_rows in sample.values() for row in bin_rows}
    if len(articles) < 2:
        raise PosirError(
            f"positions {weights.name}: all questions are about one document or article, "
            f"{articles.pop()} ({format_counts(counts)}). In-batch negatives need at least two. "
            "Give more data, or compose documents with `posir compose`."
        )
    return sample


def _choose_sizes(
    cell_sizes: pd.DataFrame, weights: PositionWeights, budget: QuestionBudget | int
) -> dict[int, float]:
    """Choose the number of questions per length bin, over all positions.

    `cell_sizes` contains the number of available questions by length bin and position.
    """
    trained_cells = cell_sizes[[*weights.positions]]
    if budget == "most":
        shares = [weights.shares[position] for position in weights.positions]
        return dict((trained_cells / shares).min(axis="columns"))
    # Use all positions if possible, so that the size does not depend on the positions to train on.
    has_all_positions = (cell_sizes > 0).all(axis="columns").any()
    bin_sizes = (cell_sizes if has_all_positions else trained_cells).min(axis="columns")
    counts = bin_sizes[bin_sizes > 0].tolist()
    if not counts:
        return {}
    size = choose_size(counts) if isinstance(budget, str) else budget
    return dict.fromkeys(bin_sizes.index[bin_sizes >= size], size)


def choose_size(bin_sizes: Sequence[int]) -> int:
    """Choose the number of questions per length bin, given the smallest cell of each bin.

    As in the paper, this is the smallest cell of all bins, unless dropping bins at least doubles
    the total number of questions. A few long documents should not cost most of the data.
    """
    totals = {size: size * sum(count >= size for count in bin_sizes) for size in sorted(bin_sizes)}
    best_size = min(totals)
    for size, total in totals.items():
        if total >= MIN_GAIN * totals[best_size]:
            best_size = size
    return best_size


@dataclass(frozen=True)
class BatchPlan:
    """A plan for the batches of all epochs."""

    examples: tuple[Example, ...]
    rows: Mapping[int, list[int]]
    """Rows of the sampled examples by length bin, from `sample_examples`."""
    weights: PositionWeights
    per_article: int
    """Maximum number of consecutive questions about one article. Other passages of the article are
    hard negatives.
    """

    def form_batches(self, size: int, seed: int, epoch: int) -> list[list[int]]:
        """Form the batches of an epoch, as rows of the training data. The result is deterministic.

        Batches are full, unless too many documents answer the questions of other examples.

        Raises:
            PosirError: No two questions can be in one batch.
        """
        rng = np.random.default_rng((seed, epoch))
        selection = []
        for rows in self.rows.values():
            full_batches = len(rows) // size
            batches: list[list[int]] = []
            for _ in range(MAX_PASSES):
                batches += self._fill_batches(rows, size, rng)
                if sum(len(batch) == size for batch in batches) >= full_batches:
                    break
            # Select the largest batches, until they have as many rows as `full_batches` batches.
            batches.sort(key=len, reverse=True)
            total_sizes = np.cumsum([0, *map(len, batches)])
            selection += batches[: np.searchsorted(total_sizes, max(full_batches, 1) * size)]
        if not selection:
            raise PosirError(
                "no two questions can be in one batch, since each document also answers the other "
                "questions. Give more documents."
            )
        return [selection[number] for number in rng.permutation(len(selection))]

    def _fill_batches(
        self, rows: Sequence[int], size: int, rng: np.random.Generator
    ) -> Iterator[list[int]]:
        """Yield batches of rows in which no document answers two questions. A batch that cannot be
        filled is smaller.

        Every batch has the shares of the positions, up to rounding, so that even a short run is
        balanced.
        """
        groups = list(self._group_by_article(rng.permutation(rows).tolist()))
        queue = deque(row for index in rng.permutation(len(groups)) for row in groups[index])
        counts: Counter[Position] = Counter()
        while queue:
            free_slots = self.weights.allocate(counts, size)
            batch: list[int] = []
            postponed_rows = []
            while queue and len(batch) < size:
                row = queue.popleft()
                example = self.examples[row]
                if free_slots[example.position] and not any(
                    example.conflicts_with(self.examples[other_row]) for other_row in batch
                ):
                    batch.append(row)
                    free_slots[example.position] -= 1
                else:
                    postponed_rows.append(row)
            queue.extendleft(reversed(postponed_rows))
            if not batch:
                return
            if len(batch) > 1:
                counts.update(self.examples[row].position for row in batch)
                yield batch

    def _group_by_article(self, rows: Iterable[int]) -> Iterator[Sequence[int]]:
        """Yield groups of at most `per_article` rows of one article, with alternating positions."""
        rows_by_article: dict[str, RowsByPosition] = defaultdict(lambda: ([], [], []))
        for row in rows:
            example = self.examples[row]
            rows_by_article[example.document.article][example.position].append(row)
        for rows_by_position in rows_by_article.values():
            alternating = chain.from_iterable(zip_longest(*rows_by_position))
            article_rows = [row for row in alternating if row is not None]
            yield from split_batches(article_rows, self.per_article)


class PositionBatchSampler(DefaultBatchSampler):
    """A batch sampler for the sentence-transformers trainer that follows a plan."""

    def __init__(self, dataset: Dataset, plan: BatchPlan, batch_size: int, seed: int) -> None:
        super().__init__(dataset, batch_size=batch_size, drop_last=False, seed=seed)
        self._form_batches = lru_cache(maxsize=2)(
            lambda epoch: plan.form_batches(batch_size, seed, epoch)
        )

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the batches of the current epoch."""
        # A resumed run counts batches, so every epoch has as many batches as the first.
        return islice(cycle(self._form_batches(self.epoch)), len(self))

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return len(self._form_batches(0))
