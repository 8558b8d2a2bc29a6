"""Simulate the error rates of the verdict on position bias with a second model of ranks, written
independently of `simulate_rotations.py`.

Each question has its own competitors, the points of a Poisson process with an expected number of
exp(-s) points above a score s. The rank of a document is 1 plus the number of competitors above its
score. All versions of a document have the same competitors. Scores are rounded, so ties occur.

A score is the level, minus the difficulties of article, document (t with 5 degrees of freedom) and
question (skewed), minus the cost of rotation, which varies by document, minus a position effect,
which varies by document and is steep at the start, plus errors of version and row (t with 3 degrees
of freedom). One in ten documents has only two versions. The true effect is the mean difference in
expected gain between random positions in the first and the last third, for the same questions and
over all versions. Its strength is found without the regression.

Usage: python benchmarks/simulate_rotations_again.py [DRAWS] [NAME ...]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.stats import poisson

from posir_significance.analysis import GroupAnalysis, analyze
from posir_significance.changes import compare_groups
from posir_significance.decision import decide_verdict
from posir_significance.findings import ChangeState, Metric, State
from posir_significance.observations import Floats, Integers
from posir_tasks.values.document_ranks import DocumentRanks, DocumentSet
from posir_tasks.values.profile import NDCG_AT_10, map_ranks_to_columns
from posir_tasks.values.read_part import ReadPart, WindowSource
from posir_tasks.values.rotation_ranks import RotationRanks, RotationSet, Window
from posir_tasks.values.schemes import RelativePositions
from posir_tasks.values.scores import ResultValues

COMPETITORS = 101
#: Expected numbers of competitors above a score and the expected gains, for interpolation.
ABOVE = np.concatenate([[0.0], np.geomspace(1e-3, 300, 400)])
EXPECTED = sum(gain * poisson.pmf(rank, ABOVE) for rank, gain in enumerate(NDCG_AT_10[:10]))


@dataclass(frozen=True)
class Scenario:
    """Simulated documents, questions and effects."""

    name: str
    sizes: tuple[int, ...]
    """Number of questions per document."""
    level: float = 0.3
    """Mean score."""
    jitter: float = 0.04
    """Standard deviation of the relative position at which versions begin."""
    rotation_cost: float = 0.15
    """Mean cost of rotation."""
    opening: float = 0.0
    """Cost of an opening at the end of a version, proportional to its position."""
    positions: tuple[float, float] = (1.0, 1.0)
    """Beta distribution of evidence positions."""
    article_size: int = 1
    """Number of documents per article."""
    opposed: bool = False
    """Whether effects of documents have random signs."""
    sampled: int = 0
    """Number of documents to rotate in the first length bucket, or 0 for a single bucket. All
    documents of the second bucket are rotated, with 0.3 of the effect.
    """


@dataclass(frozen=True)
class World:
    """Documents, questions and competitors, which are the same for all systems."""

    document: Integers
    """Document of each question, shape (n,)."""
    difficulty: Floats
    """Difficulty of each question, shape (n,)."""
    positions: Floats
    """Relative position of the evidence in each version, shape (n, 3)."""
    has_version: NDArray[np.bool_]
    """Whether documents have each version, shape (D, 3)."""
    competitors: Floats
    """Scores of the competitors of each question, shape (n, `COMPETITORS`)."""

    @classmethod
    def draw(cls, scenario: Scenario, rng: np.random.Generator) -> World:
        """Draw documents and questions."""
        document = np.repeat(np.arange(len(scenario.sizes)), scenario.sizes)
        count, questions = len(scenario.sizes), len(document)
        articles = rng.normal(0, 0.4, count)[np.arange(count) // scenario.article_size]
        question_difficulty = (
            (articles + 0.45 * rng.standard_t(5, count))[document]
            + 0.6 * rng.exponential(1, questions)
            - 0.6
        )
        version_starts = np.arange(3) / 3 + scenario.jitter * rng.standard_normal((count, 3)).clip(
            -3, 3
        ) * [
            0,
            1,
            1,
        ]
        positions = (
            rng.beta(*scenario.positions, questions)[:, None] - version_starts[document]
        ) % 1
        has_version = np.ones((count, 3), bool)
        has_version[rng.random(count) < 0.1, 2] = False
        competitors = -np.log(np.cumsum(rng.exponential(1, (questions, COMPETITORS)), axis=1))
        return cls(document, question_difficulty, positions, has_version, competitors)

    def score(
        self,
        scenario: Scenario,
        strength: float,
        rng: np.random.Generator,
        positions: Floats | None = None,
    ) -> Floats:
        """Draw the scores of a system, shape (n, 3), by default at the positions of evidence."""
        count = len(self.has_version)
        slopes = rng.gamma(2, 0.5, count) * (rng.choice([-1, 1], count) if scenario.opposed else 1)
        if scenario.sampled:
            slopes[count // 2 :] *= 0.3
        costs = (
            rng.gamma(1, scenario.rotation_cost, count)[:, None] * [0, 1, 1]
            + 0.2 * rng.normal(size=(count, 3))
        )[self.document]
        costs += scenario.opening * np.array([0, 2, 1]) / 3
        errors = 0.45 * rng.standard_t(3, self.positions.shape)
        shape = 1 - np.exp(-2 * (self.positions if positions is None else positions))
        effects = strength * slopes[self.document, None] * (shape - 0.5)
        return np.asarray(scenario.level - self.difficulty[:, None] - costs - effects + errors)


def find_effect(scenario: Scenario, strength: float) -> float:
    """Compute the true effect from expected gains."""
    many = Scenario(**{**vars(scenario), "sizes": (1,) * 20_000})
    world = World.draw(many, np.random.default_rng(1))
    inside = np.random.default_rng(2).random(world.positions.shape) / 3
    scores = [
        world.score(many, strength, np.random.default_rng(3), inside + third / 3)
        for third in (0, 2)
    ]
    first, last = (np.interp(np.exp(-score), ABOVE, EXPECTED).mean() for score in scores)
    return float(first - last)


def build_values(
    world: World, scores: Floats, scenario: Scenario, rng: np.random.Generator
) -> ResultValues:
    """Convert simulated scores to the values of a result."""
    system_scores, competitor_scores = np.round(10 * scores), np.round(10 * world.competitors)
    tied = (competitor_scores[:, None] == system_scores[..., None]) & (
        rng.random(len(system_scores)) < 0.5
    )[:, None, None]
    above = ((competitor_scores[:, None] > system_scores[..., None]) | tied).sum(axis=2)
    columns = map_ranks_to_columns(np.where(above < COMPETITORS - 1, above + 1, 0))
    sizes = np.array(scenario.sizes, np.int64)
    rows = np.arange(len(sizes))
    second = (rows >= len(rows) // 2) & (scenario.sampled > 0)
    keys = tuple((length, (position,)) for length in range(2) for position in range(20))
    cells = second[world.document] * 20 + (20 * world.positions[:, 0]).astype(np.int64)
    titles = np.zeros((len(sizes), 3), np.int64)
    titles[:, 1] = 1 + rows // scenario.article_size
    part = DocumentSet(
        "default",
        "d",
        "q",
        sizes,
        cells,
        columns[:, 0],
        np.floor(12 * world.positions[:, 0]).astype(np.int64),
        np.floor(3 * world.positions[:, 0]).astype(np.int64),
        titles,
        None,
    )
    sample = np.where(second | (rows < (scenario.sampled or len(rows))), rows + 1, 0)
    is_sampled = sample[world.document] > 0
    has_row = world.has_version[world.document] & is_sampled[:, None]
    versions = world.has_version[sample > 0] @ np.array([1, 2, 4])
    rotation = RotationSet(
        "default",
        "d",
        "q",
        len(sizes),
        1,
        sample=sample,
        versions=9 * versions,
        tested=np.full(is_sampled.sum(), 3),
        twelfths=np.floor(12 * world.positions).astype(np.int64)[has_row],
        ranks=columns[has_row],
        window=Window.WHOLE,
        digest="v",
        window_digest="v",
    )
    ranks = DocumentRanks(RelativePositions().axes, keys, (part,))
    return ResultValues(
        ranks, ReadPart.all(WindowSource.CLASS), rotations=RotationRanks((rotation,))
    )


def draw_groups(scenario: Scenario, strength: float, seed: int) -> list[GroupAnalysis]:
    """Simulate the analyses of two systems on the same data."""
    rng = np.random.default_rng(seed)
    world = World.draw(scenario, rng)
    values = [
        build_values(world, world.score(scenario, strength, rng), scenario, rng) for _ in range(2)
    ]
    return [analyze.__wrapped__(value).overall for value in values]


def measure(scenario: Scenario, draws: int) -> str:
    """Format the rates of a scenario, a line per true effect."""
    lines = []
    for effect in (0.0,) if scenario.opposed else (0.0, 0.05, 0.1):
        low, high = (2.5, 2.5) if scenario.opposed else (0.0, 12.0 if effect else 0.0)
        for _ in range(20):
            strength = (low + high) / 2
            low, high = (
                (strength, high) if find_effect(scenario, strength) < effect else (low, strength)
            )
        truth = find_effect(scenario, strength)
        pairs = [draw_groups(scenario, strength, seed) for seed in range(draws)]
        verdicts = [decide_verdict(pair[0], 0.05) for pair in pairs]
        intervals = [
            verdict.estimate.interval
            for verdict in verdicts
            if verdict.estimate and verdict.estimate.interval
        ]
        changes = [
            compare_groups(*pair, paired=True)[Metric.POSITION_EFFECT_IN_WINDOW].state
            for pair in pairs
        ]
        shares = {
            state: np.mean([verdict.state is state for verdict in verdicts]) for state in State
        }
        tests = [test for pair in pairs if (test := pair[0].within)]
        effects = [(test.effect.value, test.effect.standard_error) for test in tests if test.effect]
        (mean, error), spread = np.mean(effects, axis=0), np.std(effects, axis=0)[0]
        differ = np.mean([change in (ChangeState.BETTER, ChangeState.WORSE) for change in changes])
        lines.append(
            f"{scenario.name:34}{100 * truth:6.1f}{100 * mean:6.1f} "
            f"+-{100 * spread / sqrt(draws):4.2f}"
            f"{100 * error:6.2f}{np.mean([test.gains.mean() for test in tests]):6.2f}"
            f"{np.mean([low <= truth <= high for low, high in intervals]):7.3f}{shares[State.FAVORS_START]:8.3f}"  # noqa: E501
            f"{shares[State.FAVORS_END]:7.3f}{shares[State.NO_BIAS]:7.3f}{shares[State.INCONCLUSIVE]:7.3f}{differ:8.3f}"
        )
    return "\n".join(lines)


SCENARIOS = (
    Scenario("72 x 4", (4,) * 72),
    Scenario("300 x 1", (1,) * 300),
    Scenario("100 x 3, uneven versions", (3,) * 100, jitter=0.12),
    Scenario("100 x 3, evidence at the start", (3,) * 100, positions=(0.7, 2.0)),
    Scenario("100 x 3, rotation costs much", (3,) * 100, rotation_cost=0.8),
    Scenario("100 x 3, openings matter", (3,) * 100, opening=0.9),
    Scenario("100 x 3, openings, evidence early", (3,) * 100, opening=0.9, positions=(0.7, 2.0)),
    Scenario("100 x 3, articles of 4", (3,) * 100, article_size=4),
    Scenario("100 x 3, documents differ, mean 0", (3,) * 100, opposed=True),
    Scenario(
        "60 documents of 90 to 1", tuple(max(1, round(90 * 0.93**number)) for number in range(60))
    ),
    Scenario("two lengths, weights 1 : 12.5", (2,) * 1250, sampled=50),
    Scenario("20 x 4", (4,) * 20),
    Scenario("60 x 1", (1,) * 60),
    Scenario("14 x 1", (1,) * 14),
    Scenario("100 x 3, nearly all found", (3,) * 100, level=3.5),
    Scenario("100 x 3, nearly none found", (3,) * 100, level=-4.2),
)


if __name__ == "__main__":
    print(
        f"{'documents x questions':34} truth  mean           SE level  cover   start    end   "
        "none   open  differ"
    )
    for scenario in SCENARIOS:
        if any(text in scenario.name for text in sys.argv[2:] or ("",)):
            print(measure(scenario, int(sys.argv[1]) if sys.argv[1:] else 400), flush=True)
