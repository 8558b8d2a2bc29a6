"""Do probes predict retrieval? Rank correlations of probes' summaries with PSI and start-to-end nDCG@10 over models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import spearmanr

from posir_probe.probe import ModelProbe, TextProbe
from posir_probe.results import ProbeResult
from posir_report.summary import TaskSummary, build_rows
from posir_tasks.cells import Floats
from posir_tasks.display.numbers import format_interval, format_number
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.estimates import Estimate, Interval

#: Fewest models for a correlation, and for its interval.
FEWEST, FEWEST_FOR_INTERVAL = 3, 5
#: Standard normal quantile of a two-sided 95 % interval.
Z = 1.959964
PSI, START_TO_END = "PSI", "start-to-end nDCG@10"


@dataclass(frozen=True)
class ProbeCorrelation:
    """Spearman's rho of a probe's summary and a retrieval score over models."""

    probe: str
    data: str
    summary: str
    task: str
    score: str
    models: int
    rho: Estimate | None
    """None with fewer than three models, or if all have the same value."""
    verdict: str


def correlate(
    results: Iterable[ProbeResult], summaries: Iterable[TaskSummary], probes: Mapping[str, TextProbe | ModelProbe]
) -> list[ProbeCorrelation]:
    """Correlate the first summary of every probe with both retrieval scores of every task, over the models that have both."""
    probe_summaries: dict[tuple[str, str, str], dict[tuple[str, str], float]] = {}
    for result in results:
        probe = probes.get(result.probe)
        if probe is None or result.experiment is not None:
            continue
        name, compute = next(iter(probe.summaries.items()))
        estimate = result.sums.estimate(compute)
        if estimate is not None:
            probe_summaries.setdefault((result.probe, result.data, name), {})[result.model, result.revision] = estimate.value
    scores = read_scores(summaries)
    return [
        _correlate(probe, data, name, task, score, [(x[model], y[model]) for model in sorted(x.keys() & y.keys())])
        for (probe, data, name), x in probe_summaries.items()
        for (task, score), y in scores.items()
    ]


def read_scores(summaries: Iterable[TaskSummary]) -> dict[tuple[str, str], dict[tuple[str, str], float]]:
    """Return the estimates of PSI and start-to-end nDCG@10 of each task by model and revision."""
    scores: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    for summary in summaries:
        model = summary.model, summary.revision
        row = build_rows(summary)[0]
        for name, score in ((PSI, row.psi), (START_TO_END, row.start_to_end)):
            if score is not None:
                scores.setdefault((summary.task, name), {})[model] = score.value
    return scores


def _correlate(
    probe: str, data: str, summary: str, task: str, score: str, pairs: Sequence[tuple[float, float]]
) -> ProbeCorrelation:
    x, y = np.array(pairs, np.float64).reshape(-1, 2).T
    rho, _ = estimate_rho(x, y)
    return ProbeCorrelation(probe, data, summary, task, score, len(pairs), rho, judge(rho, len(pairs)))


def estimate_rho(x: Floats, y: Floats) -> tuple[Estimate | None, float | None]:
    """Return Spearman's rho over models with its 95 % interval, and its two-sided p-value; None where undefined.

    Args:
        x: A value of each model, shape (n,).
        y: Another of each, shape (n,).
    """
    if len(x) < FEWEST or len(set(x)) == 1 or len(set(y)) == 1:
        return None, None
    result = spearmanr(x, y)
    rho = float(result.statistic)
    return Estimate(rho, find_interval(rho, len(x))), float(result.pvalue)


def find_interval(rho: float, models: int) -> Interval | None:
    """Return the 95 % interval of Spearman's rho; None if there are too few models or the ranks agree completely.

    By Fisher's z, variance (1 + rho^2 / 2) / (n - 3) (Bonett & Wright 2000).
    """
    if models < FEWEST_FOR_INTERVAL or abs(rho) > 1 - 1e-12:
        return None
    z, half = math.atanh(rho), Z * math.sqrt((1 + rho**2 / 2) / (models - 3))
    return math.tanh(z - half), math.tanh(z + half)


def judge(rho: Estimate | None, models: int) -> str:
    """Return what a correlation says."""
    if models < FEWEST_FOR_INTERVAL:
        return f"too few models to say: {models}; at least {FEWEST_FOR_INTERVAL} are needed"
    if rho is None:
        return "all models have the same value"
    if rho.interval is None:
        return "the ranks agree completely" if rho.value > 0 else "the ranks are reversed completely"
    if rho.interval[0] <= 0 <= rho.interval[1]:
        return f"too few models to say: {models}; for a correlation of this size {count_needed(rho.value)} are needed"
    return "predicts it" if rho.value > 0 else "predicts the opposite"


def count_needed(rho: float) -> str:
    """Return about how many models an interval that excludes 0 needs at this correlation."""
    strength = math.atanh(min(abs(rho), 0.999))
    needed = 3 + (1 + rho**2 / 2) * (Z / strength) ** 2 if strength else math.inf
    return f"about {math.ceil(needed):,}" if needed < 10_000 else "over 10,000"


def build_table(rows: Sequence[ProbeCorrelation]) -> Table:
    """Return a table with a line per probe, task and score."""
    columns = build_columns(
        ("Task", "Retrieval score", "Probe", "Data", "Summary", "Models", "Spearman", "95 % interval", "Verdict"),
        ("Models", "Spearman"),
    )
    cells = tuple(
        (row.task, row.score, row.probe, row.data, row.summary, str(row.models), *format_rho(row.rho), row.verdict)
        for row in rows
    )
    note = (
        "Over the models that have both results in this folder. The models of one folder are no random sample, and with many "
        "probes some intervals exclude 0 by chance."
    )
    return Table(columns, cells, notes=(note,), split_by="{Task} · {Retrieval score}", keys=2)


def format_rho(rho: Estimate | None) -> tuple[str, str]:
    """Return a correlation and its interval as two cells of a table."""
    return format_number(rho.value if rho else None, ".2f"), format_interval(rho, lambda value: format_number(value, ".2f"))
