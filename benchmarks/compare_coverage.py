"""Level of the tests and coverage of the intervals of `posir compare`, by simulation.

Two models answer questions about the same documents (paired) or about different ones (unpaired). Difficulty is shared by the
questions of a document and by the two models. Structures: "random" (5 questions a document at random positions), "similar"
(at similar positions), "harder later" (half of them near a center, and documents with a later center are harder), and the sizes
of COVID-QA's and JaQuAD's documents. Columns: share of differences called better or worse, and of intervals that contain the
true difference.

Use: python benchmarks/compare_coverage.py [REPLICATIONS [SETTING]]; a setting is "equal, flat", for example.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from itertools import product
from multiprocessing import Pool

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import norm

from posir_compare.comparison import CommonResults, Metric, ModelRun, Pair, compare_pair
from posir_psi.scores import compute_psi
from posir_significance.decision import ChangeState
from posir_significance.observations import Floats, Integers
from posir_tasks.document_keys import KEY_NAMES
from posir_tasks.document_ranks import DocumentRanks, DocumentSet
from posir_tasks.profile import NDCG_AT_10
from posir_tasks.schemes import Axes, assign_thirds, bin_midpoints

BINS = 20
PAIR = Pair(ModelRun("A", ()), ModelRun("B", ()), "simulated")
#: Shares of the ranks 1 to 10, of lower ones and of none for an average retriever; models differ from it by their log odds.
RANKS: Floats = np.array([0.40, 0.09, 0.05, 0.035, 0.025, 0.02, 0.015, 0.015, 0.01, 0.01, 0.25, 0.08])
THRESHOLDS: Floats = logit(RANKS.cumsum()[:-1])
#: Correlation of the two models' difficulty of a document, and of a question within it.
DOCUMENT_CORRELATION, QUESTION_CORRELATION = 0.8, 0.5
NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(31)
STRUCTURES = ("random", "similar", "harder later", "COVID-QA", "JaQuAD")


@dataclass(frozen=True)
class SimulatedModel:
    """A simulated model: shape of its position effect, mean nDCG@10 of the bins, true PSI."""

    shape: str
    level: float
    psi: float = 0.0

    def means(self) -> Floats:
        """Return the true nDCG@10 of each bin, shape (P,)."""
        middle = bin_midpoints(BINS)
        loss = {"linear": middle, "step": 1.0 * (middle > 0.6), "dip": 1 - (2 * middle - 1) ** 2}.get(self.shape, 0 * middle)
        loss = (loss - loss.min()) / max(np.ptp(loss), 1e-9)
        means = 1 - self.psi * loss
        scaled: Floats = means * self.level / means.mean()
        return scaled


#: Two models and the structures that they are compared on; without a difference in the position effect come first.
SETTINGS = {
    "equal, flat": (SimulatedModel("flat", 0.8), SimulatedModel("flat", 0.8), STRUCTURES),
    "equal, linear": (SimulatedModel("linear", 0.7, 0.3), SimulatedModel("linear", 0.7, 0.3), STRUCTURES),
    "flat, levels differ": (SimulatedModel("flat", 0.8), SimulatedModel("flat", 0.6), STRUCTURES),
    "flat and linear .1": (SimulatedModel("flat", 0.8), SimulatedModel("linear", 0.8, 0.1), ("random", "JaQuAD", "COVID-QA")),
    "linear .1 and .4": (
        SimulatedModel("linear", 0.8, 0.1),
        SimulatedModel("linear", 0.7, 0.4),
        ("random", "JaQuAD", "COVID-QA"),
    ),
    "step and dip": (SimulatedModel("step", 0.8, 0.3), SimulatedModel("dip", 0.7, 0.3), ("random", "JaQuAD", "COVID-QA")),
}


@dataclass(frozen=True, eq=False)
class SimulatedData:
    """Questions and documents of a simulated dataset."""

    sizes: Integers
    """Questions of each document, shape (D,)."""
    bins: Integers
    """Position bin of each question, shape (n,)."""
    difficulty: Floats
    """Difficulty of each document for both models, standard normal, shape (2, D)."""


def draw_sizes(structure: str, questions: int, rng: np.random.Generator) -> Integers:
    """Draw the number of questions of each document."""
    if structure == "COVID-QA":
        return rng.negative_binomial(1.2, 1.2 / 14.2, size=questions // 14) + 1
    if structure == "JaQuAD":
        return 1 + rng.poisson(2.2, size=questions // 3)
    return np.full(questions // 5, 5)


def draw_data(structure: str, questions: int, rng: np.random.Generator) -> SimulatedData:
    """Draw documents, their difficulty and the positions of their evidence."""
    sizes = draw_sizes(structure, questions, rng)
    owner, count = np.repeat(np.arange(len(sizes)), sizes), int(sizes.sum())
    center = rng.random(len(sizes))
    near = np.clip(center[owner] + 0.1 * rng.standard_normal(count), 0, 1 - 1e-9)
    share = {"similar": 1.0, "harder later": 0.5, "COVID-QA": 0.3}.get(structure, 0.0)
    elsewhere = rng.beta(1, 1.5, count) if structure == "COVID-QA" else rng.random(count)
    positions = np.where(rng.random(count) < share, near, elsewhere)
    common, own = rng.standard_normal(len(sizes)), rng.standard_normal((2, len(sizes)))
    if structure == "harder later":
        common = -0.5 * norm.ppf(np.clip(center, 1e-3, 1 - 1e-3)) + 0.75**0.5 * common
    difficulty = DOCUMENT_CORRELATION**0.5 * common + (1 - DOCUMENT_CORRELATION) ** 0.5 * own
    return SimulatedData(sizes, np.minimum((positions * BINS).astype(np.int64), BINS - 1), difficulty)


def rank_shares(log_odds: Floats) -> Floats:
    """Return the shares of the rank columns, shape (..., 12), at log odds of shape (...)."""
    below = expit(THRESHOLDS + log_odds[..., None])
    edges = np.zeros((*log_odds.shape, 1))
    shares: Floats = np.diff(below, axis=-1, prepend=edges, append=edges + 1)
    return shares


@cache
def log_odds_of_mean(mean: float, spread: float) -> float:
    """Return the log odds that have a mean nDCG@10 over documents whose difficulty has the given standard deviation."""

    def miss(log_odds: float) -> float:
        return float(NODE_WEIGHTS @ (rank_shares(log_odds + spread * NODES) @ NDCG_AT_10) / NODE_WEIGHTS.sum() - mean)

    return float(brentq(miss, -30, 30))


@cache
def spread_of_icc(icc: float, mean: float) -> float:
    """Return the standard deviation of difficulty that gives an intraclass correlation of gains."""

    def miss(spread: float) -> float:
        shares, weights = rank_shares(log_odds_of_mean(mean, spread) + spread * NODES), NODE_WEIGHTS / NODE_WEIGHTS.sum()
        between = weights @ (shares @ NDCG_AT_10) ** 2 - mean**2
        return float(between / (weights @ (shares @ NDCG_AT_10**2) - mean**2) - icc)

    return float(brentq(miss, 1e-3, 8))


def draw_ranks(model: SimulatedModel, icc: float, data: SimulatedData, index: int, question: Floats) -> DocumentRanks:
    """Draw the ranks of one of the two models; `question` is the standard normal difficulty of each question, shape (n,)."""
    spread = spread_of_icc(icc, model.level)
    log_odds = np.array([log_odds_of_mean(float(mean), spread) for mean in model.means()])[data.bins]
    log_odds += spread * np.repeat(data.difficulty[index], data.sizes)
    columns = (norm.cdf(question)[:, None] > expit(THRESHOLDS + log_odds[:, None])).sum(axis=1)
    axes = Axes("simulated", ("all",), tuple(map(str, range(BINS))))
    nothing, keys = np.zeros(0, np.int64), np.zeros((len(data.sizes), len(KEY_NAMES)), np.int64)
    block = DocumentSet(
        "default", "d", str(id(data)), data.sizes, data.bins, columns, nothing, nothing, 0 * data.sizes, keys, None
    )
    return DocumentRanks(axes, tuple((0, (position,)) for position in range(BINS)), (block,))


def draw_common_results(
    models: tuple[SimulatedModel, SimulatedModel],
    structure: str,
    questions: int,
    icc: float,
    paired: bool,
    rng: np.random.Generator,
) -> CommonResults:
    """Draw the results of two models on the same data, or on two datasets of the same structure."""
    data = [draw_data(structure, questions, rng)] * 2 if paired else [draw_data(structure, questions, rng) for _ in "ab"]
    common = [rng.standard_normal(len(dataset.bins)) for dataset in data]
    common[1] = common[0] if paired else common[1]
    results = []
    for index, (model, dataset, shared) in enumerate(zip(models, data, common, strict=True)):
        own = rng.standard_normal(len(shared))
        question = QUESTION_CORRELATION**0.5 * shared + (1 - QUESTION_CORRELATION) ** 0.5 * own
        ranks = draw_ranks(model, icc, dataset, index, question)
        results.append(ranks)
    return CommonResults(results[0], results[1], ("simulated",), ())


def true_differences(models: tuple[SimulatedModel, SimulatedModel], structure: str) -> dict[Metric, float]:
    """Return the true difference of each metric."""
    bins = draw_data(structure, 500_000, np.random.default_rng(0)).bins
    shares = np.bincount(bins, minlength=BINS) / len(bins)
    a, b = (model.means() for model in models)
    third = assign_thirds(BINS)
    ends = [np.where(third == index, shares, 0) / shares[third == index].sum() for index in (0, 2)]
    return {
        Metric.NDCG: float(shares @ (b - a)),
        Metric.START_TO_END: float((ends[0] - ends[1]) @ (b - a)),
        Metric.PSI: float(compute_psi(b) - compute_psi(a)),
    }


def simulate(
    name: str, structure: str, icc: float, questions: int, paired: bool, replications: int
) -> dict[Metric, tuple[float, float]]:
    """Return the shares of differences that are called better or worse, and of intervals that hold, by metric."""
    models = SETTINGS[name][:2]
    true = true_differences(models, structure)
    outcomes: dict[Metric, list[tuple[bool, bool]]] = {metric: [] for metric in true}
    for seed in range(replications):
        rng = np.random.default_rng([seed, questions, paired])
        for row in compare_pair(PAIR, draw_common_results(models, structure, questions, icc, paired, rng)):
            if row.difference is None or row.difference.interval is None:
                continue
            low, high = row.difference.interval
            holds = low - 1e-9 <= true[row.metric] <= high + 1e-9
            outcomes[row.metric].append((row.metric_change.state in (ChangeState.BETTER, ChangeState.WORSE), holds))
    return {metric: tuple(np.mean(outcome, axis=0).tolist()) for metric, outcome in outcomes.items()}


def format_line(job: tuple[str, str, float, int, bool, int]) -> str:
    """Return one line of the table."""
    name, structure, icc, questions, paired, _ = job
    cells = " | ".join(f"{metric}: differs {low:.3f}, holds {holds:.3f}" for metric, (low, holds) in simulate(*job).items())
    return f"{name:20s} {structure:12s} {icc:.1f} {questions:6,} {'paired' if paired else 'unpaired':8s} | {cells}"


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    settings = [(name, structure) for name in sys.argv[2:] or SETTINGS for structure in SETTINGS[name][2]]
    jobs = [(*setting, icc, 2_000, paired, count) for setting, icc, paired in product(settings, (0.2,), (True, False))]
    with Pool() as pool:
        for line in pool.imap(format_line, jobs):
            print(line, flush=True)
