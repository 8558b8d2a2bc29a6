"""Stage 6, Balance and power: questions per cell of length and position, and a public and a
held-out part.

A cell is a length bucket and a third of the document. PosQ (arXiv 2505.13950) and Built-in or
Learned (arXiv 2605.26578, appendix B.4) downsample to the smallest, which `per_cell: smallest`
does; by default no cell is limited, since fewer questions show less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from posir_build.records import (
    Check,
    DiscardReason,
    Document,
    Question,
    QuestionVerdict,
    StageResult,
    by_id,
    seeded_order,
)
from posir_build.settings import FIVE_LENGTHS, BalanceSettings, CellLengths
from posir_significance.api import Design, required_sample
from posir_tasks.text.spans import find_third
from posir_tasks.values.evidence import POSITIONS
from posir_tasks.values.schemes import RelativePositions

SCHEME = RelativePositions()
#: The parts of a dataset.
PUBLIC = "public"
HELD_OUT = "held-out"


#: A length bucket and a third of the document, both counted from 0.
BalanceCell = tuple[int, int]


@dataclass(frozen=True)
class CellScheme:
    """The length buckets of cells."""

    titles: tuple[str, ...]
    bounds: tuple[int, ...]
    """Greatest length of each bucket but the last."""
    measure: Callable[[Document], int]

    def find(self, question: Question, document: Document) -> BalanceCell:
        """Find the cell of a question."""
        length = int(np.searchsorted(self.bounds, self.measure(document), side="left"))
        return length, find_third(question.evidence, len(document.text))

    def count(
        self, documents: Sequence[Document], questions: Sequence[Question]
    ) -> dict[BalanceCell, int]:
        """Count the questions in every cell, by length and third."""
        by_name = by_id(documents)
        counts = Counter(self.find(question, by_name[question.document]) for question in questions)
        return {cell: counts[cell] for cell in product(range(len(self.titles)), range(3))}


#: Cells by their length buckets: those of every report of posir, in tokens, and the training
#: paper's, in characters.
CELLS: Mapping[CellLengths, CellScheme] = {
    "posir": CellScheme(
        SCHEME.axes.length_titles, tuple(SCHEME.token_bounds), lambda document: document.tokens
    ),
    "five": CellScheme(
        tuple(f"{bucket} characters" for bucket in FIVE_LENGTHS),
        tuple(bucket.maximum for bucket in FIVE_LENGTHS[:-1]),
        lambda document: len(document.text),
    ),
}


def balance_questions(
    before: StageResult, settings: BalanceSettings, seed: int, needed: int | None
) -> StageResult:
    """Limit the questions per cell, name the cells that are short, and assign each question to a
    part.

    `needed` is the number of questions that the public part needs to show the position effect of
    the settings; None if there is none.
    """
    surplus = _find_surplus(before, settings, seed)
    kept = []
    discarded = []
    for question in before.questions:
        if question.id in surplus:
            discarded.append(question.discard(surplus[question.id]))
        else:
            kept.append(question)
    held_out = _draw_documents(kept, settings.held_out, seed)
    assigned = []
    public = []
    for question in kept:
        part = HELD_OUT if question.document in held_out else PUBLIC
        verdict = QuestionVerdict(Check.SPLIT, True, "posir", {"part": part})
        assigned.append(question.with_verdict(verdict))
        if part == PUBLIC:
            public.append(question)
    notes = []
    if needed:
        # Only the public part is evaluated together.
        counts = CELLS[settings.cells].count(before.documents, public)
        notes = list(_describe_shortage(counts, settings, needed))
    return StageResult(before.documents, tuple(assigned), tuple(discarded), tuple(notes))


def _find_surplus(
    before: StageResult, settings: BalanceSettings, seed: int
) -> dict[str, DiscardReason]:
    """Find the ids of questions beyond the limit of their cell."""
    scheme = CELLS[settings.cells]
    documents = by_id(before.documents)
    incomplete: set[int] = set()
    if settings.per_cell == "smallest":
        counts = scheme.count(before.documents, before.questions)
        # Lengths without a question at some position cannot be balanced.
        incomplete = {length for (length, _), count in counts.items() if not count}
        complete = [count for (length, _), count in counts.items() if length not in incomplete]
        limit: int | None = min(complete, default=0)
    else:
        limit = settings.per_cell
    filled: Counter[BalanceCell] = Counter()
    surplus = {}
    for question in sorted(before.questions, key=lambda row: seeded_order(seed, "balance", row.id)):
        cell = scheme.find(question, documents[question.document])
        filled[cell] += 1
        if cell[0] in incomplete:
            surplus[question.id] = DiscardReason.INCOMPLETE_LENGTH
        elif limit is not None and filled[cell] > limit:
            surplus[question.id] = DiscardReason.FULL_CELL
    return surplus


def _draw_documents(questions: Sequence[Question], share: float, seed: int) -> set[str]:
    """Draw documents that together have about a share of the questions."""
    sizes = Counter(question.document for question in questions)
    drawn = set()
    total = 0
    for name in sorted(sizes, key=lambda name: seeded_order(seed, "held-out", name)):
        if not share or total + sizes[name] / 2 > share * len(questions):
            break
        drawn.add(name)
        total += sizes[name]
    return drawn


def find_needed_questions(
    settings: BalanceSettings, questions: Sequence[Question] = ()
) -> int | None:
    """Compute how many questions show the position effect of the settings with a probability of
    80%; None without one.

    The number is for as many questions a document as there are now, or one. See
    docs/statistics.md.
    """
    if settings.position_effect is None:
        return None
    documents = {question.document for question in questions}
    design = Design(len(questions) / len(documents) if documents else 1.0)
    effect = settings.position_effect / 100
    return required_sample(design, effect, margin=effect).questions


def _describe_shortage(
    counts: Mapping[BalanceCell, int], settings: BalanceSettings, needed: int
) -> Iterator[str]:
    number = sum(counts.values())
    enough = "enough" if number >= needed else "too few"
    part = "public questions" if settings.held_out else "questions"
    yield (
        f"{number:,} {part} are {enough}: a position effect of "
        f"{settings.position_effect:g} points is found with a probability of 80% from {needed:,} "
        "questions"
    )
    titles = CELLS[settings.cells].titles
    per_cell = -(-needed // len(counts))
    for (length, third), count in counts.items():
        if count < per_cell:
            yield f"{titles[length]}, {POSITIONS[third]}: {count:,} of {per_cell:,} questions"
