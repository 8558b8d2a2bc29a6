"""Evaluation of runs: saved as `mteb run` saves the results of a model, and read as every other command reads them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from posir_score.alignment import AlignedRun, AlignmentRules, RunCounts, align_run
from posir_score.judged_scores import score_rankings
from posir_score.judged_task import ScoredData
from posir_score.run_files import Run
from posir_score.run_search import RunSearch
from posir_tasks.display.progress import track
from posir_tasks.errors import PosirError
from posir_tasks.files import check_writable
from posir_tasks.results import SubsetResult, read_results

#: mteb's names of the scores that are shown.
SHOWN_SCORES = ("ndcg_at_10", "mrr_at_10", "recall_at_100")


@dataclass(frozen=True)
class RunScores:
    """The scores of a run on all judged queries of a task, each query counting the same."""

    model: str
    """Name under which the result is filed, such as `run/bm25`."""
    revision: str
    """Digest of the rankings."""
    task: str
    counts: RunCounts
    ndcg_at_10: float
    """Normalized discounted cumulative gain of the first ten documents, in [0, 1]."""
    mrr_at_10: float
    """Mean reciprocal rank of the first relevant document among the first ten, in [0, 1]."""
    recall_at_100: float
    """Share of the relevant documents among the first 100, in [0, 1]."""
    folder: Path
    """The folder of the result file."""

    def to_json(self) -> dict[str, Any]:
        """Return the scores and the counts by name."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in ("counts", "folder")}
        return values | self.counts.to_json()

    def read_positions(self) -> list[SubsetResult]:
        """Return the results by position, none if no query has a position."""
        if not self.counts.with_position:
            return []
        return [result for result in read_results(self.folder) if result.task == self.task]


def prepare_run(run: Run, data: ScoredData, rules: AlignmentRules, earlier: Collection[RunSearch]) -> RunSearch:
    """Align a run with the data; raise PosirError if it does not fit, or an earlier run has its name or its rankings."""
    if not any(subset.judgments.grades for subset in data.subsets):
        raise PosirError(f"{data.task.metadata.name}: has no judged queries.")
    model = RunSearch(run.name, align_run(run, data.subsets, rules))
    for other in earlier:
        name = other.mteb_model_meta.name
        if model.mteb_model_meta.name == name:
            raise PosirError(
                f"several runs have the name {name}. Give each a name of its own with --name, in the order of the runs."
            )
        if model.mteb_model_meta.revision == other.mteb_model_meta.revision:
            raise PosirError(f"{model.mteb_model_meta.name} and {name} have the same rankings. Leave one of them out.")
    return model


def evaluate_run(model: RunSearch, data: ScoredData, output: Path) -> RunScores:
    """Score a run and save its result; the same run on the same data is not scored again.

    Raises:
        PosirError: The folder cannot be written to.
    """
    import mteb
    from mteb.cache import ResultCache

    check_writable(output)
    with track(f"Scoring {model.mteb_model_meta.name}"):
        cache = ResultCache(output)
        mteb.evaluate(
            model, data.task, cache=cache, overwrite_strategy="only-missing", show_progress_bar=False, co2_tracker=False
        )
    folder = cache.get_task_result_path(data.task.metadata.name, model.mteb_model_meta).parent
    return RunScores(
        model=str(model.mteb_model_meta.name),
        revision=str(model.mteb_model_meta.revision),
        task=data.task.metadata.name,
        counts=model.run.total,
        folder=folder,
        **compute_scores(model.run, data, data.task.k_values),
    )


def compute_scores(run: AlignedRun, data: ScoredData, k_values: tuple[int, ...]) -> Mapping[str, float]:
    """Return the shown scores of all judged queries."""
    total = run.total.queries
    scored = [
        (score_rankings(run.rankings[subset.name], subset.judgments.grades, k_values), len(subset.judgments.grades))
        for subset in data.subsets
        if subset.judgments.grades
    ]
    return {name: sum(scores[name] * queries for scores, queries in scored) / total for name in SHOWN_SCORES}
