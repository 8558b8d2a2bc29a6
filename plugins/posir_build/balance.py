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
    Discarded,
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
#: Intraclass correlation of the gains of questions about one document, as `posir power` assumes by
#: default.
ICC = 0.2
#: The parts of a dataset.
PUBLIC, HELD_OUT = "public", "held-out"


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
        """Return the cell of a question."""
        length = int(np.searchsorted(self.bounds, self.measure(document), side="left"))
        return length, find_third(question.evidence, len(document.text))

    def count(
        self, documents: Sequence[Document], questions: Sequence[Question]
    ) -> dict[BalanceCell, int]:
        """Return the number of questions in every cell, by length and third."""
        known = by_id(documents)
        counts = Counter(self.find(question, known[question.document]) for question in questions)
        return {cell: counts[cell] for cell in product(range(len(self.titles)), range(3))}


#: Cells by their length buckets: those of every report of posir, in tokens, and the training
#: paper's, in characters.
CELLS: Mapping[CellLengths, CellScheme] = {
    "posir": CellScheme(
        SCHEME.axes.length_titles, tuple(SCHEME.token_bounds), lambda document: document.tokens
    ),
    "five": CellScheme(
        tuple(f"{bucket.minimum:,} to {bucket.maximum:,} characters" for bucket in FIVE_LENGTHS),
        tuple(bucket.maximum for bucket in FIVE_LENGTHS[:-1]),
        lambda document: len(document.text),
    ),
}


def balance_questions(
    before: StageResult, settings: BalanceSettings, seed: int, needed: int | None
) -> StageResult:
    """Limit the questions per cell, name the cells that are short, and assign each question to a
    part.

    `needed` are the questions that the public part needs to show the stated PSI; None if that is
    not asked for.
    """
    documents, questions, scheme = before.documents, before.questions, CELLS[settings.cells]
    counts = scheme.count(documents, questions)
    # Lengths without a question at some position cannot be balanced.
    smallest = settings.per_cell == "smallest"
    incomplete = {length for (length, _), count in counts.items() if smallest and not count}
    least = min(
        (count for (length, _), count in counts.items() if length not in incomplete), default=0
    )
    limit = least if smallest else settings.per_cell
    known, filled, surplus = by_id(documents), Counter[BalanceCell](), dict[str, str]()
    for question in sorted(
        questions, key=lambda question: seeded_order(seed, "balance", question.id)
    ):
        cell = scheme.find(question, known[question.document])
        filled[cell] += 1
        if cell[0] in incomplete:
            surplus[question.id] = "its lengths have no question at some position"
        elif isinstance(limit, int) and filled[cell] > limit:
            surplus[question.id] = "its cell is full"
    kept = [question for question in questions if question.id not in surplus]
    discarded = tuple(
        Discarded(surplus[row.id], row.id, question=row) for row in questions if row.id in surplus
    )
    held_out, total, by_document = set[str](), 0, Counter(question.document for question in kept)
    # The questions of one document are in one part.
    for document in sorted(by_document, key=lambda name: seeded_order(seed, "held-out", name)):
        if not settings.held_out or total + by_document[document] / 2 > settings.held_out * len(
            kept
        ):
            break
        held_out.add(document)
        total += by_document[document]
    verdicts = {
        is_held: QuestionVerdict("split", True, "posir", {"part": HELD_OUT if is_held else PUBLIC})
        for is_held in (True, False)
    }
    assigned = tuple(
        question.with_verdict(verdicts[question.document in held_out]) for question in kept
    )
    # Only the public part is evaluated together.
    public = [question for question in kept if question.document not in held_out]
    notes = tuple(_describe_shortage(documents, public, settings, needed))
    return StageResult(documents, assigned, discarded, notes, {"needed": needed} if needed else {})


def find_needed_questions(
    settings: BalanceSettings, questions: Sequence[Question] = ()
) -> int | None:
    """Return how many questions show the stated position effect with a probability of 80%; None if
    none is stated.

    For as many questions a document as there are now, or one. See docs/statistics.md.
    """
    if settings.position_effect is None:
        return None
    per_document = (
        len(questions) / len({question.document for question in questions}) if questions else 1.0
    )
    effect = settings.position_effect / 100
    return required_sample(Design(per_document), effect, margin=effect).questions


def _describe_shortage(
    documents: Sequence[Document],
    questions: Sequence[Question],
    settings: BalanceSettings,
    needed: int | None,
) -> Iterator[str]:
    if needed is None:
        return
    enough = "enough" if len(questions) >= needed else "too few"
    which = "public questions" if settings.held_out else "questions"
    yield (
        f"{len(questions):,} {which} are {enough}: a position effect of "
        f"{settings.position_effect:g} points is found with a "
        "probability of 80% from "
        f"{needed:,} questions"
    )
    scheme = CELLS[settings.cells]
    counts = scheme.count(documents, questions)
    per_cell = -(-needed // len(counts))
    for (length, third), count in counts.items():
        if count < per_cell:
            yield (
                f"{scheme.titles[length]}, {POSITIONS[third]}: {count:,} of {per_cell:,} questions"
            )
