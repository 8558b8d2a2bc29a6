"""Tasks on data in which a query may have several relevant documents, grades, or no position of its evidence."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from posir_score.alignment import SubsetQueries
from posir_score.judged_scores import score_rankings
from posir_score.run_search import RunSearch
from posir_tasks.digests import digest
from posir_tasks.errors import PosirError
from posir_tasks.host.retrieval_task import SubsetRun
from posir_tasks.result_schema import REVISION_KEY, RUN_KEY, SCHEMA, SEARCH_KEY
from posir_tasks.sources.data import PositionData
from posir_tasks.sources.digests import digest_texts
from posir_tasks.sources.formats.options import ReadOptions
from posir_tasks.sources.judgments import Judgments
from posir_tasks.sources.opening import Dataset, open_data
from posir_tasks.tasks.base import PositionTask
from posir_tasks.tasks.dataset import SplitData
from posir_tasks.tasks.opened import OpenedTask, open_data_task

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

#: mteb's scores that need the confidence of a model in each query; a run states none for queries of other systems.
CONFIDENCE = "nauc_"


class JudgedTask(OpenedTask):
    """A task that scores a run on all judged queries, and its positions on those whose evidence has one position."""

    def read_subset(self, subset: str) -> PositionData:
        """Read the queries whose evidence has one position, and all documents; raise DataError if they are invalid."""
        return super().read_subset(subset).drop_unsuited()

    def evaluate_subset(self, model: MTEBModels, data: SplitData, run: SubsetRun) -> dict[str, Any]:
        """Score the ranking of all judged queries, and the positions of those that have one.

        Raises:
            PosirError: The model is no run: queries without a position are not searched.
        """
        if not isinstance(model, RunSearch):
            raise PosirError(f"{self.metadata.name}: some queries have no single position. Score a run with `posir score`.")
        judgments = self.subsets[run.hf_subset].judgments
        scores: dict[str, Any] = {RUN_KEY: {"schema": SCHEMA, REVISION_KEY: data["revision"]}}
        if len(data["evidence"]):
            scores = dict(super().evaluate_subset(model, data, run))
        scores[RUN_KEY][SEARCH_KEY] = model.run.counts[run.hf_subset].to_json()
        usual = score_rankings(model.run.rankings[run.hf_subset], judgments.grades, self.k_values)
        return {name: value for name, value in scores.items() if not name.startswith(CONFIDENCE)} | usual


@dataclass(frozen=True)
class ScoredData:
    """A task, and the queries and documents of its subsets as runs are compared with them."""

    task: PositionTask
    subsets: tuple[SubsetQueries, ...]


def open_scored_data(reference: str, options: ReadOptions) -> ScoredData:
    """Open data by any reference that `open_data` takes; positions of evidence are optional.

    Raises:
        PosirError: There is no such data, or its language is not known.
        DataError: It has no judged queries, or cannot be read.
    """
    import mteb

    opened = open_data(reference, options)
    if opened.kind == "a task":
        task = mteb.get_task(opened.name)
        assert isinstance(task, PositionTask)
        task.load_data()
        parts = {name: task.read_subset(name) for name in task.hf_subsets}
        return ScoredData(task, tuple(_as_judged(name, data, Judgments.from_positions(data)) for name, data in parts.items()))
    return _open_judged(opened)


def _open_judged(opened: Dataset) -> ScoredData:
    if all(subset.read_stated_judgments is None for subset in opened.subsets):
        opened = opened.with_questions("posir score")
    judged: OpenedTask = open_data_task(opened, JudgedTask)  # type: ignore[assignment]
    subsets = tuple(_as_judged(name, judged.read_subset(name), subset.judgments) for name, subset in judged.subsets.items())
    is_plain = all(subset.with_position == len(subset.judgments.grades) and _is_binary(subset.judgments) for subset in subsets)
    task = open_data_task(opened.with_questions("posir score")) if is_plain else judged
    task.load_data()
    return ScoredData(task, subsets)


def _is_binary(judgments: Judgments) -> bool:
    return all(list(grades.values()) == [1] for grades in judgments.grades.values())


def _as_judged(name: str, data: PositionData, judgments: Judgments) -> SubsetQueries:
    stated = json.dumps([judgments.queries, judgments.grades], sort_keys=True)
    key = digest(digest_texts(data.corpus), stated).hex()
    return SubsetQueries(name, judgments, frozenset(data.corpus["id"]), len(data.evidence), key)
