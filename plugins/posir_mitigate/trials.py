"""Trials: a model and each of its mitigations on a task, saved as `mteb run` does, and what each method gains and costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from posir_compare.comparison import ModelRun, Pair, find_common_results, read_model_runs
from posir_mitigate.method import Mitigation
from posir_mitigate.references import describe_mitigated
from posir_run.dispatch import find_missing_subsets
from posir_run.jobs import EvaluationJob, corpus_name, evaluate_subset, find_tasks
from posir_significance.analysis import GroupAnalysis, analyze
from posir_significance.decision import Change, compare_groups
from posir_tasks.display.progress import progress, track
from posir_tasks.errors import PosirError
from posir_tasks.estimates import Estimate
from posir_tasks.files import check_writable
from posir_tasks.gate import read_json
from posir_tasks.host.result_saving import process_saver
from posir_tasks.models.references import ModelReference, portable_name
from posir_tasks.models.registry import find_model, load_model
from posir_tasks.result_schema import INDEX_KEY
from posir_tasks.results import NAN_PREFIX
from posir_tasks.sources.formats.catalog import is_hub_name
from posir_tasks.sources.opening import open_data
from posir_tasks.tasks.base import PositionTask
from posir_tasks.tasks.opened import open_data_task

if TYPE_CHECKING:
    from mteb.cache import ResultCache
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels
    from mteb.types import EncodeKwargs


#: How the names of phases in mteb's result files begin in which queries and documents are encoded and searched. Which phases
#: there are depends on the kind of model: a search of chunks is one, "Encoding queries and documents".
SEARCH_PHASES = ("Encoding ", "Searching ")


@dataclass(frozen=True)
class TrialRequest:
    """The methods that are tried, and the data that they are tried on."""

    model: ModelReference
    methods: Sequence[Mitigation]
    task: PositionTask
    batch_size: int = 32


@dataclass(frozen=True)
class Trials:
    """The models that have results."""

    plain: ModelMeta
    mitigated: Mapping[Mitigation, ModelMeta]
    refused: tuple[str, ...]
    """The reasons why the other methods do not work for the model."""


def open_task(data: str) -> PositionTask:
    """Return the task of a name, or one on any other data with the spans of evidence; a file or folder takes precedence.

    Raises:
        PosirError: There is no such task or data, or it has no questions with evidence.
    """
    if Path(data).expanduser().exists() or is_hub_name(data):
        return open_data_task(open_data(data).with_questions("posir mitigate"))
    (task,) = find_tasks([data], [])
    return task


def run_trials(request: TrialRequest, output_folder: Path) -> Trials:
    """Evaluate the plain model and every mitigation; what has a result in the folder already is not evaluated again.

    The model is loaded once, and only if a result is missing. With the embedding cache on, times would be those of the cache.

    Raises:
        PosirError: There is no such model, or the folder cannot be written to.
    """
    from mteb.cache import ResultCache

    check_writable(output_folder)
    cache, task = ResultCache(output_folder), request.task
    task.load_data()
    plain = find_model(request.model)
    loaded = LazyModel(ModelReference(portable_name(plain), request.model.revision))
    mitigated, refused = {}, []
    with track("Evaluating the plain model and each method", 1 + len(request.methods)) as advance:
        save_results(request, cache, plain, "the plain model", loaded.load)
        for method in request.methods:
            advance()
            meta = describe_mitigated(plain, method)
            try:
                save_results(request, cache, meta, str(method), partial(apply_method, method, loaded))
                mitigated[method] = meta
            except PosirError as error:
                refused.append(str(error))
    return Trials(plain, mitigated, tuple(refused))


def apply_method(method: Mitigation, loaded: LazyModel) -> MTEBModels:
    """Return the mitigated model; raise PosirError if the method does not work for the model."""
    return method.apply(loaded.load())


class LazyModel:
    """A model that is loaded when it is first needed."""

    def __init__(self, reference: ModelReference) -> None:
        self._reference = reference
        self._model: MTEBModels | None = None

    def load(self) -> MTEBModels:
        """Return the model."""
        if self._model is None:
            self._model = load_model(self._reference)
        return self._model


def save_results(
    request: TrialRequest, cache: ResultCache, meta: ModelMeta, title: str, load: Callable[[], MTEBModels]
) -> None:
    """Evaluate a model on the subsets of a task that have no result, and save each result as it comes."""
    task = request.task
    missing = find_missing_subsets(task, meta, cache)
    if not missing:
        return
    reference = ModelReference(portable_name(meta))
    encode_kwargs: EncodeKwargs = {"batch_size": request.batch_size, "show_progress_bar": False}
    with track(f"Evaluating {title}", len(missing)) as advance:
        model = load()
        for subset in [subset for subset in task.hf_subsets if subset in missing]:
            job = EvaluationJob(reference, task.metadata.name, subset, corpus_name(task, subset))
            result = evaluate_subset(model, job, encode_kwargs)
            process_saver().add(cache, result, meta, order=task.hf_subsets, encode_kwargs=encode_kwargs)
            advance()


@dataclass(frozen=True)
class MitigationOutcome:
    """Scores, change and cost of a method. Scores are None where undefined."""

    method: str
    """`plain` for the model without any."""
    queries: int
    ndcg_at_10: Estimate | None
    start_to_end: Estimate | None
    psi: Estimate | None
    change: Change | None
    """The change from the plain model to the method, by the same questions; None for the plain model."""
    vectors_per_document: float
    seconds: float
    """Wall time of encoding queries and documents and of searching."""
    time_ratio: float | None
    """Ratio of that time to the plain model's."""
    cost: str


def compare_trials(trials: Trials, task: str, folder: Path) -> list[MitigationOutcome]:
    """Compare every mitigation with the plain model by the same questions; the plain model comes first."""
    runs = {run.results[0].model: run for run in read_model_runs([folder]) if task in {result.task for result in run.results}}
    plain = runs[str(trials.plain.name)]
    seconds, outcomes = measure_seconds(plain, task), list[MitigationOutcome]()
    for method, meta in progress(list(trials.mitigated.items()), "Comparing"):
        run = runs[str(meta.name)]
        common = find_common_results(Pair(plain, run, task))
        a, b = analyze(common.a).overall, analyze(common.b).overall
        if not outcomes:
            outcomes.append(_describe("plain", a, None, (1.0, seconds, 1.0, "one vector")))
        taken = measure_seconds(run, task)
        cost = count_vectors(run, task), taken, taken / seconds if seconds else None, method.cost
        outcomes.append(_describe(str(method), b, compare_groups(a, b, paired=common.paired is not None), cost))
    return outcomes


def _describe(
    method: str, group: GroupAnalysis, change: Change | None, cost: tuple[float, float, float | None, str]
) -> MitigationOutcome:
    return MitigationOutcome(method, group.queries, group.ndcg, group.position.start_to_end, group.psi, change, *cost)


def count_vectors(run: ModelRun, task: str) -> float:
    """Return the vectors per document in the index: 1 unless the results say otherwise."""
    sizes = [size for result in run.by_subset(task).values() if (size := result.run.get(INDEX_KEY))]
    documents = sum(size["documents"] for size in sizes)
    return sum(size["vectors"] for size in sizes) / documents if documents else 1.0


def measure_seconds(run: ModelRun, task: str) -> float:
    """Return how long encoding queries and documents and searching took, in seconds; phases may contain each other."""
    file = next(iter(run.by_subset(task).values())).file
    phases = read_json(file, nan_prefix=NAN_PREFIX).get("evaluation_phases") or []
    spans = sorted((phase["start"], phase["end"]) for phase in phases if phase["name"].startswith(SEARCH_PHASES))
    seconds, reached = 0.0, float("-inf")
    for start, end in spans:
        seconds += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return seconds
