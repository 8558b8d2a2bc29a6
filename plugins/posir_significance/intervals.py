"""Intervals of judged means and of differences between systems, for new documents."""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy.special import stdtr, stdtrit

from posir_tasks.base.arrays import Floats, Integers
from posir_tasks.values.estimates import Difference, Interval
from posir_tasks.values.judgments import JudgedScores
from posir_tasks.values.means import LEVEL, MeanEstimate, build_design, estimate_mean, linearize


def estimate_judged(scores: JudgedScores, metric: str) -> MeanEstimate | None:
    """Estimate the mean of a metric over judged queries."""
    # With several relevant documents, a query varies far less than a Bernoulli trial.
    return estimate_mean(*scores.expand(metric), max_trials=np.inf)


def estimate_difference(
    differences: Floats, clusters: Integers, shares: Floats | None = None
) -> Difference | None:
    """Estimate the difference of two models on the same queries; None with fewer than two clusters.

    The t interval has the standard error and the degrees of freedom of `estimate_mean`.
    `differences` are per query, in [-1, 1], shape (n,). `shares` are weights that sum to 1, by
    default 1 / n.
    """
    if not len(differences):
        return None
    design = build_design(clusters, shares)
    degrees = float(design.degrees[0])
    if not degrees:
        return None
    linearization = linearize(differences, design)
    return build_student_difference(
        float(linearization.means[0]), float(linearization.variances[0]) ** 0.5, degrees
    )


def subtract_means(a: MeanEstimate, b: MeanEstimate) -> Difference | None:
    """Estimate the difference b - a of two models on different queries; None with fewer than two
    clusters.

    Degrees of freedom follow Welch and Satterthwaite (Welch 1947, Biometrika 34, 28-35).
    """
    if not a.degrees or not b.degrees:
        return None
    first = a.standard_error**2
    second = b.standard_error**2
    variance = first + second
    degrees = variance**2 / (first**2 / a.degrees + second**2 / b.degrees)
    return build_student_difference(b.value - a.value, variance**0.5, degrees)


def build_student_difference(
    value: float, error: float, degrees: float, limit: float = 1.0
) -> Difference:
    """Build a difference with the interval and p-value of Student's t test.

    Value and interval are clipped to [-limit, limit], since least squares with few documents may
    exceed it.
    """
    compute_interval = partial(_student_interval, value, error, degrees, limit)
    p_value = float(2 * stdtr(degrees, -abs(value) / error))
    return Difference(
        min(max(value, -limit), limit), compute_interval(LEVEL), p_value, compute_interval
    )


def _student_interval(
    value: float, error: float, degrees: float, limit: float, level: float
) -> Interval:
    half = float(stdtrit(degrees, (1 + level) / 2)) * error
    return min(max(value - half, -limit), limit), max(min(value + half, limit), -limit)
