"""Time that all plugins take for the results of a model on a language of PosIR: 31 domains of 1,355 questions each.

Use: OMP_NUM_THREADS=1 python benchmarks/plugins_speed.py

Ranks are drawn at random, two questions a document; the model reads 512 tokens. One domain
more is scored before, which loads the plugins.
"""

from __future__ import annotations

import time

import numpy as np

from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.evidence import Evidence
from posir_tasks.plugin_api.manager import plugin_scores
from posir_tasks.schemes import RelativePositions
from posir_tasks.window_coverage import WindowCoverage

DOMAINS, QUESTIONS, WINDOW = 31, 1_355, 512


def draw_evidence(rng: np.random.Generator, domain: int) -> Evidence:
    """Return the evidence of a domain: documents of up to 2,048 tokens of four characters, spans anywhere in them."""
    document = np.arange(QUESTIONS) // 2
    tokens = rng.integers(100, 2_048, QUESTIONS)[document]
    starts = (rng.random(QUESTIONS) * (tokens * 4 - 60)).astype(np.int64)
    return Evidence(
        [f"q{domain}-{row}" for row in range(QUESTIONS)],
        [f"d{domain}-{row}" for row in document],
        starts,
        starts + 50,
        tokens * 4,
        tokens,
    )


def main() -> None:
    """Print the time."""
    rng, scheme = np.random.default_rng(0), RelativePositions()
    results = []
    for domain in range(DOMAINS + 1):
        evidence = draw_evidence(rng, domain)
        ranks = np.minimum(rng.geometric(0.5, QUESTIONS), 100)
        values = DocumentRanks.from_ranks(scheme, evidence, ranks, WINDOW)
        results.append((values.profile, WindowCoverage.from_ranks(WINDOW, scheme, evidence, ranks), values))
    plugin_scores(*results[0])
    start, processor = time.perf_counter(), time.process_time()
    for result in results[1:]:
        plugin_scores(*result)
    print(
        f"{DOMAINS} domains: {time.perf_counter() - start:.2f} s wall, {time.process_time() - processor:.2f} s on the processor"
    )


if __name__ == "__main__":
    main()
