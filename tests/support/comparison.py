"""Two simulated models on the same queries, and their results on disk."""

import numpy as np
from scipy.stats import norm

from posir_compare.model_runs import ModelRun, Pair, build_pairs, read_model_runs
from posir_compare.pairing import CommonResults, JointCounts
from posir_tasks.axes import Axes
from posir_tasks.evidence import Evidence
from posir_tasks.profile import NDCG_AT_10, RANKS, PositionProfile
from posir_tasks.query_ranks import save_query_ranks
from posir_tasks.schemes import RelativePositions
from tests.support.results import write_result
from tests.support.simulation import rank_distributions

PAIR = Pair(ModelRun("org/a", ()), ModelRun("org/b", ()), "PosIR-English")
FLAT, SLOPE, STEP = np.full(20, 0.75), np.linspace(0.8, 0.5, 20), np.where(np.arange(20) < 12, 0.8, 0.55)
SCHEME = RelativePositions(bins=5)


def draw_joint_counts(means_a, means_b, queries, seed, correlation=0.0):
    """Counts (P, 12, 12) of queries in random bins; `correlation` is that of the two models over queries."""
    rng = np.random.default_rng(seed)
    bins = rng.integers(0, len(means_a), queries)
    normal = rng.standard_normal((2, queries))
    normal[1] = correlation * normal[0] + np.sqrt(1 - correlation**2) * normal[1]
    columns = [
        (norm.cdf(one)[:, None] > rank_distributions(means).cumsum(axis=1)[bins, :-1]).sum(axis=1)
        for one, means in zip(normal, (means_a, means_b), strict=True)
    ]
    joint = np.zeros((len(means_a), len(RANKS), len(RANKS)), np.int64)
    np.add.at(joint, (bins, *columns), 1)
    return joint


def build_common_results(*buckets, paired):
    """Results with one length bucket for each (P, 12, 12)."""
    joint = np.stack(buckets)
    names = tuple(f"Q{k + 1}" for k in range(len(buckets))), tuple(map(str, range(joint.shape[1])))
    totals = joint.sum(axis=1)
    a, b = (PositionProfile(Axes("test", *names), joint.sum(axis=axis), totals.sum(axis=axis - 1)) for axis in (3, 2))
    return CommonResults(a, b, JointCounts(joint, totals) if paired else None, ("default",), ())


def expand_gains(joint):
    """Per-query nDCG@10 under both models, shapes (n,)."""
    _, a, b = np.nonzero(joint)
    times = joint[joint > 0]
    return np.repeat(NDCG_AT_10[a], times), np.repeat(NDCG_AT_10[b], times)


def draw_evidence(queries, seed=0):
    rng = np.random.default_rng(seed)
    starts = rng.integers(0, 4000, queries)
    names = [f"q{row}" for row in range(queries)]
    lengths = np.full(queries, 4010), rng.integers(100, 2500, queries)
    return Evidence(names, ["d"] * queries, starts, starts + 10, *lengths)


def draw_ranks(queries, seed):
    return np.random.default_rng(seed).geometric(0.5, queries) % 14


DOMAINS = {"game": draw_evidence(300, 1), "sports": draw_evidence(200, 2)}


def write_run(folder, model, seed, domains=DOMAINS, ranks_folder=None, scheme=SCHEME, **options):
    """Write a model's result and, given a folder for them, its per-query ranks."""
    profiles = {}
    for place, (subset, evidence) in enumerate(domains.items()):
        ranks = draw_ranks(len(evidence), seed + place)
        profiles[subset] = PositionProfile.from_ranks(scheme, evidence, ranks)
        if ranks_folder:
            task, experiment = options.get("task", "PosIR-English"), options.get("experiment")
            save_query_ranks(ranks_folder, model, "rev1", task, subset, scheme, evidence, ranks, experiment=experiment)
    return write_result(folder, profiles, model=model, **options)


def only_pair(*folders):
    (pair,) = build_pairs(read_model_runs(folders))
    return pair
