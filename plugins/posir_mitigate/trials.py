"""Trials: a model and each of its mitigations on a task, saved as `mteb run` does, and what each
method gains and costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from posir_compare.pairing import Pair, find_common_results
from posir_compare.runs import ModelRun, collect_runs
from posir_mitigate.method import Mitigation
from posir_mitigate.references import describe_mitigated
from posir_run.jobs import (
    EvaluationJob,
    corpus_name,
    evaluate_subset,
    find_missing_subsets,
    find_tasks,
)
from posir_significance.analysis import GroupAnalysis, analyze
from posir_significance.changes import Changes, compare_groups
from posir_significance.decision import decide
from posir_significance.findings import GroupFindings, Quantity
from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import check_writable
from posir_tasks.base.progress import progress, track
from posir_tasks.base.untrusted import read_json
from posir_tasks.data.repository import is_hub_name
from posir_tasks.datasets.dataset import Dataset
from posir_tasks.datasets.opening import open_data
from posir_tasks.models.references import ModelReference, portable_name
from posir_tasks.models.registry import find_model, load_model
from posir_tasks.mteb.result_saving import process_saver
from posir_tasks.results import NAN_PREFIX, read_all_results
from posir_tasks.tasks.base import LayoutTask, PositionTask, build_task, register_task
from posir_tasks.values.result_schema import average_vectors
from posir_tasks.values.scores import Estimate

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.types import EncodeKwargs


#: How the names of phases in mteb's result files begin in which queries and documents are encoded
#: and searched. Which phases there are depends on the kind of model: a search of chunks is one,
#: "Encoding queries and documents".
SEARCH_PHASES = ("Encoding ", "Searching ")


def open_task(data: str) -> PositionTask:
    """Return the task of a name, or one on any other data with the spans of evidence; a file or
    folder takes precedence.
    """
    if Path(data).expanduser().exists() or is_hub_name(data):
        return open_data_task(open_data(data).with_questions("posir mitigate"))
    (task,) = find_tasks([data], [])
    return task


def open_data_task(data: Dataset) -> LayoutTask:
    """Return a task on data, which mteb finds by its name; raise PosirError if its language is
    unknown.
    """
    if not data.has_questions or data.in_memory:
        for subset in data.subsets:
            # Before a model is loaded.
            subset.read()
    return register_task(
        build_task(
            data.name,
            location=data.location,
            revision=data.find_revision(),
            languages=data.find_languages(),
            readers=[subset.read for subset in data.subsets],
            scheme=data.scheme,
            reference=data.reference,
        )
    )


def run_trials(
    reference: ModelReference,
    methods: Sequence[Mitigation],
    task: PositionTask,
    batch_size: int,
    output_folder: Path,
) -> tuple[ModelMeta, Mapping[Mitigation, ModelMeta], tuple[str, ...]]:
    """Evaluate the plain model and every mitigation; what has a result in the folder already is not
    evaluated again.

    Returns the plain model, the mitigated ones, and why the other methods do not work for the
    model. The model is loaded once, and only if a result is missing. With the embedding cache on,
    times would be those of the cache.
    """
    from mteb.cache import ResultCache

    check_writable(output_folder)
    results, plain = ResultCache(output_folder), find_model(reference)
    task.load_data()
    encode_kwargs: EncodeKwargs = {"batch_size": batch_size, "show_progress_bar": False}

    load_plain = cache(
        partial(load_model, ModelReference(portable_name(plain), reference.revision))
    )

    def evaluate(meta: ModelMeta, method: Mitigation | None) -> None:
        """Evaluate a model on the subsets of the task that have no result, and save each result as
        it comes.
        """
        missing = [
            subset
            for subset in task.hf_subsets
            if subset in find_missing_subsets(task, meta, results)
        ]
        if not missing:
            return
        with track(f"Evaluating {method or 'the plain model'}", len(missing)) as advance:
            model = method.apply(load_plain()) if method else load_plain()
            for subset in missing:
                name, corpus = ModelReference(portable_name(meta)), corpus_name(task, subset)
                result = evaluate_subset(
                    model, EvaluationJob(name, task.metadata.name, subset, corpus), encode_kwargs
                )
                process_saver().add(
                    results, result, meta, order=task.hf_subsets, encode_kwargs=encode_kwargs
                )
                advance()

    mitigated: dict[Mitigation, ModelMeta] = {}
    refused: list[str] = []
    with track("Evaluating the plain model and each method", 1 + len(methods)) as advance:
        evaluate(plain, None)
        for method in methods:
            advance()
            meta = describe_mitigated(plain, method)
            try:
                evaluate(meta, method)
                mitigated[method] = meta
            except PosirError as error:
                refused.append(str(error))
    return plain, mitigated, tuple(refused)


@dataclass(frozen=True)
class MethodCost:
    """The cost of a method: vectors, time, and a sentence on both."""

    vectors_per_document: float
    seconds: float
    time_ratio: float | None
    """Seconds as a multiple of those of the plain model; None if these are unknown."""
    words: str


@dataclass(frozen=True)
class MitigationOutcome:
    """Scores, change and cost of a method. Scores are None where undefined."""

    method: str
    """`plain` for the model without any."""
    queries: int
    ndcg_at_10: Estimate | None
    position_effect: Estimate | None
    """The position effect in whole documents."""
    findings: GroupFindings
    """The findings of the method, whose window may differ from that of the plain model."""
    change: Changes | None
    """The change from the plain model to the method, by the same questions; None for the plain
    model.
    """
    vectors_per_document: float
    seconds: float
    """Wall time of encoding queries and documents and of searching."""
    time_ratio: float | None
    cost: str


def compare_trials(
    plain_model: ModelMeta, mitigated: Mapping[Mitigation, ModelMeta], task: str, folder: Path
) -> list[MitigationOutcome]:
    """Compare every mitigation with the plain model by the same questions; the plain model comes
    first.
    """
    everything = collect_runs([read_all_results(folder)])
    runs = {
        run.results[0].model: run
        for run in everything
        if task in {result.task for result in run.results}
    }
    plain = runs[str(plain_model.name)]
    seconds = measure_seconds(plain, task)
    outcomes = list[MitigationOutcome]()
    for method, meta in progress(list(mitigated.items()), "Comparing"):
        run = runs[str(meta.name)]
        common = find_common_results(Pair(plain, run, task))
        a, b = analyze(common.a).overall, analyze(common.b).overall
        if not outcomes:
            outcomes.append(
                _build_outcome("plain", a, None, MethodCost(1.0, seconds, 1.0, "one vector"))
            )
        taken = measure_seconds(run, task)
        # One vector per document, unless the results say otherwise.
        vectors = average_vectors(result.run for result in run.by_subset(task).values()) or 1.0
        change = compare_groups(a, b, paired=common.are_paired)
        cost = MethodCost(vectors, taken, taken / seconds if seconds else None, method.cost)
        outcomes.append(_build_outcome(str(method), b, change, cost))
    return outcomes


def _build_outcome(
    method: str, group: GroupAnalysis, change: Changes | None, cost: MethodCost
) -> MitigationOutcome:
    findings = decide(group)
    return MitigationOutcome(
        method=method,
        queries=group.queries,
        ndcg_at_10=findings[Quantity.NDCG_AT_10].estimate,
        position_effect=findings[Quantity.POSITION_EFFECT].estimate,
        findings=findings,
        change=change,
        vectors_per_document=cost.vectors_per_document,
        seconds=cost.seconds,
        time_ratio=cost.time_ratio,
        cost=cost.words,
    )


def measure_seconds(run: ModelRun, task: str) -> float:
    """Return how long encoding queries and documents and searching took, in seconds; phases may
    contain each other.
    """
    file = next(iter(run.by_subset(task).values())).file
    phases = read_json(file, nan_prefix=NAN_PREFIX).get("evaluation_phases") or []
    spans = sorted(
        (phase["start"], phase["end"])
        for phase in phases
        if phase["name"].startswith(SEARCH_PHASES)
    )
    seconds, reached = 0.0, float("-inf")
    for start, end in spans:
        seconds += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return seconds
