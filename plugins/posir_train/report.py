"""The report of a training run: what training changed on held-out documents and forgetting checks,
paired by question.
"""

from __future__ import annotations

import shlex
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mteb
import numpy as np
from mteb.abstasks.retrieval import AbsTaskRetrieval
from scipy.stats import sem, t

from posir_compare.comparison import FORMATS, compare_pairs
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
from posir_significance.strips import build_strip
from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import write_text
from posir_tasks.base.progress import progress
from posir_tasks.base.untrusted import read_json
from posir_tasks.base.wording import pluralize
from posir_tasks.datasets.dataset import Dataset
from posir_tasks.display.numbers import (
    format_estimate,
    format_points,
    format_psi,
    format_psi_difference,
)
from posir_tasks.display.presentation import Result
from posir_tasks.display.strip import Picture, draw_strips
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
from posir_train.measurement import Measurement, measure
from posir_train.preparation import load_base
from posir_train.settings import (
    HELD_OUT,
    WORK,
    Position,
    TrainingSettings,
    display_name,
    open_dataset,
)
from posir_train.training import TrainedModel

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

#: nDCG@10 of the evidence at each position.
THIRDS = (Metric.NDCG_AT_10_BEGIN, Metric.NDCG_AT_10_MIDDLE, Metric.NDCG_AT_10_END)
#: How far the cosine of unrelated texts may rise before the report warns of a collapse.
COLLAPSE = 0.2
BRIEF = (
    "On held-out articles. nDCG@10 and position effects (the same evidence in the first third "
    "minus in the last) x 100. Intervals: 95% for new articles; of a difference with a change, "
    "95% for the three together."
)
LEGEND = (
    "Searched in the whole corpus; differences are paired by query, position effects by rotated "
    "version. Better: a higher nDCG@10, a position effect nearer to 0; equivalent: within a "
    "margin. nDCG@10 of the positions has an interval only: different questions. Cosine of "
    "unrelated texts: mean over documents of different articles; near 1, all texts are alike."
)
SEEDS_NOTE = (
    "After - before on the same held-out articles. Of a seed: the interval is for new articles. "
    "Over seeds: the mean, and its interval for new seeds on these articles, by Student's t."
)
#: How a trained model is deployed; what was trained is in its weights alone.
DEPLOYMENT = (
    "Deployment: the folder is an ordinary model of sentence-transformers, for "
    "`SentenceTransformer(FOLDER)` and servers of such models; encode all documents anew, since "
    "the vectors of the base model do not fit its queries."
)
CARD_FILE = "README.md"
HEADING = "## Position of the evidence"


def compare_measurements(
    before: Measurement, after: Measurement, task: str = ""
) -> list[ChangeRow]:
    """Compare the base model and the trained one on the same questions, as `posir compare` does;
    nDCG@10 by position and the cosine are descriptions.

    Args:
        before: The base model.
        after: The trained model.
        task: The data of a forgetting check; empty for held-out articles.
    """
    runs = [
        ModelRun(name, (SubsetResult(name, "", task, "", measured.values, {}, Path(name)),))
        for name, measured in (("before", before), ("after", after))
    ]
    ndcg, *effects = compare_pairs([Pair(runs[0], runs[1], task)], [ALL]).rows
    first, second = (Observations.from_ranks(measured.values.ranks) for measured in (before, after))
    paired = subtract_observations(first, second)
    thirds = [
        ChangeRow(
            metric,
            None,
            estimate=estimate_difference(*select_third(paired, position)),
            a=estimate_mean(*select_third(first, position)),
            b=estimate_mean(*select_third(second, position)),
            subject=ndcg.subject,
        )
        for position, metric in zip(Position, THIRDS, strict=True)
    ]
    cosine = ChangeRow(Metric.UNRELATED_COSINE, None, subject=ndcg.subject)
    risen = after.unrelated_cosine - before.unrelated_cosine
    # Without two articles there are no unrelated texts.
    if np.isfinite(risen):
        a = Estimate(before.unrelated_cosine)
        b = Estimate(after.unrelated_cosine)
        cosine = replace(cosine, a=a, b=b, estimate=Difference(risen))
    return [ndcg, *thirds, *effects, cosine]


def record_change(change: ChangeRow) -> dict[str, Any]:
    """Return a change as a row of JSON and CSV."""
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


def list_windows(before: Measurement, after: Measurement, labels: Sequence[str]) -> list[str]:
    """Describe the window of each model and what is truncated."""
    findings = [decide(analyze(measured.values).overall) for measured in (before, after)]
    sentences = map(describe_model_window, labels, findings)
    return [sentence for sentence in sentences if sentence]


def find_warnings(changes: Sequence[ChangeRow]) -> list[str]:
    """Warn of collapsed embeddings, and of lower nDCG@10."""
    warnings = []
    for change in changes:
        if change.metric is Metric.UNRELATED_COSINE and change.a and change.b:
            if change.b.value - change.a.value > COLLAPSE:
                warnings.append(warn_of_collapse(change.a, change.b))
        elif change.metric is Metric.NDCG_AT_10 and change.state is ChangeState.WORSE:
            warnings.append(warn_of_loss(change))
    return warnings


def describe_changes(changes: Sequence[ChangeRow]) -> list[str]:
    """Return a paragraph for the held-out articles and for each forgetting check: how nDCG@10 and
    position effects change.
    """
    decided = defaultdict[str, list[ChangeRow]](list)
    for change in changes:
        if change.state and change.estimate:
            decided[change.subject.task].append(change)
    return [describe_trainings(task, rows) for task, rows in decided.items()]


def build_table(changes: Sequence[ChangeRow], title: str) -> Table:
    """Tabulate the scores before and after training."""
    rows = []
    for change in changes:
        score = FORMATS[change.metric]
        difference = format_points
        if change.metric is Metric.UNRELATED_COSINE:
            score = format_psi
            difference = format_psi_difference
        row = (
            title_training(change),
            format_estimate(change.a, score),
            format_estimate(change.b, score),
            format_estimate(change.estimate, difference),
            label_change(change),
        )
        rows.append(row)
    headings = ("Score", "Before", "After", "After - before", "Change")
    return Table(build_columns(headings, headings[1:4]), tuple(rows), title)


def open_forgetting_check(name: str) -> Dataset | AbsTaskRetrieval:
    """Return the data of a forgetting check: what `open_data` takes, or a retrieval task of
    mteb.
    """
    path = Path(name).expanduser()
    # What no task is named.
    if "/" in name or path.suffix or path.exists():
        return open_dataset(name)
    task = find_retrieval_task(name)
    if task is None:
        raise PosirError(
            f"--guard {name}: no file or folder, and mteb has no such retrieval task. Choose "
            "one, such as SciFact; `posir tasks` lists some."
        )
    return open_dataset(name) if isinstance(task, PositionTask) else task


def check_forgetting(
    data: Dataset | AbsTaskRetrieval,
    models: tuple[SentenceTransformer, SentenceTransformer],
    labels: Sequence[str],
    trained_on: Collection[str],
) -> tuple[list[ChangeRow], list[str]]:
    """Compare the base model and the trained one, by their labels, on the data of a forgetting
    check.

    With positions of the evidence, these are all scores that held-out questions have, in the whole
    corpus, paired by query, and intervals are for new articles. Another task has nDCG@10, and its
    queries count as independent. There are notes on articles of the data that were trained on, and
    on what the models truncate.
    """
    if isinstance(data, AbsTaskRetrieval):
        name = data.metadata.name
        before, after = (_measure_queries(data, model) for model in models)
        note = f"Forgetting check {name}: a task of mteb, whose queries count as independent."
        return [compare_queries(name, before, after)], [note]
    first, second = (measure(model, data) for model in models)
    named = [
        name for subset in data.subsets for name in name_articles(subset, subset.read().evidence)
    ]
    articles = set(named)
    common = len(articles.intersection(trained_on))
    questions = pluralize(len(named), "question")
    note = f"{questions} about {pluralize(len(articles), 'article')}."
    notes = [
        f"{note} {common} of these were trained on." if common else note,
        *list_windows(first, second, labels),
    ]
    return (
        compare_measurements(first, second, data.name),
        [f"Forgetting check {data.name}: {note}" for note in notes],
    )


def _measure_queries(task: AbsTaskRetrieval, model: SentenceTransformer) -> dict[str, float]:
    # mteb warns of its own use of older names in sentence-transformers.
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
    gains: dict[str, float] = {}
    for subset in task.hf_subsets:
        for split, results in predictions[subset].items():
            relevant = task.dataset[subset][split]["relevant_docs"]
            scores = score_each_query(results, relevant, (1, 10))["ndcg_at_10"]
            queries = [f"{subset}/{split}/{query}" for query in relevant]
            gains.update(zip(queries, scores, strict=True))
    return gains


def compare_queries(
    name: str, before: Mapping[str, float], after: Mapping[str, float]
) -> ChangeRow:
    """Compare nDCG@10 of a task, paired by query; queries count as independent."""
    queries = sorted(before)
    first = np.array([before[query] for query in queries])
    second = np.array([after[query] for query in queries])
    clusters = np.arange(len(queries))
    return replace(
        compare_gains(Metric.NDCG_AT_10, second - first, clusters),
        a=estimate_mean(first, clusters),
        b=estimate_mean(second, clusters),
        subject=ChangeSubject(task=name),
    )


def describe(settings: TrainingSettings, trained: TrainedModel) -> list[str]:
    """Describe what a model was trained on and measured with."""
    held_out = trained.data.held_out
    tasks = "-t " + " -t ".join(list_tasks(trained.held_out))
    sampled = f"Objective: {settings.objective}; positions of the evidence play no part in it."
    if settings.objective == "retrieval":
        shares = ", ".join(f"{share:.2f}" for share in settings.weights.shares)
        sampled = (
            f"Positions in batches: {settings.positions} (begin, middle, end: {shares}), balanced "
            f"within length bins; {settings.loss}, scale {settings.scale:g}."
        )
    questions = pluralize(len(held_out.examples), "question")
    articles = pluralize(len(held_out.articles), "article")
    documents = pluralize(len(held_out.corpus), "document")
    return [
        f"Trained on {trained.data.description}. {sampled} Batches of {settings.batch_size}, "
        f"learning rate {settings.learning_rate:g}, seed {settings.seed}; the weights are those "
        f"of step {trained.steps:,}.",
        f"Measured with {questions} about {articles} that were not trained on, searched in the "
        f"whole corpus of {documents}. They are in `{HELD_OUT}` in this folder, where "
        f"`POSIR_DATA={HELD_OUT} mteb run {tasks} -m .` repeats the figures.",
    ]


def add_to_card(folder: Path, report: str, base: str | None) -> None:
    """Add a report in Markdown to the model card in a folder, in place of an earlier one."""
    card = folder / CARD_FILE
    text = card.read_text(encoding="utf-8").partition(HEADING)[0] if card.exists() else ""
    # sentence-transformers links to the base model on the Hub; the name of a folder is no such
    # link.
    if base and "/" not in base:
        text = text.replace(f"[{base}](https://huggingface.co/{base})", base)
    write_text(card, f"{text.rstrip()}\n\n{HEADING}\n\n{report}\n")


@dataclass(frozen=True, repr=False, kw_only=True)
class TrainingReport(Result):
    """Scores before and after training, and the folder of the trained model."""

    folder: Path
    """The trained model, with its report in `training/`."""
    changes: Sequence[ChangeRow]
    """Each score of the base model and of the trained model, on held-out articles first, then on
    the data of `guard`.
    """


def build_report(
    settings: TrainingSettings,
    folder: Path,
    trained: TrainedModel,
    forgetting_checks: Sequence[Dataset | AbsTaskRetrieval],
) -> TrainingReport:
    """Compare the trained model with the base model on held-out articles and on the data of
    forgetting checks.
    """
    labels = (display_name(settings.model), "The trained model")
    changes = compare_measurements(trained.before, trained.after)
    forgetting_notes: list[str] = []
    if forgetting_checks:
        models = load_base(settings), trained.model
        for data in progress(forgetting_checks, "Forgetting checks"):
            checked, remarks = check_forgetting(data, models, labels, trained.data.articles)
            changes += checked
            forgetting_notes += remarks
    windows = list_windows(trained.before, trained.after, labels)
    is_retrieval = settings.objective == "retrieval"
    method = f"on {settings.positions}" if is_retrieval else f"with {settings.objective}"
    return present_training(
        f"{labels[0]}, trained {method}",
        folder,
        changes,
        (
            *find_warnings(changes),
            *(f"Held-out articles: {note}" for note in windows),
            *forgetting_notes,
            *trained.data.notes,
            *describe(settings, trained),
        ),
        measured=(trained.before, trained.after),
        settings=settings.to_json(),
        footer=f"{folder}: the trained model, of step {trained.steps:,}. To repeat the figures "
        "with mteb:",
        commands=_write_commands(settings, folder, trained.held_out),
    )


def present_training(
    title: str,
    folder: Path,
    changes: Sequence[ChangeRow],
    notes: tuple[str, ...],
    *,
    measured: Sequence[Measurement],
    settings: Mapping[str, Any],
    footer: str,
    commands: Sequence[str],
) -> TrainingReport:
    """Present a training: sentences, the table, and the pictures before and after."""
    groups = [analyze(measurement.values).overall for measurement in measured]
    strips = [
        build_strip(decide(group), group, name)
        for name, group in zip(("before", "after"), groups, strict=True)
    ]
    rows = [record_change(change) for change in changes]
    table = replace(build_table(changes, title), notes=notes)
    return TrainingReport(
        title=title,
        rows=rows,
        values={"settings": settings, "notes": notes, "changes": rows},
        sentences=describe_changes(changes),
        parts=[
            DisplaySection(tables=(table,), strips=tuple(strips)),
            DisplaySection(sentences=(DEPLOYMENT,)),
        ],
        notes=[BRIEF],
        details=[LEGEND],
        footer=[footer],
        commands=commands,
        folder=folder,
        changes=changes,
    )


def _write_commands(settings: TrainingSettings, folder: Path, held_out: Dataset) -> list[str]:
    """Write the commands that repeat the figures of held-out articles."""
    results = str(folder / WORK / "results")
    tasks = [part for name in list_tasks(held_out) for part in ("-t", name)]
    # mteb knows no other pooling, window or prompt of the base model.
    altered = {"revision", "pooling", "window", "query_prompt"}
    is_altered = bool(settings.model_dump(include=altered, exclude_none=True))
    data = shlex.quote(str(folder / HELD_OUT))
    runs = []
    for model in [str(folder)] if is_altered else [settings.model, str(folder)]:
        command = ["mteb", "run", *tasks, "-m", model, "--output-folder", results]
        runs.append(f"POSIR_DATA={data} {shlex.join(command)}")
    return [*runs, shlex.join(["posir", "report" if is_altered else "compare", results])]


def compare_seeds(reports: Mapping[int, TrainingReport]) -> Result:
    """Compare trainings that differ in their seed alone: the changes by each, and their means with
    95% intervals for new seeds.
    """
    seeds = [f"seed_{seed}" for seed in reports]
    rows = []
    cells = []
    sentences = []
    for changes in zip(*(report.changes for report in reports.values()), strict=True):
        first = changes[0]
        differences = [change.estimate for change in changes]
        values = [difference.value for difference in differences if difference]
        mean = None
        if len(values) == len(changes):
            ends = t.interval(0.95, len(values) - 1, np.mean(values), sem(values))
            mean = Estimate(float(np.mean(values)), (float(ends[0]), float(ends[1])))
        if mean and first.state:
            sentences.append(describe_mean_change(first, mean, len(values)))
        check = first.subject.task or None
        row = {"score": first.metric, "forgetting_check": check, "mean": mean}
        rows.append(row | dict(zip(seeds, differences, strict=True)))
        is_cosine = first.metric is Metric.UNRELATED_COSINE
        form = format_psi_difference if is_cosine else format_points
        estimates = [format_estimate(estimate, form) for estimate in (*differences, mean)]
        cells.append((title_training(first), *estimates))
    headings = ("Score", *(f"Seed {seed}" for seed in reports), "Over seeds")
    return Result(
        title=next(iter(reports.values())).title,
        rows=rows,
        tables=[Table(build_columns(headings, headings[1:]), tuple(cells))],
        sentences=sentences,
        notes=[SEEDS_NOTE],
        footer=[str(report.folder) for report in reports.values()],
    )


def write_report(report: TrainingReport, model: SentenceTransformer) -> None:
    """Write the report into the work folder, and into the model card with its curve before and
    after training.
    """
    work_folder = report.folder / WORK
    write_text(work_folder / "report.json", report.to_json())
    write_text(work_folder / "report.md", report.to_markdown())
    write_text(work_folder / "report.html", report.to_html())
    strips = report.strips()
    Picture(draw_strips(strips)).save(work_folder / "curve.png")
    image = f"![{' '.join(strip.description for strip in strips)}]({WORK}/curve.png)"
    # With its notes: warnings, and what the model was trained on and measured with.
    (table,) = report.parts[0].tables
    notes = map(escape_prose, report.notes)
    card = "\n\n".join([*report.sentences, image, to_markdown(table), DEPLOYMENT, *notes])
    add_to_card(report.folder, card, model.model_card_data.base_model)
