"""The forgetting check: an ordinary retrieval task, evaluated by mteb with the base model and with the trained one."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mteb
import numpy as np
import pytrec_eval
from mteb.abstasks.retrieval import AbsTaskRetrieval

from posir_significance.intervals import estimate_difference, estimate_mean
from posir_tasks.errors import PosirError, summarize_error
from posir_train.report import Change, Value

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

NDCG = "ndcg_cut_10"


def find_guard(name: str) -> AbsTaskRetrieval:
    """Return a retrieval task by name; raise PosirError if there is none."""
    try:
        task = mteb.get_task(name)
    except Exception as error:  # mteb raises several types for a name that it does not know
        raise PosirError(
            f"--guard {name}: mteb has no such task ({summarize_error(error)}). `posir tasks` lists some."
        ) from error
    if not isinstance(task, AbsTaskRetrieval):
        raise PosirError(f"--guard {name}: not a retrieval task. Choose one, such as SciFact.")
    return task


def measure_queries(name: str, model: SentenceTransformer) -> dict[str, float]:
    """Return nDCG@10 of each query of a task, by subset, split and id.

    Raises:
        PosirError: There is no such retrieval task, or its data cannot be read.
    """
    task = find_guard(name)
    # mteb warns of its own use of older names in sentence-transformers.
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore", category=FutureWarning):
        mteb.evaluate(model, task, cache=None, prediction_folder=folder, show_progress_bar=False, co2_tracker=False)
        (file,) = Path(folder).rglob("*.json")
        predictions = json.loads(file.read_text(encoding="utf-8"))
    task.load_data()
    return dict(_score(task, predictions))


def _score(task: AbsTaskRetrieval, predictions: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for subset in task.hf_subsets:
        for split, results in predictions[subset].items():
            relevant = task.dataset[subset][split]["relevant_docs"]
            found = pytrec_eval.RelevanceEvaluator(relevant, {"ndcg_cut.10"}).evaluate(results)
            yield from ((f"{subset}/{split}/{query}", found[query][NDCG] if query in found else 0.0) for query in relevant)


def compare_guard(name: str, before: Mapping[str, float], after: Mapping[str, float]) -> Change:
    """Return the change of nDCG@10 of a task, paired by query; queries count as independent."""
    queries = sorted(before)
    values = [np.array([scores[query] for query in queries]) for scores in (before, after)]
    clusters = np.arange(len(queries))
    first, second = (Value.from_estimate(estimate_mean(one, clusters)) for one in values)
    found = estimate_difference(values[1] - values[0], clusters)
    difference = Value(found.difference, *found.interval) if found else Value(None)
    return Change(f"guard {name}, nDCG@10", first, second, difference, found.p_value if found else None)
