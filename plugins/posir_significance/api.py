"""The public function of this package, `posir.power`: the number of questions that show an effect of position of a given size.

The effect is a linear decline over positions. The evidence test finds it about as often as a normal test of the linear trend
does that has a somewhat larger critical value, since the mixture looks for other shapes, too. `CRITICAL_VALUES` are calibrated
by simulation (docs/statistics.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Annotated, Any

import numpy as np
from scipy.special import ndtri, stdtrit

from posir_psi.scores import psi
from posir_significance.intervals import TAILS, Z
from posir_significance.observations import Floats, Integers
from posir_significance.position_effect import SHARED_QUERIES, PositionEffect, Stratum, fewest_documents, pseudoinverse
from posir_tasks.display.numbers import format_count, format_points, format_psi
from posir_tasks.display.presentation import Presentable, to_paragraphs, to_values
from posir_tasks.display.tables import DisplaySection, Table, build_columns
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import PosirError
from posir_tasks.public import Option, public
from posir_tasks.schemes import assign_thirds, bin_midpoints

#: Probability of a significant result that studies are usually planned for.
POWER = 0.8
#: Numbers of position bins, and critical values of the equivalent test of the linear trend; the last is for more bins, too.
CALIBRATED_BINS, CRITICAL_VALUES = (2, 3, 6, 10), (1.97, 2.29, 2.33, 2.38)
#: Variance of a query's nDCG@10 as a share of a Bernoulli trial's with the same mean; 0.74 to 0.83 in simulated ranks.
DISPERSION = 0.8
#: Scores this far outside [0, 1] are rounding errors.
ROUNDING = 1e-9


@dataclass(frozen=True)
class LinearEffect:
    """A linear decline of nDCG@10 over positions, or a rise if the difference is negative."""

    start_to_end: float
    """First third minus last third, in nDCG@10."""
    psi: float


@dataclass(frozen=True)
class Design:
    """A dataset to be made; the positions of its evidence are uniform, and random within documents."""

    ndcg_at_10: float
    """Expected mean, in (0, 1)."""
    bins: int
    """Number of position bins, at least 2."""
    questions_per_document: float
    """Mean, at least 1."""
    icc: float
    """Intraclass correlation of the gains of one document's questions, in [0, 1)."""
    bin_icc: float = 0.0
    """Correlation, in [0, 1), of what is left of it within a document, of questions in the same position bin."""

    @property
    def holds_documents_fixed(self) -> bool:
        """Whether documents are held fixed, if they differ by at most one in their number of questions."""
        return 2 * (1 - 1 / self.questions_per_document) >= SHARED_QUERIES

    def variance(self) -> float:
        """Return the variance of a contrast of weights with mean square 1 over bins, times the number of questions.

        With the document held fixed: A = n/P (1 - 1/k) (I - 11'/P) for k questions a document at random positions, and the
        variance of gains within documents. Each question shares its bin with (k - 1) / P others of its document.
        """
        total = DISPERSION * self.ndcg_at_10 * (1 - self.ndcg_at_10)
        total *= 1 + self.bin_icc * (self.questions_per_document - 1) / self.bins
        return total * (1 - self.icc) / (1 - 1 / self.questions_per_document) if self.holds_documents_fixed else total


@dataclass(frozen=True)
class SampleSize:
    """The sample size that a dataset needs to show an effect."""

    start_to_end: float
    psi: float
    questions: int
    documents: int


@dataclass(frozen=True, eq=False)
class _Trend:
    """The linear decline over the B non-empty bins."""

    shape: Floats
    """Scores minus their weighted mean for a slope of 1, shape (B,)."""
    start_to_end: float
    """Start to end for a slope of 1."""

    @classmethod
    def over(cls, bins: int, filled: Integers, weights: Floats) -> _Trend | None:
        """Return the trend over the non-empty bins; None if the first or the last third is empty."""
        middle, third = bin_midpoints(bins)[filled], assign_thirds(bins)[filled]
        if not {0, 2} <= set(third.tolist()):
            return None
        shape = weights @ middle / weights.sum() - middle
        start, end = (float(np.average(shape[third == part], weights=weights[third == part])) for part in (0, 2))
        return cls(shape, start - end)

    def effect(self, slope: float, level: float) -> LinearEffect | None:
        """Return the effect of a slope; None if a bin would have an nDCG@10 below 0 or above 1."""
        scores = level + slope * self.shape
        if scores.min() < -ROUNDING or scores.max() > 1 + ROUNDING:
            return None
        return LinearEffect(slope * self.start_to_end, float(psi(np.clip(scores, 0, 1))))


@dataclass(frozen=True)
class StartToEnd:
    """A difference between the first and the last third as the effect to be shown."""

    difference: float
    """Difference in nDCG@10; positive."""

    def slope(self, trend: _Trend, _level: float) -> float:
        """Return the slope over positions."""
        return self.difference / trend.start_to_end

    def describe(self) -> str:
        """Return the effect in words."""
        return f"a difference of {self.difference * 100:g} points between first and last third"


@dataclass(frozen=True)
class TruePsi:
    """A PSI as the effect to be shown."""

    psi: float
    """True PSI in (0, 1]."""

    def slope(self, trend: _Trend, level: float) -> float:
        """Return the slope over positions."""
        # The shape is symmetric: psi = 1 - (level - slope x) / (level + slope x), where x is its largest value.
        return level * self.psi / (2 - self.psi) / float(trend.shape.max())

    def describe(self) -> str:
        """Return the effect in words."""
        return f"a PSI of {self.psi:g}"


Target = StartToEnd | TruePsi


def detectable_effect(effect: PositionEffect, bins: int, power: float = POWER) -> LinearEffect | None:
    """Return the smallest linear decline that data like these would show.

    Args:
        effect: Estimated from the data; its level and null covariance are used.
        bins: Number of all position bins.
        power: Probability of p < 0.05, at least 0.5.

    Returns:
        None if they would show none that an nDCG@10 in [0, 1] allows.
    """
    trend = _Trend.over(bins, effect.filled, effect.weights)
    if trend is None:
        return None
    information = float(trend.shape @ pseudoinverse(effect.null_covariance)[0] @ trend.shape)
    needed = standardized_effect(len(effect.filled), power, effect.degrees)
    return trend.effect(needed / information**0.5, effect.level) if information else None


def standardized_effect(bins: int, power: float, degrees: float = np.inf) -> float:
    """Return the trend, in standard errors, that is found at p < 0.05 with a probability of at least 0.5.

    Args:
        bins: Number of non-empty position bins.
        power: Probability of p < 0.05, at least 0.5.
        degrees: Degrees of freedom: about the number of documents. With few, the critical value is larger as Student's t is.
    """
    critical = np.interp(bins, CALIBRATED_BINS, CRITICAL_VALUES) * stdtrit(degrees, TAILS[1]) / Z
    return float(critical + ndtri(power))


def required_sample(design: Design, target: Target, power: float = POWER) -> SampleSize:
    """Return how many questions and documents show a linear decline; at least the documents that a test needs.

    Args:
        design: The dataset.
        target: The effect to be shown.
        power: Probability of p < 0.05, in [0.5, 1).

    Raises:
        PosirError: No linear decline with this mean nDCG@10 has this effect.
    """
    trend = _Trend.over(design.bins, np.arange(design.bins), np.full(design.bins, 1 / design.bins))
    assert trend is not None
    slope = target.slope(trend, design.ndcg_at_10)
    effect = trend.effect(slope, design.ndcg_at_10)
    if effect is None:
        raise PosirError(
            f"With a mean nDCG@10 of {design.ndcg_at_10 * 100:g} no linear decline has {target.describe()}: some position "
            "would score below 0 or above 100. Choose a smaller effect, or another mean."
        )
    fewest = fewest_documents(Stratum.DOCUMENT if design.holds_documents_fixed else Stratum.LENGTH)
    size, per_document = design.variance() / (slope**2 * float(np.mean(trend.shape**2))), design.questions_per_document
    documents = max(standardized_effect(design.bins, power) ** 2 * size / per_document, fewest)
    # Once is enough: the critical value hardly depends on the number of documents.
    needed = standardized_effect(design.bins, power, documents - 1) ** 2 * size
    questions = ceil(max(needed, fewest * per_document))
    return SampleSize(effect.start_to_end, effect.psi, questions, ceil(questions / per_document))


def describe_sample(size: SampleSize, power: float) -> str:
    """Return how many questions and documents show an effect, in a sentence."""
    return (
        f"{pluralize(size.questions, 'question')} on {pluralize(size.documents, 'document')} show a PSI of "
        f"{format_psi(size.psi)}, {format_points(size.start_to_end)} points from start to end, "
        f"with p < 0.05 and a probability of {power:g}."
    )


def build_table(design: Design, rows: Sequence[SampleSize]) -> Table:
    """Return the table of `posir power`."""
    fixed = "the document" if design.holds_documents_fixed else "its length"
    headings = ("Start to end", "PSI", "Questions", "Documents")
    shown = (
        f"nDCG@10 {design.ndcg_at_10 * 100:g}",
        f"{design.bins} bins",
        f"{design.questions_per_document:g} questions per document",
    )
    return Table(
        columns=build_columns(headings, headings),
        rows=tuple(
            (
                format_points(row.start_to_end),
                format_psi(row.psi),
                format_count(row.questions),
                format_count(row.documents),
            )
            for row in rows
        ),
        title=f"Design · {', '.join(shown)}",
        notes=(
            f"For a linear decline, positions at random, and an intraclass correlation of {design.icc:g} within documents, "
            f"{design.bin_icc:g} within their bins; {fixed} is held fixed.",
        ),
    )


@dataclass(frozen=True, repr=False)
class PowerAnalysis(Presentable):
    """The sample sizes that show effects of position in a dataset to be made."""

    design: Design
    power: float
    """Probability of a significant result, in [0.5, 1)."""
    rows: tuple[SampleSize, ...]
    """One for each effect, those from start to end first."""

    @property
    def title(self) -> str:
        """Subject in a few words."""
        return "Questions and documents that show an effect of position"

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return a sentence for the first and the last effect, then the table."""
        ends = dict.fromkeys([self.rows[0], self.rows[-1]])
        findings = (describe_sample(row, self.power) for row in ends)
        return (*to_paragraphs(findings), DisplaySection(tables=(build_table(self.design, self.rows),)))

    def records(self) -> tuple[SampleSize, ...]:
        """Return a row for each effect."""
        return self.rows

    def document(self) -> dict[str, Any]:
        """Return the design and the rows; scores in [0, 1]."""
        return {**asdict(self.design), "power": self.power, "rows": self.rows}


@public()
def power(
    *,
    difference: Annotated[float | Iterable[float] | None, Option(min=0.01, max=100)] = None,
    psi: Annotated[float | Iterable[float] | None, Option(min=0.001, max=1)] = None,
    ndcg: Annotated[float, Option(min=1, max=99)] = 70.0,
    bins: Annotated[int, Option(min=2, max=100)] = 20,
    questions_per_document: Annotated[float, Option(min=1)] = 1.0,
    icc: Annotated[float, Option(min=0, max=0.99)] = 0.2,
    bin_icc: Annotated[float, Option(min=0, max=0.99)] = 0.0,
    power: Annotated[float, Option(min=0.5, max=0.999)] = POWER,
) -> PowerAnalysis:
    """Find how many questions and documents a dataset needs to show an effect of position.

    The effect is a linear decline of nDCG@10 over positions; docs/statistics.md has the method and its calibration.

    Args:
        difference: Difference in nDCG@10 between the first and the last third of the documents, in points.
        psi: True PSI.
        ndcg: Expected mean nDCG@10, in points.
        bins: Number of position bins.
        questions_per_document: Mean number of questions about a document.
        icc: Intraclass correlation of nDCG@10 within documents.
        bin_icc: Correlation beyond it of questions in the same bin of a document.
        power: Probability of p < 0.05.

    Returns:
        A row for each effect, with the columns `start_to_end`, `psi`, `questions` and `documents`.

    Raises:
        PosirError: No effect is given, a value is out of range, or no linear decline with this mean has the effect.

    Examples:
        >>> import posir
        >>> sizes = posir.power(psi=[0.1, 0.2])
        >>> sizes.to_polars()["questions"].to_list()
        [3489, 785]
    """
    points = to_values(difference)
    targets: list[Target] = [*(StartToEnd(value / 100) for value in points), *map(TruePsi, to_values(psi))]
    if not targets:
        raise PosirError("Which effect should the dataset show? Pass difference (points) or psi.")
    design = Design(ndcg / 100, bins, float(questions_per_document), icc, bin_icc)
    return PowerAnalysis(design, power, tuple(required_sample(design, target, power) for target in targets))
