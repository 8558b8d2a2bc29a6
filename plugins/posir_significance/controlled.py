"""The controlled test: the evidence of a question is moved by rotating the document.

The effect of test W, on whole documents, includes truncation. Test R excludes it with excerpts that
fit into the window. A row is a question and a version of its document. Within questions, gains are
regressed on the third with the evidence and on an indicator of rotation, since some models score
any text that starts in the middle lower by a constant. Clusters are documents.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np

from posir_significance.observations import Floats, Integers
from posir_significance.regression import Contrast, Regression
from posir_tasks.base.arrays import Booleans
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.evidence import TWELFTHS
from posir_tasks.values.means import LEVEL
from posir_tasks.values.profile import NDCG_AT_10
from posir_tasks.values.rotation_ranks import RotationRanks

THIRDS = 3
#: Coefficients of the regression's columns (first third, rotated, last third) for each third minus
#: the middle third.
THIRD_COEFFICIENTS = np.diag([1.0, 0.0, 1.0])


@dataclass(frozen=True, eq=False)
class ControlledTest:
    """The n rows of one test over a group of questions."""

    gains: Floats
    """nDCG@10 in [0, 1], or the difference of two models in [-1, 1]; shape (n,)."""
    thirds: Integers
    """Third of the version that contains the evidence, 0 to 2; shape (n,)."""
    versions: Integers
    """Version number, 0 for the original; shape (n,)."""
    unread: Booleans
    """True for truncated evidence, shape (n,)."""
    questions: Integers
    """Question number, shape (n,)."""
    clusters: Integers
    """Document number; equal for documents that share a text or a title. Shape (n,)."""
    weights: Floats
    """Ratio of all questions to tested questions in the same subset and length bucket, scaled to
    mean 1; shape (n,).
    """
    limit: float = 1.0
    """Maximum effect: 1 for gains, 2 for differences."""

    @classmethod
    def from_ranks(
        cls,
        ranks: DocumentRanks,
        rotations: RotationRanks,
        *,
        window: bool,
        length: int | None = None,
    ) -> ControlledTest:
        """Build test W or test R from ranks.

        Args:
            ranks: The ranks of a result.
            rotations: The ranks of its rotated versions.
            window: If true, test R.
            length: Index of a length bucket; None for all lengths.
        """
        rows = rotations.select_rows(ranks, window=window)
        columns = ranks.columns
        lengths = ranks.cell_lengths[columns.cells]
        if length is not None:
            rows = rows.select(lengths[rows.query] == length)
        cells = columns.subsets * (len(ranks.axes.lengths) + 1) + lengths
        return cls(
            gains=NDCG_AT_10[rows.ranks],
            thirds=rows.twelfths // (TWELFTHS // THIRDS),
            versions=rows.version,
            unread=rows.unread > 0,
            questions=rows.query,
            clusters=columns.clusters[rows.query],
            weights=_compute_row_weights(rows.query, cells),
        )

    def subtract(self, other: ControlledTest) -> ControlledTest:
        """Subtract the gains of another model on the same rows."""
        return replace(self, gains=self.gains - other.gains, limit=2.0)

    def average(self, other: ControlledTest) -> ControlledTest:
        """Average the gains of two models on the same rows."""
        return replace(self, gains=(self.gains + other.gains) / 2)

    def remove_effect(self) -> ControlledTest:
        """Set all gains to 0, as for a model that gives all versions the same score."""
        return replace(self, gains=np.zeros(len(self.gains)))

    def has_same_rows(self, other: ControlledTest) -> bool:
        """Return True if both tests have the same questions and versions."""
        same_questions = np.array_equal(self.questions, other.questions)
        return same_questions and np.array_equal(self.versions, other.versions)

    @property
    def question_count(self) -> int:
        """Number of tested questions."""
        return len(np.unique(self.questions))

    @property
    def document_count(self) -> int:
        """Number of independent documents."""
        return len(np.unique(self.clusters))

    @cached_property
    def documents_at_ends(self) -> int:
        """Number of independent documents with evidence in the first third or in the last third,
        whichever is smaller.
        """
        return min(len(np.unique(self.clusters[self.thirds == third])) for third in (0, THIRDS - 1))

    @cached_property
    def regression(self) -> Regression | None:
        """The regression on first third, rotated version and last third; None if no question has
        rows in different thirds.
        """
        return self._fit(self.thirds == 0, self.versions > 0, self.thirds == THIRDS - 1)

    def _fit(self, *columns: Booleans) -> Regression | None:
        indicators = np.stack(columns, axis=1).astype(np.float64)
        return Regression.fit(self.gains, indicators, self.questions, self.clusters, self.weights)

    def _contrast(self, weights: Floats) -> Contrast | None:
        return self.regression.contrast(weights, self.limit) if self.regression else None

    @cached_property
    def effect(self) -> Contrast | None:
        """First third minus last third."""
        return self._contrast(THIRD_COEFFICIENTS[0] - THIRD_COEFFICIENTS[-1])

    @cached_property
    def middle_minus_ends(self) -> Contrast | None:
        """Middle third minus the mean of first and last third."""
        return self._contrast(
            THIRD_COEFFICIENTS[1] - (THIRD_COEFFICIENTS[0] + THIRD_COEFFICIENTS[-1]) / 2
        )

    @cached_property
    def truncation_loss(self) -> Contrast | None:
        """Evidence within the window minus the same evidence when truncated; None if no question
        has both.
        """
        if not self.unread.any() or self.unread.all():
            return None
        regression = self._fit(~self.unread, self.versions > 0)
        return regression.contrast(np.array((1.0, 0.0)), self.limit) if regression else None

    @property
    def max_effect(self) -> float:
        """Maximum possible difference between thirds, given the mean gain of the original texts."""
        originals = self.gains[self.versions == 0]
        level = float(originals.mean()) if len(originals) else 0.0
        return THIRDS * min(level, 1 - level)

    @cached_property
    def levels(self) -> Floats | None:
        """Mean gain with the evidence in each third, shape (3,); None without a regression."""
        if self.regression is None:
            return None
        effects = THIRD_COEFFICIENTS @ self.regression.coefficients
        shares = np.bincount(self.thirds, self.weights, minlength=THIRDS) / self.weights.sum()
        levels: Floats = np.average(self.gains, weights=self.weights) + effects - shares @ effects
        return levels

    @cached_property
    def psi(self) -> Estimate | None:
        """Controlled PSI, 1 - lowest / highest level, with an interval simultaneous over pairs of
        thirds.
        """
        if self.levels is None or self.levels.max() <= 0:
            return None
        levels = np.clip(self.levels, 0.0, 1.0)
        value = float(1 - levels.min() / levels.max())
        low = 0.0
        high = value
        for first, second in combinations(range(THIRDS), 2):
            contrast = self._contrast(THIRD_COEFFICIENTS[first] - THIRD_COEFFICIENTS[second])
            higher = float(max(levels[first], levels[second]))
            if contrast is None or contrast.compute_interval is None or higher <= 0:
                return None
            # The family of three differences has level 95%.
            start, end = contrast.compute_interval(1 - (1 - LEVEL) / THIRDS)
            low = max(low, max(start, -end) / higher)
            high = max(high, max(abs(start), abs(end)) / higher)
        return Estimate(value, (min(low, value), min(high, 1.0)))


def _compute_row_weights(questions: Integers, cells: Integers) -> Floats:
    """Compute each row's ratio of all questions to tested questions in its cell, scaled to mean 1.

    `cells` contains the cell of every question, tested or not.
    """
    if not len(questions):
        return np.zeros(0)
    totals = np.bincount(cells)
    samples = np.bincount(cells[np.unique(questions)], minlength=len(totals))
    weights: Floats = (totals / np.maximum(samples, 1))[cells[questions]]
    scaled: Floats = weights / weights.mean()
    return scaled
