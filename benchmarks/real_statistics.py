"""Decisions on results of models on real data.

Use: python benchmarks/real_statistics.py RESULTS... (folders of mteb); each row is a model on all subsets of a task, or, with
`--subsets`, on one of them.

With `--deal 3`, questions are dealt at random into so many subsets 40 times; a line then has the share of deals in which p of
any effect is below 0.05, and its range: questions of a document stay together in one cluster wherever they are.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from posir_significance.analysis import GroupAnalysis, analyze
from posir_significance.decision import decide
from posir_significance.observations import Observations
from posir_significance.sentences import format_contrast, label_state
from posir_tasks.display.numbers import format_estimate, format_p_value, format_percent, format_psi
from posir_tasks.profile import pool
from posir_tasks.results import read_results
from posir_tasks.scores import ResultValues

HEADINGS = (
    "data", "model", "nDCG@10", "start to end", "not read", "read minus not read", "bias within what is read", "state", "PSI",
    "as published", "by chance", "any effect (p)",
)  # fmt: skip
DEALS = 40


def pool_results(folders: list[Path], *, subsets: bool) -> dict[tuple[str, str], ResultValues]:
    """Return the values of each task and model over all subsets, or those of each subset."""
    values: dict[tuple[str, str], list[ResultValues]] = {}
    for folder in folders:
        for result in read_results(folder):
            name = f"{result.task} {result.subset}" if subsets else result.task
            values.setdefault((name, result.model.rpartition("/")[2]), []).append(result.values)
    return {key: pool(parts) for key, parts in values.items()}


def format_cells(values: ResultValues) -> Iterator[str]:
    """Yield the cells of a row in Markdown."""
    group = analyze(values.ranks, values.read).overall
    decision = decide(group)
    yield format_estimate(decision.ndcg_at_10, format_percent)
    yield format_contrast(decision, decision.start_to_end)
    yield format_percent(decision.not_read)
    yield format_contrast(decision, decision.not_read_difference)
    yield format_contrast(decision, decision.bias_within_read)
    yield label_state(decision)
    yield format_estimate(group.psi, format_psi)
    yield format_psi(group.psi_as_published)
    yield format_estimate(group.psi_chance, format_psi)
    yield format_p_value(group.test.p_value if group.test else None)


def deal(values: ResultValues, subsets: int) -> Iterator[float]:
    """Yield p of any effect of position after questions are dealt at random into subsets.

    A document's questions of one subset are its document there; the clusters stay.
    """
    observations = Observations.from_ranks(values.ranks, values.read)
    for seed in range(DEALS):
        subset = np.random.default_rng(seed).integers(0, subsets, len(observations.gains))
        group = GroupAnalysis(replace(observations, subsets=subset, documents=observations.documents * subsets + subset))
        if group.test and group.test.p_value is not None:
            yield group.test.p_value


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--deal", type=int, default=0, help="subsets")
    parser.add_argument("--subsets", action="store_true", help="a row for each subset")
    arguments = parser.parse_args()
    print(f"| {' | '.join(HEADINGS)} |\n|{' --- |' * len(HEADINGS)}")
    for (task, model), values in pool_results(arguments.results, subsets=arguments.subsets).items():
        print(f"| {' | '.join((task, model, *format_cells(values)))} |")
        if arguments.deal:
            p_values = list(deal(values, arguments.deal))
            below = np.mean(np.array(p_values) < 0.05)
            print(f"Dealt into {arguments.deal}: {below:.3f} of {DEALS} below 0.05, {min(p_values):.3f} to {max(p_values):.3f}")


if __name__ == "__main__":
    main()
