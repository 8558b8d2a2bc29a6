"""The report of a training run: what training changed on held-out documents and forgetting checks, paired by question."""

from __future__ import annotations

import shlex
import tempfile
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from posir_tasks.display.figures import SCALE, Figure
from posir_tasks.display.numbers import (
    format_estimate,
    format_number,
    format_percent,
    format_points,
    format_psi,
    format_psi_difference,
)
from posir_tasks.display.presentation import Presentable, to_paragraphs
from posir_tasks.display.progress import progress
from posir_tasks.display.tables import DisplaySection, Table, build_columns, to_markdown
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import PosirError, summarize_error
from posir_tasks.files import atomic_write
from posir_tasks.gate import read_json
from posir_tasks.plugin_api import score_result
from posir_tasks.scores import Estimate
from posir_tasks.sources.opening import Dataset
from posir_tasks.tasks.base import PositionTask
from posir_train.evaluation import Measurement, draw_before_after, measure, select_third
from posir_train.examples import list_tasks, name_articles
from posir_train.preparation import load_base
from posir_train.settings import (
    HELD_OUT,
    Objective,
    Position,
    RunFolder,
    TrainingSettings,
    display_name,
    is_data_path,
    open_dataset,
)

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from posir_train.training import TrainedModel

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
MEASURE, TRAINED = "ndcg_cut_10", "The trained model"
CARD_FILE, HEADING = "README.md", "## Position of the evidence"
MARKDOWN_FILE, RESULTS_FILE, PAGE_FILE, CURVE_FILE = "report.md", "report.json", "report.html", "curve.png"


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

    def record(self) -> dict[str, Any]:
        """Return the change as a row of JSON and CSV, with the names and values of a `Change`."""
        metric = self.metric
        return {
            "score": self.score,
            "forgetting_check": self.forgetting_check,
            "before": self.before,
            "after": self.after,
            "difference": self.difference,
            "state": metric and metric.state.value,
            "reason": metric and metric.reason and metric.reason.value,
            "margin": metric and metric.margin,
            "documents_needed": metric and metric.documents_needed,
        }


def compare_measurements(before: Measurement, after: Measurement) -> list[TrainingChange]:
    """Return all changes on the same questions: nDCG@10, over all and by position, start to end, PSI and the cosine."""
    first, other = (analyze(measured.ranks).overall for measured in (before, after))
    change = compare_groups(first, other, paired=True)
    cosines = before.unrelated_cosine, after.unrelated_cosine, after.unrelated_cosine - before.unrelated_cosine
    # Without two articles there are no unrelated texts.
    first_cosine, other_cosine, risen = (Estimate(value) if np.isfinite(cosines[-1]) else None for value in cosines)
    return [
        build_change(NDCG, first.ndcg, other.ndcg, change),
        *_compare_thirds(before, after),
        build_change(START_TO_END, first.position.start_to_end, other.position.start_to_end, change),
        build_change(PSI, first.psi, other.psi, change),
        TrainingChange(COSINE, first_cosine, other_cosine, risen),
    ]


def summarize_measurement(label: str, measured: Measurement) -> TaskSummary:
    """Return a measurement as `posir report` takes results."""
    return TaskSummary(label, "", "", ("",), (), "", measured.values, score_result(measured.values))


def list_not_read(before: Measurement, after: Measurement, labels: Sequence[str]) -> list[str]:
    """Return sentences on the evidence beyond the window of each model, by its label, as `posir report` has them."""
    measured = zip(labels, (before, after), strict=True)
    return list(not_read_notes(labels, [summarize_measurement(*row) for row in measured]))


def build_change(
    score: str, before: Estimate | None, after: Estimate | None, change: Change, forgetting_check: str | None = None
) -> TrainingChange:
    """Return the change of a score with its interval at the level of all three."""
    metric: MetricChange = getattr(change, METRICS[score])
    difference = Estimate(metric.difference.value, metric_interval(metric, change)) if metric.difference else None
    return TrainingChange(score, before, after, difference, change, forgetting_check)


def _compare_thirds(before: Measurement, after: Measurement) -> Iterator[TrainingChange]:
    observed = [Observations.from_ranks(measured.ranks) for measured in (before, after)]
    paired = subtract_observations(*observed)
    for position in Position:
        first, second = (estimate_mean(*select_third(observations, position)) for observations in observed)
        difference = estimate_difference(*select_third(paired, position))
        yield TrainingChange(f"{NDCG}, {position.title}", first, second, difference)


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
        f"{change.title}: worse than the base model's."
        for change in changes
        if change.score == NDCG and change.metric and change.metric.state is ChangeState.WORSE
    ]
    return [*collapses, *losses]


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


def open_forgetting_check(name: str) -> Dataset | AbsTaskRetrieval:
    """Return the data of a forgetting check: what `open_data` takes, or a retrieval task of mteb.

    Raises:
        PosirError: There is no such data, or it is invalid.
    """
    if is_data_path(name):
        return open_dataset(name)
    try:
        task = mteb.get_task(name)
    except Exception as error:  # mteb raises several types for a name that it does not know
        raise PosirError(
            f"--guard {name}: no file or folder, and mteb has no such task ({summarize_error(error)}). "
            "`posir tasks` lists some."
        ) from error
    if not isinstance(task, AbsTaskRetrieval):
        raise PosirError(f"--guard {name}: not a retrieval task. Choose one, such as SciFact.")
    return open_dataset(name) if isinstance(task, PositionTask) else task


def check_forgetting(
    data: Dataset | AbsTaskRetrieval,
    models: tuple[SentenceTransformer, SentenceTransformer],
    labels: tuple[str, str],
    trained_on: Collection[str],
) -> tuple[list[TrainingChange], list[str]]:
    """Compare two models on the data of a forgetting check.

    With positions of the evidence, these are all scores that held-out questions have, in the whole corpus, paired by query, and
    intervals are for new articles. Another task has nDCG@10, and its queries count as independent.

    Args:
        data: What `open_forgetting_check` returned.
        models: The base model and the trained one.
        labels: Their names.
        trained_on: Articles that were trained on.

    Returns:
        The changes, and notes: on the data first, then on what the models truncate.
    """
    if isinstance(data, AbsTaskRetrieval):
        name = data.metadata.name
        change = compare_queries(name, *(_measure_queries(data, model) for model in models))
        return [change], [f"Forgetting check {name}: a task of mteb, whose queries count as independent."]
    before, after = (measure(model, data) for model in models)
    named = [name_articles(subset, subset.read().evidence) for subset in data.subsets]
    articles = {name for names in named for name in names}
    counts = pluralize(sum(map(len, named)), "question"), pluralize(len(articles), "article")
    common = len(articles.intersection(trained_on))
    warning = f" {common} of these were trained on." if common else ""
    notes = [f"{counts[0]} about {counts[1]}.{warning}", *list_not_read(before, after, labels)]
    return (
        [replace(change, forgetting_check=data.name) for change in compare_measurements(before, after)],
        [f"Forgetting check {data.name}: {note}" for note in notes],
    )


def _measure_queries(task: AbsTaskRetrieval, model: SentenceTransformer) -> dict[str, float]:
    """Return nDCG@10 of each query, by subset, split and id."""
    # mteb warns of its own use of older names in sentence-transformers.
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore", category=FutureWarning):
        mteb.evaluate(model, task, cache=None, prediction_folder=folder, show_progress_bar=False, co2_tracker=False)
        (file,) = Path(folder).rglob("*.json")
        predictions = read_json(file)
    task.load_data()
    return dict(_score(task, predictions))


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


def describe(settings: TrainingSettings, trained: TrainedModel) -> list[str]:
    """Return what a model was trained on and measured with, in sentences."""
    training, held_out = trained.data.training, trained.data.held_out
    tasks = " ".join(f"-t {name}" for name in list_tasks(trained.held_out))
    shares = ", ".join(f"{share:.2f}" for share in settings.weights.shares)
    sampled = (
        f"Positions in batches: {settings.positions} (begin, middle, end: {shares}), balanced within length bins; "
        f"{settings.loss}, scale {settings.scale:g}."
        if settings.objective is Objective.RETRIEVAL
        else f"Objective: {settings.objective.value}; positions of the evidence play no part in it."
    )
    return [
        f"Trained on {training.description}. {sampled} Batches of {settings.batch_size}, learning rate "
        f"{settings.learning_rate:g}, seed {settings.seed}; the weights are those of step {trained.steps:,}.",
        f"Measured with {pluralize(len(held_out.examples), 'question')} about {pluralize(len(held_out.articles), 'article')} "
        f"that were not trained on, searched in the whole corpus of {pluralize(len(held_out.corpus), 'document')}. They are in "
        f"`{HELD_OUT}` in this folder, where `POSIR_DATA={HELD_OUT} mteb run {tasks} -m .` repeats the figures.",
    ]


def add_to_card(folder: Path, report: str, base: str | None) -> None:
    """Add a report in Markdown to the model card in a folder, in place of an earlier one."""
    card = folder / CARD_FILE
    text = card.read_text(encoding="utf-8").partition(HEADING)[0] if card.exists() else ""
    # sentence-transformers links to the base model on the Hub; the name of a folder is no such link.
    if base and "/" not in base:
        text = text.replace(f"[{base}](https://huggingface.co/{base})", base)
    with atomic_write(card) as temporary:
        temporary.write_text(f"{text.rstrip()}\n\n{HEADING}\n\n{report}\n", encoding="utf-8")


@dataclass(frozen=True, repr=False, kw_only=True)
class TrainingReport(Presentable):
    """Scores before and after training, and the folder of the trained model."""

    title: str = ""
    settings: Mapping[str, Any]
    """Everything that the trained model depends on, as JSON values."""
    folder: Path
    """The trained model, with its report in `training/`."""
    steps: int
    """The step whose weights the model has."""
    changes: tuple[TrainingChange, ...]
    """Each score of the base model and of the trained model, on held-out articles first, then on the data of `guard`."""
    notes: tuple[str, ...]
    """Warnings first, then what was left out, and what was trained on and measured with."""
    commands: tuple[str, ...]
    """Commands of a shell that repeat the figures of held-out articles."""
    measured: tuple[TaskSummary, TaskSummary]
    """The base model and the trained one on held-out articles."""

    @property
    def tables(self) -> tuple[Table, ...]:
        """The table of changes."""
        return (build_table(self.changes, self.title, self.notes),)

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return the findings, then the tables."""
        return (*to_paragraphs(describe_changes(self.changes)), DisplaySection(tables=self.tables, draw=self._draw))

    def _draw(self) -> list[Figure]:
        return [draw_before_after(self.measured, title_changes(self.changes), self.title)]

    def records(self) -> list[dict[str, Any]]:
        """Return a row for each score and data."""
        return [change.record() for change in self.changes]

    def document(self) -> dict[str, Any]:
        """Return settings, notes and changes."""
        return {"settings": self.settings, "notes": self.notes, "changes": self.records()}

    def legend(self) -> tuple[str, ...]:
        """Return what the columns mean."""
        return (BRIEF,)

    def explanation(self) -> tuple[str, ...]:
        """Return what every column means."""
        return (LEGEND,)


def build_report(
    settings: TrainingSettings,
    folder: RunFolder,
    trained: TrainedModel,
    forgetting_checks: Sequence[Dataset | AbsTaskRetrieval],
) -> TrainingReport:
    """Compare the trained model with the base model on held-out articles and on the data of forgetting checks."""
    labels, articles = (display_name(settings.model), TRAINED), trained.data.training.articles
    changes = compare_measurements(trained.before, trained.after)
    forgetting_notes: list[str] = []
    if forgetting_checks:
        models = load_base(settings), trained.model
        for data in progress(forgetting_checks, "Forgetting checks"):
            changed, said = check_forgetting(data, models, labels, articles)
            changes += changed
            forgetting_notes += said
    not_read = list_not_read(trained.before, trained.after, labels)
    return TrainingReport(
        title=f"{labels[0]}, trained {settings.description}",
        settings=settings.to_json(),
        folder=folder.output,
        steps=trained.steps,
        changes=tuple(changes),
        notes=(
            *find_warnings(changes),
            *(f"Held-out articles: {note}" for note in not_read),
            *forgetting_notes,
            *trained.data.training.notes,
            *describe(settings, trained),
        ),
        commands=tuple(list_commands(settings, folder, trained.held_out)),
        measured=(summarize_measurement(labels[0], trained.before), summarize_measurement(TRAINED, trained.after)),
    )


def list_commands(settings: TrainingSettings, folder: RunFolder, held_out: Dataset) -> list[str]:
    """Return the commands of a shell that repeat the figures of held-out articles.

    They have the base model only if it was trained as it is: mteb knows no other pooling, window or prompt.
    """
    results, tasks = folder.work_folder / "results", [part for name in list_tasks(held_out) for part in ("-t", name)]
    models = [settings.model] if settings.keeps_base else []
    runs = [
        f"POSIR_DATA={shlex.quote(str(folder.held_out))} "
        + shlex.join(["mteb", "run", *tasks, "-m", model, "--output-folder", str(results)])
        for model in [*models, str(folder.output)]
    ]
    return [*runs, shlex.join(["posir", "compare" if models else "report", str(results)])]


def write_report(report: TrainingReport, model: SentenceTransformer) -> None:
    """Write the report into the work folder, and into the model card with its curve before and after training."""
    work_folder = RunFolder(report.folder).work_folder
    sentences = list(describe_changes(report.changes))
    markdown = "\n\n".join([*sentences, *map(to_markdown, report.tables)])
    files = {RESULTS_FILE: report.to_json(), MARKDOWN_FILE: markdown, PAGE_FILE: report.to_html()}
    for name, text in files.items():
        with atomic_write(work_folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    (figure,) = report.figures()
    with atomic_write(work_folder / CURVE_FILE) as temporary:
        figure.chart.save(temporary, format="png", scale_factor=SCALE)
    image = f"![{figure.title}]({work_folder.name}/{CURVE_FILE})"
    card = "\n\n".join([*sentences, image, *map(to_markdown, report.tables)])
    add_to_card(report.folder, card, model.model_card_data.base_model)
