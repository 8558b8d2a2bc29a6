"""Level and power of the position effect's test, coverage of the intervals and error of the estimate, by simulation.

Each draw is a dataset with known true scores, analyzed as a result is. nDCG@10 is about 0.8. Tables:

- `none`: no effect; independent questions, or five a document at random, near or confounded positions, JaQuAD's and COVID-QA's
  numbers of questions a document ("papers").
- `effects`: the same with effects of four shapes.
- `local`: questions about the same place of a document succeed or fail together; 40 documents of 30 questions and so on, and,
  with `--data`, the documents and positions of COVID-QA, JaQuAD and XQuAD; with and without effects.

Use: OMP_NUM_THREADS=1 python benchmarks/simulate_statistics.py [--draws 200] [--jobs 2] [--table none|effects|local]
     [--data FOLDER] [--results FILE]

With `--results`, every finished row is appended to a file, and rows in it are not simulated again.

Columns: share of p < 0.05 (with an effect: power); share of draws in which the 95 % interval of nDCG@10, of the difference from
start to end and of PSI contains the true value; root mean squared error of the estimate of PSI, and of the PSI as published.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from multiprocessing import Pool
from pathlib import Path

import numpy as np
from simulation import Layout, draw_clustered, draw_gains, read_layout, true_means

from posir_psi.scores import psi
from posir_significance.analysis import analyze_group, estimate_bins
from posir_significance.intervals import ALPHA
from posir_significance.observations import Floats, Observations
from posir_tasks.estimates import Estimate
from posir_tasks.thirds import assign_thirds

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
    true, level, rows = float(psi(means)), expected_level(setting, layout), []
    for seed in range(draws):
        observations = draw(setting, layout, np.random.default_rng([seed, setting.queries]))
        group = analyze_group(observations)
        assert group.test is not None
        assert group.test.p_value is not None
        assert group.psi is not None
        observed = [mean.value for mean in estimate_bins(observations) if mean]
        rows.append(
            (
                group.test.p_value < ALPHA,
                contains(group.ndcg, level),
                contains(group.start_to_end, difference(observations, means)),
                contains(group.psi, true),
                (group.psi.value - true) ** 2,
                (float(psi(np.array(observed))) - true) ** 2,
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
    parser.add_argument("--table", choices=("none", "effects", "local"), help="only this table")
    parser.add_argument(
        "--data", type=Path, help="folder with covidqa.json, xquad.en.json, jaquad/dev/*.json, in SQuAD's format"
    )
    parser.add_argument("--results", type=Path, help="file of finished rows, to go on after an interruption")
    arguments = parser.parse_args()
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


def append(file: Path | None, setting: Setting, draws: int, values: list[float]) -> None:
    """Append a finished row to a file."""
    if file:
        with file.open("a") as lines:
            lines.write(json.dumps({"setting": asdict(setting), "draws": draws, "values": values}) + "\n")


if __name__ == "__main__":
    main()
