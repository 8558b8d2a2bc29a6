"""Simulate models in families to measure the coverage of the intervals of `posir study correlate`,
and the level and power of its test.

Usage: python benchmarks/correlate_coverage.py [DRAWS]

Each model has two normally distributed values with a given correlation. Models of a family share
part of the variance. The output shows how often the interval for independent models and the
jackknife interval over families contain the true rank correlation, and how often Spearman's test
for independent models and the permutation test over families reject.
"""

import math
import sys

import numpy as np
from scipy.stats import spearmanr

from posir_probe.correlation import (
    compute_jackknife_interval,
    compute_permutation_p_value,
    estimate_rho,
)
from posir_tasks.base.arrays import Floats
from posir_tasks.values.estimates import Interval

#: Number of families, models per family, and share of the variance between families.
DESIGNS = ((12, 3, 0.7), (12, 3, 0.0), (8, 3, 0.8), (6, 4, 0.7), (12, 1, 0.0))
CORRELATIONS = (0.0, 0.6, 0.85)


def draw(
    random: np.random.Generator, families: int, models: int, share: float, rho: float
) -> Floats:
    """Draw two values per model, shape (2, families x models)."""
    covariance = [[1, rho], [rho, 1]]
    shared = np.repeat(random.multivariate_normal([0, 0], covariance, families), models, axis=0)
    individual = random.multivariate_normal([0, 0], covariance, families * models)
    values: Floats = (math.sqrt(share) * shared + math.sqrt(1 - share) * individual).T
    return values


def contains(interval: Interval | None, value: float) -> bool:
    """Return True if an interval contains a value, or if there is no interval."""
    return interval is None or interval[0] <= value <= interval[1]


def main(draws: int) -> None:
    """Print a row per design and correlation."""
    random = np.random.default_rng(1)
    print(
        "families models share rho | coverage independent jackknife | rejects Spearman permutation"
    )
    for families, models, share in DESIGNS:
        labels = np.repeat(np.arange(families), models)
        for rho in CORRELATIONS:
            true_rho = 6 / math.pi * math.asin(rho / 2)
            rows = []
            for _ in range(draws):
                x, y = draw(random, families, models, share, rho)
                independent, _ = estimate_rho(x, y)
                coverages = (
                    contains(independent.interval if independent else None, true_rho),
                    contains(compute_jackknife_interval(x, y, labels), true_rho),
                )
                rows.append(
                    (
                        *coverages,
                        spearmanr(x, y).pvalue < 0.05,
                        compute_permutation_p_value(x, y, labels) < 0.05,
                    )
                )
            print(families, models, share, rho, "|", *np.mean(rows, axis=0).round(3), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
