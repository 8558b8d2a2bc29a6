"""The questions that are trained on, and the batches of an epoch.

'Built-in or learned?' (arXiv 2605.26578, sections 3.1.4, 3.2.2 and 4.2): five length bins by
characters; as many questions in each bin for every position as the scarcest cell of position and
length has, 8,189 there; so the same total for begin, middle, end and uniform positions; every batch
from one bin. Here the shares of the positions are free.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import cycle, islice, zip_longest

import numpy as np
from datasets import Dataset
from sentence_transformers.base.sampler import DefaultBatchSampler

from posir_tasks.base.batches import split_batches
from posir_tasks.base.errors import PosirError
from posir_train.examples import Example
from posir_train.settings import Position, PositionWeights, QuestionBudget

#: Last length in characters of each length bin but the longest (Built-in or Learned, section
#: 3.1.1): its bins are 256 to 512, 512 to 1,024 and so on up to 8,192. Shorter and longer
#: documents, which it does not have, are in the first and the last.
CHARACTER_BOUNDS = (512, 1024, 2048, 4096)
#: By how much leaving the scarcest length bins out must increase the number of questions.
WORTH_LEAVING_OUT = 2
#: How often the examples are drawn again to fill the batches of an epoch.
PASSES = 3
#: Rows of the training data by position.
ByPosition = tuple[list[int], list[int], list[int]]


def draw_examples(
    examples: Sequence[Example],
    lengths: Sequence[int],
    weights: PositionWeights,
    budget: QuestionBudget | int,
    seed: int,
) -> dict[int, list[int]]:
    """Draw the questions that are trained on, once for all epochs; return their rows by length bin.

    The positions have their shares in each bin. The lengths of documents are in characters. The
    budget is for each length bin; with a number, bins with fewer at some position are left out.
    """
    bins = np.searchsorted(CHARACTER_BOUNDS, lengths).tolist()
    rows: dict[int, ByPosition] = {number: ([], [], []) for number in sorted(set(bins))}
    for row, (example, number) in enumerate(zip(examples, bins, strict=True)):
        rows[number][example.position].append(row)
    counts = Counter(example.position for example in examples)
    counted = ", ".join(f"{position.title} {counts[position]:,}" for position in Position)
    complete = {
        number: cells
        for number, cells in rows.items()
        if all(cells[position] for position in weights.needed)
    }
    sizes = _choose_sizes(complete, weights, budget)
    if not sizes:
        smallest = [min(map(len, cells)) for cells in complete.values()]
        reason = "no length has all positions that are trained on"
        if missing := [position.title for position in weights.needed if not counts[position]]:
            reason = f"no question has its evidence at {' or '.join(missing)}"
        elif smallest:
            reason = (
                f"no length bin has {budget:,} questions at every position; the most is "
                f"{max(smallest):,}, which a lower budget allows"
            )
        raise PosirError(
            f"positions {weights.name}: {reason} ({counted}). Choose other positions, or place "
            "evidence with `posir compose`."
        )
    rng = np.random.default_rng(seed)
    drawn: dict[int, list[int]] = {}
    for number, size in sizes.items():
        drawn[number] = []
        for position in weights.needed:
            # Rounding errors must not cost an example.
            count = max(1, int(size * weights.shares[position] + 1e-6))
            drawn[number] += rng.permutation(rows[number][position])[:count].tolist()
    articles = {examples[row].document.article for chosen in drawn.values() for row in chosen}
    if len(articles) < 2:
        raise PosirError(
            f"positions {weights.name}: all questions are about one document or article, "
            f"{articles.pop()} ({counted}). In-batch negatives need at least two; give more data, "
            "or place evidence with `posir compose`."
        )
    return drawn


def _choose_sizes(
    complete: Mapping[int, ByPosition], weights: PositionWeights, budget: QuestionBudget | int
) -> dict[int, float]:
    """Return the number of questions to draw from each length bin, for all positions together."""
    if budget == "most":
        return {
            number: min(len(cells[place]) / weights.shares[place] for place in weights.needed)
            for number, cells in complete.items()
        }
    # All positions count, so that training on another one has as many questions.
    places = weights.needed
    if any(all(cells) for cells in complete.values()):
        places = tuple(Position)
    smallest = {
        number: min(len(cells[place]) for place in places) for number, cells in complete.items()
    }
    sizes = [count for count in smallest.values() if count]
    if not sizes:
        return {}
    size = choose_size(sizes) if isinstance(budget, str) else budget
    return {number: size for number, count in smallest.items() if count >= size}


def choose_size(smallest: Sequence[int]) -> int:
    """Choose the number of questions to draw from every length bin, given those of the scarcest
    position in each.

    It is the smallest number, as in the paper, unless leaving bins out at least doubles the number
    of all questions: a handful of long documents must not cost the rest.
    """
    totals = {size: size * sum(count >= size for count in smallest) for size in sorted(smallest)}
    chosen = min(totals)
    for size, total in totals.items():
        if total >= WORTH_LEAVING_OUT * totals[chosen]:
            chosen = size
    return chosen


@dataclass(frozen=True)
class BatchPlan:
    """The plan by which the batches of an epoch are formed."""

    examples: tuple[Example, ...]
    rows: Mapping[int, list[int]]
    """The examples that are trained on, by length bin; see `draw_examples`."""
    weights: PositionWeights
    per_article: int
    """Maximum number of questions about one article in a row: its other parts are hard
    negatives.
    """

    def form_batches(self, size: int, seed: int, epoch: int) -> list[list[int]]:
        """Return the batches of an epoch: rows of the training data. The same arguments give the
        same batches.

        They are full if enough questions can be in one batch, of which none is answered by the
        document of another.
        """
        rng = np.random.default_rng((seed, epoch))
        chosen = []
        for rows in self.rows.values():
            full = len(rows) // size
            batches = list(self._fill(rows, size, rng))
            for _ in range(PASSES):
                if sum(len(batch) == size for batch in batches) >= full:
                    break
                batches += self._fill(rows, size, rng)
            # The largest first, until they have as many rows as the full batches would.
            batches.sort(key=len, reverse=True)
            sizes = np.cumsum([0, *map(len, batches)])
            chosen += batches[: np.searchsorted(sizes, max(full, 1) * size)]
        if not chosen:
            raise PosirError(
                "no two questions can be in one batch, since the document of each answers the "
                "others. Give more documents."
            )
        return [chosen[number] for number in rng.permutation(len(chosen))]

    def _fill(
        self, rows: Sequence[int], size: int, rng: np.random.Generator
    ) -> Iterator[list[int]]:
        """Yield batches of rows in which no document answers two questions; some are smaller if
        they cannot be filled.

        The positions have their shares in every batch, up to rounding, so that even a short
        training is balanced.
        """
        groups = list(self._group_by_article(rng.permutation(rows).tolist()))
        order = rng.permutation(len(groups))
        waiting = deque(row for number in order for row in groups[number])
        filled: Counter[Position] = Counter()
        while waiting:
            room = self.weights.apportion(filled, size)
            batch: list[int] = []
            postponed: list[int] = []
            while waiting and len(batch) < size:
                row = waiting.popleft()
                example = self.examples[row]
                if room[example.position] and not any(
                    example.conflicts_with(self.examples[other]) for other in batch
                ):
                    batch.append(row)
                    room[example.position] -= 1
                else:
                    postponed.append(row)
            waiting.extendleft(reversed(postponed))
            if not batch:
                return
            if len(batch) > 1:
                filled.update(self.examples[row].position for row in batch)
                yield batch

    def _group_by_article(self, rows: Iterable[int]) -> Iterator[Sequence[int]]:
        """Yield groups of a few rows of one article, of all positions in turn."""
        articles: dict[str, ByPosition] = defaultdict(lambda: ([], [], []))
        for row in rows:
            example = self.examples[row]
            articles[example.document.article][example.position].append(row)
        for cells in articles.values():
            mixed = [row for turn in zip_longest(*cells) for row in turn if row is not None]
            yield from split_batches(mixed, self.per_article)


class PositionBatchSampler(DefaultBatchSampler):
    """The batches of a plan, as sentence-transformers' trainer takes them."""

    def __init__(self, dataset: Dataset, plan: BatchPlan, batch_size: int, seed: int) -> None:
        super().__init__(dataset, batch_size=batch_size, drop_last=False, seed=seed)
        self._form = lru_cache(maxsize=2)(lambda epoch: plan.form_batches(batch_size, seed, epoch))

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the batches of the epoch that was set last, as many as of the first: a run is
        continued by counting them.
        """
        return islice(cycle(self._form(self.epoch)), len(self))

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return len(self._form(0))
