"""Measure the error rates of the verdict on position bias with a second model of ranks, written
without sight of the first.

Each question has its own competitors: the points of a Poisson process on the scale of scores, of
which about exp(-s) lie above a score s, so that the rank of a document is 1 + the competitors above
it. All versions of a document meet the same competitors. Scores are rounded, so that some are
equal. A score is the level, minus the difficulty of the article, of the document (t with 5 degrees
of freedom) and of the question (skewed), minus a cost of moved texts that differs by document,
minus a position effect whose strength differs by document and that is steep at the start, plus an
error of the version and one of the row (t with 3). One document in ten has two versions only. The
true effect is the mean difference of expected gains of the same questions between random places in
the first third and in the last, over all versions; its strength is solved for, without the
regression.

    python benchmarks/simulate_rotations_again.py [DRAWS] [NAME ...]
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
#: Expected gain where this many competitors are expected above, for interpolation.
ABOVE = np.concatenate([[0.0], np.geomspace(1e-3, 300, 400)])
EXPECTED = sum(gain * poisson.pmf(rank, ABOVE) for rank, gain in enumerate(NDCG_AT_10[:10]))


@dataclass(frozen=True)
class Scenario:
    """The documents, questions and effects that are simulated.

    `sizes` are the questions of each document; `jitter` is the standard deviation of the share at
    which a version begins; `moved` the mean cost of a moved text; `opening` the cost of an opening
    that lies at the end; `places` the beta distribution of evidence; `article` documents of an
    article; `opposed` gives documents effects of random sign; `sampled` are the first documents
    that are rotated, with all of the second length, whose effect is 0.3 of that of the first; 0 for
    all.
    """

    name: str
    sizes: tuple[int, ...]
    level: float = 0.3
    jitter: float = 0.04
    moved: float = 0.15
    opening: float = 0.0
    places: tuple[float, float] = (1.0, 1.0)
    article: int = 1
    opposed: bool = False
    sampled: int = 0


@dataclass(frozen=True)
class World:
    """Documents, questions and competitors that all systems share."""

    document: Integers
    difficulty: Floats
    places: Floats  # of the evidence in each version, shape (n, 3)
    present: NDArray[np.bool_]  # versions of each document, shape (D, 3)
    competitors: Floats

    @classmethod
    def draw(cls, setting: Scenario, rng: np.random.Generator) -> World:
        """Draw documents and questions."""
        document = np.repeat(np.arange(len(setting.sizes)), setting.sizes)
        count, questions = len(setting.sizes), len(document)
        articles = rng.normal(0, 0.4, count)[np.arange(count) // setting.article]
        hard = (
            (articles + 0.45 * rng.standard_t(5, count))[document]
            + 0.6 * rng.exponential(1, questions)
            - 0.6
        )
        begin = np.arange(3) / 3 + setting.jitter * rng.standard_normal((count, 3)).clip(-3, 3) * [
            0,
            1,
            1,
        ]
        places = (rng.beta(*setting.places, questions)[:, None] - begin[document]) % 1
        present = np.ones((count, 3), bool)
        present[rng.random(count) < 0.1, 2] = False
        competitors = -np.log(np.cumsum(rng.exponential(1, (questions, COMPETITORS)), axis=1))
        return cls(document, hard, places, present, competitors)

    def score(
        self,
        setting: Scenario,
        strength: float,
        rng: np.random.Generator,
        places: Floats | None = None,
    ) -> Floats:
        """Draw the scores of a system, shape (n, 3); `places` stand for those of the evidence."""
        count = len(self.present)
        slopes = rng.gamma(2, 0.5, count) * (rng.choice([-1, 1], count) if setting.opposed else 1)
        if setting.sampled:
            slopes[count // 2 :] *= 0.3
        costs = (
            rng.gamma(1, setting.moved, count)[:, None] * [0, 1, 1]
            + 0.2 * rng.normal(size=(count, 3))
        )[self.document]
        costs += setting.opening * np.array([0, 2, 1]) / 3
        errors = 0.45 * rng.standard_t(3, self.places.shape)
        shape = 1 - np.exp(-2 * (self.places if places is None else places))
        effects = strength * slopes[self.document, None] * (shape - 0.5)
        return np.asarray(setting.level - self.difficulty[:, None] - costs - effects + errors)


def find_effect(setting: Scenario, strength: float) -> float:
    """Return the true effect, from expected gains."""
    many = Scenario(**{**vars(setting), "sizes": (1,) * 20_000})
    world = World.draw(many, np.random.default_rng(1))
    inside = np.random.default_rng(2).random(world.places.shape) / 3
    scores = [
        world.score(many, strength, np.random.default_rng(3), inside + third / 3)
        for third in (0, 2)
    ]
    first, last = (np.interp(np.exp(-score), ABOVE, EXPECTED).mean() for score in scores)
    return float(first - last)


def build_values(
    world: World, scores: Floats, setting: Scenario, rng: np.random.Generator
) -> ResultValues:
    """Return the project's own value of a result."""
    own, others = np.round(10 * scores), np.round(10 * world.competitors)
    tied = (others[:, None] == own[..., None]) & (rng.random(len(own)) < 0.5)[:, None, None]
    above = ((others[:, None] > own[..., None]) | tied).sum(axis=2)
    columns = map_ranks_to_columns(np.where(above < COMPETITORS - 1, above + 1, 0))
    sizes = np.array(setting.sizes, np.int64)
    rows = np.arange(len(sizes))
    second = (rows >= len(rows) // 2) & (setting.sampled > 0)
    keys = tuple((length, (place,)) for length in range(2) for place in range(20))
    cells = second[world.document] * 20 + (20 * world.places[:, 0]).astype(np.int64)
    titles = np.zeros((len(sizes), 3), np.int64)
    titles[:, 1] = 1 + rows // setting.article
    part = DocumentSet(
        "default",
        "d",
        "q",
        sizes,
        cells,
        columns[:, 0],
        np.floor(12 * world.places[:, 0]).astype(np.int64),
        np.floor(3 * world.places[:, 0]).astype(np.int64),
        titles,
        None,
    )
    sample = np.where(second | (rows < (setting.sampled or len(rows))), rows + 1, 0)
    used = sample[world.document] > 0
    has_row = world.present[world.document] & used[:, None]
    versions = world.present[sample > 0] @ np.array([1, 2, 4])
    rotation = RotationSet(
        "default",
        "d",
        "q",
        len(sizes),
        1,
        sample=sample,
        versions=9 * versions,
        tested=np.full(used.sum(), 3),
        twelfths=np.floor(12 * world.places).astype(np.int64)[has_row],
        ranks=columns[has_row],
        window=Window.WHOLE,
        digest="v",
        window_digest="v",
    )
    ranks = DocumentRanks(RelativePositions().axes, keys, (part,))
    return ResultValues(
        ranks, ReadPart.all(WindowSource.CLASS), rotations=RotationRanks((rotation,))
    )


def draw_groups(setting: Scenario, strength: float, seed: int) -> list[GroupAnalysis]:
    """Draw the analyses of two systems on the same data."""
    rng = np.random.default_rng(seed)
    world = World.draw(setting, rng)
    values = [
        build_values(world, world.score(setting, strength, rng), setting, rng) for _ in range(2)
    ]
    return [analyze.__wrapped__(value).overall for value in values]


def measure(setting: Scenario, draws: int) -> str:
    """Return the rates of a setting, a line for each true effect."""
    lines = []
    for effect in (0.0,) if setting.opposed else (0.0, 0.05, 0.1):
        low, high = (2.5, 2.5) if setting.opposed else (0.0, 12.0 if effect else 0.0)
        for _ in range(20):
            strength = (low + high) / 2
            low, high = (
                (strength, high) if find_effect(setting, strength) < effect else (low, strength)
            )
        truth = find_effect(setting, strength)
        pairs = [draw_groups(setting, strength, seed) for seed in range(draws)]
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
            f"{setting.name:34}{100 * truth:6.1f}{100 * mean:6.1f} "
            f"+-{100 * spread / sqrt(draws):4.2f}"
            f"{100 * error:6.2f}{np.mean([test.gains.mean() for test in tests]):6.2f}"
            f"{np.mean([low <= truth <= high for low, high in intervals]):7.3f}{shares[State.FAVORS_START]:8.3f}"  # noqa: E501
            f"{shares[State.FAVORS_END]:7.3f}{shares[State.NO_BIAS]:7.3f}{shares[State.INCONCLUSIVE]:7.3f}{differ:8.3f}"
        )
    return "\n".join(lines)


SETTINGS = (
    Scenario("72 x 4", (4,) * 72),
    Scenario("300 x 1", (1,) * 300),
    Scenario("100 x 3, borders uneven", (3,) * 100, jitter=0.12),
    Scenario("100 x 3, evidence at the start", (3,) * 100, places=(0.7, 2.0)),
    Scenario("100 x 3, a moved text costs much", (3,) * 100, moved=0.8),
    Scenario("100 x 3, openings matter", (3,) * 100, opening=0.9),
    Scenario("100 x 3, openings, evidence early", (3,) * 100, opening=0.9, places=(0.7, 2.0)),
    Scenario("100 x 3, articles of 4", (3,) * 100, article=4),
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
    for chosen in SETTINGS:
        if any(text in chosen.name for text in sys.argv[2:] or ("",)):
            print(measure(chosen, int(sys.argv[1]) if sys.argv[1:] else 400), flush=True)
