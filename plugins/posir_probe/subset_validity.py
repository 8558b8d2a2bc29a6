"""Does a small sample of a dataset show the same position profile as the whole?

Zeng et al. 2025 (arXiv 2505.13950, A.3, Fig. 3) show nDCG@10 by position bucket of the Tiny samples and of the complete data
side by side, without a number. Here: the difference of each bucket and the largest absolute one, with bootstrap intervals over
the queries of the sample, beside what random samples of this size would show.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import altair as alt
import numpy as np

from posir_report.summary import TaskSummary
from posir_tasks.cells import Floats
from posir_tasks.display.charts import COLORS, add_frame, cycle_scale
from posir_tasks.display.figures import Figure
from posir_tasks.display.numbers import format_count, format_estimate, format_percent, format_points
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.evidence import Integers
from posir_tasks.profile import NDCG_AT_10, PositionProfile, mean_gain
from posir_tasks.scores import Estimate, flatten

SUFFIX = "-Tiny"
DRAWS, SEED = 2_000, 20250519
LEVEL = 0.95
#: Position of the row that holds the largest difference over the buckets.
LARGEST = "largest difference"


@dataclass(frozen=True)
class BucketDifference:
    """The scores of a position bucket in a sample and in the complete data."""

    position: str
    queries: int
    """Queries of the sample."""
    sample: float
    complete: float
    """nDCG@10, in [0, 1]."""
    difference: Estimate
    """Sample minus complete data; its interval is symmetric."""


@dataclass(frozen=True)
class SubsetValidity:
    """The distance of a sample's profile from the complete one."""

    buckets: tuple[BucketDifference, ...]
    """Those with queries in both."""
    largest: Estimate
    """Largest |nDCG@10 of the sample - of the complete data| over the buckets, in [0, 1]."""
    chance: float
    """95th percentile of the largest difference of random samples of the complete data, of the same size."""

    @property
    def verdict(self) -> str:
        """Whether the sample differs more than a random one."""
        return "as a random sample" if self.largest.value <= self.chance else "differs more than a random sample"


def measure_validity(sample: PositionProfile, complete: PositionProfile) -> SubsetValidity:
    """Compare the profiles of a sample and of the complete data; raise ProfileError if their schemes differ.

    The interval of a bucket is its difference +- the 95th percentile of the absolute deviations of bootstrap samples. That of
    the largest difference uses the largest deviation over the buckets, so that it holds for all buckets at once. A percentile
    interval of the largest difference would not hold it: resampling adds noise, which an absolute value turns upwards.
    """
    sample.axes.check_same(complete.axes)
    counts, whole = sample.counts.sum(axis=0), complete.counts.sum(axis=0)
    means, expected = mean_gain(counts, NDCG_AT_10), mean_gain(whole, NDCG_AT_10)
    kept = np.flatnonzero(~np.isnan(means - expected))
    counts, whole, means, expected = counts[kept], whole[kept], means[kept], expected[kept]
    sizes, differences = counts.sum(axis=1), means - expected
    rng = np.random.default_rng(SEED)
    deviations = np.abs(mean_gain(_draw(rng, counts, sizes), NDCG_AT_10) - means)
    margins = np.quantile(deviations, LEVEL, axis=0)
    chance = np.abs(mean_gain(_draw(rng, whole, sizes), NDCG_AT_10) - expected).max(axis=1)
    largest, margin = float(np.abs(differences).max()), float(np.quantile(deviations.max(axis=1), LEVEL))
    buckets = tuple(
        BucketDifference(
            sample.positions[index], int(size), float(mean), float(full), Estimate(float(value), (value - half, value + half))
        )
        for index, size, mean, full, value, half in zip(kept, sizes, means, expected, differences, margins, strict=True)
    )
    interval = max(0.0, largest - margin), largest + margin
    return SubsetValidity(buckets, Estimate(largest, interval), float(np.quantile(chance, LEVEL)))


def _draw(rng: np.random.Generator, counts: Integers, sizes: Integers) -> Floats:
    """Return counts of random samples of each bucket's queries, shape (DRAWS, P, ranks)."""
    shares = counts / counts.sum(axis=1, keepdims=True)
    drawn = [rng.multinomial(size, share, DRAWS) for size, share in zip(sizes, shares, strict=True)]
    return np.stack(drawn, axis=1).astype(np.float64)


@dataclass(frozen=True)
class ValidityRow:
    """One model's comparison: a position bucket, or the largest difference over all."""

    model: str
    revision: str
    sample: str
    complete: str
    position: str
    """The bucket, or `largest difference`."""
    queries: int
    """Queries of the sample."""
    ndcg_at_10_of_sample: float | None
    ndcg_at_10_of_complete: float | None
    """Mean in [0, 1]; None for the largest difference."""
    difference: Estimate
    """Sample minus complete data; absolute for the largest difference."""
    chance: float | None
    """The difference that random samples do not exceed in 95 % of draws; None for a bucket."""
    verdict: str | None


def compare_tiny(summaries: Iterable[TaskSummary]) -> list[ValidityRow]:
    """Compare every `<task>-Tiny` with its task, for each model that has both: the largest difference, then the buckets."""
    by_task = {(summary.model, summary.revision, summary.task): summary for summary in summaries}
    rows = []
    for (model, revision, task), tiny in by_task.items():
        full = by_task.get((model, revision, task.removesuffix(SUFFIX)))
        if task.endswith(SUFFIX) and full is not None:
            rows += _build_rows((model, revision, task, full.task), tiny, measure_validity(tiny.profile, full.profile))
    return rows


def _build_rows(names: tuple[str, str, str, str], tiny: TaskSummary, validity: SubsetValidity) -> list[ValidityRow]:
    return [
        ValidityRow(
            *names,
            position=LARGEST,
            queries=tiny.profile.queries,
            ndcg_at_10_of_sample=None,
            ndcg_at_10_of_complete=None,
            difference=validity.largest,
            chance=validity.chance,
            verdict=validity.verdict,
        ),
        *(
            ValidityRow(
                *names,
                position=bucket.position,
                queries=bucket.queries,
                ndcg_at_10_of_sample=bucket.sample,
                ndcg_at_10_of_complete=bucket.complete,
                difference=bucket.difference,
                chance=None,
                verdict=None,
            )
            for bucket in validity.buckets
        ),
    ]


def describe_validity(rows: Iterable[ValidityRow]) -> Iterator[str]:
    """Yield for each model and sample how far it differs from the complete data, beside what is expected by chance."""
    for row in rows:
        if row.position == LARGEST:
            yield (
                f"{row.model}, {row.sample}: the largest difference to the complete data is "
                f"{format_estimate(row.difference, format_percent)} points, by chance up to {format_percent(row.chance)}: "
                f"{row.verdict}."
            )


def build_tables(rows: Iterable[ValidityRow]) -> list[Table]:
    """Return a table with a line per model and sample, and one with a line per position bucket."""
    rows = list(rows)
    largest = build_columns(
        ("Model", "Sample", "Queries", "Largest difference", "By chance up to", "Verdict"), ("Queries", "By chance up to")
    )
    overall = tuple(
        (
            row.model,
            row.sample,
            format_count(row.queries),
            format_estimate(row.difference, format_percent),
            format_percent(row.chance),
            row.verdict or "",
        )
        for row in rows
        if row.position == LARGEST
    )
    buckets = build_columns(
        ("Model", "Sample", "Position", "Queries", "Complete", "Sample's", "Difference"), ("Queries", "Complete", "Sample's")
    )
    by_position = tuple(
        (
            row.model,
            row.sample,
            row.position,
            format_count(row.queries),
            format_percent(row.ndcg_at_10_of_complete),
            format_percent(row.ndcg_at_10_of_sample),
            format_estimate(row.difference, format_points),
        )
        for row in rows
        if row.position != LARGEST
    )
    note = (
        "nDCG@10 x 100; queries of the sample; 95 % intervals by bootstrap over them, for the largest difference over all "
        "buckets together. By chance: 95 % of random samples of this size differ less."
    )
    return [Table(largest, overall), Table(buckets, by_position, notes=(note,), split_by="{Model} · {Sample}")]


def draw_samples(rows: Sequence[ValidityRow]) -> list[Figure]:
    """Return a figure for each model and sample: nDCG@10 of each position bucket in the complete data and in the sample."""
    groups: dict[tuple[str, str, str], list[ValidityRow]] = {}
    for row in rows:
        if row.position != LARGEST:
            groups.setdefault((row.model, row.complete, row.sample), []).append(row)
    return [
        Figure("subset-validity", sample, model, _draw_sample(model, [complete, sample], buckets))
        for (model, complete, sample), buckets in groups.items()
    ]


def _draw_sample(model: str, data: Sequence[str], buckets: Sequence[ValidityRow]) -> alt.VConcatChart:
    scores = [
        {"position": row.position, "data": name, **flatten("ndcg_at_10", score)}
        for row in buckets
        for name, score in ((row.complete, row.ndcg_at_10_of_complete), (row.sample, _sample_estimate(row)))
    ]
    x = alt.X("position:N", title="Position", sort=[row.position for row in buckets], axis=alt.Axis(labelAngle=0))
    offset, color = alt.XOffset("data:N", sort=list(data)), alt.Color("data:N", title=None, scale=cycle_scale(data, COLORS))
    base = alt.Chart(alt.InlineData(values=scores)).encode(x=x, xOffset=offset)
    tooltips = [alt.Tooltip("data:N", title="Data"), alt.Tooltip("ndcg_at_10:Q", title="nDCG@10", format=".4f")]
    y = alt.Y("ndcg_at_10:Q", title="nDCG@10")
    bars = base.mark_bar().encode(y=y, color=color, tooltip=tooltips)
    intervals = (
        base.transform_filter("isValid(datum.ndcg_at_10_low)").mark_rule().encode(y="ndcg_at_10_low:Q", y2="ndcg_at_10_high:Q")
    )
    chart = alt.vconcat(alt.layer(bars, intervals).properties(width=600, height=190))
    explanation = "As Fig. 3 of arXiv 2505.13950. Lines: 95 % intervals by bootstrap over the queries of the sample."
    return add_frame(chart, "Sample and complete data", model, explanation, f"Source: {' and '.join(data)}.")


def _sample_estimate(row: ValidityRow) -> Estimate | None:
    """Return the sample's nDCG@10; its interval is that of the difference moved to it."""
    sample, complete, interval = row.ndcg_at_10_of_sample, row.ndcg_at_10_of_complete, row.difference.interval
    if sample is None or complete is None:
        return None
    return Estimate(sample, (complete + interval[0], complete + interval[1]) if interval else None)
