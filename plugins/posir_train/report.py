"""Before and after: what training changed on held-out documents, with paired tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from posir_compare.differences import find_differences, subtract_observations
from posir_compare.pairing import CommonResults
from posir_report.summary import TaskSummary
from posir_report.tables import truncation_notes
from posir_significance.analysis import analyze
from posir_significance.correction import Hypothesis, correct_p_values
from posir_significance.intervals import estimate_difference, estimate_mean
from posir_significance.observations import Observations
from posir_significance.verdict import describe_difference, is_significant
from posir_tasks.display.numbers import (
    format_estimate,
    format_number,
    format_p_value,
    format_percent,
    format_points,
    format_psi,
    format_psi_difference,
)
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.estimates import Difference, Estimate, Interval
from posir_tasks.plugin_api.scoring import score_result
from posir_tasks.scores import ResultValues
from posir_train.evaluation import Measurement, select_third
from posir_train.positions import Position

NDCG, START_TO_END, PSI, COSINE = "nDCG@10", "start to end", "PSI", "cosine of unrelated texts"
#: The verdict that would mislead without the loss of nDCG@10 that came with it.
LESS_BIASED = "less biased"
#: How far the cosine of unrelated texts may rise before the report warns of a collapse.
COLLAPSE = 0.2
HEADINGS = ("Score", "Before", "After", "After - before", "p corrected", "Verdict")
BRIEF = (
    "On held-out articles. nDCG@10 and start to end (first minus last third) x 100. Intervals: 95 % for new articles, not "
    "corrected. p corrected: Holm, for the positions."
)
LEGEND = (
    "On held-out articles, searched in the whole corpus. 95 % intervals for new articles; differences are paired by query. "
    "nDCG@10 and start to end (first minus last third) x 100; PSI: posterior median over 20 positions. p corrected: "
    "Holm-corrected for the positions; intervals are not corrected. better, worse, less biased and more biased need p below "
    "0.05 and an interval without 0; reversed: start to end has another sign, and is not clearly larger or smaller. Cosine of "
    "unrelated texts: mean over pairs of documents of different articles; near 1, all texts are alike."
)


@dataclass(frozen=True)
class Change:
    """A score of the base model and of the trained model on the same questions."""

    score: str
    before: Estimate | None
    after: Estimate | None
    difference: Difference | None
    p_corrected: float | None = None
    forgetting_check: str | None = None
    """The data of a forgetting check; None for held-out articles."""
    ndcg: Change | None = None
    """The change of nDCG@10 on the same questions, for start to end and PSI: bias says nothing without it."""

    @property
    def title(self) -> str:
        """The score and its data."""
        return self.score if self.forgetting_check is None else f"forgetting check {self.forgetting_check}, {self.score}"

    @property
    def p_value(self) -> float | None:
        """P-value before correction; None without a test."""
        return self.difference.p_value if self.difference else None

    @property
    def verdict(self) -> str:
        """The verdict that the test allows."""
        if self.before is None or self.after is None or not is_significant(self.difference, self.p_corrected):
            return describe_difference(self.difference, self.p_corrected)
        if self.score not in (START_TO_END, PSI):
            return "better" if self.after.value > self.before.value else "worse"
        verdict = _compare_bias(self.before, self.after)
        return verdict + self._describe_loss() if verdict == LESS_BIASED else verdict

    def _describe_loss(self) -> str:
        """Return what follows the verdict of less bias if nDCG@10 has fallen."""
        if self.ndcg is None or self.ndcg.difference is None or self.ndcg.difference.value >= 0:
            return ""
        lost = format_points(self.ndcg.difference.value)
        return f", but worse: {NDCG} {lost}" if self.ndcg.verdict == "worse" else f" ({NDCG} {lost}, not significant)"


def _compare_bias(before: Estimate, after: Estimate) -> str:
    if before.value * after.value >= 0:
        return LESS_BIASED if abs(after.value) < abs(before.value) else "more biased"
    # The test is of the signed difference: what it says of magnitudes of opposite signs, only their intervals say.
    first, last = _find_magnitudes(before), _find_magnitudes(after)
    return LESS_BIASED if last[1] < first[0] else "more biased" if last[0] > first[1] else "reversed"


def _find_magnitudes(estimate: Estimate) -> Interval:
    """Return the interval of the absolute value; (0, inf) if unknown."""
    if estimate.interval is None:
        return 0.0, float("inf")
    low, high = estimate.interval
    ends = sorted((abs(low), abs(high)))
    return (0.0 if low <= 0 <= high else ends[0]), ends[1]


@dataclass(frozen=True, eq=False)
class TrainingComparison:
    """The base model and the trained one on the same questions."""

    before: Measurement
    after: Measurement
    labels: tuple[str, str]
    """Names of the two models."""

    @property
    def changes(self) -> list[Change]:
        """All changes, with p-values that are not corrected."""
        return [
            *compare_ranks(self.before.ranks, self.after.ranks),
            _compare_cosines(self.before.unrelated_cosine, self.after.unrelated_cosine),
        ]

    @property
    def truncation(self) -> list[str]:
        """Sentences on the evidence beyond each model's window, as `posir report` has them."""
        pairs = zip(self.labels, (self.before, self.after), strict=True)
        return list(truncation_notes(self.labels, [summarize_measurement(label, measured) for label, measured in pairs]))


def summarize_measurement(label: str, measured: Measurement) -> TaskSummary:
    """Return a measurement as `posir report` takes results."""
    values = ResultValues(measured.ranks, measured.coverage)
    return TaskSummary(label, "", "", ("",), (), "", values, score_result(values))


def _compare_cosines(before: float, after: float) -> Change:
    """Return the change without a test; without values if there are no two articles."""
    if not np.isfinite(after - before):
        return Change(COSINE, None, None, None)
    return Change(COSINE, Estimate(before), Estimate(after), Difference(after - before))


def compare_ranks(before: DocumentRanks, after: DocumentRanks) -> list[Change]:
    """Return the changes of nDCG@10, over all and by position, of start to end and of PSI."""
    common = CommonResults(before, after, (), ())
    differences = find_differences(common)[0]
    first, other = (analyze(ranks).overall for ranks in (before, after))
    return [
        Change(NDCG, first.ndcg, other.ndcg, differences.ndcg),
        *_compare_thirds(before, after),
        Change(START_TO_END, first.start_to_end, other.start_to_end, differences.start_to_end),
        Change(PSI, first.psi, other.psi, differences.psi),
    ]


def _compare_thirds(before: DocumentRanks, after: DocumentRanks) -> list[Change]:
    observed_before, observed_after = Observations.from_ranks(before), Observations.from_ranks(after)
    paired = subtract_observations(observed_before, observed_after)
    changes = []
    for position in Position:
        first, second = (
            estimate_mean(*select_third(observations, position)) for observations in (observed_before, observed_after)
        )
        difference = estimate_difference(*select_third(paired, position))
        changes.append(Change(f"{NDCG}, {position.title}", first, second, difference))
    return changes


def correct(changes: Sequence[Change]) -> list[Change]:
    """Return changes with corrected p-values; those of one metric on the same data are corrected together.

    Changes of bias have that of nDCG@10 with them.
    """
    families = [(change.forgetting_check, change.score.partition(",")[:2]) for change in changes]
    tests = [Hypothesis(change.p_value, family=family) for change, family in zip(changes, families, strict=True)]
    corrected = correct_p_values(tests)
    updated = [replace(change, p_corrected=p_value) for change, p_value in zip(changes, corrected, strict=True)]
    ndcg = {change.forgetting_check: change for change in updated if change.score == NDCG}
    return [
        replace(change, ndcg=ndcg.get(change.forgetting_check)) if change.score in (START_TO_END, PSI) else change
        for change in updated
    ]


def find_warnings(changes: Sequence[Change]) -> list[str]:
    """Return what must be known before the changes are believed."""
    collapses = [
        f"The {change.title} has risen from {format_number(change.before.value, '.2f')} to "
        f"{format_number(change.after.value, '.2f')}: the embeddings are "
        "collapsing. Embeddings that are all alike do not depend on position, which is no cure."
        for change in changes
        if change.score == COSINE and change.before and change.after and change.after.value - change.before.value > COLLAPSE
    ]
    losses = [change.title for change in changes if change.verdict == "worse"]
    return [*collapses, *(f"{title} is significantly below the base model's." for title in losses)]


def describe_changes(changes: Sequence[Change]) -> Iterator[str]:
    """Yield a sentence for the held-out articles and for each forgetting check: how nDCG@10, start to end and PSI change."""
    groups: dict[str | None, list[Change]] = {}
    for change in changes:
        if change.score in (NDCG, START_TO_END, PSI) and change.difference:
            groups.setdefault(change.forgetting_check, []).append(change)
    for name, group in groups.items():
        clauses = []
        for change in group:
            *_, difference = _format(change)
            clauses.append(f"{change.score} {difference}" + (f", {change.verdict}" if change.verdict else ""))
        yield f"{'Training' if name is None else f'Forgetting check {name}'}: {'; '.join(clauses)}."


def title_changes(changes: Sequence[Change]) -> str:
    """Return how nDCG@10 and start to end changed on held-out articles, with the verdicts, as the title of a chart."""
    chosen = [change for change in changes if change.forgetting_check is None and change.score in (NDCG, START_TO_END)]
    clauses = []
    for change in chosen:
        if change.difference:
            verdict = f" ({change.verdict})" if change.verdict else ""
            clauses.append(f"{change.score} by {format_points(change.difference.value)}{verdict}")
    return f"Training changes {' and '.join(clauses)}" if clauses else "nDCG@10 by position before and after training"


def build_table(changes: Sequence[Change], title: str, notes: Sequence[str]) -> Table:
    """Return the table of a report."""
    rows = tuple((change.title, *_format(change), format_p_value(change.p_corrected), change.verdict) for change in changes)
    return Table(build_columns(HEADINGS, HEADINGS[4:5]), rows, title, tuple(notes))


def _format(change: Change) -> Iterator[str]:
    indexed = change.score in (PSI, COSINE)
    score, difference = (format_psi, format_psi_difference) if indexed else (format_percent, format_points)
    own = format_points if change.score == START_TO_END else score
    yield format_estimate(change.before, own)
    yield format_estimate(change.after, own)
    yield format_estimate(change.difference, difference)


def to_records(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """Return changes as rows of JSON and CSV; the p-value is that before correction."""
    return [
        {
            "score": change.score,
            "forgetting_check": change.forgetting_check,
            "before": change.before,
            "after": change.after,
            "difference": change.difference,
            "p_value": change.p_value,
            "p_corrected": change.p_corrected,
            "verdict": change.verdict,
        }
        for change in changes
    ]
