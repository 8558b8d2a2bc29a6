"""Coverage of the intervals and size of the test, by simulation with known effects of position.

Use: python benchmarks/interval_coverage.py [--replications 200] [--jobs 2]

Each replication samples a profile: queries are assigned to bins at random, more of them to early bins (as in PosIR), and their
ranks are drawn from a distribution with the bin's true mean nDCG@10. "weak" models have about 0.5, "strong" ones about 0.9
in their best bins. Columns: share of replications in which the interval of PSI, of nDCG@10 over all queries, of the
unweighted mean of the bins, and of a single bin holds the true value; mean width of the interval of PSI; share of p < 0.05.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from multiprocessing import Pool

import numpy as np
from scipy.optimize import brentq

from posir_psi import psi
from posir_significance.group_means import Floats, Integers, compute_group_means
from posir_significance.intervals import Interval, bucket_interval, ndcg_intervals, psi_interval
from posir_significance.permutation_null import null_psi, permute_gains, summarize_null
from posir_significance.true_score_model import bin_midpoints
from posir_tasks.profile import NDCG_AT_10

#: Permutations per replication: fewer than for a result, since only p < 0.05 is counted.
PERMUTATIONS = 500
#: Rank distribution of an average retriever: 40 % at rank 1, a long tail, a third below rank 10.
RANKS: Floats = np.array([0.40, 0.09, 0.05, 0.035, 0.025, 0.02, 0.015, 0.015, 0.01, 0.01, 0.25, 0.08])
#: True scores over positions, 0 at the best and 1 at the worst.
EFFECTS: dict[str, Callable[[Floats], Floats]] = {
    "none": np.zeros_like,
    "linear": lambda x: x,
    "step": lambda x: (x > 0.6).astype(np.float64),
    "dip": lambda x: 1 - (2 * x - 1) ** 2,
    "decay": lambda x: 1 - np.exp(-5 * x),
    "two dips": lambda x: 0.5 - 0.5 * np.cos(4 * np.pi * x),
    "last bin": lambda x: (x == x.max()).astype(np.float64),
    "no order": lambda x: np.random.default_rng(3).random(len(x)),
}
#: Effects that no shape of `posir_significance.true_score_model` has: a test of misspecification.
MISSPECIFIED = ("decay", "two dips", "last bin", "no order")
SIZES = (0.1, 0.3, 0.8)


@dataclass(frozen=True)
class Setting:
    """One row of the table."""

    effect: str
    level: str
    bins: int
    queries: int
    true_psi: float

    def means(self) -> Floats:
        """Return the true mean nDCG@10 of the bins, shape (P,)."""
        shape = EFFECTS[self.effect](bin_midpoints(self.bins))
        if self.effect == "none":
            return np.full(self.bins, 0.5 if self.level == "weak" else 0.9)
        shape = (shape - shape.min()) / np.ptp(shape)
        best = min(0.9, 1 / (2 - self.true_psi)) if self.level == "weak" else 0.95
        means: Floats = best * (1 - self.true_psi * shape)
        return means

    def shares(self) -> Floats:
        """Return the share of queries of each bin, shape (P,)."""
        return normalize(np.linspace(1.4, 0.6, self.bins))


def settings() -> list[Setting]:
    """Return the rows of the table."""
    counts, levels = (500, 2_000, 42_000), ("weak", "strong")
    none = [Setting("none", *row, 0.0) for row in product(levels, (20, 6, 3), counts)]
    main = [Setting(*row) for row in product(("linear", "step", "dip"), levels, (20, 6, 3), counts, SIZES)]
    others = [Setting(*row) for row in product(MISSPECIFIED, levels, (20,), counts, SIZES)]
    return [*none, *main, *others]


def normalize(weights: Floats) -> Floats:
    """Scale weights to a sum of 1."""
    shares: Floats = weights / weights.sum()
    return shares


def rank_distribution(mean: float) -> Floats:
    """Return a distribution over the 12 rank columns with a given mean nDCG@10, by exponential tilting of `RANKS`."""

    def tilted(tilt: float) -> Floats:
        return normalize(RANKS * np.exp(tilt * NDCG_AT_10))

    return tilted(brentq(lambda tilt: tilted(tilt) @ NDCG_AT_10 - mean, -50, 50))


def simulate(setting: Setting, rng: np.random.Generator) -> Integers:
    """Draw a profile's counts, shape (P, 12)."""
    distributions = np.array([rank_distribution(mean) for mean in setting.means()])
    counts: Integers = rng.multinomial(rng.multinomial(setting.queries, setting.shares()), distributions)
    return counts


def p_value(counts: Integers, seed: int) -> float:
    """Return the p-value of a profile's PSI."""
    queries = counts.sum(axis=1)
    observed = float(psi(compute_group_means(counts).means[queries > 0]))
    null = summarize_null(observed, null_psi(permute_gains(counts[None], PERMUTATIONS, seed)[:, 0], queries))
    return null.p_value if null else 1.0


def contains(interval: Interval | None, value: float) -> bool:
    """Return whether an interval contains a value, up to rounding."""
    return interval is not None and interval[0] - 1e-9 <= value <= interval[1] + 1e-9


def replicate(setting: Setting, seed: int) -> list[float]:
    """Return the table's columns for one simulated profile."""
    counts = simulate(setting, np.random.default_rng([seed, setting.queries, setting.bins]))
    means = setting.means()
    significance = p_value(counts, seed)
    interval = psi_interval(counts, significance)
    single = [contains(one, mean) for one, mean in zip(ndcg_intervals(compute_group_means(counts)), means, strict=True) if one]
    return [
        contains(interval, float(psi(means))),
        contains(ndcg_intervals(compute_group_means(counts.sum(axis=0, keepdims=True)))[0], float(means @ setting.shares())),
        contains(bucket_interval(compute_group_means(counts)), float(means.mean())),
        float(np.mean(single)),
        interval[1] - interval[0] if interval else float("nan"),
        significance < 0.05,
    ]


def row(job: tuple[Setting, int]) -> str:
    """Return one line of the table."""
    setting, replications = job
    columns = np.mean([replicate(setting, seed) for seed in range(replications)], axis=0)
    name = f"{setting.effect:<9}{setting.level:<7}{setting.queries:>7,}{setting.bins:>6}{setting.true_psi:>10.1f}"
    return name + "".join(f"{column:>10.3f}" for column in columns)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=200, help="simulated profiles per row")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    arguments = parser.parse_args()
    heads = ("PSI", "nDCG", "bins mean", "one bin", "width", "p < 0.05")
    print(f"{'effect':<9}{'model':<7}{'n':>7}{'bins':>6}{'true PSI':>10}" + "".join(f"{head:>10}" for head in heads))
    with Pool(arguments.jobs) as pool:
        for line in pool.imap(row, [(setting, arguments.replications) for setting in settings()]):
            print(line, flush=True)


if __name__ == "__main__":
    main()
