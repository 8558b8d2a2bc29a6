"""Compare the base model with the trained model on held-out articles and forgetting checks."""

from __future__ import annotations

import shlex
import tempfile
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mteb
import numpy as np
from mteb.abstasks.retrieval import AbsTaskRetrieval
from scipy.stats import sem, t

from posir_compare.comparison import SCORE_FORMATS, compare_pairs
from posir_compare.pairing import Pair
from posir_compare.runs import ModelRun
from posir_significance.analysis import analyze
from posir_significance.changes import compare_gains
from posir_significance.decision import decide
from posir_significance.findings import ChangeRow, ChangeState, ChangeSubject, Metric
from posir_significance.intervals import estimate_difference
from posir_significance.messages.comparisons import (
    describe_mean_change,
    describe_model_window,
    describe_trainings,
    label_change,
    title_training,
    warn_of_collapse,
    warn_of_loss,
)
from posir_significance.observations import Observations, subtract_observations
from posir_significance.position_charts import build_position_chart
from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import write_text
from posir_tasks.base.progress import track_items
from posir_tasks.base.untrusted import read_json
from posir_tasks.base.wording import pluralize
from posir_tasks.datasets.dataset import Dataset
from posir_tasks.display.numbers import (
    format_estimate,
    format_points,
    format_psi,
    format_psi_difference,
)
from posir_tasks.display.position_charts import Picture, draw_position_charts
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import (
    DisplaySection,
    Table,
    build_columns,
    escape_prose,
    to_markdown,
)
from posir_tasks.results import SubsetResult
from posir_tasks.tasks.base import PositionTask
from posir_tasks.tasks.retrieval_task import find_retrieval_task
from posir_tasks.values.estimates import Difference, Estimate
from posir_tasks.values.means import estimate_mean
from posir_tasks.values.ranks import score_each_query
from posir_tasks.values.scores import ALL
from posir_train.evaluation import select_third
from posir_train.examples import list_tasks, name_articles
from posir_train.measurement import Measurement, measure_model
from posir_train.preparation import load_base_model
from posir_train.settings import (
    HELD_OUT_FOLDER,
    WORK_FOLDER,
    Position,
    TrainingSettings,
    open_dataset,
    strip_folders,
)
from posir_train.training import TrainedModel

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

#: nDCG@10 by position of the evidence.
THIRDS = (Metric.NDCG_AT_10_BEGIN, Metric.NDCG_AT_10_MIDDLE, Metric.NDCG_AT_10_END)
#: Maximum increase in the cosine of unrelated texts before the report warns of a collapse.
MAX_COSINE_RISE = 0.2
SUMMARY_NOTE = (
    "On held-out articles. nDCG@10 and position effects (same evidence, first minus last third of "
    "the document) x 100. 95% intervals for new articles; the three differences with a verdict "
    "have 95% simultaneous intervals."
)
LEGEND = (
    "Questions are searched in the whole corpus. Differences are paired by query; position effects "
    "are paired by rotated version. Better: a higher nDCG@10, or a position effect closer to 0. "
    "Equivalent: within a margin. nDCG@10 by position has no verdict, since the positions have "
    "different questions. Cosine of unrelated texts: mean over documents of different articles; "
    "near 1, all embeddings are alike."
)
SEEDS_NOTE = (
    "After minus before training, on the same held-out articles. Intervals for a single seed are "
    "for new articles. Intervals for the mean are for new seeds on these articles (Student's t)."
)
#: Note on deploying a trained model.
DEPLOYMENT = (
    "Deployment: the folder is an ordinary sentence-transformers model, for "
    "`SentenceTransformer(FOLDER)` and model servers. Encode all documents again: embeddings of "
    "the base model do not match the queries of the trained model."
)
CARD_FILE = "README.md"
#: Heading of the report in the model card.
CARD_HEADING = "## Position of the evidence"


def compare_measurements(
    before: Measurement, after: Measurement, task: str = ""
) -> list[ChangeRow]:
    """Compare the base model and the trained model on the same questions, as in `posir compare`.

    Args:
        before: Measurement of the base model.
        after: Measurement of the trained model.
        task: Name of the data in a forgetting check; empty for held-out articles.

    Returns:
        The changes in nDCG@10 and position effects, with verdicts, and in nDCG@10 by position and
        the cosine of unrelated texts, without verdicts.
    """
    runs = [
        ModelRun(name, (SubsetResult(name, "", task, "", measurement.values, {}, Path(name)),))
        for name, measurement in (("before", before), ("after", after))
    ]
    ndcg, *effects = compare_pairs([Pair(runs[0], runs[1], task)], [ALL]).rows
    observations_before = Observations.from_ranks(before.values.ranks)
    observations_after = Observations.from_ranks(after.values.ranks)
    differences = subtract_observations(observations_before, observations_after)
    thirds = [
        ChangeRow(
            metric,
            None,
            estimate=estimate_difference(*select_third(differences, position)),
            a=estimate_mean(*select_third(observations_before, position)),
            b=estimate_mean(*select_third(observations_after, position)),
            subject=ndcg.subject,
        )
        for position, metric in zip(Position, THIRDS, strict=True)
    ]
    cosine = ChangeRow(Metric.UNRELATED_COSINE, None, subject=ndcg.subject)
    rise = after.unrelated_cosine - before.unrelated_cosine
    # The cosines are NaN if all documents belong to one article.
    if np.isfinite(rise):
        cosine = replace(
            cosine,
            a=Estimate(before.unrelated_cosine),
            b=Estimate(after.unrelated_cosine),
            estimate=Difference(rise),
        )
    return [ndcg, *thirds, *effects, cosine]


def to_record(change: ChangeRow) -> dict[str, Any]:
    """Convert a change to a record for JSON and CSV."""
    return {
        "score": change.metric,
        "forgetting_check": change.subject.task or None,
        "before": change.a,
        "after": change.b,
        "difference": change.estimate,
        "state": change.state,
        "reason": change.reason,
        "margin": change.margin if change.state else None,
        "needed": change.needed and change.needed.number,
    }


def write_window_notes(before: Measurement, after: Measurement, labels: Sequence[str]) -> list[str]:
    """Describe the window of each model and how much evidence it truncates."""
    findings = [decide(analyze(measurement.values).overall) for measurement in (before, after)]
    return [*filter(None, map(describe_model_window, labels, findings))]


def list_warnings(changes: Sequence[ChangeRow]) -> list[str]:
    """Write warnings about collapsed embeddings and about lower nDCG@10."""
    warnings = []
    for change in changes:
        if change.metric is Metric.UNRELATED_COSINE and change.a and change.b:
            if change.b.value - change.a.value > MAX_COSINE_RISE:
                warnings.append(warn_of_collapse(change.a, change.b))
        elif change.metric is Metric.NDCG_AT_10 and change.state is ChangeState.WORSE:
            warnings.append(warn_of_loss(change))
    return warnings


def describe_changes(changes: Sequence[ChangeRow]) -> list[str]:
    """Describe the changes that have a verdict, in one paragraph for the held-out articles and one
    per forgetting check.
    """
    with_verdict = (change for change in changes if change.state and change.estimate)
    by_task = groupby(with_verdict, key=lambda change: change.subject.task)
    return [describe_trainings(task, list(rows)) for task, rows in by_task]


def build_table(changes: Sequence[ChangeRow], title: str) -> Table:
    """Build the table of scores before and after training."""
    rows = []
    for change in changes:
        format_score = SCORE_FORMATS[change.metric]
        format_difference = format_points
        if change.metric is Metric.UNRELATED_COSINE:
            format_score = format_psi
            format_difference = format_psi_difference
        rows.append(
            (
                title_training(change),
                format_estimate(change.a, format_score),
                format_estimate(change.b, format_score),
                format_estimate(change.estimate, format_difference),
                label_change(change),
            )
        )
    headings = ("Score", "Before", "After", "After - before", "Change")
    return Table(build_columns(headings, headings[1:4]), tuple(rows), title)


def open_forgetting_check(name: str) -> Dataset | AbsTaskRetrieval:
    """Open the data of a forgetting check: an mteb retrieval task, or data for `open_data`.

    Raises:
        PosirError: The data or the task does not exist.
    """
    path = Path(name).expanduser()
    # Task names have no slashes and no suffixes.
    if "/" in name or path.suffix or path.exists():
        return open_dataset(name)
    task = find_retrieval_task(name)
    if task is None:
        raise PosirError(
            f"--guard {name}: not a file or folder, and mteb has no retrieval task of this name. "
            "Choose another task, such as SciFact; `posir tasks` lists some."
        )
    return open_dataset(name) if isinstance(task, PositionTask) else task


def check_forgetting(
    data: Dataset | AbsTaskRetrieval,
    models: tuple[SentenceTransformer, SentenceTransformer],
    labels: Sequence[str],
    training_articles: Collection[str],
) -> tuple[list[ChangeRow], list[str]]:
    """Compare the base model and the trained model on the data of a forgetting check.

    Data with evidence positions gets the same scores as the held-out questions, with intervals for
    new articles. Other tasks get only nDCG@10, with queries as independent observations.

    Returns:
        The changes, and notes about training articles in the data and about truncated evidence.
    """
    if isinstance(data, AbsTaskRetrieval):
        name = data.metadata.name
        gains_before, gains_after = (_score_queries(data, model) for model in models)
        note = f"Forgetting check {name}: an mteb task. Queries are treated as independent."
        return [compare_queries(name, gains_before, gains_after)], [note]
    before, after = (measure_model(model, data) for model in models)
    question_articles = [
        name for subset in data.subsets for name in name_articles(subset, subset.read().evidence)
    ]
    articles = set(question_articles)
    questions = pluralize(len(question_articles), "question")
    note = f"{questions} about {pluralize(len(articles), 'article')}."
    trained_articles = len(articles.intersection(training_articles))
    if trained_articles:
        note += f" {trained_articles} of these were trained on."
    notes = [note, *write_window_notes(before, after, labels)]
    return (
        compare_measurements(before, after, data.name),
        [f"Forgetting check {data.name}: {note}" for note in notes],
    )


def _score_queries(task: AbsTaskRetrieval, model: SentenceTransformer) -> dict[str, float]:
    """Evaluate a model on an mteb task. Return nDCG@10 by query."""
    # mteb uses deprecated names from sentence-transformers.
    with (
        tempfile.TemporaryDirectory() as folder,
        warnings.catch_warnings(action="ignore", category=FutureWarning),
    ):
        mteb.evaluate(
            model,
            task,
            cache=None,
            prediction_folder=folder,
            show_progress_bar=False,
            co2_tracker=False,
        )
        (file,) = Path(folder).rglob("*.json")
        predictions = read_json(file)
    task.load_data()
    gains = {}
    for subset in task.hf_subsets:
        for split, results in predictions[subset].items():
            relevant = task.dataset[subset][split]["relevant_docs"]
            scores = score_each_query(results, relevant, (1, 10))["ndcg_at_10"]
            for query, score in zip(relevant, scores, strict=True):
                gains[f"{subset}/{split}/{query}"] = score
    return gains


def compare_queries(
    name: str, before: Mapping[str, float], after: Mapping[str, float]
) -> ChangeRow:
    """Compare nDCG@10 on a task, paired by query, with queries as independent observations."""
    gains_before = np.array(list(before.values()))
    gains_after = np.array([after[query] for query in before])
    clusters = np.arange(len(before))
    return replace(
        compare_gains(Metric.NDCG_AT_10, gains_after - gains_before, clusters),
        a=estimate_mean(gains_before, clusters),
        b=estimate_mean(gains_after, clusters),
        subject=ChangeSubject(task=name),
    )


def describe_training(settings: TrainingSettings, trained_model: TrainedModel) -> list[str]:
    """Describe the training data, the settings and the evaluation data."""
    held_out = trained_model.data.held_out
    task_options = "-t " + " -t ".join(list_tasks(trained_model.held_out))
    objective = f"Objective: {settings.objective}; it ignores the position of the evidence."
    if settings.objective == "retrieval":
        shares = ", ".join(f"{share:.2f}" for share in settings.weights.shares)
        objective = (
            f"Positions in batches: {settings.positions} (begin, middle, end: {shares}), balanced "
            f"within length bins; {settings.loss}, scale {settings.scale:g}."
        )
    questions = pluralize(len(held_out.examples), "question")
    articles = pluralize(len(held_out.articles), "article")
    documents = pluralize(len(held_out.corpus), "document")
    return [
        f"Trained on {trained_model.data.description}. {objective} Batches of "
        f"{settings.batch_size}, learning rate {settings.learning_rate:g}, seed {settings.seed}, "
        f"weights from step {trained_model.steps:,}.",
        f"Evaluated on {questions} about {articles} that were not trained on, searched in the "
        f"whole corpus of {documents}. The data is in `{HELD_OUT_FOLDER}` in this folder, where "
        f"`POSIR_DATA={HELD_OUT_FOLDER} mteb run {task_options} -m .` reproduces the scores.",
    ]


def add_to_card(folder: Path, report: str, base: str | None) -> None:
    """Add a Markdown report to the model card in a folder, or replace the report in the card."""
    card = folder / CARD_FILE
    text = card.read_text(encoding="utf-8").partition(CARD_HEADING)[0] if card.exists() else ""
    # sentence-transformers links the base model to the Hub, even if it is a local folder.
    if base and "/" not in base:
        text = text.replace(f"[{base}](https://huggingface.co/{base})", base)
    write_text(card, f"{text.rstrip()}\n\n{CARD_HEADING}\n\n{report}\n")


@dataclass(frozen=True, repr=False, kw_only=True)
class TrainingReport(Result):
    """Scores before and after training, and the folder of the trained model."""

    folder: Path
    """Folder of the trained model. The report is in the subfolder `training`."""
    changes: Sequence[ChangeRow]
    """Changes from the base model to the trained model, on held-out articles and then on the
    forgetting checks.
    """


def build_report(
    settings: TrainingSettings,
    folder: Path,
    trained_model: TrainedModel,
    forgetting_checks: Sequence[Dataset | AbsTaskRetrieval],
) -> TrainingReport:
    """Compare the trained model with the base model on held-out articles and forgetting checks."""
    labels = (strip_folders(settings.model), "The trained model")
    changes = compare_measurements(trained_model.before, trained_model.after)
    forgetting_notes = []
    if forgetting_checks:
        models = load_base_model(settings), trained_model.model
        for data in track_items(forgetting_checks, "Forgetting checks"):
            rows, notes = check_forgetting(data, models, labels, trained_model.data.articles)
            changes += rows
            forgetting_notes += notes
    windows = write_window_notes(trained_model.before, trained_model.after, labels)
    method = f"with {settings.objective}"
    if settings.objective == "retrieval":
        method = f"on {settings.positions}"
    return assemble_report(
        f"{labels[0]}, trained {method}",
        folder,
        changes,
        (
            *list_warnings(changes),
            *(f"Held-out articles: {note}" for note in windows),
            *forgetting_notes,
            *trained_model.data.notes,
            *describe_training(settings, trained_model),
        ),
        measurements=(trained_model.before, trained_model.after),
        settings=settings.to_json(),
        footer=f"{folder}: the trained model, at step {trained_model.steps:,}. To reproduce the "
        "scores with mteb:",
        commands=_write_commands(settings, folder, trained_model.held_out),
    )


def assemble_report(
    title: str,
    folder: Path,
    changes: Sequence[ChangeRow],
    notes: tuple[str, ...],
    *,
    measurements: Sequence[Measurement],
    settings: Mapping[str, Any],
    footer: str,
    commands: Sequence[str],
) -> TrainingReport:
    """Assemble the training report with its sentences, its table, and a chart per model."""
    groups = [analyze(measurement.values).overall for measurement in measurements]
    charts = [
        build_position_chart(decide(group), group, name)
        for name, group in zip(("before", "after"), groups, strict=True)
    ]
    rows = [to_record(change) for change in changes]
    table = replace(build_table(changes, title), notes=notes)
    return TrainingReport(
        title=title,
        rows=rows,
        values={"settings": settings, "notes": notes, "changes": rows},
        sentences=describe_changes(changes),
        extra_sections=[
            DisplaySection(tables=(table,), position_charts=tuple(charts)),
            DisplaySection(sentences=(DEPLOYMENT,)),
        ],
        notes=[SUMMARY_NOTE],
        details=[LEGEND],
        footer=[footer],
        commands=commands,
        folder=folder,
        changes=changes,
    )


def _write_commands(settings: TrainingSettings, folder: Path, held_out: Dataset) -> list[str]:
    results_folder = str(folder / WORK_FOLDER / "results")
    tasks = [argument for name in list_tasks(held_out) for argument in ("-t", name)]
    models = [settings.model, str(folder)]
    last_command = "compare"
    # mteb would run the base model without these settings, so leave it out.
    overrides = {"revision", "pooling", "window", "query_prompt"}
    if settings.model_dump(include=overrides, exclude_none=True):
        models = [str(folder)]
        last_command = "report"
    data = shlex.quote(str(folder / HELD_OUT_FOLDER))
    commands = []
    for model in models:
        command = ["mteb", "run", *tasks, "-m", model, "--output-folder", results_folder]
        commands.append(f"POSIR_DATA={data} {shlex.join(command)}")
    return [*commands, shlex.join(["posir", last_command, results_folder])]


def compare_seeds(reports: Mapping[int, TrainingReport]) -> Result:
    """Compare training runs that differ only in the seed. Report the change for each seed, and the
    mean change with a 95% interval for new seeds.
    """
    seed_columns = [f"seed_{seed}" for seed in reports]
    rows = []
    cells = []
    sentences = []
    for changes in zip(*(report.changes for report in reports.values()), strict=True):
        first_change = changes[0]
        differences = [change.estimate for change in changes]
        values = [difference.value for difference in differences if difference]
        mean_change = None
        if len(values) == len(changes):
            mean = float(np.mean(values))
            low, high = t.interval(0.95, len(values) - 1, mean, sem(values))
            mean_change = Estimate(mean, (float(low), float(high)))
        if mean_change and first_change.state:
            sentences.append(describe_mean_change(first_change, mean_change, len(values)))
        row = {
            "score": first_change.metric,
            "forgetting_check": first_change.subject.task or None,
            "mean": mean_change,
        }
        rows.append(row | dict(zip(seed_columns, differences, strict=True)))
        is_cosine = first_change.metric is Metric.UNRELATED_COSINE
        fmt = format_psi_difference if is_cosine else format_points
        estimates = [format_estimate(estimate, fmt) for estimate in (*differences, mean_change)]
        cells.append((title_training(first_change), *estimates))
    headings = ("Score", *(f"Seed {seed}" for seed in reports), "Mean")
    return Result(
        title=next(iter(reports.values())).title,
        rows=rows,
        tables=[Table(build_columns(headings, headings[1:]), tuple(cells))],
        sentences=sentences,
        notes=[SEEDS_NOTE],
        footer=[str(report.folder) for report in reports.values()],
    )


def write_report(report: TrainingReport, model: SentenceTransformer) -> None:
    """Write the report to the folder `training`, and add it to the model card with a chart."""
    work_folder = report.folder / WORK_FOLDER
    write_text(work_folder / "report.json", report.to_json())
    write_text(work_folder / "report.md", report.to_markdown())
    write_text(work_folder / "report.html", report.to_html())
    charts = report.position_charts()
    Picture(draw_position_charts(charts)).save(work_folder / "curve.png")
    image = f"![{' '.join(chart.description for chart in charts)}]({WORK_FOLDER}/curve.png)"
    (table,) = report.extra_sections[0].tables
    notes = map(escape_prose, report.notes)
    card = "\n\n".join([*report.sentences, image, to_markdown(table), DEPLOYMENT, *notes])
    add_to_card(report.folder, card, model.model_card_data.base_model)
