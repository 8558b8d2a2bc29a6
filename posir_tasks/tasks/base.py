"""Position-aware retrieval tasks: what all have in common, and tasks on any data in the PosIR
layout.
"""

from __future__ import annotations

import logging
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from mteb.timing import TimingStack

from posir_tasks.base.errors import DataError, PosirError, hide_tracebacks
from posir_tasks.base.files import atomic_update
from posir_tasks.base.private_names import TASKS_REGISTRY
from posir_tasks.data.copies import find_copies
from posir_tasks.data.data import PositionData, digest_data
from posir_tasks.data.posir import (
    SubsetKey,
    list_present_files,
    open_folder,
    read_domain,
    require_domains,
)
from posir_tasks.data.repository import (
    DATA_VARIABLE,
    LOCAL,
    DataState,
    HubRepository,
    LocalRepository,
    Repository,
    check_repository_name,
    data_folder,
    name_version,
    open_repository,
)
from posir_tasks.data.task_metadata import build_metadata
from posir_tasks.models.embeddings.context import EncodingContext
from posir_tasks.models.request import SearchRequest
from posir_tasks.search.scoring import (
    K_VALUES,
    QueryScores,
    SearchedSubset,
    SplitData,
    SubsetScorer,
)
from posir_tasks.tasks.retrieval_task import LazySubsets, RetrievalTask
from posir_tasks.values.ranks import Results
from posir_tasks.values.result_schema import (
    DIGEST_KEY,
    REFERENCE_KEY,
    REVISION_KEY,
    RUN_KEY,
    SPLIT,
)
from posir_tasks.values.schemes import PositionScheme, RelativePositions

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels
    from mteb.types import EncodeKwargs, RelevantDocumentsType, ScoresDict
    from mteb.types.statistics import DescriptiveStatistics

logger = logging.getLogger(__name__)

#: 20 positions by four lengths, as in the PosIR paper.
POSIR_SCHEME = RelativePositions()


@dataclass(eq=False)
class BenchmarkTasks:
    """The tasks of a benchmark, of which those that have data are evaluated; the others are named
    in one warning.
    """

    name: str
    tasks: Sequence[PositionTask]
    is_warned: bool = False

    def check_data(self) -> None:
        """Warn, once, of the tasks that have no data; raise DataError if none has."""
        missing = [task.metadata.name for task in self.tasks if not task.has_data()]
        known = len(self.tasks)
        listed = ", ".join(missing)
        if len(missing) == known:
            raise DataError(
                f"benchmark {self.name}: no data of any of its tasks, {listed}. Check "
                f"{DATA_VARIABLE}, or unset it to read from the Hub."
            )
        if missing and not self.is_warned:
            self.is_warned = True
            counts = known - len(missing), known
            logger.warning(
                "benchmark %s: %d of %d tasks are evaluated; no data of %s",
                self.name,
                *counts,
                listed,
            )


class PositionTask(RetrievalTask):
    """Retrieval with the span of each query's evidence in its relevant document, or several spans,
    or several documents.

    A subclass defines `metadata`, a `scheme` and `read_subset`.
    """

    scheme: ClassVar[PositionScheme]
    k_values = K_VALUES
    dataset: Mapping[str, Any]  # type: ignore[assignment]
    #: The benchmark that the instance belongs to; without data it is then skipped, not an error.
    benchmark: BenchmarkTasks | None = None

    @staticmethod
    def from_folder(
        folder: str | Path, *, name: str, language: str, **options: Any
    ) -> PositionTask:
        """Create a task on a local folder, for `mteb.evaluate`; in this process, mteb also finds it
        by its name.

        Args:
            folder: A folder in the PosIR layout, `<language>/<domain>/`, or the folder of one
                language or domain in it.
            name: Name of the task, as in results.
            language: Code of the data's language, such as `eng-Latn`.
            options: `scheme`, how evidence becomes a position (by default PosIR's), and fields of
                mteb's `TaskMetadata`.

        Raises:
            PosirError: The folder has no data in the language, the name is taken or not allowed, or
                an option is wrong.
        """
        hide_tracebacks()
        return register_task(build_folder_task(folder, name=name, language=language, **options))

    @staticmethod
    def from_hub(
        repo_id: str, *, name: str, language: str, revision: str = "main", **options: Any
    ) -> PositionTask:
        """Create a task on a dataset repository on the Hub in the PosIR layout; otherwise like
        `from_folder`.

        Args:
            repo_id: The dataset, `owner/name`; if `POSIR_DATA` is set, its folder in there is read
                instead.
            name: Name of the task, as in results.
            language: Code of the data's language, such as `eng-Latn`.
            revision: Branch, tag or commit.
            options: As in `from_folder`.

        Raises:
            PosirError: As in `from_folder`, or the repository cannot be reached.
        """
        hide_tracebacks()
        check_repository_name(repo_id)
        repository = open_repository(repo_id, revision)
        if isinstance(repository, LocalRepository):
            repository = open_folder(repository.root, language)
        return register_task(
            _build_layout_task(repository, name=name, language=language, **options)
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle an instance of a class that was created at run time, which cannot be imported,
        with what defines the class.
        """
        task = type(self)
        if getattr(sys.modules[task.__module__], task.__name__, None) is task:
            return super().__reduce_ex__(protocol)
        names = [
            name
            for name in vars(task)
            if not name.startswith("_") or name in ("__doc__", "__module__")
        ]
        return (
            restore_instance,
            (task.__name__, task.__bases__, {name: vars(task)[name] for name in names}),
            vars(self),
        )

    @abstractmethod
    def read_subset(self, subset: str) -> PositionData:
        """Read one subset; raise DataError if it cannot be read."""

    def has_data(self) -> bool:
        """Return whether the data has any subset of the task; raise DataError if it cannot be
        reached.
        """
        return True

    def explain_missing_data(self) -> str:
        """Return why `has_data` is false, and what to do."""
        return f"{self.metadata.name}: no data; the task evaluates nothing."

    def missing_subsets(self) -> list[str]:
        """Return the subsets that the complete task has and this instance lacks."""
        return []

    def locate_subset(self, subset: str) -> tuple[Repository, Sequence[str]] | None:  # noqa: ARG002
        """Return where the files of a subset are, and their paths there; None if they are part of a
        package.
        """
        return None

    def describe_data_reference(self, subset: str) -> dict[str, Any]:
        """Return what the record of a run adds so that a command finds the data of a subset by the
        task's name.
        """
        location = self.locate_subset(subset)
        if location is None or not isinstance(location[0], LocalRepository):
            return {}
        folder = data_folder()
        return {"variables": {DATA_VARIABLE: str(folder.absolute())}} if folder else {}

    def compare_data(self, subset: str, run: Mapping[str, Any]) -> DataState:
        """Return how the present data of a subset relates to that of a saved result.

        Of two revisions on the Hub nothing is said here: mteb compares what was requested. Where
        local data is involved and the revisions differ, the subset is read and its content decides.

        Args:
            subset: Name of the subset.
            run: What the result records of its run.
        """
        location = self.locate_subset(subset)
        revision = str(run.get(REVISION_KEY, ""))
        if location is None:
            return DataState.SAME
        repository, paths = location
        if isinstance(repository, LocalRepository):
            if not paths or not all(repository.locate(path).is_file() for path in paths):
                return DataState.ABSENT
        elif not revision.startswith(LOCAL):
            return DataState.SAME
        present = repository.revision(paths)
        same = revision == present or (
            DIGEST_KEY in run and run[DIGEST_KEY] == read_digest(type(self), subset, present)
        )
        return DataState.SAME if same else DataState.CHANGED

    def load_data(
        self,
        num_proc: int | None = None,  # noqa: ARG002
        *,
        timer: TimingStack | None = None,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """Make the subsets available, read when evaluated; raise DataError if there are none, but
        in a benchmark.
        """
        # `mteb run` lets exceptions reach Python.
        hide_tracebacks()
        if not self.data_loaded:
            if unknown := sorted({*self.eval_splits} - {*self.metadata.eval_splits}):
                raise DataError(
                    f"{self.metadata.name}: no split {', '.join(unknown)}; position-aware tasks "
                    f"have '{SPLIT}' alone."
                )
            if self.benchmark is not None:
                self.benchmark.check_data()
            if not self.has_data():
                if self.benchmark is None:
                    raise DataError(self.explain_missing_data())
                # In place: mteb refers to this list object before the data is loaded, and then
                # evaluates the subsets in it.
                self.hf_subsets.clear()
            self.dataset = LazySubsets(self.hf_subsets, self._read_with_warning)
            self.data_loaded = True

    def calculate_descriptive_statistics(
        self, overwrite_results: bool = False, num_proc: int | None = None
    ) -> dict[str, DescriptiveStatistics]:
        """Return mteb's statistics of the texts: those of the package or an earlier call, else
        calculated from the data.

        Args:
            overwrite_results: Whether to calculate them again.
            num_proc: Processes to use, where mteb uses several.

        Raises:
            DataError: The data cannot be read, or the task evaluates a part of its subsets only.
        """
        hide_tracebacks()
        if overwrite_results or self.metadata.descriptive_stats is None:
            # The revision of local data is known once it is loaded.
            self.load_data(num_proc)
            if absent := [
                subset for subset in self.metadata.hf_subsets if subset not in self.dataset
            ]:
                raise DataError(
                    f"{self.metadata.name}: the statistics are of all subsets; this task lacks "
                    f"{', '.join(absent)}. Create it without a filter, or complete the data."
                )
        return super().calculate_descriptive_statistics(overwrite_results, num_proc)

    def _read_with_warning(self, subset: str) -> PositionData:
        data = self.read_subset(subset)
        for warning in data.warnings:
            logger.warning("%s, %s", self.metadata.name, warning)
        if copies := find_copies(data.documents, data.evidence.document_ids):
            logger.warning("%s, %s: %s", self.metadata.name, subset, copies.describe())
        return data

    def evaluate_subset(
        self,
        model: MTEBModels,
        data: SplitData,
        *,
        hf_split: str,
        hf_subset: str,
        encode_kwargs: EncodeKwargs,
        timer: TimingStack,
        prediction_folder: Path | None = None,
        num_proc: int | None = None,
        **kwargs: Any,  # noqa: ARG002
    ) -> ScoresDict:
        """Search, rank the relevant documents, and score the ranks."""
        # The models and torch, which those who only list tasks do without.
        from posir_tasks.search.subset import search_subset

        context = EncodingContext(self.metadata, hf_split, hf_subset, encode_kwargs, num_proc)
        request = SearchRequest(
            corpus=data["corpus"],
            queries=data["queries"],
            positives=data["evidence"].positives(),
            top_ranked=data["top_ranked"],
            top_k=self.top_k,
            context=context,
            timer=timer,
        )
        if prediction_folder:
            save = partial(self._save_results, model, prediction_folder, context)
        else:
            save = None
        searched, record = search_subset(
            model, data, request, self.scheme, first_stage_model=self.first_stage_model, save=save
        )
        scores = self.build_scorer().score(searched, timer)
        scores[RUN_KEY] |= record
        if reference := self._describe_reference(model, hf_subset):
            scores[RUN_KEY][REFERENCE_KEY] = reference
        return scores

    def _describe_reference(self, model: MTEBModels, subset: str) -> dict[str, Any]:
        """Return what a result records of the references to a model, its settings and the data."""
        from posir_tasks.models.command_reference import describe_reference

        of_model = describe_reference(model.mteb_model_meta)
        of_data = self.describe_data_reference(subset)
        variables = {**of_model.get("variables", {}), **of_data.get("variables", {})}
        return of_model | of_data | ({"variables": variables} if variables else {})

    def task_specific_scores(
        self,
        scores: Mapping[str, Mapping[str, float]],
        qrels: RelevantDocumentsType,  # noqa: ARG002
        results: Results,  # noqa: ARG002
        hf_split: str,  # noqa: ARG002
        hf_subset: str,  # noqa: ARG002
    ) -> dict[str, Any]:
        """Return the scores that plugins declare, such as PSI; a subclass may add its own to them.

        Args:
            scores: Scores of each query by the names of pytrec_eval, such as `ndcg_cut_10`: what
                the method was called with.
            qrels: Relevant document of each query.
            results: Score of each retrieved document, by query.
            hf_split: The split.
            hf_subset: The subset.

        Raises:
            PosirError: The `scores` are others than the method was called with: posir's are
                computed from what they carry.
        """
        if not isinstance(scores, QueryScores):
            raise PosirError(
                f"{self.metadata.name}: task_specific_scores needs the `scores` that it is called "
                "with, not a changed copy. "
                "In a subclass, pass them on to super() as they are."
            )
        return scores.compute_declared()

    def _save_results(
        self, model: MTEBModels, folder: Path, context: EncodingContext, results: Results
    ) -> None:
        with atomic_update(folder / self.prediction_file_name) as part:
            self.save_predictions(results, model, part, context.hf_split, context.hf_subset)

    def build_scorer(self) -> SubsetScorer:
        """Return what scores search results on subsets of the task."""

        def compute_specific(scores: QueryScores, searched: SearchedSubset) -> dict[str, Any]:
            judged = searched.data["relevant_docs"], searched.results
            return self.task_specific_scores(
                scores, *judged, hf_split=SPLIT, hf_subset=searched.name
            )

        return SubsetScorer(
            self.scheme, self.k_values, self.top_k, self.missing_subsets(), compute_specific
        )


class LayoutTask(PositionTask):
    """A task on one set of data: in the PosIR layout, with one subset per domain, or in any format.

    The name of a subset ends with the revision of the data, `letters@1f0c8a52`: mteb considers a
    result complete if it has every subset of the task, so a result for other data must have other
    subsets.
    """

    #: The reader of each subset by its name.
    readers: ClassVar[Mapping[str, Callable[[], PositionData]]]
    #: Whether the class was created for an instance in this process, and so may be replaced.
    replaceable: ClassVar[bool] = False
    #: What a command takes for the data: the path of a file or folder, or a dataset of the Hub;
    #: empty if it takes none.
    reference: ClassVar[str] = ""

    def read_subset(self, subset: str) -> PositionData:
        """Read one subset; raise DataError if it is missing or invalid."""
        return replace(self.readers[subset](), revision=self.metadata.revision)

    def describe_data_reference(self, subset: str) -> dict[str, Any]:  # noqa: ARG002
        """Return what a command takes for the data: the task's name is known in this process
        alone.
        """
        return {"data": self.reference}

    def compare_data(self, subset: str, run: Mapping[str, Any]) -> DataState:  # noqa: ARG002
        """Return how the present data of a subset relates to that of a saved result: the subset's
        name carries its revision.
        """
        return DataState.SAME if subset in self.metadata.hf_subsets else DataState.CHANGED


@cache
def read_digest(task: type[PositionTask], subset: str, revision: str) -> dict[str, str] | None:  # noqa: ARG001
    """Return the digests of the content of a subset in its present revision; None if it cannot be
    read.
    """
    try:
        data = task().read_subset(subset)
    except PosirError:
        return None
    return digest_data(data)


def build_task(
    name: str,
    *,
    location: str,
    revision: str,
    languages: Mapping[str, Sequence[str]],
    readers: Sequence[Callable[[], PositionData]],
    scheme: PositionScheme = POSIR_SCHEME,
    reference: str = "",
    **fields: Any,
) -> type[LayoutTask]:
    """Create the class of a task on one set of data, from the language codes and the reader of each
    subset.

    `reference` is what a command takes for the data, a path absolute; empty if it takes none.
    """
    codes = {name_version(subset, revision): spoken for subset, spoken in languages.items()}
    metadata = build_metadata(name, dataset=location, revision=revision, languages=codes, **fields)
    attributes: dict[str, Any] = {"metadata": metadata, "scheme": scheme, "reference": reference}
    attributes["readers"] = dict(zip(codes, readers, strict=True))
    return type(
        name, (LayoutTask,), {"__doc__": metadata.description, "__module__": __name__, **attributes}
    )


def _build_layout_task(
    repository: Repository, *, name: str, language: str, **fields: Any
) -> type[LayoutTask]:
    domains = require_domains(repository, language)
    if isinstance(repository, HubRepository):
        location = reference = repository.repo_id
    else:
        location = repository.location
        reference = str(repository.root.absolute())
    return build_task(
        name,
        location=location,
        reference=reference,
        revision=repository.revision(
            list_present_files(
                repository, [SubsetKey(language, language, domain) for domain in domains]
            )
        ),
        languages={domain: [language] for domain in domains},
        readers=[
            partial(read_domain, repository, language, language, domain) for domain in domains
        ],
        **fields,
    )


def build_folder_task(
    folder: str | Path, *, name: str, language: str, **options: Any
) -> type[LayoutTask]:
    """Create the class of a task on a folder in the PosIR layout; arguments and errors as in
    `PositionTask.from_folder`.
    """
    return _build_layout_task(
        open_folder(Path(folder), language), name=name, language=language, **options
    )


def restore_instance(
    name: str, bases: tuple[type, ...], attributes: dict[str, Any]
) -> PositionTask:
    """Return an empty instance of a task class, for pickle; mteb then finds the task by its name in
    this process, too.
    """
    registry = TASKS_REGISTRY.resolve()
    metadata = attributes["metadata"]
    if metadata.name not in registry or registry[metadata.name].metadata != metadata:
        registry[metadata.name] = type(name, bases, attributes)
    task: type[PositionTask] = registry[metadata.name]
    return task.__new__(task)


def register_task(task: type[LayoutTask]) -> LayoutTask:
    """Let mteb find a task by its name in this process; return an instance. Raise PosirError if the
    name is taken.
    """
    registry = TASKS_REGISTRY.resolve()
    name = task.metadata.name
    known = registry.get(name)
    if known is not None and not getattr(known, "replaceable", False):
        raise PosirError(
            f"task name '{name}': taken by a task of {known.__module__}; choose another."
        )
    task.replaceable = True
    registry[name] = task
    return task()
