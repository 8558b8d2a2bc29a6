"""Before and after: what training changed on held-out documents, paired by question."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import mteb
import numpy as np
import pytrec_eval
from mteb.abstasks.retrieval import AbsTaskRetrieval

from posir_report.summary import TaskSummary
from posir_report.tables import not_read_notes
from posir_significance.analysis import analyze
from posir_significance.decision import Change, ChangeState, MetricChange, compare_gains, compare_groups
from posir_significance.intervals import estimate_difference, estimate_mean
from posir_significance.observations import Observations, subtract_observations
from posir_significance.sentences import describe_metric_change, label_change, metric_interval
from posir_tasks.display.numbers import (
    format_estimate,
    format_number,
    format_percent,
    format_points,
    format_psi,
    format_psi_difference,
)
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.display.wording import pluralize
from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.errors import PosirError, summarize_error
from posir_tasks.estimates import Estimate
from posir_tasks.gate import read_json
from posir_tasks.plugin_api.scoring import score_result
from posir_tasks.sources.opening import Dataset
from posir_tasks.tasks.base import PositionTask
from posir_train.evaluation import Measurement, measure, select_third
from posir_train.examples import name_articles
from posir_train.settings import Position, is_data_path, open_dataset

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

NDCG, START_TO_END, PSI, COSINE = "nDCG@10", "start to end", "PSI", "cosine of unrelated texts"
#: The fields of a `Change` by score.
METRICS = {NDCG: "ndcg_at_10", START_TO_END: "start_to_end", PSI: "psi"}
BEFORE, AFTER = "the base model", "the trained model"
#: How far the cosine of unrelated texts may rise before the report warns of a collapse.
COLLAPSE = 0.2
HEADINGS = ("Score", "Before", "After", "After - before", "Change")
BRIEF = (
    "On held-out articles. nDCG@10 and start to end (first minus last third) x 100. Intervals: 95 % for new articles; of a "
    "difference with a change, 95 % for the three together."
)
LEGEND = (
    "On held-out articles, searched in the whole corpus. 95 % intervals for new articles; differences are paired by query. "
    "nDCG@10 and start to end (first minus last third) x 100; PSI: posterior median over 20 positions. Change: better, worse, "
    "equivalent within a margin, or cannot be said; it follows from the interval of the difference, which holds for nDCG@10, "
    "start to end and PSI together with 95 %. Better is a higher nDCG@10, a start to end nearer to 0, a lower PSI. nDCG@10 of "
    "the positions has an interval and no change of its own. Cosine of unrelated texts: mean over pairs of documents of "
    "different articles; near 1, all texts are alike."
)


@dataclass(frozen=True)
class TrainingChange:
    """A score of the base model and of the trained model on the same questions."""

    score: str
    before: Estimate | None
    after: Estimate | None
    difference: Estimate | None
    """Its interval has the level of `change`, if that has the score; else 95 %."""
    change: Change | None = None
    """The change in nDCG@10, start to end and PSI on the same questions; None for other scores."""
    forgetting_check: str | None = None
    """The data of a forgetting check; None for held-out articles."""

    @property
    def title(self) -> str:
        """The score and its data."""
        return self.score if self.forgetting_check is None else f"forgetting check {self.forgetting_check}, {self.score}"

    @property
    def metric(self) -> MetricChange | None:
        """The change of this score; None if it has no state."""
        return getattr(self.change, METRICS[self.score]) if self.change else None

    @property
    def label(self) -> str:
        """The state of the change in a few words; empty if it has none."""
        return label_change(self.metric) if self.metric else ""

    def describe(self) -> str:
        """Return the change as a sentence; empty if it has no state."""
        if self.change is None or self.metric is None:
            return ""
        sentence = describe_metric_change(self.score, self.metric, self.change, BEFORE, AFTER)
        return sentence[0].upper() + sentence[1:]


@dataclass(frozen=True, eq=False)
class TrainingComparison:
    """The base model and the trained one on the same questions."""

    before: Measurement
    after: Measurement
    labels: tuple[str, str]
    """Names of the two models."""

    @property
    def changes(self) -> list[TrainingChange]:
        """All changes: nDCG@10, over all and by position, start to end, PSI and the cosine."""
        return [
            *compare_ranks(self.before.ranks, self.after.ranks),
            _compare_cosines(self.before.unrelated_cosine, self.after.unrelated_cosine),
        ]

    @property
    def truncation(self) -> list[str]:
        """Sentences on the evidence beyond each model's window, as `posir report` has them."""
        pairs = zip(self.labels, (self.before, self.after), strict=True)
        return list(not_read_notes(self.labels, [summarize_measurement(label, measured) for label, measured in pairs]))


def summarize_measurement(label: str, measured: Measurement) -> TaskSummary:
    """Return a measurement as `posir report` takes results."""
    return TaskSummary(label, "", "", ("",), (), "", measured.values, score_result(measured.values))


def _compare_cosines(before: float, after: float) -> TrainingChange:
    """Return the change without an interval; without values if there are no two articles."""
    if not np.isfinite(after - before):
        return TrainingChange(COSINE, None, None, None)
    return TrainingChange(COSINE, Estimate(before), Estimate(after), Estimate(after - before))


def compare_ranks(before: DocumentRanks, after: DocumentRanks) -> list[TrainingChange]:
    """Return the changes of nDCG@10, over all and by position, of start to end and of PSI."""
    first, other = (analyze(ranks).overall for ranks in (before, after))
    change = compare_groups(first, other, paired=True)
    return [
        build_change(NDCG, first.ndcg, other.ndcg, change),
        *_compare_thirds(before, after),
        build_change(START_TO_END, first.position.start_to_end, other.position.start_to_end, change),
        build_change(PSI, first.psi, other.psi, change),
    ]


def build_change(
    score: str, before: Estimate | None, after: Estimate | None, change: Change, forgetting_check: str | None = None
) -> TrainingChange:
    """Return the change of a score with its interval at the level of all three."""
    metric: MetricChange = getattr(change, METRICS[score])
    difference = Estimate(metric.difference.value, metric_interval(metric, change)) if metric.difference else None
    return TrainingChange(score, before, after, difference, change, forgetting_check)


def _compare_thirds(before: DocumentRanks, after: DocumentRanks) -> list[TrainingChange]:
    observed_before, observed_after = Observations.from_ranks(before), Observations.from_ranks(after)
    paired = subtract_observations(observed_before, observed_after)
    changes = []
    for position in Position:
        first, second = (
            estimate_mean(*select_third(observations, position)) for observations in (observed_before, observed_after)
        )
        difference = estimate_difference(*select_third(paired, position))
        changes.append(TrainingChange(f"{NDCG}, {position.title}", first, second, difference))
    return changes


def find_warnings(changes: Sequence[TrainingChange]) -> list[str]:
    """Return what must be known before the changes are believed."""
    collapses = [
        f"The {change.title} has risen from {format_number(change.before.value, '.2f')} to "
        f"{format_number(change.after.value, '.2f')}: the embeddings are "
        "collapsing. Embeddings that are all alike do not depend on position, which is no cure."
        for change in changes
        if change.score == COSINE and change.before and change.after and change.after.value - change.before.value > COLLAPSE
    ]
    losses = [
        f"{change.title}: worse than the base model's." for change in changes if change.score == NDCG and _is_worse(change)
    ]
    return [*collapses, *losses]


def _is_worse(change: TrainingChange) -> bool:
    return change.metric is not None and change.metric.state is ChangeState.WORSE


def describe_changes(changes: Sequence[TrainingChange]) -> Iterator[str]:
    """Yield a paragraph for the held-out articles and for each forgetting check: how nDCG@10, start to end and PSI change."""
    groups: dict[str | None, list[str]] = {}
    for change in changes:
        if change.difference and (sentence := change.describe()):
            groups.setdefault(change.forgetting_check, []).append(sentence)
    for name, sentences in groups.items():
        yield " ".join(sentences if name is None else [f"Forgetting check {name}:", *sentences])


def title_changes(changes: Sequence[TrainingChange]) -> str:
    """Return how nDCG@10 and start to end changed on held-out articles, with their states, as the title of a chart."""
    chosen = [change for change in changes if change.forgetting_check is None and change.score in (NDCG, START_TO_END)]
    clauses = [
        f"{change.score} by {format_points(change.difference.value)} ({change.label})" for change in chosen if change.difference
    ]
    return f"Training changes {' and '.join(clauses)}" if clauses else "nDCG@10 by position before and after training"


def build_table(changes: Sequence[TrainingChange], title: str, notes: Sequence[str]) -> Table:
    """Return the table of a report."""
    rows = tuple((change.title, *_format(change), change.label) for change in changes)
    return Table(build_columns(HEADINGS), rows, title, tuple(notes))


def _format(change: TrainingChange) -> Iterator[str]:
    indexed = change.score in (PSI, COSINE)
    score, difference = (format_psi, format_psi_difference) if indexed else (format_percent, format_points)
    own = format_points if change.score == START_TO_END else score
    yield format_estimate(change.before, own)
    yield format_estimate(change.after, own)
    yield format_estimate(change.difference, difference)


def to_records(changes: Sequence[TrainingChange]) -> list[dict[str, Any]]:
    """Return changes as rows of JSON and CSV, with the names and values of a `Change`."""
    return [
        {
            "score": change.score,
            "forgetting_check": change.forgetting_check,
            "before": change.before,
            "after": change.after,
            "difference": change.difference,
            "state": change.metric and change.metric.state.value,
            "reason": change.metric and change.metric.reason and change.metric.reason.value,
            "margin": change.metric and change.metric.margin,
            "documents_needed": change.metric and change.metric.documents_needed,
        }
        for change in changes
    ]


MEASURE = "ndcg_cut_10"


@dataclass(frozen=True)
class ForgettingResult:
    """The changes by training on the data of a forgetting check."""

    changes: tuple[TrainingChange, ...]
    notes: tuple[str, ...]
    """The data first, then what the models truncate."""


class ForgettingCheck(Protocol):
    """Data of a forgetting check."""

    def compare(self, before: SentenceTransformer, after: SentenceTransformer, trained: TrainedOn) -> ForgettingResult:
        """Return the changes from one model to another."""


@dataclass(frozen=True)
class TrainedOn:
    """Facts about the training for the notes of a forgetting check."""

    articles: AbstractSet[str]
    """Articles that were trained on."""
    labels: tuple[str, str]
    """Names of the base model and of the trained one."""


def open_forgetting_check(name: str) -> ForgettingCheck:
    """Return the data of a forgetting check.

    Args:
        name: What `open_data` takes, or a retrieval task of mteb.

    Raises:
        PosirError: There is no such data.
        DataError: It is invalid.
    """
    if is_data_path(name):
        return PositionForgettingCheck(open_dataset(name))
    task = find_retrieval_task(name)
    return PositionForgettingCheck(open_dataset(name)) if isinstance(task, PositionTask) else TaskForgettingCheck(task)


def find_retrieval_task(name: str) -> AbsTaskRetrieval:
    """Return a retrieval task by name; raise PosirError if there is none."""
    try:
        task = mteb.get_task(name)
    except Exception as error:  # mteb raises several types for a name that it does not know
        raise PosirError(
            f"--guard {name}: no file or folder, and mteb has no such task ({summarize_error(error)}). "
            "`posir tasks` lists some."
        ) from error
    if not isinstance(task, AbsTaskRetrieval):
        raise PosirError(f"--guard {name}: not a retrieval task. Choose one, such as SciFact.")
    return task


@dataclass(frozen=True)
class PositionForgettingCheck:
    """Questions with positions of their evidence: all scores that held-out questions have, in the whole corpus."""

    dataset: Dataset

    def compare(self, before: SentenceTransformer, after: SentenceTransformer, trained: TrainedOn) -> ForgettingResult:
        """Return the changes of all scores, paired by query; intervals are for new articles.

        Raises:
            DataError: The data is missing or invalid.
        """
        name = self.dataset.name
        comparison = TrainingComparison(measure(before, self.dataset), measure(after, self.dataset), trained.labels)
        changes = tuple(replace(change, forgetting_check=name) for change in comparison.changes)
        return ForgettingResult(
            changes, (self._describe(trained), *(f"Forgetting check {name}: {note}" for note in comparison.truncation))
        )

    def _describe(self, trained: TrainedOn) -> str:
        """Return the number of questions and articles, and how many of them were trained on."""
        named = [name_articles(subset, subset.read().evidence) for subset in self.dataset.subsets]
        articles = {name for names in named for name in names}
        counts = pluralize(sum(map(len, named)), "question"), pluralize(len(articles), "article")
        common = len(trained.articles & articles)
        warning = f" {common} of these were trained on." if common else ""
        return f"Forgetting check {self.dataset.name}: {counts[0]} about {counts[1]}.{warning}"


@dataclass(frozen=True)
class TaskForgettingCheck:
    """A retrieval task of mteb: nDCG@10."""

    task: AbsTaskRetrieval

    def compare(self, before: SentenceTransformer, after: SentenceTransformer, trained: TrainedOn) -> ForgettingResult:  # noqa: ARG002
        """Return the change of nDCG@10, paired by query; queries count as independent.

        Raises:
            PosirError: The task's data cannot be read.
        """
        name = self.task.metadata.name
        change = compare_queries(name, *(self._measure_queries(model) for model in (before, after)))
        return ForgettingResult((change,), (f"Forgetting check {name}: a task of mteb, whose queries count as independent.",))

    def _measure_queries(self, model: SentenceTransformer) -> dict[str, float]:
        """Return nDCG@10 of each query, by subset, split and id."""
        # mteb warns of its own use of older names in sentence-transformers.
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore", category=FutureWarning):
            mteb.evaluate(model, self.task, cache=None, prediction_folder=folder, show_progress_bar=False, co2_tracker=False)
            (file,) = Path(folder).rglob("*.json")
            predictions = read_json(file)
        self.task.load_data()
        return dict(_score(self.task, predictions))


def _score(task: AbsTaskRetrieval, predictions: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for subset in task.hf_subsets:
        for split, results in predictions[subset].items():
            relevant = task.dataset[subset][split]["relevant_docs"]
            measures = pytrec_eval.RelevanceEvaluator(relevant, {"ndcg_cut.10"}).evaluate(results)
            yield from (
                (f"{subset}/{split}/{query}", measures[query][MEASURE] if query in measures else 0.0) for query in relevant
            )


def compare_queries(name: str, before: Mapping[str, float], after: Mapping[str, float]) -> TrainingChange:
    """Return the change of nDCG@10 of a task, paired by query; queries count as independent."""
    queries = sorted(before)
    values = [np.array([scores[query] for query in queries]) for scores in (before, after)]
    clusters = np.arange(len(queries))
    first, second = (estimate_mean(scores, clusters) for scores in values)
    return build_change(NDCG, first, second, compare_gains(values[1] - values[0], clusters), name)
