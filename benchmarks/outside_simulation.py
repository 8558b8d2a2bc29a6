"""A second simulation of the statistics, with a model of its own: unlike `simulation.py`, it shares no code with the first.

Gains follow a probit model: documents differ in difficulty and in how much position matters to them, and a random field over
the position makes neighboring questions alike. Documents are unequal, questions are repeated, gains are nearly all 1 or all 0.

Use: OMP_NUM_THREADS=1 python benchmarks/outside_simulation.py --draws 400 --results FILE [--row NAME ...]
Every row is written to FILE when it is done; a second call goes on with the next. The table marks what is outside its bounds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
from scipy.special import ndtr

from posir_significance.analysis import GroupAnalysis, analyze
from posir_significance.decision import ChangeState, compare_groups
from posir_significance.observations import Floats, Integers, Observations
from posir_significance.position_effect import estimate_effect
from posir_tasks.cells import pool
from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.evidence import Evidence
from posir_tasks.schemes import RelativePositions, assign_thirds

#: Latent values above which the rank is 1, 2, 3, 5 and 8; below the last, the document is not found.
THRESHOLDS, RANKS = np.array([0.0, -0.3, -0.45, -0.6, -0.7]), np.array([1, 2, 3, 5, 8, 0])
GAINS = np.append(1 / np.log2(1 + RANKS[:-1]), 0.0)
FIELD_LENGTH = 0.08
TRUTH_DOCUMENTS = 60_000
CURVES = {
    "none": lambda x: 0 * x,
    "linear": lambda x: x,
    "step": lambda x: (x > 0.25) * 1.0,
    "end": lambda x: (x > 0.85) * 1.0,
    "dip": lambda x: np.exp(-(((x - 0.5) / 0.12) ** 2)),
    "bad bin": lambda x: ((x > 0.4) & (x <= 0.45)) * 1.0,
    "own place": lambda x: np.exp(-(((x - 0.5) / 0.12) ** 2)),
}


@dataclass(frozen=True)
class ModelSetting:
    """A row of the table."""

    name: str
    documents: int = 40
    bins: int = 20
    sizes: str = "zipf"
    """`zipf`: 1 to 60 questions a document; `several`: 2 to 20; `many`: 8 to 20; `one`."""
    level: float = 0.8
    curve: str = "none"
    strength: float = 0.0
    """Mean loss on the latent scale. Half of the documents have none of it unless `even`."""
    even: bool = False
    confounded: float = 0.0
    """Correlation of a document's difficulty with where its evidence is."""
    early: bool = False
    copies: float = 0.0
    """Share of the questions that repeat another one of the document."""
    subsets: int = 1
    """Subsets with other levels and other positions of the evidence."""
    shared: float | None = None
    """Correlation between two models of what makes a question hard for each; None with one model."""
    other: str = "none"
    """Curve of the second model."""


ONE = (
    ModelSetting("40 documents"),
    ModelSetting("20 documents of 8 to 20, 6 bins", documents=20, bins=6, sizes="many"),
    ModelSetting("20 documents of 8 to 20", documents=20, sizes="many"),
    ModelSetting("25 documents of 2 to 20, 3 bins", documents=25, bins=3, sizes="several"),
    ModelSetting("30 documents of 2 to 20", documents=30, sizes="several"),
    ModelSetting("30 documents, early evidence", documents=30, sizes="several", early=True),
    ModelSetting("40 documents, a third copies", copies=0.33),
    ModelSetting("40 documents, nearly all found", level=2.6),
    ModelSetting("40 documents, nearly none found", level=-2.6),
    ModelSetting("40 documents, harder ones late", confounded=0.8),
    ModelSetting("40 documents, early, harder late, copies", confounded=0.8, early=True, copies=0.33),
    ModelSetting("40 documents, own place each", curve="own place", strength=1.0),
    ModelSetting("100 documents, harder ones late", documents=100, confounded=0.8),
    ModelSetting("100 documents, 3 bins", documents=100, bins=3),
    ModelSetting("600 documents of 1, 4 subsets", documents=600, sizes="one", subsets=4),
    ModelSetting("80 documents, 4 subsets, harder late", documents=80, subsets=4, confounded=0.8),
    ModelSetting("40 documents, linear", curve="linear", strength=1.0),
    ModelSetting(
        "25 documents of 2 to 20, 3 bins, linear", documents=25, bins=3, sizes="several", curve="linear", strength=1.0
    ),
    ModelSetting("20 documents of 8 to 20, 6 bins, step", documents=20, bins=6, sizes="many", curve="step", strength=1.0),
    ModelSetting("40 documents, linear, even", curve="linear", strength=1.0, even=True),
    ModelSetting("40 documents, linear, small", curve="linear", strength=0.3),
    ModelSetting("40 documents, step, copies", curve="step", strength=1.0, copies=0.33),
    ModelSetting("40 documents, early evidence, linear", curve="linear", strength=1.5, early=True),
    ModelSetting("40 documents, harder late, linear", curve="linear", strength=1.0, confounded=0.8),
    ModelSetting("100 documents, last bins bad", documents=100, curve="end", strength=1.0),
    ModelSetting("100 documents, dip", documents=100, curve="dip", strength=1.0),
    ModelSetting("40 documents, one bad bin", curve="bad bin", strength=1.5),
    ModelSetting("100 documents, one bad bin", documents=100, curve="bad bin", strength=1.5),
    ModelSetting("100 documents, nearly all found, step", documents=100, level=2.6, curve="step", strength=1.0),
    ModelSetting("100 documents, nearly none found, linear", documents=100, level=-2.0, curve="linear", strength=1.0),
    ModelSetting("600 documents of 1, 4 subsets, linear", documents=600, sizes="one", subsets=4, curve="linear", strength=1.0),
    ModelSetting("80 documents, 4 subsets, harder late, linear", 80, subsets=4, confounded=0.8, curve="linear", strength=1.0),
)
TWO = (
    ModelSetting("two, independent, flat", shared=0.0),
    ModelSetting("two, alike, flat", shared=0.8),
    ModelSetting("two, alike, 25 documents, 3 bins", documents=25, bins=3, sizes="several", shared=0.8),
    ModelSetting("two, alike, harder late, copies", shared=0.8, confounded=0.8, copies=0.33),
    ModelSetting("two, same effect, alike", shared=0.8, curve="linear", strength=1.0, other="linear"),
    ModelSetting("two, same effect, own documents", shared=0.0, curve="linear", strength=1.0, other="linear"),
    ModelSetting("two, flat and linear", shared=0.8, strength=1.0, other="linear"),
    ModelSetting("two, step and dip", documents=100, shared=0.5, curve="step", strength=1.0, other="dip"),
)


@dataclass(frozen=True, eq=False)
class QuestionSample:
    """Documents and questions; columns of documents have shape (D,), of questions (n,)."""

    subsets: Integers
    owners: Integers
    places: Floats
    hardness: Floats
    source: Integers
    """The question that each repeats, else itself."""


def draw_sample(setting: ModelSetting, documents: int, rng: np.random.Generator) -> QuestionSample:
    """Draw documents, positions and what is hard, before any model."""
    low, high = {"zipf": (1, 60), "several": (2, 20), "many": (8, 20), "one": (1, 1)}[setting.sizes]
    choices = np.arange(low, high + 1)
    sizes = rng.choice(choices, documents, p=choices**-0.8 / (choices**-0.8).sum())
    subsets = rng.integers(0, setting.subsets, documents) if documents > 1000 else np.arange(documents) % setting.subsets
    owners = np.repeat(np.arange(documents), sizes)
    center = rng.standard_normal(documents)
    tilt = np.exp(0.9 * center * (setting.confounded > 0) + 0.5 * (subsets - (setting.subsets - 1) / 2))[owners]
    places = rng.beta(np.minimum(tilt, 1) * 1.2, (4.0 if setting.early else 1.2) / np.maximum(tilt, 1))
    hardness = setting.confounded * center + np.sqrt(1 - setting.confounded**2) * rng.standard_normal(documents)
    hardness += 0.8 * (subsets - (setting.subsets - 1) / 2)
    first = (np.cumsum(sizes) - sizes)[owners]
    other = first + (rng.random(len(owners)) * (np.arange(len(owners)) - first)).astype(np.int64)
    source = np.where(rng.random(len(owners)) < setting.copies, other, np.arange(len(owners)))
    while (source[source] != source).any():
        source = source[source]
    return QuestionSample(subsets, owners, places[source], hardness, source)


def draw_field(sample: QuestionSample, rng: np.random.Generator) -> Floats:
    """Draw a standard Ornstein-Uhlenbeck process over the positions of each document, shape (n,)."""
    order = np.lexsort((sample.places, sample.owners))
    gaps = np.diff(sample.places[order]) + 99 * np.diff(sample.owners[order])
    decay, noise = np.append(0.0, np.exp(-gaps / FIELD_LENGTH)), rng.standard_normal(len(order))
    values, value = np.empty(len(order)), 0.0
    for row, (kept, fresh) in enumerate(zip(decay, np.sqrt(1 - decay**2) * noise, strict=True)):
        values[row] = value = kept * value + fresh
    field = np.empty(len(order))
    field[order] = values
    return field


def draw_latent(setting: ModelSetting, sample: QuestionSample, curve: str, rng: np.random.Generator) -> Floats:
    """Draw the expected latent value of every question for one model, given what is hard; shape (n,)."""
    documents = len(sample.hardness)
    slopes = setting.strength * (
        np.ones(documents) if setting.even else rng.exponential(2.0, documents) * (rng.random(documents) < 0.5)
    )
    places = (sample.places + rng.random(documents)[sample.owners]) % 1 if curve == "own place" else sample.places
    return setting.level - 0.7 * sample.hardness[sample.owners] - slopes[sample.owners] * CURVES[curve](places)


@dataclass(frozen=True, eq=False)
class Truth:
    """The values that the analysis estimates, from a very large sample."""

    mean: float
    """nDCG@10 over questions."""
    scores: Floats
    """Score of every bin with the document held fixed, shape (P,)."""
    start_to_end: float

    def psi(self, filled: Integers) -> float:
        """Return the PSI of the bins that a sample has questions in."""
        return float(1 - self.scores[filled].min() / self.scores[filled].max())


def find_truth(setting: ModelSetting, curve: str) -> Truth:
    """Compute the truth from expected gains."""
    rng = np.random.default_rng(crc32(setting.name.encode()))
    sample = draw_sample(setting, TRUTH_DOCUMENTS, rng)
    # The field and a question's own chance have variance 1 each, and a normal sum.
    latent = draw_latent(setting, sample, curve, rng)[:, None]
    gains = ndtr((latent - THRESHOLDS) / np.sqrt(2)) @ -np.diff(GAINS)
    effect = estimate_effect(as_observations(setting, sample, gains))
    assert effect is not None
    scores = effect.level + (0 if curve in ("none", "own place") else 1) * effect.effects
    first, last = (np.where(assign_thirds(setting.bins) == third, effect.weights, 0) for third in (0, 2))
    return Truth(float(gains.mean()), scores, float(scores @ (first / first.sum() - last / last.sum())))


def number_bins(setting: ModelSetting, sample: QuestionSample) -> Integers:
    """Return the position bin of every question, shape (n,)."""
    return np.minimum((sample.places * setting.bins).astype(np.int64), setting.bins - 1)


def as_observations(setting: ModelSetting, sample: QuestionSample, gains: Floats) -> Observations:
    """Return gains as the statistics read them."""
    number, nothing, owners = np.arange(len(gains)), np.zeros(len(gains), np.int64), sample.owners
    bins = number_bins(setting, sample)
    return Observations(gains, sample.subsets[owners], nothing, owners, owners, number, bins, setting.bins)


def draw_outcomes(setting: ModelSetting, sample: QuestionSample, rng: np.random.Generator) -> list[Integers]:
    """Draw the outcome of every question, an index into `RANKS`, for one model or two; shape (n,) each."""
    share = setting.shared or 0.0
    common = np.array([draw_field(sample, rng), rng.standard_normal(len(sample.owners))])
    outcomes = []
    for curve in (setting.curve,) if setting.shared is None else (setting.curve, setting.other):
        own = np.array([draw_field(sample, rng), rng.standard_normal(len(sample.owners))])
        chance = (np.sqrt(share) * common + np.sqrt(1 - share) * own).sum(axis=0)
        latent = draw_latent(setting, sample, curve, rng) + chance
        outcomes.append((latent[:, None] <= THRESHOLDS).sum(axis=1)[sample.source])
    return outcomes


def as_document_ranks(setting: ModelSetting, sample: QuestionSample, outcomes: Integers) -> DocumentRanks:
    """Return ranks as a result file has them, pooled over subsets."""
    scheme, parts = RelativePositions(setting.bins, ()), []
    middle = number_bins(setting, sample) * 100 + 50
    for subset in np.unique(sample.subsets):
        rows = np.flatnonzero(sample.subsets[sample.owners] == subset)
        size = np.full(len(rows), 100 * setting.bins)
        owners, queries = [f"d{owner}" for owner in sample.owners[rows]], [f"q{row}" for row in rows]
        evidence = Evidence(queries, owners, middle[rows], middle[rows], size, np.ones(len(rows), np.int64))
        parts.append(DocumentRanks.from_ranks(scheme, evidence, RANKS[outcomes[rows]], subset=f"s{subset}"))
    return pool(parts)


def holds(interval: tuple[float, float] | None, truth: float) -> float:
    """Return 1 if an interval contains the true value, else 0; NaN without an interval."""
    return float(interval[0] - 1e-6 <= truth <= interval[1] + 1e-6) if interval else np.nan


def rejects(p_value: float | None) -> float:
    """Return 1 if p < 0.05, else 0; NaN without a test."""
    return np.nan if p_value is None else float(p_value < 0.05)


def simulate_one(setting: ModelSetting, draws: int) -> Iterator[dict[str, float]]:
    """Yield what the analysis of a model says about the truth."""
    truth = find_truth(setting, setting.curve)
    for rng in list_generators(setting, draws):
        sample = draw_sample(setting, setting.documents, rng)
        group = GroupAnalysis(as_observations(setting, sample, GAINS[draw_outcomes(setting, sample, rng)[0]]))
        if not (group.effect and group.test and group.psi and group.ndcg and group.psi.interval):
            continue
        psi, start = truth.psi(group.effect.filled), group.start_to_end.interval if group.start_to_end else None
        yield {
            "p": rejects(group.test.p_value),
            "ndcg": holds(group.ndcg.interval, truth.mean),
            "start_to_end": holds(start, truth.start_to_end),
            "psi": holds(group.psi.interval, psi),
            "error": (group.psi.value - psi) ** 2,
            "true_psi": psi,
        }


def simulate_two(setting: ModelSetting, draws: int) -> Iterator[dict[str, float]]:
    """Yield what the comparison of two models says about the true differences."""
    a, b = find_truth(setting, setting.curve), find_truth(setting, setting.other)
    for rng in list_generators(setting, draws):
        sample = draw_sample(setting, setting.documents, rng)
        first, second = (as_document_ranks(setting, sample, outcomes) for outcomes in draw_outcomes(setting, sample, rng))
        change = compare_groups(analyze(first).overall, analyze(second).overall, paired=True)
        ndcg, start_to_end, difference = (metric.difference for metric in (change.ndcg_at_10, change.start_to_end, change.psi))
        if not (ndcg and start_to_end and difference):
            continue
        filled = np.flatnonzero(np.bincount(number_bins(setting, sample)))
        psi = b.psi(filled) - a.psi(filled)
        yield {
            "p": float(change.psi.state in (ChangeState.BETTER, ChangeState.WORSE)),
            "p_ndcg": rejects(ndcg.p_value),
            "p_start_to_end": rejects(start_to_end.p_value),
            "ndcg": holds(ndcg.interval, b.mean - a.mean),
            "start_to_end": holds(start_to_end.interval, b.start_to_end - a.start_to_end),
            "psi": holds(difference.interval, psi),
            "error": (difference.value - psi) ** 2,
            "true_psi": psi,
        }


def list_generators(setting: ModelSetting, draws: int) -> Iterator[np.random.Generator]:
    """Yield the random numbers of each draw, the same however many there are."""
    return (np.random.default_rng([crc32(setting.name.encode()), draw]) for draw in range(draws))


def run_row(setting: ModelSetting, draws: int) -> dict[str, float | str]:
    """Return the means over the draws of one setting."""
    drawn = list((simulate_one if setting.shared is None else simulate_two)(setting, draws))
    means = {key: float(np.nanmean([row[key] for row in drawn])) for key in drawn[0]}
    tested = sum(not np.isnan(row["p"]) for row in drawn)
    return {"name": setting.name, "draws": draws, "tested": tested, **means, "error": means["error"] ** 0.5}


def format_row(setting: ModelSetting, row: dict[str, float]) -> str:
    """Return a row of the table in Markdown; values outside their bounds are bold."""
    flat = setting.curve == setting.other or setting.curve == "own place"
    rejected = {key: flat for key in ("p", "p_ndcg", "p_start_to_end") if key in row}
    cells = [format_share(row[key], (0.03, 0.07) if bound else None) for key, bound in rejected.items()]
    cells += [""] * (3 - len(cells))
    cells += [format_share(row[key], (0.92, 0.98)) for key in ("ndcg", "start_to_end", "psi")]
    return f"| {setting.name} | {row['tested']:,} | {row['true_psi']:.2f} | {' | '.join(cells)} | {row['error']:.3f} |"


def format_share(share: float, bounds: tuple[float, float] | None) -> str:
    """Return a share, bold if it is outside its bounds."""
    low, high = bounds or (0.0, 1.0)
    return f"{share:.3f}" if low <= share <= high else f"**{share:.3f}**"


HEADINGS = ("setting", "tested", "true PSI", "p", "p nDCG@10", "p start-end", "nDCG@10", "start-end", "PSI", "RMSE")


def main() -> None:
    """Simulate the rows that are not in the file yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--row", action="append", default=[])
    options = parser.parse_args()
    done = [json.loads(line) for line in options.results.read_text().splitlines()] if options.results.exists() else []
    print(f"| {' | '.join(HEADINGS)} |\n|{' --- |' * len(HEADINGS)}")
    for setting in (*ONE, *TWO):
        if options.row and setting.name not in options.row:
            continue
        row = next((row for row in done if row["name"] == setting.name and row["draws"] >= options.draws), None)
        if row is None:
            row = run_row(setting, options.draws)
            with options.results.open("a") as file:
                file.write(json.dumps(row) + "\n")
        print(format_row(setting, row), flush=True)


if __name__ == "__main__":
    main()
