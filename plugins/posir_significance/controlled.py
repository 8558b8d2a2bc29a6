"""The controlled test: the same question, its evidence moved by rotating its own document.

Test W rotates whole documents, so that truncation is part of its effect; test R rotates excerpts
that the model reads whole, so that it is not. A row is a question and a version of its document.
Gains are regressed within questions on the third of the version that has the evidence and on
whether the version is rotated: a rotated text begins in its middle, which costs some models a
constant. Clusters are documents.
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
#: The weights of the columns of the regression, first third, rotated and last third, that give each
#: third minus the middle one.
LEVELS = np.diag([1.0, 0.0, 1.0])


@dataclass(frozen=True, eq=False)
class ControlledTest:
    """The n rows of one test over a group of questions."""

    gains: Floats
    """nDCG@10 of each row in [0, 1], or the difference of two models in [-1, 1]; shape (n,)."""
    thirds: Integers
    """Third of the version that has the evidence: 0, 1 or 2; shape (n,)."""
    versions: Integers
    """0 for the text itself, shape (n,)."""
    unread: Booleans
    """Whether the evidence is truncated in the version, shape (n,)."""
    questions: Integers
    """Number of each row's question, shape (n,)."""
    clusters: Integers
    """Number of each row's document, or of the documents that share a text or a title; shape
    (n,).
    """
    weights: Floats
    """Questions of a row's subset and length for each tested one, scaled to mean 1; shape (n,)."""
    limit: float = 1.0
    """Largest possible effect: 1 of gains, 2 of differences."""

    @classmethod
    def from_ranks(
        cls,
        ranks: DocumentRanks,
        rotations: RotationRanks,
        *,
        window: bool,
        length: int | None = None,
    ) -> ControlledTest:
        """Return test R, with `window`, or test W.

        Args:
            ranks: The ranks of a result.
            rotations: The ranks of its rotated versions.
            window: Whether the test is R.
            length: Index of a length bucket; None for all.
        """
        rows = rotations.rows(ranks, window=window)
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
            weights=_weight_rows(rows.query, cells),
        )

    def subtract(self, other: ControlledTest) -> ControlledTest:
        """Return the differences to another model's test of the same rows: the gains of this one
        minus those of the other.
        """
        return replace(self, gains=self.gains - other.gains, limit=2.0)

    def average(self, other: ControlledTest) -> ControlledTest:
        """Return the mean of two models' tests of the same rows."""
        return replace(self, gains=(self.gains + other.gains) / 2)

    def without_effect(self) -> ControlledTest:
        """Return the test of a model whose scores do not depend on the version: within questions,
        all gains are equal.
        """
        return replace(self, gains=np.zeros(len(self.gains)))

    def has_same_rows(self, other: ControlledTest) -> bool:
        """Tell whether two tests have the same questions in the same versions."""
        same_questions = np.array_equal(self.questions, other.questions)
        return same_questions and np.array_equal(self.versions, other.versions)

    @property
    def question_count(self) -> int:
        """Number of tested questions."""
        return len(np.unique(self.questions))

    @property
    def document_count(self) -> int:
        """Number of independent documents that they are about."""
        return len(np.unique(self.clusters))

    @cached_property
    def documents_at_ends(self) -> int:
        """Independent documents with evidence in the first third of a version, or in the last,
        whichever are fewer.
        """
        return min(len(np.unique(self.clusters[self.thirds == third])) for third in (0, THIRDS - 1))

    @cached_property
    def regression(self) -> Regression | None:
        """The regression on the first third, a rotated version and the last third; None if no
        question has rows in different thirds.
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
        return self._contrast(LEVELS[0] - LEVELS[-1])

    @cached_property
    def middle_minus_ends(self) -> Contrast | None:
        """Middle third minus the mean of the other two."""
        return self._contrast(LEVELS[1] - (LEVELS[0] + LEVELS[-1]) / 2)

    @cached_property
    def truncation_loss(self) -> Contrast | None:
        """Evidence that is read minus the same evidence where it is truncated; None if no question
        has both.
        """
        if not self.unread.any() or self.unread.all():
            return None
        regression = self._fit(~self.unread, self.versions > 0)
        return regression.contrast(np.array((1.0, 0.0)), self.limit) if regression else None

    @property
    def room_for_effect(self) -> float:
        """Largest difference between thirds that the mean gain of the unrotated texts allows."""
        unmoved = self.gains[self.versions == 0]
        level = float(unmoved.mean()) if len(unmoved) else 0.0
        return THIRDS * min(level, 1 - level)

    @cached_property
    def levels(self) -> Floats | None:
        """Mean gain with the evidence in each third, shape (3,); None without a regression."""
        if self.regression is None:
            return None
        effects = LEVELS @ self.regression.coefficients
        shares = np.bincount(self.thirds, self.weights, minlength=THIRDS) / self.weights.sum()
        levels: Floats = np.average(self.gains, weights=self.weights) + effects - shares @ effects
        return levels

    @cached_property
    def psi(self) -> Estimate | None:
        """Controlled PSI, 1 - lowest / highest level, with an interval that holds for all pairs of
        thirds together.
        """
        if self.levels is None or self.levels.max() <= 0:
            return None
        levels = np.clip(self.levels, 0.0, 1.0)
        value = float(1 - levels.min() / levels.max())
        low = 0.0
        high = value
        for first, second in combinations(range(THIRDS), 2):
            contrast = self._contrast(LEVELS[first] - LEVELS[second])
            higher = float(max(levels[first], levels[second]))
            if contrast is None or contrast.interval_at is None or higher <= 0:
                return None
            # Of three such differences together 95%.
            start, end = contrast.interval_at(1 - (1 - LEVEL) / THIRDS)
            low = max(low, max(start, -end) / higher)
            high = max(high, max(abs(start), abs(end)) / higher)
        return Estimate(value, (min(low, value), min(high, 1.0)))


def _weight_rows(questions: Integers, cells: Integers) -> Floats:
    """Return the questions of each row's cell for each tested one, scaled to mean 1; `cells` are
    those of all questions.
    """
    if not len(questions):
        return np.zeros(0)
    tested = np.unique(questions)
    totals = np.bincount(cells)
    sampled = np.bincount(cells[tested], minlength=len(totals))
    weights: Floats = (totals / np.maximum(sampled, 1))[cells[questions]]
    scaled: Floats = weights / weights.mean()
    return scaled
