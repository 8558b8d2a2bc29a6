"""Simulate the error rates of the controlled test, with ranks that have a known position effect.

The logarithm of a rank is the sum of the difficulty of document, paragraph and question, which all
versions of a question share; the position effect, which varies by document; the cost of rotation;
and noise by version and row. The strength of the effect is chosen to give the true difference in
nDCG@10 between the first and the last third.

Usage: OMP_NUM_THREADS=1 python benchmarks/simulate_rotations.py [DRAWS]

Each row contains the rates of the states of a model, and the coverage of the interval.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from posir_significance.analysis import GroupAnalysis
from posir_significance.changes import compare_groups
from posir_significance.controlled import ControlledTest
from posir_significance.decision import decide_verdict
from posir_significance.findings import ChangeState, Metric, State
from posir_significance.observations import Observations
from posir_tasks.values.layouts import QueryLayout
from posir_tasks.values.profile import NDCG_AT_10, map_ranks_to_columns
from posir_tasks.values.read_part import ReadPart, WindowSource

Floats = NDArray[np.float64]
READS_ALL = ReadPart.all(WindowSource.CLASS)
VERSIONS, PARAGRAPHS, MARGIN = 3, 4, 0.05


@dataclass(frozen=True)
class Setting:
    """A dataset and a model."""

    documents: int
    questions: int
    effect: float = 0.0
    """True difference between the first and the last third."""
    cost: float = 1.0
    """Factor of the cost of rotation."""
    easier: float = 0.0
    """Subtracted from all log ranks. At 3 nearly all evidence is found, at -2.5 nearly none."""

    @property
    def name(self) -> str:
        """A short description of the setting."""
        parts = [f"{self.documents}x{self.questions}", f"effect {100 * self.effect:+.0f}"]
        parts += ["rotation costs much"] if self.cost > 1 else []
        parts += (
            ["nearly all found"]
            if self.easier > 1
            else ["nearly none found"]
            if self.easier < -1
            else []
        )
        return ", ".join(parts)


@dataclass(frozen=True)
class Simulation:
    """Columns of simulated rows, shape (rows,) each."""

    fixed: Floats
    """Log ranks without the position effect."""
    slopes: Floats
    positions: Floats
    versions: NDArray[np.int64]
    questions: NDArray[np.int64]
    documents: NDArray[np.int64]

    def gains(self, beta: float, positions: Floats | None = None) -> Floats:
        """Compute nDCG@10 of each row with this strength of the effect."""
        position = self.positions if positions is None else positions
        ranks = np.maximum(
            1, np.floor(np.exp(self.fixed + beta * self.slopes * 1.3 * position**0.7))
        )
        return NDCG_AT_10[map_ranks_to_columns(np.minimum(ranks, 101).astype(np.int64))]


def simulate(setting: Setting, rng: np.random.Generator) -> Simulation:
    """Simulate documents, questions and versions."""
    documents, size = setting.documents, setting.questions
    question = np.repeat(np.arange(documents * size), VERSIONS)
    version = np.tile(np.arange(VERSIONS), documents * size)
    document = question // size
    lengths = rng.lognormal(np.log(500), 0.5, documents)
    paragraph = document * PARAGRAPHS + rng.integers(0, PARAGRAPHS, documents * size)[question]
    base = (
        0.56 * rng.standard_t(4, documents)[document]
        + 0.42 * rng.laplace(size=documents * PARAGRAPHS)[paragraph]
    )
    base += (
        0.7 * rng.normal(size=documents * size)[question] - 0.2 * np.log(lengths / 500)[document]
    )
    question_offset = 0.8 * rng.standard_t(5, documents * size)[question]
    rotation_cost = (version > 0) * setting.cost * rng.gamma(2, 0.5, documents)[document] / 4
    noise = 0.25 * rng.normal(size=documents * VERSIONS)[document * VERSIONS + version]
    noise += 0.45 * rng.normal(size=len(question))
    start = rng.random(documents * size)[question]
    positions = (start - version / VERSIONS) % 1
    fixed = 0.9 - base - setting.easier + question_offset + rotation_cost + noise
    return Simulation(
        fixed, rng.gamma(3, 1 / 3, documents)[document], positions, version, question, document
    )


@cache
def solve_strength(effect: float, easier: float) -> float:
    """Find the strength that gives a true effect in a large population, without rotation costs."""
    large = simulate(Setting(20_000, 4, easier=easier, cost=0.0), np.random.default_rng(7))
    within = np.random.default_rng(8).random(len(large.positions)) / 3

    def compute_difference(beta: float) -> float:
        return float(large.gains(beta, within).mean() - large.gains(beta, within + 2 / 3).mean())

    return (
        0.0
        if not effect
        else float(brentq(lambda beta: compute_difference(beta) - effect, -4, 8, xtol=1e-3))
    )


def build_test(simulation: Simulation, gains: Floats) -> ControlledTest:
    """Build the test of simulated gains."""
    thirds = np.minimum((simulation.positions * 3).astype(np.int64), 2)
    unread = np.zeros(len(gains), bool)
    weights = np.ones(len(gains))
    return ControlledTest(
        gains,
        thirds,
        simulation.versions,
        unread,
        simulation.questions,
        simulation.documents,
        weights,
    )


def build_group(test: ControlledTest) -> GroupAnalysis:
    """Build the analysis of a model that reads whole texts."""
    unmoved = test.versions == 0
    rows = np.arange(int(unmoved.sum()))
    zeros = np.zeros(len(rows), np.int64)
    gains, clusters = test.gains[unmoved], test.clusters[unmoved]
    layout = QueryLayout(zeros, clusters, rows, test.thirds[unmoved], 3)
    observations = Observations(gains, layout, read=READS_ALL)
    return GroupAnalysis(
        observations, whole=test, within=test, versions=("same",), window_versions=("same",)
    )


def measure(setting: Setting, draws: int) -> dict[str, float]:
    """Compute the share of draws with each state, and the coverage of the interval."""
    beta = solve_strength(setting.effect, setting.easier)
    states = Counter[State]()
    covered = 0
    for seed in range(draws):
        simulation = simulate(setting, np.random.default_rng([seed, setting.documents]))
        test = build_test(simulation, simulation.gains(beta))
        states[decide_verdict(build_group(test), MARGIN).state or State.NOT_TESTED] += 1
        interval = test.effect.interval if test.effect else None
        covered += interval is not None and interval[0] <= setting.effect <= interval[1]
    return {
        state.value: states[state] / draws for state in State if state is not State.NOT_TESTED
    } | {"coverage": covered / draws}


def measure_equal_systems(documents: int, questions: int, draws: int) -> float:
    """Compute the share of draws in which the effects of two equal models with independent errors
    differ.
    """
    differing = 0
    for seed in range(draws):
        rng = np.random.default_rng([seed, documents, 3])
        simulation = simulate(Setting(documents, questions), rng)
        second = Simulation(
            simulation.fixed + 0.45 * rng.normal(size=len(simulation.fixed)),
            *list(vars(simulation).values())[1:],
        )
        first = Simulation(
            simulation.fixed + 0.45 * rng.normal(size=len(simulation.fixed)),
            *list(vars(simulation).values())[1:],
        )
        a, b = (build_group(build_test(part, part.gains(0.0))) for part in (first, second))
        change = compare_groups(a, b, paired=True)[Metric.POSITION_EFFECT_IN_WINDOW]
        differing += change.state in (ChangeState.BETTER, ChangeState.WORSE)
    return differing / draws


SETTINGS = [
    *(
        Setting(documents, size, effect)
        for documents, size in ((72, 4), (300, 1), (20, 4))
        for effect in (0, 0.05, 0.1, -0.1)
    ),
    Setting(72, 4, 0, cost=4.0),
    Setting(300, 1, 0, cost=4.0),
    Setting(72, 4, 0, easier=3.0),
    Setting(72, 4, 0, easier=-2.5),
]


def main() -> None:
    """Print the rates of each setting."""
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    headings = (State.FAVORS_START, State.FAVORS_END, State.NO_BIAS, State.INCONCLUSIVE, "coverage")
    print(f"{'setting':48}", *(f"{name:>13}" for name in headings))
    for setting in SETTINGS:
        rates = measure(setting, draws)
        print(f"{setting.name:48}", *(f"{rates[name]:13.3f}" for name in headings), flush=True)
    for documents, size in ((100, 3), (300, 1), (20, 4)):
        print(
            f"equal systems differ, {documents}x{size}: "
            f"{measure_equal_systems(documents, size, draws):.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
