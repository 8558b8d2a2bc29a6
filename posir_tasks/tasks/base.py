"""Base class for position-aware retrieval tasks, and tasks on data in the PosIR layout."""

from __future__ import annotations

import logging
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from mteb.timing import TimingStack

from posir_tasks.base.errors import DataError, PosirError, hide_tracebacks
from posir_tasks.base.files import update_atomically
from posir_tasks.base.private_names import TASKS_REGISTRY
from posir_tasks.base.records import Fields, Record
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
    get_data_folder,
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
    """The tasks of a benchmark. Tasks without data are skipped with a single warning."""

    name: str
    tasks: Sequence[PositionTask]
    has_warned: bool = False

    def check_data(self) -> None:
        """Warn once about tasks without data. Raise DataError if no task has data."""
        missing = [task.metadata.name for task in self.tasks if not task.has_data()]
        total = len(self.tasks)
        names = ", ".join(missing)
        if len(missing) == total:
            raise DataError(
                f"benchmark {self.name}: none of its tasks ({names}) has data. Check "
                f"{DATA_VARIABLE}, or unset it to read from the Hub."
            )
        if missing and not self.has_warned:
            self.has_warned = True
            logger.warning(
                "benchmark %s: %d of %d tasks are evaluated; no data for %s",
                self.name,
                total - len(missing),
                total,
                names,
            )


class PositionTask(RetrievalTask):
    """Retrieval task with one or more evidence spans per query, in one or more documents.

    A subclass defines `metadata`, `scheme` and `read_subset`.
    """

    scheme: ClassVar[PositionScheme]
    k_values = K_VALUES
    dataset: Fields  # type: ignore[assignment]
    #: The benchmark of this instance, which skips tasks without data. Outside a benchmark, missing
    #: data is an error.
    benchmark: BenchmarkTasks | None = None

    @staticmethod
    def from_folder(
        folder: str | Path, *, name: str, language: str, **options: Any
    ) -> PositionTask:
        """Create a task from a local folder, and register it with mteb in this process.

        Args:
            folder: A folder in the PosIR layout, `<language>/<domain>/`, or its subfolder for a
                language or domain.
            name: Name of the task in results.
            language: Language code of the data, such as `eng-Latn`.
            options: `scheme`, which assigns evidence to position bins (by default, PosIR's), and
                fields of mteb's `TaskMetadata`.

        Raises:
            PosirError: The folder has no data in the language, the name is taken or invalid, or an
                option is invalid.
        """
        hide_tracebacks()
        return register_task(build_folder_task(folder, name=name, language=language, **options))

    @staticmethod
    def from_hub(
        repo_id: str, *, name: str, language: str, revision: str = "main", **options: Any
    ) -> PositionTask:
        """Create a task from a dataset on the Hub in the PosIR layout, like `from_folder`.

        Args:
            repo_id: The dataset, `owner/name`. If `POSIR_DATA` is set, its subfolder of this name
                is read instead.
            name: Name of the task in results.
            language: Language code of the data, such as `eng-Latn`.
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
        """Pickle an instance, with the attributes of a class that was created at run time."""
        task = type(self)
        if getattr(sys.modules[task.__module__], task.__name__, None) is task:
            return super().__reduce_ex__(protocol)
        attributes = {
            name: value
            for name, value in vars(task).items()
            if not name.startswith("_") or name in ("__doc__", "__module__")
        }
        return restore_instance, (task.__name__, task.__bases__, attributes), vars(self)

    def _set_revision(self, revision: str, **fields: Any) -> None:
        """Set the data's revision, and other fields, in the instance's metadata."""
        dataset = {**self.metadata.dataset, "revision": revision}
        self.metadata = self.metadata.model_copy(update={"dataset": dataset, **fields})

    @abstractmethod
    def read_subset(self, subset: str) -> PositionData:
        """Read a subset. Raise DataError if it cannot be read."""

    def has_data(self) -> bool:
        """Return True if the data contains a subset of the task.

        Raises:
            DataError: The data cannot be reached.
        """
        return True

    def explain_missing_data(self) -> str:
        """Return the error message for a task without data."""
        return f"{self.metadata.name}: no data, so there is nothing to evaluate."

    def list_missing_subsets(self) -> list[str]:
        """List the subsets of the complete task that this instance does not have."""
        return []

    def locate_subset(self, subset: str) -> tuple[Repository, Sequence[str]] | None:  # noqa: ARG002
        """Return a subset's repository and file paths, or None if it is part of a package."""
        return None

    def describe_data_reference(self, subset: str) -> Record:
        """Return the entries of a run record with which later commands find the subset's data."""
        location = self.locate_subset(subset)
        if location is None or not isinstance(location[0], LocalRepository):
            return {}
        folder = get_data_folder()
        return {"variables": {DATA_VARIABLE: str(folder.absolute())}} if folder else {}

    def compare_data(self, subset: str, run: Fields) -> DataState:
        """Compare a subset's current data with the data of a saved result.

        Revisions on the Hub are not compared here, since mteb compares them. If the revisions of
        local data differ, the contents of the subset are compared.

        Args:
            subset: Name of the subset.
            run: The run record of the result.
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
        current = repository.resolve_revision(paths)
        is_same = revision == current or (
            DIGEST_KEY in run and run[DIGEST_KEY] == read_digest(type(self), subset, current)
        )
        return DataState.SAME if is_same else DataState.CHANGED

    def load_data(
        self,
        num_proc: int | None = None,  # noqa: ARG002
        *,
        timer: TimingStack | None = None,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """Prepare the subsets, which are read when they are evaluated.

        Raises:
            DataError: There is no data, and the task is not part of a benchmark; or a split does
                not exist.
        """
        hide_tracebacks()  # `mteb run` does not catch exceptions
        if not self.data_loaded:
            splits = sorted({*self.eval_splits} - {*self.metadata.eval_splits})
            if splits:
                raise DataError(
                    f"{self.metadata.name}: no split {', '.join(splits)}; position-aware tasks "
                    f"only have '{SPLIT}'."
                )
            self.prepare_subsets()
            if self.benchmark is not None:
                self.benchmark.check_data()
            if not self.has_data():
                if self.benchmark is None:
                    raise DataError(self.explain_missing_data())
                # mteb holds a reference to this list and evaluates the subsets in it.
                self.hf_subsets.clear()
            self.dataset = LazySubsets(self.hf_subsets, self._read_with_warning)
            self.data_loaded = True

    def prepare_subsets(self) -> None:
        """Set the data's revision and select subsets. It is called once, before any subset is read.

        Raises:
            DataError: The data cannot be reached, or lacks a selected subset.
        """

    def calculate_descriptive_statistics(
        self, overwrite_results: bool = False, num_proc: int | None = None
    ) -> dict[str, DescriptiveStatistics]:
        """Return mteb's statistics for the texts, computing them only once.

        Args:
            overwrite_results: If true, compute the statistics again.
            num_proc: Number of processes that mteb may use.

        Raises:
            DataError: The data cannot be read, or a subset is missing.
        """
        hide_tracebacks()
        if overwrite_results or self.metadata.descriptive_stats is None:
            # The revision of local data is only known after loading.
            self.load_data(num_proc)
            if absent := [
                subset for subset in self.metadata.hf_subsets if subset not in self.dataset
            ]:
                raise DataError(
                    f"{self.metadata.name}: statistics need all subsets; this task lacks "
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
        # Importing the module loads torch, which listing tasks does not need.
        from posir_tasks.search.subset import search_subset

        context = EncodingContext(self.metadata, hf_split, hf_subset, encode_kwargs, num_proc)
        request = SearchRequest(
            corpus=data["corpus"],
            queries=data["queries"],
            positives=data["evidence"].map_positives(),
            top_ranked=data["top_ranked"],
            top_k=self.top_k,
            context=context,
            timer=timer,
        )
        if prediction_folder:
            save = partial(self._save_results, model, prediction_folder, context)
        else:
            save = None
        subset, record = search_subset(
            model, data, request, self.scheme, first_stage_model=self.first_stage_model, save=save
        )
        scores = self.build_scorer().score(subset, timer)
        scores[RUN_KEY] |= record
        if reference := self._describe_reference(model, hf_subset):
            scores[RUN_KEY][REFERENCE_KEY] = reference
        return scores

    def _describe_reference(self, model: MTEBModels, subset: str) -> Record:
        """Return the references to model, settings and data for a result."""
        from posir_tasks.models.command_reference import describe_reference

        reference = describe_reference(model.mteb_model_meta)
        data_reference = self.describe_data_reference(subset)
        variables = reference.get("variables", {}) | data_reference.get("variables", {})
        reference |= data_reference
        return reference | ({"variables": variables} if variables else {})

    def task_specific_scores(
        self,
        scores: Mapping[str, Mapping[str, float]],
        qrels: RelevantDocumentsType,  # noqa: ARG002
        results: Results,  # noqa: ARG002
        hf_split: str,  # noqa: ARG002
        hf_subset: str,  # noqa: ARG002
    ) -> Record:
        """Return the scores that plugins declare, such as PSI. Subclasses may add scores.

        Args:
            scores: Query scores by pytrec_eval's names, such as `ndcg_cut_10`. A subclass must pass
                this object to `super()` unchanged.
            qrels: Relevant documents by query.
            results: Scores of retrieved documents by query.
            hf_split: The split.
            hf_subset: The subset.

        Raises:
            PosirError: `scores` is a copy, without the data for posir's scores.
        """
        if not isinstance(scores, QueryScores):
            raise PosirError(
                f"{self.metadata.name}: task_specific_scores needs the original `scores`, not a "
                "copy. In a subclass, pass them to super() unchanged."
            )
        return scores.compute_plugin_scores()

    def _save_results(
        self, model: MTEBModels, folder: Path, context: EncodingContext, results: Results
    ) -> None:
        with update_atomically(folder / self.prediction_file_name) as part:
            self.save_predictions(results, model, part, context.hf_split, context.hf_subset)

    def build_scorer(self) -> SubsetScorer:
        """Build a scorer for the search results of the task's subsets."""

        def compute_task_scores(scores: QueryScores, subset: SearchedSubset) -> Record:
            qrels = subset.data["relevant_docs"]
            return self.task_specific_scores(
                scores, qrels, subset.results, hf_split=SPLIT, hf_subset=subset.name
            )

        return SubsetScorer(
            self.scheme, self.k_values, self.top_k, self.list_missing_subsets(), compute_task_scores
        )


class RepositoryTask(PositionTask):
    """A task on one repository in the PosIR layout. Each subset is a domain."""

    scheme = POSIR_SCHEME

    @abstractmethod
    def find_repository(self) -> Repository:
        """Return the repository that contains all subsets."""

    @abstractmethod
    def find_key(self, subset: str) -> SubsetKey:
        """Return the languages and the domain of a subset."""

    def locate_subset(self, subset: str) -> tuple[Repository, list[str]]:
        """Return the repository and the files of a subset."""
        repository = self.find_repository()
        return repository, list_present_files(repository, [self.find_key(subset)])

    def read_subset(self, subset: str, repository: Repository | None = None) -> PositionData:
        """Read a subset. Raise DataError if it is missing or invalid."""
        key = self.find_key(subset)
        repository = repository or self.find_repository()
        return read_domain(repository, key.language, key.corpus_language, key.domain)

    def find_revision(self, repository: Repository, subsets: Iterable[str]) -> str:
        """Return the revision of the files of some subsets."""
        return repository.resolve_revision(
            list_present_files(repository, map(self.find_key, subsets))
        )


class LayoutTask(PositionTask):
    """A task on any dataset in the PosIR layout. Each subset is a domain.

    Subset names end with the data's revision (`letters@1f0c8a52`), since mteb considers a result
    complete if it contains the names of all subsets.
    """

    #: Readers by subset name.
    readers: ClassVar[Mapping[str, Callable[[], PositionData]]]
    #: If true, the class was created in this process and may be replaced.
    replaceable: ClassVar[bool] = False
    #: Command-line argument for the data, a path or a dataset on the Hub; empty if commands cannot
    #: open the data.
    reference: ClassVar[str] = ""

    def read_subset(self, subset: str) -> PositionData:
        """Read a subset. Raise DataError if it is missing or invalid."""
        return replace(self.readers[subset](), revision=self.metadata.revision)

    def describe_data_reference(self, subset: str) -> Record:  # noqa: ARG002
        """Return the command-line argument for the data, since commands do not know the task."""
        return {"data": self.reference}

    def compare_data(self, subset: str, run: Fields) -> DataState:  # noqa: ARG002
        """Compare the revisions in the subset names of the current data and a saved result."""
        return DataState.SAME if subset in self.metadata.hf_subsets else DataState.CHANGED


@cache
def read_digest(task: type[PositionTask], subset: str, revision: str) -> dict[str, str] | None:  # noqa: ARG001
    """Return the content digests of a subset's current data, or None if it cannot be read."""
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
    """Create a task class from the language codes and the reader of each subset.

    `reference` is the command-line argument for the data. It must not be a relative path.
    """
    codes = {name_version(subset, revision): names for subset, names in languages.items()}
    metadata = build_metadata(name, dataset=location, revision=revision, languages=codes, **fields)
    attributes: Record = {"metadata": metadata, "scheme": scheme, "reference": reference}
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
        revision=repository.resolve_revision(
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
    """Create a task class for a folder in the PosIR layout. Arguments and errors are those of
    `PositionTask.from_folder`.
    """
    return _build_layout_task(
        open_folder(Path(folder), language), name=name, language=language, **options
    )


def restore_instance(name: str, bases: tuple[type, ...], attributes: Record) -> PositionTask:
    """Register a task class with mteb, and create an instance that pickle fills."""
    registry = TASKS_REGISTRY.resolve()
    metadata = attributes["metadata"]
    if metadata.name not in registry or registry[metadata.name].metadata != metadata:
        registry[metadata.name] = type(name, bases, attributes)
    task: type[PositionTask] = registry[metadata.name]
    return task.__new__(task)


def register_task(task: type[LayoutTask]) -> LayoutTask:
    """Register a task class with mteb in this process and create an instance.

    Raises:
        PosirError: The name is taken.
    """
    registry = TASKS_REGISTRY.resolve()
    name = task.metadata.name
    registered = registry.get(name)
    if registered is not None and not getattr(registered, "replaceable", False):
        raise PosirError(
            f"task name '{name}': taken by a task of {registered.__module__}. Choose another name."
        )
    task.replaceable = True
    registry[name] = task
    return task()
