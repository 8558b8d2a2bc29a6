"""Coverage of the intervals of `posir compare` and rate of p < 0.05, by simulation.

Two models over 20 position bins in two length buckets, with equal or different levels and effects of position; their ranks are
correlated across queries (paired) or not. Use: python benchmarks/compare_coverage.py [REPLICATIONS]
"""

from __future__ import annotations

import sys
from collections import defaultdict
from multiprocessing import Pool

import numpy as np
from interval_coverage import EFFECTS, rank_distribution
from scipy.stats import norm

from posir_compare.comparison import compare_pair
from posir_compare.model_runs import ModelRun, Pair
from posir_compare.pairing import CommonResults, JointCounts
from posir_psi import psi
from posir_significance.true_score_model import bin_midpoints
from posir_tasks.axes import Axes
from posir_tasks.profile import RANKS, PositionProfile

BINS, LENGTHS, DRAWS = 20, ("Q1", "Q2"), 2_000
PAIR = Pair(ModelRun("A", ()), ModelRun("B", ()), "simulated")
#: The two models of each setting: effect of position, nDCG@10 of the best bin, PSI.
SETTINGS = {
    "both flat, equal": (("flat", 0.5, 0.0), ("flat", 0.5, 0.0)),
    "both flat, levels differ": (("flat", 0.9, 0.0), ("flat", 0.5, 0.0)),
    "same trend": (("linear", 0.7, 0.4), ("linear", 0.7, 0.4)),
    "same PSI, levels differ": (("linear", 0.9, 0.4), ("linear", 0.6, 0.4)),
    "same PSI, shapes differ": (("linear", 0.9, 0.4), ("dip", 0.7, 0.4)),
    "flat and step": (("flat", 0.85, 0.0), ("step", 0.85, 0.3)),
    "weak and strong trend": (("linear", 0.8, 0.1), ("linear", 0.7, 0.4)),
}


def true_means(effect: str, best: float, sensitivity: float) -> np.ndarray:
    """Return the true nDCG@10 of each bin, shape (P,)."""
    if effect == "flat":
        return np.full(BINS, best)
    shape = EFFECTS[effect](bin_midpoints(BINS))
    return best * (1 - sensitivity * (shape - shape.min()) / np.ptp(shape))


def draw_joint_counts(first: np.ndarray, second: np.ndarray, queries: int, correlation: float, seed: list[int]) -> np.ndarray:
    """Sample the ranks of both models for each query: counts of shape (P, ranks, ranks); early bins have more queries."""
    rng = np.random.default_rng(seed)
    shares = np.linspace(1.4, 0.6, BINS) / BINS
    bins = np.repeat(np.arange(BINS), rng.multinomial(queries, shares / shares.sum()))
    ease = rng.standard_normal((2, queries))
    ease[1] = correlation * ease[0] + np.sqrt(1 - correlation**2) * ease[1]
    cumulated = [np.array([rank_distribution(mean) for mean in means]).cumsum(axis=1)[bins] for means in (first, second)]
    ranks = [(norm.cdf(one)[:, None] > below[:, :-1]).sum(axis=1) for one, below in zip(ease, cumulated, strict=True)]
    counts = np.zeros((BINS, len(RANKS), len(RANKS)), np.int64)
    np.add.at(counts, (bins, *ranks), 1)
    return counts


def build_common_results(counts: np.ndarray, paired: bool) -> CommonResults:
    """Return two models' results from joint counts of shape (L, P, ranks, ranks)."""
    totals, axes = counts.sum(axis=1), Axes("simulated", LENGTHS, tuple(map(str, range(BINS))))
    profiles = [PositionProfile(axes, counts.sum(axis=a), totals.sum(axis=a - 1)) for a in (3, 2)]
    return CommonResults(*profiles, JointCounts(counts, totals) if paired else None, ("s",), ())


def simulate(job: tuple[str, int, bool, int]) -> str:
    """Return one line of the table: overall nDCG@10 and PSI."""
    name, queries, paired, replications = job
    first, second = (true_means(*model) for model in SETTINGS[name])
    shares = np.linspace(1.4, 0.6, BINS) / BINS
    true = {"nDCG@10": float((second - first) @ shares), "PSI": float(psi(second) - psi(first))}
    outcomes = defaultdict(list)
    for seed in range(replications):
        halves = [draw_joint_counts(first, second, queries // 2, 0.7 * paired, [seed, queries, half]) for half in (0, 1)]
        for row in compare_pair(PAIR, build_common_results(np.stack(halves), paired), DRAWS):
            if row.length == "all" and row.p_value is not None:
                within = row.difference_low - 1e-9 <= true[row.metric.value] <= row.difference_high + 1e-9
                outcomes[row.metric.value].append((within, row.p_value < 0.05))
    cells = [
        f"{metric} {true[metric]:+.3f}: coverage {np.mean(found, axis=0)[0]:.3f}, p < 0.05 {np.mean(found, axis=0)[1]:.3f}"
        for metric, found in outcomes.items()
    ]
    return f"{name:26s} {queries:6,} {'paired' if paired else 'unpaired':8s} | " + " | ".join(cells)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    jobs = [(name, queries, paired, count) for name in SETTINGS for queries in (2_000, 42_000) for paired in (False, True)]
    with Pool() as pool:
        for line in pool.imap(simulate, jobs):
            print(line, flush=True)
