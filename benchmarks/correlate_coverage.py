"""Coverage of the intervals of `posir study correlate`, level and power of its test, by simulation
of models in families.

Use: python benchmarks/correlate_coverage.py [DRAWS]

Each model has two normal values with a given correlation, of which a share of the variance is the
family's. Printed is how often the interval for independent models and the jackknife over families
hold the true rank correlation, and how often Spearman's test for independent models and the
permutation of families reject.
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

#: Families, models of each, and the families' share of the variance.
DESIGNS = ((12, 3, 0.7), (12, 3, 0.0), (8, 3, 0.8), (6, 4, 0.7), (12, 1, 0.0))
CORRELATIONS = (0.0, 0.6, 0.85)


def draw(
    random: np.random.Generator, families: int, models: int, share: float, rho: float
) -> Floats:
    """Return two values of each model, shape (2, families x models)."""
    covariance = [[1, rho], [rho, 1]]
    shared = np.repeat(random.multivariate_normal([0, 0], covariance, families), models, axis=0)
    own = random.multivariate_normal([0, 0], covariance, families * models)
    values: Floats = (math.sqrt(share) * shared + math.sqrt(1 - share) * own).T
    return values


def holds(interval: Interval | None, value: float) -> bool:
    """Return whether an interval holds a value; no interval holds all."""
    return interval is None or interval[0] <= value <= interval[1]


def main(draws: int) -> None:
    """Print a line for each design and correlation."""
    random = np.random.default_rng(1)
    print("families models share rho | independent jackknife held | Spearman permutation reject")
    for families, models, share in DESIGNS:
        labels = np.repeat(np.arange(families), models)
        for rho in CORRELATIONS:
            true = 6 / math.pi * math.asin(rho / 2)
            rows = []
            for _ in range(draws):
                x, y = draw(random, families, models, share, rho)
                naive, _ = estimate_rho(x, y)
                held = (
                    holds(naive.interval if naive else None, true),
                    holds(compute_jackknife_interval(x, y, labels), true),
                )
                rows.append(
                    (
                        *held,
                        spearmanr(x, y).pvalue < 0.05,
                        compute_permutation_p_value(x, y, labels) < 0.05,
                    )
                )
            print(families, models, share, rho, "|", *np.mean(rows, axis=0).round(3), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
