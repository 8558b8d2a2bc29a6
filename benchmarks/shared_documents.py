"""Effect on intervals and p-values of queries that share a document: resampling by query, as posir does, and by document.

BM25 on a domain in the PosIR layout; 2,000 resamples each.

Use: POSIR_DATA=DATA python benchmarks/shared_documents.py TASK SUBSET
"""

import sys

import mteb
import numpy as np

from posir_psi import psi
from posir_tasks.profile import NDCG_AT_10, rank_columns
from posir_tasks.ranks import rank_hits
from posir_tasks.search.bm25 import search_bm25

RESAMPLES = 2_000


def bin_means(positions: np.ndarray, gains: np.ndarray, bins: int, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the mean gain of each bin, with queries weighted by how often they were resampled."""
    weights = np.ones(len(gains)) if weights is None else weights
    return np.bincount(positions, weights * gains, bins) / np.bincount(positions, weights, bins)


def main() -> None:
    """Print standard errors and null distributions side by side."""
    task, subset = mteb.get_task(sys.argv[1]), sys.argv[2]
    data = task.read_subset(subset)
    task_arguments = {"task_metadata": task.metadata, "hf_split": "test", "hf_subset": subset, "encode_kwargs": {}}
    hits = search_bm25(mteb.get_model("mteb/baseline-bm25s"), data.corpus, data.queries, top_k=100, **task_arguments)
    gains = NDCG_AT_10[rank_columns(rank_hits(hits, data.evidence.positives()).ranks)]
    positions, bins = task.scheme.cells(data.evidence).position, len(task.scheme.axes.positions)
    documents = np.unique(data.evidence.document_ids, return_inverse=True)[1]
    rng, count = np.random.default_rng(0), documents.max() + 1
    print(f"{len(gains):,} queries, {count:,} documents with a query, {len(gains) / count:.2f} queries a document")
    means, psis = {"query": [], "document": []}, {"query": [], "document": []}
    for _ in range(RESAMPLES):
        by_query = rng.multinomial(len(gains), np.full(len(gains), 1 / len(gains)))
        by_document = rng.multinomial(count, np.full(count, 1 / count))[documents]
        for unit, weights in (("query", by_query), ("document", by_document)):
            means[unit].append(np.average(gains, weights=weights))
            psis[unit].append(float(psi(bin_means(positions, gains, bins, weights))))
    for unit in means:
        print(f"bootstrap by {unit:8s}: standard error of nDCG@10 {np.std(means[unit]):.5f}, of PSI {np.std(psis[unit]):.5f}")
    by_document_first = np.argsort(documents, kind="stable")
    observed = float(psi(bin_means(positions, gains, bins)))
    nulls: dict[str, list[float]] = {"among all queries": [], "within documents": []}
    for _ in range(RESAMPLES):
        nulls["among all queries"].append(float(psi(bin_means(positions, rng.permutation(gains), bins))))
        shuffled = np.empty_like(gains)
        shuffled[by_document_first] = gains[np.lexsort((rng.random(len(gains)), documents))]
        nulls["within documents"].append(float(psi(bin_means(positions, shuffled, bins))))
    for how, null in nulls.items():
        p = (1 + sum(value >= observed for value in null)) / (1 + RESAMPLES)
        print(
            f"null, permutation {how:18s}: mean {np.mean(null):.4f}, 95th percentile {np.quantile(null, 0.95):.4f}, "
            f"p of the observed {observed:.4f}: {p:.4f}"
        )


if __name__ == "__main__":
    main()
