"""Level and power of the position effect's test, coverage of the intervals and error of the estimate, by simulation.

Each draw is a dataset with known true scores, analyzed as a result is. nDCG@10 is about 0.8. Tables:

- `none`: no effect; independent questions, or five a document at random, near or confounded positions, JaQuAD's and COVID-QA's
  numbers of questions a document ("papers").
- `effects`: the same with effects of four shapes.
- `means`: coverage of intervals of means up to 0.99, of clusters of even and uneven sizes.
- `decision`: the rates of wrong and right decisions, of intervals that hold and of contradictions, each with its target.
- `local`: questions about the same place of a document succeed or fail together; 40 documents of 30 questions and so on, and,
  with `--data`, the documents and positions of COVID-QA, JaQuAD and XQuAD; with and without effects.

Use: OMP_NUM_THREADS=1 python benchmarks/simulate_statistics.py [--draws 200] [--jobs 2] [--data FOLDER] [--results FILE]
     [--table none|effects|local|decision|means]

With `--results`, every finished row is appended to a file, and rows in it are not simulated again.

Columns: share of p < 0.05 (with an effect: power); share of draws in which the 95 % interval of nDCG@10, of the difference from
start to end and of PSI contains the true value; root mean squared error of the estimate of PSI, and of the PSI as published.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq
from simulation import (
    Layout,
    WindowedModel,
    draw_clustered,
    draw_gains,
    draw_windowed,
    read_layout,
    true_means,
)

from posir_psi.scores import compute_psi
from posir_significance.analysis import GroupAnalysis, estimate_bins
from posir_significance.decision import ChangeState, Reason, State, compare_groups, decide_state
from posir_significance.intervals import ALPHA, estimate_mean
from posir_significance.intervals import LEVEL as LEVEL_95
from posir_significance.observations import Floats, Integers, Observations
from posir_significance.regression import PositionContrasts
from posir_tasks.schemes import assign_thirds
from posir_tasks.scores import Estimate

LEVEL = 0.8
#: Queries of a draw that only serves to measure how positions are distributed.
LARGE = 500_000
HEADINGS = ("p < 0.05", "nDCG@10", "start-end", "PSI", "RMSE", "published")
#: Files of datasets with their own positions, and whether articles of several documents are known.
REAL = {"covid-qa": ("covidqa.json", False), "jaquad-dev": ("jaquad/dev/*.json", True), "xquad-en": ("xquad.en.json", True)}
MADE = ("40x30", "100x10", "400x5", "2000x1")
EFFECTS = (("none", 0.0), ("linear", 0.3), ("step", 0.3), ("dip", 0.3), ("bad bin", 0.3))


@dataclass(frozen=True)
class Setting:
    """One row of a table."""

    structure: str
    icc: float
    local: float
    """Correlation of questions in the same twentieth of a document, beyond that of the document."""
    queries: int
    """0 if the structure says how many."""
    bins: int
    effect: str
    sensitivity: float
    """The true PSI."""

    def means(self) -> Floats:
        """Return the true mean nDCG@10 of the bins, shape (P,)."""
        return true_means(self.effect, self.sensitivity, LEVEL, self.bins)


def list_settings(table: str, real: bool) -> Iterator[Setting]:
    """Yield the rows of a table, those of real structures only if there is data."""
    counts = (500, 2_000, 42_000)
    if table == "none":
        clustered = [*product(("random", "near", "confounded"), (0.1, 0.2, 0.4)), ("jaquad", 0.2), ("papers", 0.2)]
        for structure, icc in (("independent", 0.0), *clustered):
            yield from (Setting(structure, icc, 0.0, queries, 20, "none", 0.0) for queries in counts)
        yield from (Setting("independent", 0.0, 0.0, queries, bins, "none", 0.0) for bins in (3, 6) for queries in counts)
    elif table == "effects":
        effects = [*product(("linear", "step", "dip"), (0.1, 0.3, 0.6)), ("bad bin", 0.3)]
        structures = [("independent", 0.0, 500), ("independent", 0.0, 2_000), ("independent", 0.0, 42_000)]
        structures += [("random", 0.2, 2_000), ("near", 0.2, 2_000), ("jaquad", 0.2, 2_000)]
        for structure, icc, queries in structures:
            yield from (Setting(structure, icc, 0.0, queries, 20, *effect) for effect in effects)
    else:
        for structure, effect, local in product((*(REAL if real else ()), *MADE), EFFECTS, (0.0, 0.1, 0.2)):
            yield Setting(structure, 0.2, local, 0, 20, *effect)


def contains(estimate: Estimate | None, value: float) -> bool:
    """Return whether the interval of an estimate contains a value, up to rounding."""
    interval = estimate.interval if estimate else None
    return interval is not None and interval[0] - 1e-9 <= value <= interval[1] + 1e-9


def difference(observations: Observations, means: Floats) -> float:
    """Return the true difference between the first and the last third, averaged over the positions of the queries."""
    third = assign_thirds(observations.bins)[observations.position]
    true = means[observations.position]
    return float(true[third == 0].mean() - true[third == 2].mean())


def read_real(structure: str, data: Path) -> Layout:
    """Return the questions of a real dataset."""
    pattern, by_article = REAL[structure]
    return read_layout(sorted(data.glob(pattern)), by_article=by_article, rng=np.random.default_rng(0))


def draw(setting: Setting, layout: Layout | None, rng: np.random.Generator) -> Observations:
    """Draw a dataset."""
    if layout is None:
        return draw_clustered(setting.structure, setting.queries, setting.icc, setting.means(), rng, setting.local)
    layout = replace(layout, difficulty=rng.standard_normal(len(layout.difficulty)))
    return draw_gains(layout, setting.icc, setting.means(), rng, setting.local)


def expected_level(setting: Setting, layout: Layout | None) -> float:
    """Return the true nDCG@10, averaged over positions."""
    rng, means = np.random.default_rng(0), setting.means()
    if layout is None:
        structure = setting.structure if setting.sensitivity and not setting.local else "independent"
        observations = draw_clustered("independent" if "x" in structure else structure, LARGE, 0.0, means, rng)
    else:
        observations = draw_gains(layout, 0.0, means, rng)
    return float(means[observations.position].mean())


def simulate(job: tuple[Setting, int, Path | None]) -> tuple[Setting, list[float]]:
    """Return a setting and the values of its row."""
    setting, draws, data = job
    means, layout = setting.means(), read_real(setting.structure, data) if data and setting.structure in REAL else None
    true, level, rows = float(compute_psi(means)), expected_level(setting, layout), []
    for seed in range(draws):
        observations = draw(setting, layout, np.random.default_rng([seed, setting.queries]))
        group = GroupAnalysis(observations)
        assert group.test is not None
        assert group.test.p_value is not None
        assert group.psi is not None
        observed = [mean.value for mean in estimate_bins(observations) if mean]
        rows.append(
            (
                group.test.p_value < ALPHA,
                contains(group.ndcg, level),
                contains(group.position.start_to_end, difference(observations, means)),
                contains(group.psi, true),
                (group.psi.value - true) ** 2,
                (float(compute_psi(np.array(observed))) - true) ** 2,
            )
        )
    columns = np.mean(rows, axis=0)
    columns[4:] **= 0.5
    return setting, columns.tolist()


def format_row(setting: Setting, values: list[float]) -> str:
    """Return a row of the table in Markdown."""
    questions = f"{setting.queries:,}" if setting.queries else "its own"
    cells = [setting.structure, setting.icc, setting.local, questions, setting.bins, setting.effect, setting.sensitivity]
    return "| " + " | ".join(map(str, [*cells, *(f"{value:.3f}" for value in values)])) + " |"


def read_finished(file: Path | None, draws: int) -> dict[Setting, list[float]]:
    """Return the rows of as many draws that a file has."""
    lines = file.read_text().splitlines() if file and file.exists() else []
    rows = [row for row in map(json.loads, lines) if row["draws"] == draws]
    return {Setting(**row["setting"]): row["values"] for row in rows}


def main() -> None:
    """Print the tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=200, help="simulated datasets per row")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--table", choices=("none", "effects", "local", "decision", "means"), help="only this table")
    parser.add_argument(
        "--data", type=Path, help="folder with covidqa.json, xquad.en.json, jaquad/dev/*.json, in SQuAD's format"
    )
    parser.add_argument("--results", type=Path, help="file of finished rows, to go on after an interruption")
    arguments = parser.parse_args()
    if arguments.table in ("decision", "means"):
        print("| rate | target | measured |\n| --- | --- | --- |")
        is_decision = arguments.table == "decision"
        for rate in measure_decisions(arguments.draws, arguments.data) if is_decision else measure_means(arguments.draws):
            low, high = min(rate.measured), max(rate.measured)
            values = f"{low:.3f}" if low == high else f"{low:.3f} to {high:.3f}"
            mark = "" if rate.least - 1e-9 <= low and high <= rate.most + 1e-9 else " **outside**"
            print(f"| {rate.name} | {rate.target} | {values}{mark} |", flush=True)
        return
    headings = ("structure", "ICC", "local", "questions", "bins", "effect", "true PSI", *HEADINGS)
    finished = read_finished(arguments.results, arguments.draws)
    for table in (arguments.table,) if arguments.table else ("none", "effects", "local"):
        print(f"| {' | '.join(headings)} |\n|{' --- |' * len(headings)}")
        settings = list(list_settings(table, arguments.data is not None))
        jobs = [(setting, arguments.draws, arguments.data) for setting in settings if setting not in finished]
        with Pool(arguments.jobs) as pool:
            new = pool.imap(simulate, jobs)
            for setting in settings:
                if setting not in finished:
                    _, finished[setting] = next(new)
                    append(arguments.results, setting, arguments.draws, finished[setting])
                print(format_row(setting, finished[setting]), flush=True)


@dataclass(frozen=True)
class Rate:
    """A rate in several settings, with its target."""

    name: str
    least: float
    most: float
    measured: tuple[float, ...]

    @property
    def target(self) -> str:
        """The target in words."""
        if self.least and self.most < 1:
            return f"{self.least:g} to {self.most:g}"
        return f"at least {self.least:g}" if self.least else f"at most {self.most:g}" if self.most else "0"


@dataclass(frozen=True)
class Outcome:
    """Shares of draws of a model."""

    states: Mapping[State, float]
    covered: tuple[float, ...]
    """Intervals of bias, start to end, and read minus not read that hold."""
    contradictions: float


CONTRASTS = ("bias_within_read", "start_to_end", "not_read_difference")
STRUCTURES = ("40x15", "100x6", "600x1", "25+")


@cache
def true_contrasts(model: WindowedModel, designs: int = 40) -> tuple[float, ...]:
    """Return the true bias, start to end, and read minus not read, from expected gains; 0 where undefined."""
    rows = []
    for seed in range(designs):
        observations, expected = draw_windowed(model, np.random.default_rng([seed, 1]))
        position = PositionContrasts(replace(observations, gains=expected))
        rows.append([contrast.value if (contrast := getattr(position, name)) else 0.0 for name in CONTRASTS])
    return tuple(np.mean(rows, axis=0).tolist())


def find_bias(model: WindowedModel, value: float) -> WindowedModel:
    """Return the model with this true bias within what is read."""
    slope = brentq(lambda bias: true_contrasts(replace(model, bias=bias), 10)[0] - value, 0, 5, xtol=0.01)
    return replace(model, bias=slope)


@cache
def decide_draws(model: WindowedModel, draws: int) -> Outcome:
    """Return the decisions on draws of a model."""
    states, covered, contradictions, true = Counter[State](), [], 0, true_contrasts(model)
    for seed in range(draws):
        observations, _ = draw_windowed(model, np.random.default_rng([seed, 2]))
        position = PositionContrasts(observations)
        bias = position.bias_within_read
        state, *_ = decide_state(bias, 0.05, len(np.unique(observations.clusters)))
        states[state] += 1
        contrasts = [getattr(position, name) for name in CONTRASTS]
        covered.append([contains(contrast, value) for contrast, value in zip(contrasts, true, strict=True) if contrast])
        contradictions += any((contrast.p_value < ALPHA) == contains(contrast, 0.0) for contrast in contrasts if contrast)
        contradictions += state in (State.BIASED_TO_START, State.BIASED_TO_END) and contains(bias, 0.0)
    shares = {state: states[state] / draws for state in State}
    width = max(map(len, covered))
    return Outcome(
        shares, tuple(np.mean([row for row in covered if len(row) == width], axis=0).tolist()), contradictions / draws
    )


def list_models(structures: Iterable[str]) -> list[WindowedModel]:
    """Return models without a bias, by window, loss beyond it and slope of length."""
    windows = ((np.inf, 0.0), *product((0.3, 0.5, 0.8), (0.0, 1.5)))
    models = [
        WindowedModel(structure, window, loss=loss, length_slope=slope)
        for structure, (window, loss), slope in product(structures, windows, (0.0, 1.0))
    ]
    variants: list[dict[str, Any]] = [{"place_sd": 1.2, "place": 0.15}, {"early": True}, {"level": 2.0}, {"level": -1.0}]
    return [*models, *(WindowedModel(structure, 0.5, loss=1.5, **variant) for structure in structures for variant in variants)]


def measure_decisions(draws: int, data: Path | None) -> Iterator[Rate]:
    """Yield the rates of `docs/measured.md`."""
    biased = State.BIASED_TO_START, State.BIASED_TO_END
    outcomes: list[Outcome] = []

    def decide_models(models: Iterable[WindowedModel], *states: State) -> tuple[float, ...]:
        decided = [decide_draws(model, draws) for model in models]
        outcomes.extend(decided)
        return tuple(sum(outcome.states[state] for state in states) for outcome in decided)

    yield Rate("no bias, 40x15, 100x6, 600x1: 'biased'", 0.02, 0.08, decide_models(list_models(STRUCTURES[:3]), *biased))
    yield Rate("no bias, 25+, 20x10: 'biased'", 0, 0.08, decide_models(list_models(("25+", "20x10")), *biased))
    linear = [find_bias(WindowedModel(structure, 0.5, loss=1.5), 0.155) for structure in STRUCTURES]
    steps = [find_bias(WindowedModel(structure, 0.5, loss=1.5, step=True), 0.16) for structure in STRUCTURES]
    least = [find_bias(WindowedModel(structure, 0.5, loss=1.5), 0.12) for structure in STRUCTURES]
    large = decide_models([*linear, *steps, *least], State.NO_BIAS)
    yield Rate("bias of 12 to 16 points: 'no bias larger than 5 points'", 0, 0.01, large)
    wrong = decide_models([*linear, *steps, *least], State.BIASED_TO_END)
    yield Rate("bias of 12 to 16 points to the start: 'biased to the end'", 0, 0.01, wrong)
    for model, power in zip(linear, (0.64, 0.62, 0.74, 0.25), strict=True):
        name = f"linear bias of 15.5 points, window 0.5, {model.structure}: 'biased to the start'"
        yield Rate(name, power, 1, decide_models([model], State.BIASED_TO_START))
    edge = ("300x15", "700x6", "4000x1", *STRUCTURES)
    models = [find_bias(WindowedModel(structure, 0.5, loss=1.5), 0.05) for structure in edge]
    yield Rate("bias of 5 points: 'no bias larger than 5 points'", 0, 0.06, decide_models(models, State.NO_BIAS))
    for level, ndcg in ((0.8, 0.81), (1.0, 0.84)):
        flat = [WindowedModel("300x15", 0.5, loss=1.5, level=level)]
        name = f"no bias, 300x15, window 0.5, nDCG@10 {ndcg}: 'no bias larger than 5 points'"
        yield Rate(name, 0.65, 1, decide_models(flat, State.NO_BIAS))
    covered = tuple(share for outcome in outcomes for share in outcome.covered)
    yield Rate("intervals of bias, start to end, read minus not read hold", 0.91, 0.99, covered)
    yield from measure_lengths(draws)
    yield from measure_changes(draws)
    contradictions = [max(outcome.contradictions for outcome in outcomes)]
    yield from measure_psi(draws, data, contradictions)
    yield Rate("contradictions of p, interval, state and PSI", 0, 0, tuple(contradictions))


def measure_lengths(draws: int) -> Iterator[Rate]:
    """Yield how often any of four lengths is called biased without a bias."""
    model, level, wrong = WindowedModel("40x15", 0.5, loss=1.5), 1 - (1 - LEVEL_95) / 4, 0
    for seed in range(draws):
        rows = [draw_windowed(model, np.random.default_rng([seed, row, 3]))[0] for row in range(4)]
        states = [decide_state(PositionContrasts(row).bias_within_read, 0.05, 40, level)[0] for row in rows]
        wrong += any(state in (State.BIASED_TO_START, State.BIASED_TO_END) for state in states)
    yield Rate("four lengths without bias: any 'biased'", 0, 0.08, (wrong / draws,))


def measure_changes(draws: int) -> Iterator[Rate]:
    """Yield how often two equal models differ in any of three metrics."""
    shares = []
    for structure in STRUCTURES:
        model, wrong = WindowedModel(structure), 0
        for seed in range(draws):
            answers = (np.random.default_rng([seed, 4, number]) for number in range(2))
            a, b = (GroupAnalysis(draw_windowed(model, np.random.default_rng([seed, 4]), answer)[0]) for answer in answers)
            change = compare_groups(a, b, paired=True)
            metrics = change.ndcg_at_10, change.start_to_end, change.psi
            wrong += any(
                metric.state in (ChangeState.BETTER, ChangeState.WORSE) or metric.reason is Reason.OTHER_SIDE
                for metric in metrics
            )
        shares.append(wrong / draws)
    yield Rate("two equal models: any of three metrics differs", 0, 0.08, tuple(shares))


#: True PSI of the shapes, and structures of documents.
SHAPES = {
    "none": 0.0,
    "linear": 0.17,
    "step": 0.14,
    "dip": 0.16,
    "U": 0.13,
    "last": 0.31,
    "last two": 0.24,
    "first": 0.31,
    "first two": 0.24,
    "bad bin": 0.31,
}
PSI_STRUCTURES = ("40x15", "100x6", "600x1", "covid-qa")


def measure_psi(draws: int, data: Path | None, contradictions: list[float]) -> Iterator[Rate]:
    """Yield how often the interval of PSI holds, and how often the published PSI is called larger than chance gives.

    Args:
        draws: Datasets of each setting.
        data: Folder of COVID-QA; without it, documents with its numbers of questions.
        contradictions: Shares of draws with a contradiction; extended.
    """
    layout = read_real("covid-qa", data) if data else None
    held: dict[str, list[float]] = {}
    larger = []
    for structure, (shape, sensitivity) in product(PSI_STRUCTURES, SHAPES.items()):
        own = structure == "covid-qa"
        setting = Setting("papers" if own else structure, 0.2, 0.1, 1380 if own else 0, 20, shape, sensitivity)
        true, covered, above, contradicted = float(compute_psi(setting.means())), 0, 0, 0
        for seed in range(draws):
            drawn = draw(setting, layout if own else None, np.random.default_rng([seed, 5]))
            group = GroupAnalysis(drawn)
            covered += contains(group.psi, true)
            above += group.psi_as_published > group.psi_chance.high
            ends = group.position.start_to_end.interval
            contradicted += group.psi.low < max(ends[0], -ends[1]) - 1e-12
        held.setdefault(structure, []).append(covered / draws)
        contradictions.append(contradicted / draws)
        if shape == "none":
            larger.append(above / draws)
    for structure, shares in held.items():
        yield Rate(
            f"PSI holds, {structure}, all shapes ({', '.join(f'{share:.2f}' for share in shares)})", 0.9, 1, tuple(shares)
        )
    yield Rate("no effect: published PSI above the 95th percentile of chance", 0.02, 0.08, tuple(larger))


def measure_means(draws: int) -> Iterator[Rate]:
    """Yield how often the interval of a mean of each metric holds it, over metrics and intraclass correlations."""
    for mean, number, kind in product((0.5, 0.8, 0.95, 0.98, 0.99), (20, 80, 300), ("even", "1 to 20", "Zipf")):
        ranks = np.arange(1, number + 1)
        # Even sizes are 4; of others the k-th largest has 1/k of the largest, or sizes k to 20 are as frequent as 1/k.
        few = 1 + np.searchsorted(np.cumsum(1 / ranks[:20]) / np.sum(1 / ranks[:20]), (ranks - 0.5) / number)
        sizes = {"even": np.full(number, 4), "1 to 20": few, "Zipf": np.maximum(np.rint(number / ranks).astype(int), 1)}[kind]
        shares = tuple(
            sum(
                contains(estimate_mean(*draw_scores(metric, mean, icc, sizes, [seed, number]), max_trials=np.inf), mean)
                for seed in range(draws)
            )
            / draws
            for metric, icc in product(("recall of one", "recall of four", "nDCG"), (0.0, 0.2, 0.5))
        )
        yield Rate(f"mean {mean:g} of {number} clusters, sizes {kind}: interval holds", 0.92, 0.98, shares)


def draw_scores(metric: str, mean: float, icc: float, sizes: Integers, seed: list[int]) -> tuple[Floats, Integers]:
    """Draw scores of known mean, and their clusters: each has a probability of success of its own, from a beta distribution."""
    rng, clusters = np.random.default_rng(seed), np.repeat(np.arange(len(sizes)), sizes)
    missed = 1 / np.log2([3, 4, 5, 7, 10, np.inf, np.inf, np.inf]) if metric == "nDCG" else np.zeros(1)
    chance = 1 - (1 - mean) / (1 - missed.mean())
    ratio = (1 - icc) / max(icc, 1e-9)
    chances = (rng.beta(chance * ratio, (1 - chance) * ratio, len(sizes)) if icc else np.full(len(sizes), chance))[clusters]
    if metric == "recall of four":
        return rng.binomial(4, chances) / 4, clusters
    return np.where(rng.random(len(clusters)) < chances, 1.0, rng.choice(missed, len(clusters))), clusters


def append(file: Path | None, setting: Setting, draws: int, values: list[float]) -> None:
    """Append a finished row to a file."""
    if file:
        with file.open("a") as lines:
            lines.write(json.dumps({"setting": asdict(setting), "draws": draws, "values": values}) + "\n")


if __name__ == "__main__":
    main()
