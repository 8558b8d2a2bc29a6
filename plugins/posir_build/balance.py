"""Stage 6, Balance: limit the questions per cell of length and position, and split off a held-out
part.

A cell combines a length bucket with a third of the document. PosQ (arXiv 2505.13950) and Built-in
or Learned (arXiv 2605.26578, appendix B.4) downsample to the smallest cell, like `per_cell:
smallest`. By default there is no limit, since fewer questions mean less statistical power.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from posir_build.records import (
    Check,
    Discarded,
    DiscardReason,
    Document,
    Question,
    StageResult,
    compute_sort_key,
    shuffle,
)
from posir_build.settings import BUILT_IN_LENGTHS, BalanceSettings, CellLengths
from posir_significance.api import Design, compute_sample
from posir_tasks.values.evidence import POSITIONS
from posir_tasks.values.schemes import RelativePositions

SCHEME = RelativePositions()
#: Parts of the dataset.
PUBLIC = "public"
HELD_OUT = "held-out"


#: Indices of a length bucket and a third, from 0.
BalanceCell = tuple[int, int]


@dataclass(frozen=True)
class CellScheme:
    """The length buckets of the cells."""

    titles: tuple[str, ...]
    bounds: tuple[int, ...]
    """Maximum length of each bucket except the last."""
    measure: Callable[[Document], int]
    """Returns the length of a document."""

    def find_cell(self, result: StageResult, question: Question) -> BalanceCell:
        """Return the cell of a question."""
        length = self.measure(result.by_id[question.document])
        return int(np.searchsorted(self.bounds, length)), result.find_third(question)

    def count_questions(self, result: StageResult) -> dict[BalanceCell, int]:
        """Count the questions in each cell, including empty cells."""
        counts = Counter(self.find_cell(result, question) for question in result.questions)
        return {cell: counts[cell] for cell in product(range(len(self.titles)), range(3))}


#: Cell schemes. posir: the length buckets in posir's reports, in tokens; five: the length buckets
#: of Built-in or Learned, in characters.
CELLS: Mapping[CellLengths, CellScheme] = {
    "posir": CellScheme(
        SCHEME.axes.length_titles, tuple(SCHEME.token_bounds), lambda document: document.tokens
    ),
    "five": CellScheme(
        tuple(f"{bucket} characters" for bucket in BUILT_IN_LENGTHS),
        tuple(bucket.maximum for bucket in BUILT_IN_LENGTHS[:-1]),
        lambda document: len(document.text),
    ),
}


def balance_questions(
    previous: StageResult, settings: BalanceSettings, seed: int, min_questions: int | None
) -> StageResult:
    """Discard questions above the limit of their cell, and assign the others to a part.

    `min_questions` is the number of questions that the public part needs to detect
    `settings.position_effect`. Unless it is None, notes list the cells with too few questions.
    """
    surplus = _find_surplus(previous, settings, seed)
    selection = [question for question in previous.questions if question.id not in surplus]
    held_out = _sample_documents(selection, settings.held_out, seed)

    def assign(question: Question) -> Question | Discarded:
        if question.id in surplus:
            return question.discard(surplus[question.id])
        part = HELD_OUT if question.document in held_out else PUBLIC
        return question.conclude(Check.SPLIT, "posir", {"part": part})

    result = previous.advance(map(assign, previous.questions))
    if min_questions is None:
        return result
    public = tuple(question for question in selection if question.document not in held_out)
    counts = CELLS[settings.cells].count_questions(replace(previous, questions=public))
    return replace(result, notes=tuple(_describe_shortage(counts, settings, min_questions)))


def _find_surplus(
    previous: StageResult, settings: BalanceSettings, seed: int
) -> dict[str, DiscardReason]:
    """Map the ids of questions to discard to the reason."""
    scheme = CELLS[settings.cells]
    incomplete_lengths: set[int] = set()
    if settings.per_cell == "smallest":
        counts = scheme.count_questions(previous)
        # Lengths without questions at some position cannot be balanced.
        incomplete_lengths = {length for (length, _), count in counts.items() if not count}
        remaining_counts = [
            count for (length, _), count in counts.items() if length not in incomplete_lengths
        ]
        limit: int | None = min(remaining_counts, default=0)
    else:
        limit = settings.per_cell
    sizes: Counter[BalanceCell] = Counter()
    surplus = {}
    for question in shuffle(previous.questions, seed, "balance"):
        cell = scheme.find_cell(previous, question)
        sizes[cell] += 1
        if cell[0] in incomplete_lengths:
            surplus[question.id] = DiscardReason.INCOMPLETE_LENGTH
        elif limit is not None and sizes[cell] > limit:
            surplus[question.id] = DiscardReason.FULL_CELL
    return surplus


def _sample_documents(questions: Sequence[Question], share: float, seed: int) -> set[str]:
    """Sample documents that together have about the given share of the questions."""
    sizes = Counter(question.document for question in questions)
    sample = set()
    total = 0
    for name in sorted(sizes, key=lambda name: compute_sort_key(seed, "held-out", name)):
        if not share or total + sizes[name] / 2 > share * len(questions):
            break
        sample.add(name)
        total += sizes[name]
    return sample


def find_min_questions(settings: BalanceSettings, questions: Sequence[Question] = ()) -> int | None:
    """Compute the number of questions needed to detect `settings.position_effect` with a power of
    80% (docs/statistics.md), or return None if it is not set.

    The mean number of questions per document is computed from `questions`, or defaults to 1.
    """
    if settings.position_effect is None:
        return None
    documents = {question.document for question in questions}
    design = Design(len(questions) / len(documents) if documents else 1.0)
    effect = settings.position_effect / 100
    return compute_sample(design, effect, margin=effect).questions


def _describe_shortage(
    counts: Mapping[BalanceCell, int], settings: BalanceSettings, min_questions: int
) -> Iterator[str]:
    total = sum(counts.values())
    enough = "enough" if total >= min_questions else "too few"
    part = "public questions" if settings.held_out else "questions"
    yield (
        f"{total:,} {part} are {enough}: detecting a position effect of "
        f"{settings.position_effect:g} points with a power of 80% takes {min_questions:,} questions"
    )
    titles = CELLS[settings.cells].titles
    per_cell = -(-min_questions // len(counts))
    for (length, third), count in counts.items():
        if count < per_cell:
            yield f"{titles[length]}, {POSITIONS[third]}: {count:,} of {per_cell:,} questions"
