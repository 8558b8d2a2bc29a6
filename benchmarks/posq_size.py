"""Measure BM25 at the size of SQuAD-PosQ: `mteb run -t SQuAD-PosQ` relative to only bm25s.

Usage: python benchmarks/posq_size.py DATA [scaling]

DATA contains PosIR-Benchmark-v1/eng-Latn, whose word frequencies are used. `scaling` varies the
numbers of documents and queries.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import polars as pl
from measure import Cost, measure
from synthetic_squad import DOCUMENTS, QUERIES, write_synthetic_squad


def run(texts: list[str], documents: int, queries: int) -> tuple[Cost, float, Cost]:
    """Measure the cost of `mteb run`, its seconds without imports, and the cost of only bm25s,
    which prints its seconds.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_synthetic_squad(texts, folder, documents, queries)
        mteb = [
            str(Path(sys.executable).parent / "mteb"),
            "run",
            "-v",
            "0",
            "-m",
            "mteb/baseline-bm25s",
        ]
        posir_cost = measure(
            [*mteb, "-t", "SQuAD-PosQ", "--output-folder", name], {"POSIR_DATA": name}
        )
        (result,) = folder.rglob("SQuAD-PosQ.json")
        posir_seconds = json.loads(result.read_text())["evaluation_time"]
        raw_cost = measure(
            [
                sys.executable,
                str(Path(__file__).parent / "raw_bm25s.py"),
                str(folder / "plain"),
                "eng",
            ]
        )
        return posir_cost, posir_seconds, raw_cost


def main() -> None:
    """Print a row per size."""
    texts = [
        text
        for file in sorted(
            (Path(sys.argv[1]) / "PosIR-Benchmark-v1" / "eng-Latn").glob("*/corpus.parquet")
        )
        for text in pl.read_parquet(file)["text"]
    ]
    sizes = [(DOCUMENTS, QUERIES)]
    if sys.argv[2:] == ["scaling"]:
        sizes = [(DOCUMENTS, QUERIES * k // 4) for k in (1, 2, 3, 4)] + [
            (DOCUMENTS * k // 4, QUERIES // 4) for k in (1, 2, 3)
        ]
    print(
        "                    |     mteb run -t SQuAD-PosQ    |       bm25s alone      |  ratio of "
        "seconds"
    )
    print(
        "documents   queries |      s  without imports  peak MB |     s  without imports  |  "
        "total  without imports"
    )
    for documents, queries in sizes:
        posir_cost, posir_seconds, raw_cost = run(texts, documents, queries)
        seconds = float(raw_cost.output)
        print(
            f"{documents:9,d} {queries:9,d} | {posir_cost.wall_s:6.1f} {posir_seconds:14.1f} "
            f"{posir_cost.peak_mb:8,.0f} | {raw_cost.wall_s:5.1f} {seconds:14.1f}  | "
            f"{posir_cost.wall_s / raw_cost.wall_s:6.2f} {posir_seconds / seconds:14.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
