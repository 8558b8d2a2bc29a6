"""Measure everything from precomputed embeddings to the report at the size of PosIR-English,
relative to only the matrix products.

Two processes read the same embeddings. One runs search, ranks, profile, plugins and report. The
baseline only computes products and the top 100 of each query, which any exact search needs.
`scaling` varies the numbers of queries and documents.

Usage: python benchmarks/posir_size.py [scaling]
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from measure import Cost, measure

if TYPE_CHECKING:
    import torch
    from datasets import Dataset

    from posir_tasks.values.evidence import Evidence

#: 31 domains with 1,719,701 documents and 42,015 queries in total (Zeng et al. 2026, arXiv
#: 2601.08363).
DOMAINS, DOCUMENTS, QUERIES, DIMENSIONS = 31, 55_500, 1_356, 384
TOP_K = 100


@dataclass(frozen=True)
class Size:
    """Size of the searched data."""

    domains: int = DOMAINS
    documents: int = DOCUMENTS
    queries: int = QUERIES


def write_embeddings(folder: Path, size: Size) -> None:
    """Write unit vectors of documents, which all domains share, and of the queries of each domain,
    which are close to their relevant documents.
    """
    rng = np.random.default_rng(0)
    documents = normalize(rng.standard_normal((size.documents, DIMENSIONS), dtype=np.float32))
    np.save(folder / "documents.npy", documents)
    for domain in range(size.domains):
        query_vectors = documents[select_relevant_rows(size)] * 0.12 + normalize(
            rng.standard_normal((size.queries, DIMENSIONS), dtype=np.float32)
        )
        np.save(folder / f"queries-{domain}.npy", normalize(query_vectors))


def normalize(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors to length 1."""
    scaled: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled


def select_relevant_rows(size: Size) -> np.ndarray:
    """Select the relevant document of each query."""
    return np.arange(size.queries) * 37 % size.documents


def time_baseline(folder: Path, size: Size) -> float:
    """Measure the seconds of matrix products and top 100."""
    import torch

    start = time.perf_counter()
    documents = torch.from_numpy(np.load(folder / "documents.npy", mmap_mode="c"))
    for domain in range(size.domains):
        queries = torch.from_numpy(np.load(folder / f"queries-{domain}.npy"))
        (queries @ documents.T).topk(min(TOP_K, size.documents), dim=1)
    return time.perf_counter() - start


def draw_data(size: Size) -> tuple[Dataset, Dataset, Evidence]:
    """Generate corpus, queries and evidence at random positions."""
    from datasets import Dataset

    from posir_tasks.values.evidence import Evidence

    rng = np.random.default_rng(1)
    ids = [f"document_{row}" for row in range(size.documents)]
    corpus = Dataset.from_dict({"id": ids, "text": ids})
    query_ids = [f"{row:032x}" for row in range(size.queries)]
    queries = Dataset.from_dict({"id": query_ids, "text": query_ids})
    characters = rng.integers(500, 40_000, size.queries)
    starts = (rng.random(size.queries) * (characters - 100)).astype(np.int64)
    positives = [ids[row] for row in select_relevant_rows(size)]
    return (
        corpus,
        queries,
        Evidence(query_ids, positives, starts, starts + 100, characters, characters // 4),
    )


@dataclass(frozen=True)
class StoredEncoder:
    """An encoder that returns its next stored embeddings for any texts."""

    queries: Iterator[torch.Tensor]
    documents: Iterator[torch.Tensor]

    def encode(self, _texts: object, *, prompt_type: str, **_: object) -> torch.Tensor:
        return next(self.queries if prompt_type == "query" else self.documents)

    @staticmethod
    def similarity(queries: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
        return queries @ documents.T


def time_posir(folder: Path, size: Size) -> float:
    """Measure the seconds from embeddings to the pooled report."""
    import torch
    from mteb.timing import TimingStack

    from posir_report.summary import summarize
    from posir_tasks.models.dispatch import search_dense
    from posir_tasks.models.embeddings.context import EncodingContext
    from posir_tasks.plugin_api import score_result
    from posir_tasks.results import read_results
    from posir_tasks.tasks.catalog import load_builtin_tasks
    from posir_tasks.values.document_keys import OPENING_WORDS
    from posir_tasks.values.document_ranks import DocumentRanks
    from posir_tasks.values.evidence import ReadEvidence
    from posir_tasks.values.ranks import compute_retrieval_scores, rank_hits
    from posir_tasks.values.read_part import ReadPart, WindowSource
    from posir_tasks.values.result_schema import round_floats
    from posir_tasks.values.schemes import RelativePositions
    from posir_tasks.values.scores import ResultValues

    context = EncodingContext(load_builtin_tasks()["PosIR-Mini"].metadata, "test", "default")
    scheme, (corpus, queries, evidence) = RelativePositions(), draw_data(size)
    start = time.perf_counter()
    documents = torch.from_numpy(np.load(folder / "documents.npy", mmap_mode="c"))
    entries = []
    for domain in range(size.domains):
        stored_queries = torch.from_numpy(np.load(folder / f"queries-{domain}.npy"))
        encoder = StoredEncoder(iter([stored_queries]), iter(documents.split(50_000)))
        hits = search_dense(encoder, corpus, queries, context, top_k=TOP_K, timer=TimingStack())  # type: ignore[arg-type]
        ranked = rank_hits(hits, evidence.map_positives())
        read_evidence = ReadEvidence.estimate(
            ReadPart.first(512, WindowSource.GIVEN), evidence, ["eng-Latn"]
        )
        texts = {
            name: f"{name} of domain {domain} and {'its words ' * OPENING_WORDS}"
            for name in evidence.document_ids
        }
        ranks = DocumentRanks.from_ranks(
            scheme, evidence, ranked.ranks, read_evidence, str(domain), texts
        )
        values = ResultValues(ranks, read_evidence.read)
        positions = score_result(values).to_json(ranks.profile.positions)
        scores = compute_retrieval_scores(ranked, (1, 3, 5, 10, 20, 100)) | round_floats(positions)
        entries.append(scores | values.to_json() | {"hf_subset": str(domain)})
    write_result(folder, entries)
    summarize(read_results(folder))
    return time.perf_counter() - start


def write_result(folder: Path, entries: list[dict[str, Any]]) -> None:
    """Write the scores of all subsets as a result of mteb."""
    model_folder = folder / "results" / "org__model" / "1"
    model_folder.mkdir(parents=True, exist_ok=True)
    (model_folder / "model_meta.json").write_text(
        json.dumps({"name": "org/model", "revision": "1"})
    )
    (model_folder / "PosIR-English.json").write_text(
        json.dumps({"task_name": "PosIR-English", "scores": {"test": entries}})
    )


def measure_both(size: Size) -> tuple[Cost, Cost]:
    """Measure posir and the baseline in separate processes, which print their seconds."""
    with tempfile.TemporaryDirectory() as name:
        write_embeddings(Path(name), size)
        command = [sys.executable, __file__, "one", name, json.dumps(asdict(size))]
        return measure([*command, "posir"]), measure([*command, "baseline"])


def main() -> None:
    """Print a row per size."""
    if sys.argv[1:2] == ["one"]:
        folder, size, program = Path(sys.argv[2]), Size(**json.loads(sys.argv[3])), sys.argv[4]
        print(time_posir(folder, size) if program == "posir" else time_baseline(folder, size))
        return
    sizes = [Size()]
    if sys.argv[1:] == ["scaling"]:
        sizes = [Size(4, DOCUMENTS, QUERIES * k) for k in (1, 2, 3, 4)] + [
            Size(4, DOCUMENTS * k) for k in (2, 3, 4)
        ]
    print(
        "domains  documents  queries (each)  |  posir s  peak MB  |  baseline s  peak MB  |  ratio"
    )
    for size in sizes:
        posir, baseline = measure_both(size)
        seconds, minimum = float(posir.output), float(baseline.output)
        print(
            f"{size.domains:7d} {size.documents:10,d} {size.queries:9,d}        | {seconds:7.1f} "
            f"{posir.peak_mb:8,.0f}  | "
            f"{minimum:10.1f} {baseline.peak_mb:8,.0f}  | {seconds / minimum:6.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
