"""`posir.power`: the number of questions needed to reach each verdict.

The number follows from the variance of the position effect times the number of questions, which was
measured on real models (docs/statistics.md). The difficulty of a question cancels, since each
question has three versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Annotated

from scipy.special import ndtri, stdtrit

from posir_significance.decision import DEFAULT_MARGINS
from posir_significance.findings import (
    CHANGE_LEVEL,
    JUDGED_LEVEL,
    MIN_DOCUMENTS,
    ChangeState,
    State,
)
from posir_significance.messages.comparisons import name_planned_state
from posir_tasks.base.public import Option, public, to_list
from posir_tasks.display.labels import Title
from posir_tasks.display.numbers import format_count, format_points
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import Role, Table, build_columns
from posir_tasks.values.means import LEVEL

#: Conventional power of planned studies.
POWER = 0.8
#: Variance of a query's nDCG@10 relative to a Bernoulli trial with the same mean; 0.74 to 0.83 in
#: simulations.
DISPERSION = 0.8
#: Variance of the position effect times the number of questions, in nDCG@10 squared, with several
#: questions per document and with one. Measured with MiniLM on PosIR-Mini.
VARIANCE = 0.056
SINGLE_QUESTION_VARIANCE = 0.089
#: Minimum number of questions per document for `VARIANCE`.
MIN_QUESTIONS = 2.0
#: Variance of the difference between two models on the same versions, relative to the sum of the
#: variances of their effects.
PAIRED_VARIANCE_RATIO = 0.5


@dataclass(frozen=True)
class Design:
    """The design of a planned dataset."""

    questions_per_document: float = 1.0
    """Mean, at least 1."""
    ndcg_at_10: float = 0.7
    """Expected mean, in (0, 1)."""
    icc: float = 0.2
    """Intraclass correlation of gains within documents, in [0, 1)."""
    lengths: int = 1
    """Number of lengths with simultaneous intervals, at least 1."""
    variance: float | None = None
    """As `effect_variance`; defaults to the value measured with MiniLM."""

    @property
    def effect_variance(self) -> float:
        """Variance of the position effect times the number of questions, in nDCG@10 squared."""
        if self.variance is not None:
            return self.variance
        if self.questions_per_document >= MIN_QUESTIONS:
            return VARIANCE
        return SINGLE_QUESTION_VARIANCE


@dataclass(frozen=True)
class SampleSize:
    """The sample size needed to reach a state; its counts are None if no sample is large enough."""

    models: int
    """1 for the state of a model, 2 for a change between models."""
    state: State | ChangeState
    effect: float | None
    """True position effect, or its difference between two models; None for mean differences."""
    questions: int | None
    """Number of questions per length."""
    documents: int | None
    margin: float
    """Minimum relevant difference."""
    ndcg_at_10: float | None = None
    """Difference of two models in mean nDCG@10; None for position effects."""


def compute_sample(
    design: Design,
    effect: float | None,
    power: float = POWER,
    margin: float = DEFAULT_MARGINS.position_effect,
    models: int = 1,
) -> SampleSize:
    """Compute how many questions and documents are needed to reach a state.

    At least `MIN_DOCUMENTS` documents are needed.

    An effect D is detected if its interval excludes 0: D must be at least z(level) + z(power)
    standard errors. Equivalence needs an interval within the margin on both sides: z(level) + z((1
    + power) / 2).

    Args:
        design: The dataset.
        effect: The true effect, positive, or None for equivalence.
        power: Probability of reaching the state, in [0.5, 1).
        margin: Minimum relevant effect, in nDCG@10.
        models: 1, or 2 for a change between models on the same versions.
    """
    state: State | ChangeState = State.FAVORS_START if effect else State.NO_BIAS
    level = 1 - (1 - LEVEL) / design.lengths
    variance = design.effect_variance
    if models > 1:
        state = ChangeState.WORSE if effect else ChangeState.EQUIVALENT
        level = CHANGE_LEVEL
        variance *= 2 * PAIRED_VARIANCE_RATIO
    if effect and effect < margin:
        # More questions would only shrink the interval into the margin.
        return SampleSize(models, state, effect, None, None, margin)
    probability = power if effect else (1 + power) / 2
    errors = float(ndtri((1 + level) / 2)) + float(ndtri(probability))
    questions = variance * (errors / (effect or margin)) ** 2
    documents = max(questions / design.questions_per_document, MIN_DOCUMENTS)
    return SampleSize(
        models,
        state,
        effect or 0.0,
        ceil(documents * design.questions_per_document),
        ceil(documents),
        margin,
    )


def compute_mean_sample(
    design: Design,
    difference: float,
    power: float = POWER,
    margin: float = DEFAULT_MARGINS.ndcg_at_10,
) -> SampleSize:
    """Compute the sample size needed for a verdict on two models' difference in mean nDCG@10.

    Arguments are as in `compute_sample`; a difference of 0 means equivalence. Gains of two models
    are assumed to have a correlation of 0.5. With k questions per document, the variance of a mean
    is multiplied by 1 + ICC (k - 1) (Kish 1965, Survey Sampling).
    """
    state = ChangeState.BETTER if difference else ChangeState.EQUIVALENT
    if 0 < difference < margin:
        return SampleSize(2, state, None, None, None, margin, difference)
    per_document = design.questions_per_document
    variance = DISPERSION * design.ndcg_at_10 * (1 - design.ndcg_at_10)
    variance *= 1 + design.icc * (per_document - 1)
    relative_variance = variance / (difference or margin) ** 2
    documents = max(relative_variance / per_document, MIN_DOCUMENTS)
    probability = power if difference else (1 + power) / 2
    for _ in range(3):
        quantile = float(stdtrit(max(documents - 1, 1), (1 + JUDGED_LEVEL) / 2))
        errors = quantile + float(ndtri(probability))
        documents = max(errors**2 * relative_variance / per_document, MIN_DOCUMENTS)
    questions = ceil(documents * per_document)
    return SampleSize(2, state, None, questions, ceil(documents), margin, difference)


def _build_table(design: Design, rows: Sequence[SampleSize]) -> Table:
    cells = [
        {
            "Models": format_count(row.models),
            "State": name_planned_state(row.state, row.margin),
            "Position effect": format_points(row.effect),
            "nDCG@10": format_points(row.ndcg_at_10),
            "Questions": format_count(row.questions),
            "Documents": format_count(row.documents),
        }
        for row in rows
    ]
    count = design.questions_per_document
    questions = f"{count:g} {'question' if count == 1 else 'questions'} per document"
    length_note = f", each of {design.lengths} lengths" if design.lengths > 1 else ""
    table = Table(
        build_columns(cells[0], cells[0].keys() - {"State"}, roles={"State": Role.STATE}),
        tuple(tuple(line.values()) for line in cells),
        title=Title("Design", f"{questions}{length_note}"),
        notes=(
            "Each document is rotated twice. Variance of the effect times questions: "
            f"{design.effect_variance * 1e4:,.0f} squared points. Two models are compared on the "
            "same versions.",
        ),
    )
    return table.drop_empty_columns()


@public()
def power(
    *,
    difference: Annotated[float | Iterable[float] | None, Option(min=0.01, max=100)] = None,
    ndcg_difference: Annotated[float | Iterable[float] | None, Option(min=0.01, max=100)] = None,
    margin: Annotated[float | None, Option(min=0.01, max=99)] = None,
    lengths: Annotated[int, Option(min=1, max=100)] = 1,
    ndcg: Annotated[float, Option(min=1, max=99)] = 70.0,
    questions_per_document: Annotated[float, Option(min=1)] = 1.0,
    icc: Annotated[float, Option(min=0, max=0.99)] = 0.2,
    variance: Annotated[float | None, Option(min=1, max=10_000)] = None,
    power: Annotated[float, Option(min=0.5, max=0.999)] = POWER,
) -> Result:
    """Compute how many questions and documents a dataset needs for each verdict: favors an end, or
    no bias above the margin.

        posir power --difference 5

    Evidence is moved by rotating documents; docs/statistics.md has the method.

    Args:
        difference: True position effect, in points: nDCG@10 with the evidence in the first third
            minus nDCG@10 with the evidence in the last.
        ndcg_difference: Difference of two models in mean nDCG@10 over the same questions, in
            points. Positions are not needed.
        margin: Minimum relevant difference, in points; by default 5 for the position effect and 2
            for mean nDCG@10.
        lengths: Number of document lengths, each with its own state.
        ndcg: Expected mean nDCG@10, in points.
        questions_per_document: Mean number of questions about a document.
        icc: Intraclass correlation of nDCG@10 within documents.
        variance: Variance of the position effect times the questions, in squared points;
            defaults to the value measured with MiniLM.
        power: Probability of each state.

    Returns:
        A row for equivalence and each effect, for one model and for a change between two, with the
        columns `models`, `state`, `effect`, `questions`, `documents`, and `ndcg_at_10` for mean
        differences.

    Raises:
        PosirError: A value is out of range.

    Examples:
        >>> import posir
        >>> sizes = posir.power(difference=10)
        >>> sizes.to_polars().filter(models=1)["questions"].to_list()
        [375, 70]
    """
    effect_variance = None if variance is None else variance / 1e4
    design = Design(float(questions_per_document), ndcg / 100, icc, lengths, effect_variance)
    effect_margin = margin / 100 if margin else DEFAULT_MARGINS.position_effect
    mean_margin = margin / 100 if margin else DEFAULT_MARGINS.ndcg_at_10
    position_effects = [float(value) / 100 for value in to_list(difference)]
    mean_differences = [float(value) / 100 for value in to_list(ndcg_difference)]
    effects: list[float | None] = []
    if position_effects or not mean_differences:
        effects = [None, *position_effects]
    rows = [
        compute_sample(design, effect, power, effect_margin, models)
        for models in (1, 2)
        for effect in effects
    ]
    if mean_differences:
        changes = (*mean_differences, 0.0)
        rows += [compute_mean_sample(design, change, power, mean_margin) for change in changes]
    return Result(
        title="Questions and documents needed to detect a position bias",
        tables=(_build_table(design, rows),),
        rows=rows,
        values={**asdict(design), "power": power, "margin": effect_margin, "rows": rows},
    )
