"""Simulated results with known true scores: profiles, and queries that share documents."""

from functools import cache

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import norm

from posir_significance.observations import Observations
from posir_tasks.axes import Axes
from posir_tasks.profile import NDCG_AT_10, PositionProfile

#: Rank distributions of a good and of a bad retriever; mixtures of the two have any mean between theirs.
GOOD = np.array([0.86, 0.05, 0.03, 0.01, 0.01, 0.01, 0.01, 0.0, 0.01, 0.0, 0.01, 0.0])
BAD = np.array([0.02, 0.03, 0.03, 0.02, 0.02, 0.02, 0.01, 0.02, 0.01, 0.02, 0.5, 0.3])
#: Log odds of a rank of at most 1 to 10 of a middling retriever.
LOG_ODDS = np.log(1 / (1 / np.cumsum([0.40, 0.09, 0.05, 0.035, 0.025, 0.02, 0.015, 0.015, 0.01, 0.01]) * 0.99 - 1))
NODES, NODE_WEIGHTS = hermegauss(41)
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()
GAINS = np.append(NDCG_AT_10[:10], 0.0)


def rank_distributions(means):
    """Rank distributions (P, 12) with the given mean nDCG@10."""
    share = (np.asarray(means) - BAD @ NDCG_AT_10) / (GOOD @ NDCG_AT_10 - BAD @ NDCG_AT_10)
    return share[:, None] * GOOD + (1 - share[:, None]) * BAD


def draw_counts(means, queries, seed):
    """Counts (P, 12) of queries that fall into bins at random."""
    rng = np.random.default_rng(seed)
    bins = rng.multinomial(queries, np.full(len(means), 1 / len(means)))
    return rng.multinomial(bins, rank_distributions(means))


def build_profile(*buckets):
    """A profile with one length bucket for each (P, 12)."""
    counts = np.array(buckets, np.int64)
    lengths = tuple(f"Q{k + 1}" for k in range(len(counts)))
    return PositionProfile(Axes("test", lengths, tuple(map(str, range(counts.shape[1])))), counts, counts.sum(axis=1))


def _moments(log_odds):
    """Mean and second moment of the gain of proportional-odds ranks."""
    below = expit(LOG_ODDS + np.asarray(log_odds)[..., None])
    edges = np.concatenate([np.zeros((*below.shape[:-1], 1)), below, np.ones((*below.shape[:-1], 1))], axis=-1)
    chances = np.diff(edges, axis=-1)
    return chances @ GAINS, chances @ GAINS**2


@cache
def _location(mean, scale):
    """The log odds with this mean gain over documents whose difficulty has a standard deviation."""
    return brentq(lambda place: NODE_WEIGHTS @ _moments(place + scale * NODES)[0] - mean, -30, 30)


@cache
def _scale(icc, mean):
    """The standard deviation of difficulty that gives an intraclass correlation of gains."""

    def excess(scale):
        means, squares = _moments(_location(mean, scale) + scale * NODES)
        return (NODE_WEIGHTS @ means**2 - mean**2) / (NODE_WEIGHTS @ squares - mean**2) - icc

    return brentq(excess, 1e-3, 8) if icc else 0.0


def draw_clustered(structure, queries, icc, means, rng):
    """Observations of queries that share documents.

    Structures: "independent"; five questions a document whose positions are "random", "near" each other, or "confounded"
    (half near the document's centre, and documents with late evidence harder); "papers": many questions of few documents.
    """
    bins, level = len(means), round(float(np.mean(means)), 3)
    sizes = {
        "independent": lambda: np.ones(queries, int),
        "papers": lambda: 1 + rng.negative_binomial(1.2, 1.2 / 14.2, size=max(queries // 14, 2)),
    }.get(structure, lambda: np.full(queries // 5, 5))()
    document = np.repeat(np.arange(len(sizes)), sizes)
    count, centre, difficulty = len(document), rng.random(len(sizes)), rng.standard_normal(len(sizes))
    place = rng.random(count)
    near = np.clip(centre[document] + 0.1 * rng.standard_normal(count), 0, 1 - 1e-9)
    if structure == "near":
        place = near
    elif structure == "confounded":
        place = np.where(rng.random(count) < 0.5, near, place)
        difficulty = -0.5 * norm.ppf(np.clip(centre, 1e-3, 1 - 1e-3)) + np.sqrt(0.75) * difficulty
    position = np.minimum((place * bins).astype(int), bins - 1)
    scale = _scale(icc, level)
    odds = np.array([_location(round(float(mean), 4), scale) for mean in means])[position] + scale * difficulty[document]
    rank = (rng.random(count)[:, None] > expit(LOG_ODDS + odds[:, None])).sum(axis=1)
    number = np.arange(count)
    return Observations(GAINS[rank], np.zeros(count, int), document, document, number, position, bins)
