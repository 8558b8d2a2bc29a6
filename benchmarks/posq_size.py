"""BM25 at the size of SQuAD-PosQ: `mteb run -t SQuAD-PosQ` against bm25s alone, optionally at
several sizes.

Use: python benchmarks/posq_size.py DATA [scaling], where DATA contains PosIR-Benchmark-v1/eng-Latn,
whose word frequencies are used.
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
    """Return the cost of `mteb run`, its seconds without imports, and the cost of bm25s alone,
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
        ours = measure([*mteb, "-t", "SQuAD-PosQ", "--output-folder", name], {"POSIR_DATA": name})
        (result,) = folder.rglob("SQuAD-PosQ.json")
        inside = json.loads(result.read_text())["evaluation_time"]
        raw = measure(
            [
                sys.executable,
                str(Path(__file__).parent / "raw_bm25s.py"),
                str(folder / "plain"),
                "eng",
            ]
        )
        return ours, inside, raw


def main() -> None:
    """Print a row for each size."""
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
        ours, inside, raw = run(texts, documents, queries)
        seconds = float(raw.output)
        print(
            f"{documents:9,d} {queries:9,d} | {ours.wall_s:6.1f} {inside:14.1f} "
            f"{ours.peak_mb:8,.0f} | {raw.wall_s:5.1f} {seconds:14.1f}  | "
            f"{ours.wall_s / raw.wall_s:6.2f} {inside / seconds:14.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
