"""Measure the time of a report, of all scores and of a comparison on one language of PosIR: 31
domains with 1,355 questions each.

Usage: OMP_NUM_THREADS=1 python benchmarks/plugins_speed.py

Ranks are random, with two questions per document and a window of 512 tokens. An additional domain
is scored in advance to load the plugins.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from posir_compare.comparison import compare_pair
from posir_compare.pairing import CommonResults, Pair
from posir_compare.runs import ModelRun
from posir_report.results import build_results
from posir_significance.analysis import analyze
from posir_tasks.plugin_api import score_result
from posir_tasks.results import SubsetResult
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.evidence import Evidence, ReadEvidence
from posir_tasks.values.profile import pool
from posir_tasks.values.read_part import ReadPart, WindowSource
from posir_tasks.values.schemes import RelativePositions
from posir_tasks.values.scores import ResultValues

DOMAINS, QUESTIONS, WINDOW = 31, 1_355, 512


def draw_evidence(rng: np.random.Generator, domain: int, questions: int = QUESTIONS) -> Evidence:
    """Generate the evidence of a domain: random spans in documents of up to 2,048 tokens of four
    characters.
    """
    document = np.arange(questions) // 2
    tokens = rng.integers(100, 2_048, questions)[document]
    starts = (rng.random(questions) * (tokens * 4 - 60)).astype(np.int64)
    return Evidence(
        [f"q{domain}-{row}" for row in range(questions)],
        [f"d{domain}-{row}" for row in document],
        starts,
        starts + 50,
        tokens * 4,
        tokens,
    )


@contextmanager
def print_time(label: str) -> Iterator[None]:
    """Print the time that the context takes."""
    start, processor = time.perf_counter(), time.process_time()
    yield
    print(
        f"{label}: {time.perf_counter() - start:.2f} s wall time, "
        f"{time.process_time() - processor:.2f} s CPU time"
    )


def main() -> None:
    """Print all times."""
    rng, scheme = np.random.default_rng(0), RelativePositions()
    results, others = [], []
    for domain in range(DOMAINS + 1):
        evidence = draw_evidence(rng, domain)
        a, b = (np.minimum(rng.geometric(0.5, QUESTIONS), 100) for _ in range(2))
        read_evidence = ReadEvidence.estimate(
            ReadPart.first(WINDOW, WindowSource.GIVEN), evidence, ["eng-Latn"]
        )
        results.append(
            ResultValues(
                DocumentRanks.from_ranks(scheme, evidence, a, read_evidence, str(domain)),
                read_evidence.read,
            )
        )
        others.append(DocumentRanks.from_ranks(scheme, evidence, b, read_evidence, str(domain)))
    tasks = [
        SubsetResult("lab/model", "1", f"Task{number}", "web", values, {}, Path())
        for number, values in enumerate(results)
    ]
    str(build_results(tasks[:1]))
    for label, rows in (
        ("one task each", tasks[1:]),
        ("one task", [replace(row, task="All", subset=row.task) for row in tasks[1:]]),
    ):
        with print_time(f"report of {DOMAINS} domains, {label}"):
            str(build_results(rows))
    analyze.cache_clear()
    with print_time(f"all stored scores of {DOMAINS} domains"):
        for result in results[1:]:
            score_result(ResultValues(result.ranks, result.read)).to_json(result.profile.positions)
    with print_time(f"comparison of two models on {DOMAINS} domains"):
        pooled = [pool(ranks) for ranks in ([result.ranks for result in results[1:]], others[1:])]
        common = CommonResults(*pooled, ("all",), ())
        compare_pair(Pair(ModelRun("A", ()), ModelRun("B", ()), "simulated"), common)


if __name__ == "__main__":
    main()
