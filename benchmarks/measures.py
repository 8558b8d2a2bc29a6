"""Apply measures of position bias to embedders with a known bias, and print the Markdown table of
docs/measured.md.

Embedders are weighted means of fixed word vectors, so no model is needed. The texts are those of
PosIR-Mini.

Usage: python benchmarks/measures.py [DOCUMENTS]
"""

import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from mteb.types import PromptType

import posir
from posir_probe.controls import order_blind
from posir_probe.data import ProbeData
from posir_probe.probe import Probe, run_probe
from posir_probe.probing import build_builtin_probes
from posir_report.summary import build_rows, summarize
from posir_score.collecting import Retriever
from posir_tasks.data.mini import read_mini
from posir_tasks.display.numbers import (
    format_estimate,
    format_number,
    format_percent,
    format_points,
    format_psi,
)
from posir_tasks.models.embeddings.encoding import Vectors
from tests.support.probed_encoders import WordMean, decaying, first_words

EMBEDDERS: dict[str, Callable[..., Vectors]] = {
    "order-blind": order_blind,
    "reads 128 words": first_words,
    "start counts more": decaying,
    "end counts more": WordMean(lambda words: np.exp(-3.0 * np.arange(words)[::-1] / words)),
    "middle counts less": WordMean(
        lambda words: 0.05 + np.abs(2 * np.arange(words) / max(words - 1, 1) - 1)
    ),
}


#: Probes that only depend on the data, or need gradients, which word vectors do not have.
SKIPPED_PROBES = (
    "evidence_location",
    "query_types",
    "sentence_regression_scatter",
    "gradient_saliency",
)


def build_retriever(embedder: Callable[..., Vectors]) -> Retriever:
    """Build a cosine search in PosIR-Mini."""
    corpus = read_mini().corpus
    names = list(corpus["id"])
    documents = embedder(list(corpus["text"]))
    documents /= np.linalg.norm(documents, axis=1, keepdims=True)

    def search(query: str, k: int) -> list[tuple[str, float]]:
        scores = documents @ embedder([query], PromptType.query)[0]
        return [(names[row], float(scores[row])) for row in np.argsort(-scores, kind="stable")[:k]]

    return search


def measure_retrieval() -> dict[str, list[str]]:
    """Compute the row of each measure of retrieval."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [
            posir.score(
                build_retriever(embedder),
                data="PosIR-Mini",
                name="control",
                output=f"{folder}/{number}",
            )
            for number, embedder in enumerate(EMBEDDERS.values())
        ]
        rows = [
            next(row for summary in summarize(run.results) for row in build_rows(summary))
            for run in runs
        ]
    return {
        "nDCG@10": [format_estimate(row.ndcg_at_10, format_percent) for row in rows],
        "start minus end (points)": [
            format_estimate(row.start_minus_end, format_points) for row in rows
        ],
        "PSI as published": [format_psi(row.scores["psi_as_published"]) for row in rows],
    }


def measure_probe(probe: Probe, data: ProbeData) -> list[str]:
    """Compute the first summary of a probe for each embedder."""
    summary = probe.first_summary
    estimates = [
        run_probe(probe, embedder, data).estimate(summary) for embedder in EMBEDDERS.values()
    ]
    return [
        format_estimate(estimate, lambda value: format_number(value, "+.3f"))
        for estimate in estimates
    ]


if __name__ == "__main__":
    documents = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    # The papers split sentences at periods.
    data = replace(ProbeData.from_position_data(read_mini()), split_at_periods=True).sample(
        documents
    )
    print(
        f"{len(data.documents)} documents, {len(data.questions)} questions; retrieval uses all 720 "
        "questions\n"
    )
    print("| measure |", " | ".join(EMBEDDERS), "|")
    print("|---" * (len(EMBEDDERS) + 1) + "|")
    rows = measure_retrieval()
    for probe in build_builtin_probes():
        if not probe.name.startswith(SKIPPED_PROBES):
            rows[f"`{probe.name}`, `{next(iter(probe.summaries))}`"] = measure_probe(probe, data)
            print(probe.name, file=sys.stderr, flush=True)
    for name, row in rows.items():
        print(f"| {name} |", " | ".join(row), "|")
