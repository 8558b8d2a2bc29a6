"""Evaluate a model and its mitigations on a task, and compare gain and cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_compare.comparison import compare_pairs
from posir_compare.pairing import Pair
from posir_compare.runs import ModelRun, collect_runs
from posir_mitigate.method import Mitigation
from posir_mitigate.references import describe_mitigated
from posir_run.jobs import (
    EvaluationJob,
    evaluate_subset,
    find_missing_subsets,
    find_tasks,
    name_corpus,
)
from posir_significance.analysis import analyze
from posir_significance.decision import decide
from posir_significance.findings import ChangeRow, GroupFindings, Metric, Quantity
from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import check_writable
from posir_tasks.base.progress import track
from posir_tasks.base.untrusted import read_json
from posir_tasks.data.repository import is_hub_name
from posir_tasks.datasets.dataset import Dataset
from posir_tasks.datasets.opening import open_data
from posir_tasks.models.references import ModelReference, get_portable_reference
from posir_tasks.models.registry import find_model, load_model
from posir_tasks.mteb.result_saving import get_result_saver
from posir_tasks.results import NAN_PREFIX, read_all_results
from posir_tasks.tasks.base import LayoutTask, PositionTask, build_task, register_task
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.result_schema import average_vectors
from posir_tasks.values.scores import ALL

if TYPE_CHECKING:
    from mteb.cache import ResultCache
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels
    from mteb.types import EncodeKwargs


#: Name prefixes of the encoding and search phases in mteb's result files. The phases depend on the
#: model: chunk search only records "Encoding queries and documents".
PHASE_PREFIXES = ("Encoding ", "Searching ")
#: Scores to compare with the plain model.
METRICS = (Metric.NDCG_AT_10, Metric.POSITION_EFFECT)


def open_task(data: str) -> PositionTask:
    """Open a task by name, or build a task from other data with evidence spans.

    A file or folder takes precedence over a task of the same name.
    """
    if Path(data).expanduser().exists() or is_hub_name(data):
        return open_data_task(open_data(data).select_questions("posir mitigate"))
    (task,) = find_tasks([data], [])
    return task


def open_data_task(data: Dataset) -> LayoutTask:
    """Build a task from a dataset and register it in mteb.

    Raises:
        PosirError: The language of the data is unknown.
    """
    if not data.has_questions or data.in_memory:
        for subset in data.subsets:
            # Report errors in the data before the model is loaded.
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
    """Evaluate the plain model and each mitigation, except where the folder contains a result.

    The model is loaded once, and only if a result is missing. The embedding cache must be off,
    since it would distort the timings.

    Returns:
        The plain model, the mitigated models, and the errors of methods that the model does not
        support.
    """
    from mteb.cache import ResultCache

    check_writable(output_folder)
    results = ResultCache(output_folder)
    plain = find_model(reference)
    task.load_data()

    @cache
    def load_plain() -> MTEBModels:
        return load_model(ModelReference(get_portable_reference(plain), reference.revision))

    mitigated_models = {}
    errors = []
    with track("Evaluating the plain model and each method", 1 + len(methods)) as advance:
        _evaluate("the plain model", plain, load_plain, task, batch_size, results)
        for method in methods:
            advance()
            meta = describe_mitigated(plain, method)

            def load(method: Mitigation = method) -> MTEBModels:
                return method.wrap(load_plain())

            try:
                _evaluate(str(method), meta, load, task, batch_size, results)
                mitigated_models[method] = meta
            except PosirError as error:
                errors.append(str(error))
    return plain, mitigated_models, tuple(errors)


def _evaluate(
    title: str,
    meta: ModelMeta,
    load: Callable[[], MTEBModels],
    task: PositionTask,
    batch_size: int,
    results: ResultCache,
) -> None:
    """Evaluate a model on the task subsets that have no result, and save each new result."""
    missing_subsets = find_missing_subsets(task, meta, results)
    if not missing_subsets:
        return
    encode_kwargs: EncodeKwargs = {"batch_size": batch_size, "show_progress_bar": False}
    reference = ModelReference(get_portable_reference(meta))
    with track(f"Evaluating {title}", len(missing_subsets)) as advance:
        model = load()
        for subset in task.hf_subsets:
            if subset not in missing_subsets:
                continue
            job = EvaluationJob(reference, task.metadata.name, subset, name_corpus(task, subset))
            result = evaluate_subset(model, job, encode_kwargs)
            get_result_saver().add(
                results, result, meta, order=task.hf_subsets, encode_kwargs=encode_kwargs
            )
            advance()


@dataclass(frozen=True)
class Trial:
    """Findings, changes and cost of a method, or of the plain model."""

    method: str
    """Name of the method; `plain` for the plain model."""
    findings: GroupFindings
    """Findings with this method's window."""
    vectors_per_document: float
    seconds: float
    """Encoding and search time in seconds."""
    time_ratio: float | None
    """Time relative to the plain model; None if the plain model's time is unknown."""
    deployment: str = ""
    """Deployment instructions; empty for the plain model."""
    changes: Mapping[Metric, ChangeRow] = field(default_factory=dict)
    """Changes from the plain model; empty for the plain model itself."""

    def find_estimate(self, metric: Metric) -> Estimate | None:
        """Return the estimate of a metric, or None if it is undefined."""
        return self.findings[Quantity(metric.key)].estimate

    def to_record(self) -> dict[str, Any]:
        """Convert the trial to a row for JSON and CSV."""
        row: dict[str, Any] = {"method": self.method, "queries": self.findings.questions}
        row |= {metric.key: self.find_estimate(metric) for metric in METRICS}
        row |= {
            "vectors_per_document": self.vectors_per_document,
            "seconds": self.seconds,
            "time_ratio": self.time_ratio,
            "state": self.findings.state,
            "reason": self.findings.reason,
        }
        for metric in METRICS:
            change = self.changes.get(metric)
            row |= {
                f"{metric.key}_change": change and change.state,
                f"{metric.key}_difference": change and change.estimate,
                f"{metric.key}_needed": change and change.needed and change.needed.number,
            }
        return row


def compare_trials(
    plain_model: ModelMeta,
    mitigated_models: Mapping[Mitigation, ModelMeta],
    task: str,
    folder: Path,
) -> list[Trial]:
    """Compare each mitigation with the plain model on the same questions.

    Returns:
        A trial per model, the plain model first.
    """
    runs = {
        run.results[0].model: run
        for run in collect_runs([read_all_results(folder)])
        if task in run.tasks
    }
    plain = runs[str(plain_model.name)]
    pairs = [Pair(plain, runs[str(meta.name)], task) for meta in mitigated_models.values()]
    comparison = compare_pairs(pairs, [ALL])
    plain_seconds = measure_seconds(plain, task)
    findings = decide(analyze(comparison.common[0][1].a).overall)
    trials = [Trial("plain", findings, 1.0, plain_seconds, 1.0)]
    for method, (pair, common) in zip(mitigated_models, comparison.common, strict=True):
        seconds = measure_seconds(pair.b, task)
        results = pair.b.get_position_results(task).values()
        rows = [row for row in comparison.rows if row.subject.model == pair.b.label]
        trial = Trial(
            method=str(method),
            findings=decide(analyze(common.b).overall),
            # Results do not store the count if there is one vector per document.
            vectors_per_document=average_vectors(result.run for result in results) or 1.0,
            seconds=seconds,
            time_ratio=seconds / plain_seconds if plain_seconds else None,
            deployment=method.DEPLOYMENT,
            changes={row.metric: row for row in rows},
        )
        trials.append(trial)
    return trials


def measure_seconds(run: ModelRun, task: str) -> float:
    """Return the total seconds of encoding and search phases, counting overlaps once."""
    file = next(iter(run.get_position_results(task).values())).file
    phases = read_json(file, nan_prefix=NAN_PREFIX).get("evaluation_phases") or []
    seconds = 0.0
    end = float("-inf")
    for phase in sorted(phases, key=lambda phase: float(phase["start"])):
        if phase["name"].startswith(PHASE_PREFIXES):
            seconds += max(0.0, phase["end"] - max(phase["start"], end))
            end = max(end, phase["end"])
    return seconds
