"""Truncation, declared as scores: the share of evidence beyond the model's window, and the scores over the rest."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from posir_significance.analysis import CACHED_RESULTS, GroupAnalysis, analyze_group
from posir_significance.observations import Observations
from posir_tasks.estimates import Estimate
from posir_tasks.evidence import Integers
from posir_tasks.scores import Better, QueryGroup, ResultValues, Score, ScoreValue, Unit
from posir_tasks.window_coverage import WindowCoverage


@lru_cache(maxsize=CACHED_RESULTS)
def analyze_within_window(values: ResultValues) -> GroupAnalysis | None:
    """Return the analysis of the queries whose evidence lies entirely within the window; None if the window is unknown."""
    if values.coverage is None:
        return None
    return analyze_group(Observations.from_ranks(values.ranks.within_window()))


def _within(read: Callable[[GroupAnalysis], ScoreValue]) -> Callable[[QueryGroup], ScoreValue]:
    """Return how a score over the queries within the window is computed; None for a length bucket."""

    def compute(group: QueryGroup) -> ScoreValue:
        analysis = analyze_within_window(group.values) if group.length is None else None
        value = read(analysis) if analysis else None
        return Estimate(value.value, value.interval) if isinstance(value, Estimate) else value

    return compute


def _of_coverage(read: Callable[[WindowCoverage], ScoreValue]) -> Callable[[QueryGroup], ScoreValue]:
    return lambda group: read(group.values.coverage) if group.values.coverage else None


def _share(read: Callable[[WindowCoverage], Integers]) -> Callable[[QueryGroup], ScoreValue]:
    """Return how the share of a group's queries that is counted by length bucket is computed."""

    def compute(group: QueryGroup) -> ScoreValue:
        if group.values.coverage is None or not group.queries:
            return None
        counts = read(group.values.coverage)
        return float((counts.sum() if group.length is None else counts[group.length]) / group.queries)

    return compute


SCORES = (
    Score(
        "window",
        "Window",
        "Tokens of a document that the model reads.",
        unit=Unit.COUNT,
        column=False,
        compute=_of_coverage(lambda coverage: coverage.window),
    ),
    Score(
        "window_counted_with",
        "Window counted with",
        "How tokens were counted: by the model's tokenizer, or estimated from the counts in the data.",
        unit=Unit.TEXT,
        column=False,
        compute=_of_coverage(lambda coverage: coverage.counted_with.value),
    ),
    Score(
        "starts_beyond_window",
        "Starts beyond window",
        "Share of the queries whose evidence starts beyond the model's window.",
        unit=Unit.PERCENT,
        column=False,
        compute=_share(lambda coverage: coverage.starts_beyond),
    ),
    Score(
        "ends_beyond_window",
        "Beyond window",
        "Share of the queries whose evidence ends beyond the model's window.",
        unit=Unit.PERCENT,
        column=False,
        compute=_share(lambda coverage: coverage.ends_beyond),
    ),
    Score(
        "queries_within_window",
        "Queries within window",
        "Queries whose evidence lies entirely within the model's window.",
        unit=Unit.COUNT,
        column=False,
        compute=_within(lambda analysis: analysis.queries),
    ),
    Score(
        "ndcg_at_10_within_window",
        "nDCG@10 within window",
        "nDCG@10 over the queries whose evidence lies entirely within the model's window.",
        unit=Unit.PERCENT,
        better=Better.HIGHER,
        column=False,
        interval=True,
        compute=_within(lambda analysis: analysis.ndcg),
    ),
    Score(
        "start_to_end_within_window",
        "Start to end within window",
        "Start to end over the queries whose evidence lies entirely within the model's window.",
        unit=Unit.POINTS,
        better=Better.NEAR_ZERO,
        column=False,
        interval=True,
        compute=_within(lambda analysis: analysis.position.start_to_end),
    ),
    Score(
        "psi_within_window",
        "PSI within window",
        "PSI over the queries whose evidence lies entirely within the model's window.",
        unit=Unit.INDEX,
        better=Better.LOWER,
        column=False,
        interval=True,
        compute=_within(lambda analysis: analysis.psi),
    ),
    Score(
        "p_value_within_window",
        "p within window",
        "p-value of any effect of position over the queries whose evidence lies entirely within the model's window.",
        unit=Unit.P_VALUE,
        column=False,
        compute=_within(lambda analysis: analysis.test.p_value if analysis.test else None),
    ),
)
