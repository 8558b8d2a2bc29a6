"""Sample the training questions, and form the batches of an epoch.

The method follows 'Built-in or learned?' (arXiv 2605.26578, sections 3.1.4, 3.2.2 and 4.2): five
length bins, in characters; every bin and position has the size of the scarcest cell of position and
length (8,189 in the paper), so that begin, middle, end and uniform positions have the same total;
every batch comes from one bin. Here the shares of the positions can be chosen freely.
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

#: Upper bounds of the length bins except the last, in characters (Built-in or Learned, section
#: 3.1.1): the paper's bins are 256 to 512, 512 to 1,024, and so on up to 8,192. Shorter documents
#: are in the first bin, longer documents in the last.
CHARACTER_BOUNDS = (512, 1024, 2048, 4096)
#: Minimum factor by which dropping the scarcest length bins must increase the number of questions.
MIN_GAIN = 2
#: Maximum number of passes over the examples to fill the batches of an epoch.
PASSES = 4
#: Rows of the training data by position.
ByPosition = tuple[list[int], list[int], list[int]]


def format_counts(counts: Mapping[Position, int]) -> str:
    """Format the number of examples at each position."""
    return ", ".join(f"{position.title} {counts[position]:,}" for position in Position)


def sample_examples(
    examples: Sequence[Example],
    lengths: Sequence[int],
    weights: PositionWeights,
    budget: QuestionBudget | int,
    seed: int,
) -> dict[int, list[int]]:
    """Sample the training questions, once for all epochs; return their rows by length bin.

    Args:
        examples: All examples.
        lengths: Length of each example's document, in characters.
        weights: Shares of the positions in each bin.
        budget: Number of questions per bin; with a number, bins with fewer questions at some
            position are left out.
        seed: Random seed.

    Raises:
        PosirError: A position has no questions, no bin has enough of them, or all questions are
            about one article.
    """
    positions = [example.position for example in examples]
    by_cell = pd.DataFrame(
        {"bin": np.searchsorted(CHARACTER_BOUNDS, lengths), "position": positions}
    ).groupby(["bin", "position"])
    cell_sizes = by_cell.size().unstack(fill_value=0).reindex(columns=list(Position), fill_value=0)
    complete = cell_sizes[(cell_sizes[[*weights.positions]] > 0).all(axis="columns")]
    counts = Counter(positions)
    sizes = _choose_sizes(complete, weights, budget)
    if not sizes:
        missing = [position.title for position in weights.positions if not counts[position]]
        reason = "no length bin contains questions at all positions to train on"
        if missing:
            reason = f"no question has evidence at {' or '.join(missing)}"
        elif len(complete):
            largest = complete.min(axis="columns").max()
            reason = (
                f"no length bin has {budget:,} questions at every position; the largest possible "
                f"budget is {largest:,}"
            )
        raise PosirError(
            f"positions {weights.name}: {reason} ({format_counts(counts)}). Choose other "
            "positions, or place evidence with `posir compose`."
        )
    rng = np.random.default_rng(seed)
    sample: dict[int, list[int]] = {}
    for length_bin, size in sizes.items():
        sample[length_bin] = []
        for position in weights.positions:
            # The small term prevents rounding errors from losing an example.
            count = max(1, int(size * weights.shares[position] + 1e-6))
            rows = by_cell.indices[length_bin, position]
            sample[length_bin] += rng.permutation(rows)[:count].tolist()
    articles = {examples[row].document.article for bin_rows in sample.values() for row in bin_rows}
    if len(articles) < 2:
        raise PosirError(
            f"positions {weights.name}: all questions are about one document or article, "
            f"{articles.pop()} ({format_counts(counts)}). In-batch negatives need at least two; "
            "give more data, or place evidence with `posir compose`."
        )
    return sample


def _choose_sizes(
    complete: pd.DataFrame, weights: PositionWeights, budget: QuestionBudget | int
) -> dict[int, float]:
    """Choose the number of questions per length bin, for all positions together.

    `complete` has the number of questions by length bin and position.
    """
    trained = complete[[*weights.positions]]
    if budget == "most":
        shares = [weights.shares[position] for position in weights.positions]
        return dict((trained / shares).min(axis="columns"))
    # Count all positions where possible, so that training on any position has the same size.
    has_all = (complete > 0).all(axis="columns").any()
    smallest = (complete if has_all else trained).min(axis="columns")
    counts = smallest[smallest > 0].tolist()
    if not counts:
        return {}
    size = choose_size(counts) if isinstance(budget, str) else budget
    return dict.fromkeys(smallest.index[smallest >= size], size)


def choose_size(smallest: Sequence[int]) -> int:
    """Choose the number of questions per length bin, given the size of each bin's scarcest
    position.

    This is the smallest size, as in the paper, unless dropping bins at least doubles the total
    number of questions: a few long documents must not cost most of the data.
    """
    totals = {size: size * sum(count >= size for count in smallest) for size in sorted(smallest)}
    best = min(totals)
    for size, total in totals.items():
        if total >= MIN_GAIN * totals[best]:
            best = size
    return best


@dataclass(frozen=True)
class BatchPlan:
    """A plan that forms the batches of each epoch."""

    examples: tuple[Example, ...]
    rows: Mapping[int, list[int]]
    """Rows of the sampled examples by length bin, from `sample_examples`."""
    weights: PositionWeights
    per_article: int
    """Maximum number of consecutive questions about one article, whose other passages are hard
    negatives.
    """

    def form_batches(self, size: int, seed: int, epoch: int) -> list[list[int]]:
        """Form the batches of an epoch, as rows of the training data; the result is deterministic.

        Batches are full unless too many documents answer the question of another example.

        Raises:
            PosirError: No two questions can be in one batch.
        """
        rng = np.random.default_rng((seed, epoch))
        selection = []
        for rows in self.rows.values():
            full_batches = len(rows) // size
            batches: list[list[int]] = []
            for _ in range(PASSES):
                batches += self._fill(rows, size, rng)
                if sum(len(batch) == size for batch in batches) >= full_batches:
                    break
            # Take the largest batches until they contain as many rows as all full batches.
            batches.sort(key=len, reverse=True)
            sizes = np.cumsum([0, *map(len, batches)])
            selection += batches[: np.searchsorted(sizes, max(full_batches, 1) * size)]
        if not selection:
            raise PosirError(
                "no two questions can be in one batch, since the document of each answers the "
                "others. Give more documents."
            )
        return [selection[number] for number in rng.permutation(len(selection))]

    def _fill(
        self, rows: Sequence[int], size: int, rng: np.random.Generator
    ) -> Iterator[list[int]]:
        """Yield batches of rows in which no document answers two questions; a batch is smaller if
        it cannot be filled.

        Every batch has the shares of the positions, up to rounding, so that even a short run is
        balanced.
        """
        groups = list(self._group_by_article(rng.permutation(rows).tolist()))
        queue = deque(row for number in rng.permutation(len(groups)) for row in groups[number])
        counts: Counter[Position] = Counter()
        while queue:
            room = self.weights.allocate(counts, size)
            batch: list[int] = []
            postponed_rows = []
            while queue and len(batch) < size:
                row = queue.popleft()
                example = self.examples[row]
                if room[example.position] and not any(
                    example.conflicts_with(self.examples[earlier]) for earlier in batch
                ):
                    batch.append(row)
                    room[example.position] -= 1
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
        articles: dict[str, ByPosition] = defaultdict(lambda: ([], [], []))
        for row in rows:
            example = self.examples[row]
            articles[example.document.article][example.position].append(row)
        for cells in articles.values():
            turns = chain.from_iterable(zip_longest(*cells))
            yield from split_batches([row for row in turns if row is not None], self.per_article)


class PositionBatchSampler(DefaultBatchSampler):
    """A batch sampler for sentence-transformers' trainer that follows a plan."""

    def __init__(self, dataset: Dataset, plan: BatchPlan, batch_size: int, seed: int) -> None:
        super().__init__(dataset, batch_size=batch_size, drop_last=False, seed=seed)
        self._form = lru_cache(maxsize=2)(lambda epoch: plan.form_batches(batch_size, seed, epoch))

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the batches of the current epoch. Every epoch has as many batches as the first,
        since a resumed run counts batches.
        """
        return islice(cycle(self._form(self.epoch)), len(self))

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return len(self._form(0))
