"""A retrieval task whose result says at which position in a document the model finds the evidence."""

from __future__ import annotations

import logging
import re
from abc import abstractmethod
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.timing import TimingStack

from posir_tasks.embeddings.cached_encoder import with_cache
from posir_tasks.errors import PosirError, hide_tracebacks
from posir_tasks.evidence import Evidence
from posir_tasks.files import atomic_update
from posir_tasks.plugin_api.manager import plugin_scores
from posir_tasks.profile import PositionProfile
from posir_tasks.query_ranks import save_ranks
from posir_tasks.ranks import RankedQueries, rank_results, retrieval_scores
from posir_tasks.results import COVERAGE_KEY, PROFILE_KEY, RUN_KEY, SCORED_KEY, rounded
from posir_tasks.schemes import PositionScheme, RelativePositions
from posir_tasks.search.dispatch import SearchRequest, find_window, is_reranker, search_ranks, search_results
from posir_tasks.search.first_stage import load_first_stage
from posir_tasks.sources.data import PositionData
from posir_tasks.sources.folder import open_folder, require_domains
from posir_tasks.sources.posir import read_domain
from posir_tasks.sources.repository import LOCAL, HubRepository, LocalRepository, Repository, open_repository
from posir_tasks.tasks.dataset import LazySubsets, SplitData
from posir_tasks.tasks.metadata import build_metadata
from posir_tasks.window_coverage import WindowCoverage

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels
    from mteb.types import EncodeKwargs, ScoresDict

logger = logging.getLogger(__name__)

#: 20 positions by four lengths, as in the PosIR paper.
POSIR_SCHEME = RelativePositions()
#: How many hexadecimal digits of the revision a subset's name carries.
REVISION_DIGITS = 8
REPOSITORY_NAME = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


class PositionTask(AbsTaskRetrieval):
    """Retrieval with one relevant document a query, and the place of the evidence in it.

    A subclass gives `metadata`, a `scheme`, and `read_subset`.
    """

    scheme: ClassVar[PositionScheme]
    # The PosQ scripts keep 100 documents a query; mteb's 1,000 would take ten times the memory for no score of ours.
    k_values = (1, 3, 5, 10, 20, 100)
    dataset: Mapping[str, Any]  # type: ignore[assignment]

    @staticmethod
    def from_folder(folder: str | Path, *, name: str, language: str, **options: Any) -> PositionTask:
        """Make a task of a folder of one's own, for `mteb.evaluate`; mteb then knows it by its name in this process.

        Args:
            folder: In the PosIR layout, `<language>/<domain>/`; or a language's folder in it, or a domain's.
            name: Of the task, as results have it.
            language: Code of the data's language, such as `eng-Latn`.
            options: `scheme`, how evidence becomes a position (by default PosIR's), and fields of mteb's `TaskMetadata`.

        Raises:
            PosirError: The folder has no data of the language, the name is taken or not allowed, or an option is wrong.
        """
        hide_tracebacks()
        return register_task(build_folder_task(folder, name=name, language=language, **options))

    @staticmethod
    def from_hub(repo_id: str, *, name: str, language: str, revision: str = "main", **options: Any) -> PositionTask:
        """Make a task of a dataset repository on the Hub in the PosIR layout, as `from_folder` does of a folder.

        Args:
            repo_id: Of the dataset, `owner/name`; where `POSIR_DATA` is set, its folder below that is read instead.
            name: Of the task, as results have it.
            language: Code of the data's language, such as `eng-Latn`.
            revision: Branch, tag or commit.
            options: As in `from_folder`.

        Raises:
            PosirError: As `from_folder`, or the repository cannot be reached.
        """
        hide_tracebacks()
        return register_task(build_hub_task(repo_id, name=name, language=language, revision=revision, **options))

    @abstractmethod
    def read_subset(self, subset: str) -> PositionData:
        """Read one subset.

        Raises:
            DataError: It cannot be read.
        """

    def missing_subsets(self) -> list[str]:
        """Return the subsets of the whole task that this instance's data lacks."""
        return []

    def load_data(self, num_proc: int | None = None, *, timer: TimingStack | None = None, **kwargs: Any) -> None:  # noqa: ARG002
        """Make the subsets available; each is read when it is evaluated."""
        # `mteb run` lets exceptions through to Python.
        hide_tracebacks()
        if not self.data_loaded:
            self.dataset = LazySubsets(self.hf_subsets, self._read_and_tell)
            self.data_loaded = True

    def _read_and_tell(self, subset: str) -> PositionData:
        data = self.read_subset(subset)
        if data.dropped:
            logger.warning(
                "%s, %s: the qrels name %d queries that the data lacks; they are left out",
                self.metadata.name,
                subset,
                data.dropped,
            )
        return data

    def _evaluate_subset(  # type: ignore[override]
        self,
        model: MTEBModels,
        data_split: SplitData,
        *,
        encode_kwargs: EncodeKwargs,
        hf_split: str,
        hf_subset: str,
        prediction_folder: Path | None = None,
        num_proc: int | None = None,
        timer: TimingStack,
        **kwargs: Any,  # noqa: ARG002
    ) -> ScoresDict:
        """Search, rank, count, score: one subset's way from a model to a result."""
        where = {"hf_split": hf_split, "hf_subset": hf_subset}
        stage = None
        if is_reranker(model) and data_split["top_ranked"] is None:
            stage = load_first_stage(
                data_split["corpus"], data_split["queries"], task_metadata=self.metadata, top_k=self._top_k, **where
            )
        request = SearchRequest(
            corpus=data_split["corpus"],
            queries=data_split["queries"],
            positives=data_split["evidence"].positives(),
            top_ranked=stage.top_ranked if stage else data_split["top_ranked"],
            top_k=self._top_k,
            task_metadata=self.metadata,
            encode_kwargs=encode_kwargs,
            num_proc=num_proc,
            timer=timer,
            **where,
        )
        if prediction_folder:
            ranked = self._search_and_keep(with_cache(model), request, data_split["evidence"], prediction_folder)
        else:
            ranked = search_ranks(with_cache(model), request)
        first_stage = stage.model_meta if stage else self._previous_results_model_meta
        with timer("Scoring", split=hf_split, subset=hf_subset):
            scores = retrieval_scores(ranked, self.k_values)
            if first_stage:
                scores["previous_results_model_meta"] = first_stage
        with timer("Scoring positions", split=hf_split, subset=hf_subset):
            return scores | self._position_scores(ranked, data_split, find_window(model), taken=scores.keys())

    def _search_and_keep(
        self, model: MTEBModels, request: SearchRequest, evidence: Evidence, prediction_folder: Path
    ) -> RankedQueries:
        """Search, and keep mteb's predictions and the ranks of the relevant documents in a folder."""
        results = search_results(model, request)
        with atomic_update(prediction_folder / self.prediction_file_name) as beside:
            self._save_task_predictions(results, model, beside, hf_split=request.hf_split, hf_subset=request.hf_subset)
        ranked = rank_results(results, request.positives)
        name, revision = str(model.mteb_model_meta.name), str(model.mteb_model_meta.revision)
        task, subset = self.metadata.name, request.hf_subset
        save_ranks(prediction_folder, name, revision, task, subset, self.scheme, evidence, ranked.ranks)
        return ranked

    def _position_scores(
        self, ranked: RankedQueries, data_split: SplitData, window: int | None, taken: Collection[str]
    ) -> dict[str, Any]:
        evidence = data_split["evidence"]
        profile = PositionProfile.from_ranks(self.scheme, evidence, ranked.ranks)
        reach = WindowCoverage.from_ranks(window, self.scheme, evidence, ranked.ranks) if window else None
        kept = {PROFILE_KEY, COVERAGE_KEY, RUN_KEY, "main_score", "hf_subset", "languages", "mteb_version"}
        given: dict[str, Any] = rounded(plugin_scores(profile, reach, taken={*taken, *kept}))
        run = {
            "data_revision": data_split["revision"],
            "queries_dropped": data_split["dropped"],
            "missing_subsets": self.missing_subsets(),
            "top_k": self._top_k,
            SCORED_KEY: sorted(given),
        }
        return {
            PROFILE_KEY: profile.to_json(),
            COVERAGE_KEY: reach.to_json() if reach else {"window": None},
            RUN_KEY: run,
            **given,
        }


class LayoutTask(PositionTask):
    """A task on data in the PosIR layout, with one subset per domain.

    The name of a subset ends with the revision of the data, `letters@1f0c8a52`: mteb considers a result complete if it has
    every subset of the task, so a result for other data must have other subsets.
    """

    repository: ClassVar[Repository]
    language: ClassVar[str]
    #: Whether `from_folder` or `from_hub` created the class in this process, and so may replace it.
    replaceable: ClassVar[bool] = False

    def read_subset(self, subset: str) -> PositionData:
        """Read one domain.

        Raises:
            DataError: It is missing or invalid.
        """
        return read_domain(self.repository, self.language, self.language, subset.rpartition("@")[0])


def build_layout_task(
    repository: Repository, *, name: str, language: str, scheme: PositionScheme = POSIR_SCHEME, **fields: Any
) -> type[LayoutTask]:
    """Create the class of a task on data in the PosIR layout.

    Args:
        repository: Where the data is.
        name: Name of the task.
        language: Code of the data's language, such as `eng-Latn`.
        scheme: How evidence becomes a position; by default PosIR's 20 bins and four lengths.
        fields: Further fields of mteb's `TaskMetadata`.

    Raises:
        PosirError: The name, the language or a field is not allowed.
        DataError: The repository has no data in the language, or cannot be reached.
    """
    domains = require_domains(repository, language)
    suffix = repository.revision.removeprefix(f"{LOCAL}-")[:REVISION_DIGITS]
    metadata = build_metadata(
        name,
        dataset=repository.repo_id if isinstance(repository, HubRepository) else repository.location,
        revision=repository.revision,
        languages={f"{domain}@{suffix}": [language] for domain in domains},
        **fields,
    )
    attributes = {"metadata": metadata, "scheme": scheme, "repository": repository, "language": language}
    return type(name, (LayoutTask,), {"__doc__": metadata.description, "__module__": __name__, **attributes})


def build_folder_task(folder: str | Path, *, name: str, language: str, **options: Any) -> type[LayoutTask]:
    """Create the class of a task on a folder in the PosIR layout; arguments and errors as in `PositionTask.from_folder`."""
    return build_layout_task(open_folder(Path(folder), language), name=name, language=language, **options)


def build_hub_task(repo_id: str, *, name: str, language: str, revision: str, **options: Any) -> type[LayoutTask]:
    """Create the class of a task on a Hub repository in the PosIR layout; arguments and errors as in `from_hub`."""
    if not REPOSITORY_NAME.fullmatch(repo_id):
        raise PosirError(f"repository '{repo_id}': not allowed; expected owner/name, as on the Hub.")
    repository = open_repository(repo_id, revision)
    if isinstance(repository, LocalRepository):
        repository = open_folder(repository.root, language)
    return build_layout_task(repository, name=name, language=language, **options)


def register_task(task: type[LayoutTask]) -> LayoutTask:
    """Let mteb find a task by its name in this process, and return an instance.

    Raises:
        PosirError: Another task has the name.
    """
    from mteb.get_tasks import _TASKS_REGISTRY

    name = task.metadata.name
    known = _TASKS_REGISTRY.get(name)
    if known is not None and not getattr(known, "replaceable", False):
        raise PosirError(f"task name '{name}': taken by a task of {known.__module__}; choose another.")
    task.replaceable = True
    _TASKS_REGISTRY[name] = task
    return task()
