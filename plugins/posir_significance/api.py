"""The public function of this package, `posir.power`: the number of questions that lead to each state of a bias.

The effect is a linear decline over positions. States follow from the interval of start to end alone (`decision`). The evidence
test, of which `detectable_effect` is the inverse, finds a linear decline about as often as a normal test of the linear trend
does that has a somewhat larger critical value, since the mixture looks for other shapes, too. `CRITICAL_VALUES` are calibrated
by simulation (docs/statistics.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Annotated

import numpy as np
from scipy.special import ndtri, stdtrit

from posir_psi.scores import compute_psi
from posir_significance.decision import CHANGE_LEVEL, DEFAULT_MARGINS, JUDGED_LEVEL, State
from posir_significance.intervals import LEVEL, TAILS, Z
from posir_significance.observations import Floats, Integers
from posir_significance.position_effect import (
    FEWEST_DOCUMENTS,
    SHARED_QUERIES,
    PositionEffect,
    Stratum,
    fewest_documents,
    pseudoinverse,
)
from posir_significance.sentences import format_margin, name_state
from posir_tasks.display.numbers import MISSING, format_count, format_points, format_psi
from posir_tasks.display.presentation import TableResult
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import PosirError, UsageError
from posir_tasks.public import Option, public, to_list
from posir_tasks.schemes import assign_thirds, bin_midpoints

#: Probability of a result that studies are usually planned for.
POWER = 0.8
#: Numbers of position bins, and critical values of the equivalent test of the linear trend; the last is for more bins, too.
CALIBRATED_BINS, CRITICAL_VALUES = (2, 3, 6, 10), (1.97, 2.29, 2.33, 2.38)
#: Variance of a query's nDCG@10 as a share of a Bernoulli trial's with the same mean; 0.74 to 0.83 in simulated ranks.
DISPERSION = 0.8
#: Variance of first minus last third of evenly spread positions, times questions, of gains with variance 1.
THIRDS = 6
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
    """The sample size that leads to a state with the stated power; None where no number of questions does."""

    models: int
    """1 for a state of a model's bias, 2 for a change of start to end from one model to another."""
    state: str
    """The state in words, such as `biased to the start` or `no bias larger than 5 points`."""
    start_to_end: float
    """True start to end, or its difference between two models; 0 for the states of no such difference."""
    psi: float | None
    """PSI of the linear decline; None for two models."""
    questions: int | None
    documents: int | None
    ndcg_at_10: float | None = None
    """Difference of two models in mean nDCG@10, of which alone the row is then; no positions are needed."""


def _find_trend(bins: int, filled: Integers, weights: Floats) -> tuple[Floats, float] | None:
    """Return a decline of slope 1 over the B non-empty bins: scores minus their weighted mean, shape (B,), and start to end.

    None if the first or the last third is empty.
    """
    middle, third = bin_midpoints(bins)[filled], assign_thirds(bins)[filled]
    if not {0, 2} <= set(third.tolist()):
        return None
    shape = weights @ middle / weights.sum() - middle
    start, end = (float(np.average(shape[third == part], weights=weights[third == part])) for part in (0, 2))
    return shape, start - end


def _scale_trend(trend: tuple[Floats, float], slope: float, level: float) -> LinearEffect | None:
    """Return the effect of a slope; None if a bin would have an nDCG@10 below 0 or above 1."""
    scores = level + slope * trend[0]
    if scores.min() < -ROUNDING or scores.max() > 1 + ROUNDING:
        return None
    return LinearEffect(slope * trend[1], float(compute_psi(np.clip(scores, 0, 1))))


def detectable_effect(effect: PositionEffect, power: float = POWER) -> LinearEffect | None:
    """Return the smallest linear decline that data like these would show; None if none that an nDCG@10 in [0, 1] allows.

    Level and null covariance of the estimated effect are used. `power` is the probability of p < 0.05, at least 0.5.
    """
    trend = _find_trend(effect.bins, effect.filled, effect.weights)
    if trend is None:
        return None
    information = float(trend[0] @ pseudoinverse(effect.null_covariance)[0] @ trend[0])
    needed = standardized_effect(len(effect.filled), power, effect.degrees)
    return _scale_trend(trend, needed / information**0.5, effect.level) if information else None


def standardized_effect(bins: int, power: float, degrees: float = np.inf) -> float:
    """Return the trend, in standard errors, that is found at p < 0.05 with a probability of at least 0.5.

    `degrees` is about the number of documents: with few, the critical value is larger, as Student's t is.
    """
    critical = np.interp(bins, CALIBRATED_BINS, CRITICAL_VALUES) * stdtrit(degrees, TAILS[1]) / Z
    return float(critical + ndtri(power))


def find_effect(design: Design, *, start_to_end: float | None = None, psi: float | None = None) -> LinearEffect:
    """Return the linear decline that has one of these effects; raise PosirError if none with this mean nDCG@10 has it.

    `start_to_end` is in nDCG@10, positive; `psi` in (0, 1].
    """
    trend, level = _find_trend(design.bins, np.arange(design.bins), np.full(design.bins, 1 / design.bins)), design.ndcg_at_10
    assert trend is not None
    if start_to_end is not None:
        slope, named = start_to_end / trend[1], f"a difference of {start_to_end * 100:g} points"
    else:
        # The shape is symmetric: psi = 1 - (level - slope x) / (level + slope x), where x is its largest value.
        psi = psi or 0.0
        slope, named = level * psi / (2 - psi) / float(trend[0].max()), f"a PSI of {psi:g}"
    if effect := _scale_trend(trend, slope, level):
        return effect
    raise PosirError(
        f"With a mean nDCG@10 of {level * 100:g} no linear decline has {named}: some position would score below 0 or above "
        "100. Choose a smaller effect, or another mean."
    )


def required_sample(
    design: Design,
    effect: LinearEffect | None,
    power: float = POWER,
    margin: float = DEFAULT_MARGINS.start_to_end,
    models: int = 1,
) -> SampleSize:
    """Return how many questions and documents lead to a state; at least the documents that any state needs.

    A bias D is said if the interval of start to end excludes 0, so that z(level) + z(power) standard errors must fit into D;
    that there is none larger than the margin if the interval lies within it, on both sides: z(level) + z((1 + power) / 2).

    Args:
        design: The dataset.
        effect: The true effect; None for none, which leads to the state of no effect larger than the margin.
        power: Probability of the state, in [0.5, 1).
        margin: Smallest start to end that matters, in nDCG@10.
        models: 1, or 2 for a change between models on the same questions, whose gains have a correlation of 0.5.
    """
    level, share = (LEVEL, CHANGE_LEVEL)[models - 1], power if effect else (1 + power) / 2
    if effect:
        state = "better or worse" if models > 1 else name_state(State.BIASED_TO_START, margin)
    else:
        within = f"within {format_margin(margin)}"
        state = f"equivalent {within}" if models > 1 else name_state(State.NO_BIAS, margin)
    truth = (effect.start_to_end, effect.psi if models == 1 else None) if effect else (0.0, 0.0 if models == 1 else None)
    if effect and effect.start_to_end < margin:
        # With more questions, the interval lies within the margin.
        return SampleSize(models, state, *truth, None, None)
    per_document, stratum = design.questions_per_document, Stratum.DOCUMENT if design.holds_documents_fixed else Stratum.LENGTH
    # Documents with evidence in a given third; of questions at random positions.
    fewest = fewest_documents(stratum) / (1 - (2 / 3) ** per_document)
    size = THIRDS * design.variance() / (effect.start_to_end if effect else margin) ** 2
    documents, questions = max(size / per_document, fewest), 0.0
    for _ in range(3):
        quantile = float(stdtrit(max(documents - 1, 1), (1 + level) / 2))
        questions = max((quantile + float(ndtri(share))) ** 2 * size, fewest * per_document)
        documents = questions / per_document
    return SampleSize(models, state, *truth, ceil(questions), ceil(questions / per_document))


def required_mean_sample(
    design: Design, difference: float, power: float = POWER, margin: float = DEFAULT_MARGINS.ndcg_at_10
) -> SampleSize:
    """Return how many questions and documents lead to a state of the change in mean nDCG@10 between two models.

    Arguments as of `required_sample`; a difference of 0 is for the state of equivalence. The variance of a mean grows with the
    questions of a document by 1 + ICC (k - 1) (Kish 1965, Survey Sampling).
    """
    per_document = design.questions_per_document
    size = DISPERSION * design.ndcg_at_10 * (1 - design.ndcg_at_10) * (1 + design.icc * (per_document - 1))
    size /= (difference or margin) ** 2
    state = "better or worse" if difference else f"equivalent within {format_margin(margin)}"
    if 0 < difference < margin:
        return SampleSize(2, state, 0.0, None, None, None, difference)
    documents, share = max(size / per_document, FEWEST_DOCUMENTS), power if difference else (1 + power) / 2
    for _ in range(3):
        quantile = float(stdtrit(max(documents - 1, 1), (1 + JUDGED_LEVEL) / 2))
        documents = max((quantile + float(ndtri(share))) ** 2 * size / per_document, FEWEST_DOCUMENTS)
    return SampleSize(2, state, 0.0, None, ceil(documents * per_document), ceil(documents), difference)


def describe_sample(size: SampleSize, power: float, margin: float) -> str:
    """Return how many questions and documents lead to a state, in a sentence."""
    if size.ndcg_at_10 is not None and size.questions is None:
        return f"A difference of {format_points(size.ndcg_at_10)} is below the margin: the state is equivalence."
    if size.questions is None or size.documents is None:
        return (
            f"Start to end of {format_points(size.start_to_end)} is below the margin of {format_margin(margin)}: with many "
            f"documents the state is '{name_state(State.NO_BIAS, margin)}'."
        )
    if size.ndcg_at_10 is not None:
        apart = f"{format_points(size.ndcg_at_10)} apart" if size.ndcg_at_10 else "the same"
        truth = f"Of two models whose nDCG@10 is {apart}"
    elif size.models > 1:
        truth = f"Of two models {'that differ by' if size.start_to_end else 'with the same'} start to end"
        truth += f" {format_points(size.start_to_end)}" if size.start_to_end else ""
    else:
        truth = f"With start to end {format_points(size.start_to_end)}" if size.start_to_end else "Without bias"
    return (
        f"{truth}, '{size.state}' is said with a probability of {power:g} on {pluralize(size.questions, 'question')} about "
        f"{pluralize(size.documents, 'document')}."
    )


def _build_table(design: Design, rows: Sequence[SampleSize]) -> Table:
    """Return the sample sizes as a table."""
    means = any(row.ndcg_at_10 is not None for row in rows)
    fixed = "the document" if design.holds_documents_fixed else "its length"
    headings = ("Models", "State", "Start to end", "PSI", *(["nDCG@10"] if means else []), "Questions", "Documents")
    cells = (
        (
            format_count(row.models),
            row.state,
            format_points(row.start_to_end) if row.ndcg_at_10 is None else MISSING,
            format_psi(row.psi),
            *([MISSING if row.ndcg_at_10 is None else format_points(row.ndcg_at_10)] if means else []),
            format_count(row.questions),
            format_count(row.documents),
        )
        for row in rows
    )
    return Table(
        build_columns(headings, [heading for heading in headings if heading != "State"]),
        tuple(cells),
        title=f"Design · nDCG@10 {design.ndcg_at_10 * 100:g}, {design.bins} bins, "
        f"{design.questions_per_document:g} questions per document",
        notes=(
            "For a linear decline, positions at random, a model that reads all, and an intraclass correlation of "
            f"{design.icc:g} within documents, {design.bin_icc:g} within their bins; {fixed} is held fixed. Two models: on "
            "the same questions, with a correlation of 0.5 of their gains.",
        ),
    )


@public()
def power(
    *,
    difference: Annotated[float | Iterable[float] | None, Option(min=0.01, max=100)] = None,
    psi: Annotated[float | Iterable[float] | None, Option(min=0.001, max=1)] = None,
    ndcg_difference: Annotated[float | Iterable[float] | None, Option(min=0.01, max=100)] = None,
    margin: Annotated[float | None, Option(min=0.01, max=99)] = None,
    ndcg: Annotated[float, Option(min=1, max=99)] = 70.0,
    bins: Annotated[int, Option(min=2, max=100)] = 20,
    questions_per_document: Annotated[float, Option(min=1)] = 1.0,
    icc: Annotated[float, Option(min=0, max=0.99)] = 0.2,
    bin_icc: Annotated[float, Option(min=0, max=0.99)] = 0.0,
    power: Annotated[float, Option(min=0.5, max=0.999)] = POWER,
) -> TableResult:
    """Find how many questions and documents a dataset needs for each state: biased, or no bias larger than the margin.

    The effect is a linear decline of nDCG@10 over positions; docs/statistics.md has the method and its calibration.

    Args:
        difference: Difference in nDCG@10 between the first and the last third of the documents, in points.
        psi: True PSI.
        ndcg_difference: Difference of two models in mean nDCG@10 over the same questions, in points; no positions are needed.
        margin: Smallest difference that matters, in points: by default 5 of start to end, 2 of mean nDCG@10.
        ndcg: Expected mean nDCG@10, in points.
        bins: Number of position bins.
        questions_per_document: Mean number of questions about a document.
        icc: Intraclass correlation of nDCG@10 within documents.
        bin_icc: Correlation beyond it of questions in the same bin of a document.
        power: Probability of each state.

    Returns:
        A row for each effect, and one for none, of one model and of the change between two, with the columns `models`, `state`,
        `start_to_end`, `psi`, `questions` and `documents`; `ndcg_at_10` is set in the rows of mean differences alone.

    Raises:
        PosirError: No effect is given, a value is out of range, or no linear decline with this mean has the effect.

    Examples:
        >>> import posir
        >>> sizes = posir.power(psi=[0.15, 0.2])
        >>> sizes.to_polars().filter(models=1)["questions"].to_list()
        [1314, 701, 4239]
    """
    points, sizes, means = (tuple(map(float, to_list(given))) for given in (difference, psi, ndcg_difference))
    if not (points or sizes or means):
        raise UsageError("Which effect should the data show? Give --difference or --ndcg-difference (points), or --psi.")
    design = Design(ndcg / 100, bins, float(questions_per_document), icc, bin_icc)
    declines = [find_effect(design, start_to_end=value / 100) for value in points]
    effects = [*declines, *(find_effect(design, psi=value) for value in sizes)]
    least, of_means = (
        margin / 100 if margin else default for default in (DEFAULT_MARGINS.start_to_end, DEFAULT_MARGINS.ndcg_at_10)
    )
    by_models = ((models, effect) for models in (1, 2) for effect in ([*effects, None] if effects else []))
    rows = [required_sample(design, effect, power, least, models) for models, effect in by_models]
    rows += [required_mean_sample(design, value / 100, power, of_means) for value in ([*means, 0.0] if means else [])]
    of_one = [row for row in rows if row.models == 1]
    shown = dict.fromkeys([*of_one[:1], *of_one[-2:], *(row for row in rows if row.ndcg_at_10 is not None)])
    return TableResult(
        title="Questions and documents that show a position bias, or that there is none",
        tables=(_build_table(design, rows),),
        rows=rows,
        values={**asdict(design), "power": power, "margin": least, "rows": rows},
        sentences=tuple(describe_sample(row, power, least) for row in shown),
    )
