"""The report of a training run: what training changed on held-out documents and forgetting checks,
paired by question.
"""

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
from mteb.abstasks.retrieval import AbsTaskRetrieval
from scipy.stats import sem, t

from posir_report.summary import TaskSummary
from posir_report.tables import truncation_notes
from posir_significance.analysis import analyze
from posir_significance.decision import Change, MetricChange, compare_gains, compare_groups, decide
from posir_significance.findings import ChangeState, GroupFindings, Quantity
from posir_significance.intervals import estimate_difference, estimate_mean
from posir_significance.messages import METRICS as METRIC_NAMES
from posir_significance.messages import describe_change, label_change
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
    format_number,
    format_percent,
    format_points,
    format_psi,
    format_psi_difference,
)
from posir_tasks.display.presentation import Presentable, Result, to_paragraphs
from posir_tasks.display.strip import Picture, Strip, draw_strips
from posir_tasks.display.tables import DisplaySection, Table, build_columns, to_markdown
from posir_tasks.plugin_api import score_result
from posir_tasks.tasks.base import PositionTask
from posir_tasks.tasks.retrieval_task import find_retrieval_task
from posir_tasks.values.ranks import score_each_query
from posir_tasks.values.scores import Estimate
from posir_train.evaluation import Measurement, measure, select_third
from posir_train.examples import list_tasks, name_articles
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

NDCG = METRIC_NAMES["ndcg_at_10"]
EFFECTS = (METRIC_NAMES["position_effect"], METRIC_NAMES["position_effect_in_window"])
COSINE = "cosine of unrelated texts"
#: The fields of a `Change` by score.
METRICS = {
    METRIC_NAMES[key]: key for key in ("ndcg_at_10", "position_effect", "position_effect_in_window")
}
#: How far the cosine of unrelated texts may rise before the report warns of a collapse.
COLLAPSE = 0.2
BRIEF = (
    "On held-out articles. nDCG@10 and position effects (the same evidence in the first third "
    "minus in the last) x 100. "
    "Intervals: 95% for new articles; of a difference with a change, 95% for the three together."
)
LEGEND = (
    "Searched in the whole corpus; differences are paired by query, position effects by rotated "
    "version. Better: a higher "
    "nDCG@10, a position effect nearer to 0; equivalent: within a margin. nDCG@10 of the "
    "positions has an interval only: "
    "different questions. Cosine of unrelated texts: mean over documents of different articles; "
    "near 1, all texts are alike."
)
TRAINED = "The trained model"
#: How a trained model is deployed; what was trained is in its weights alone.
DEPLOYMENT = (
    "Deployment: the folder is an ordinary model of sentence-transformers, for "
    "`SentenceTransformer(FOLDER)` and servers of "
    "such models; encode all documents anew, since the vectors of the base model do not fit its "
    "queries."
)
CARD_FILE, HEADING = "README.md", "## Position of the evidence"


@dataclass(frozen=True)
class TrainingChange:
    """A score of the base model and of the trained model on the same questions."""

    score: str
    before: Estimate | None
    after: Estimate | None
    difference: Estimate | None
    """Its interval has the level of the change, if the score has one; else 95%."""
    metric: MetricChange | None = None
    """The change of nDCG@10 or of a position effect; None for other scores."""
    sentence: str = ""
    """The change as a sentence; empty if it has no state."""
    forgetting_check: str | None = None
    """The data of a forgetting check; None for held-out articles."""

    @property
    def title(self) -> str:
        """The score and its data."""
        return (
            self.score
            if self.forgetting_check is None
            else f"forgetting check {self.forgetting_check}, {self.score}"
        )

    @property
    def label(self) -> str:
        """The state of the change in a few words; empty if it has none."""
        return label_change(self.metric) if self.metric else ""

    def record(self) -> dict[str, Any]:
        """Return the change as a row of JSON and CSV, with the names and values of a `Change`."""
        metric = self.metric
        row: dict[str, Any] = {"score": self.score, "forgetting_check": self.forgetting_check}
        row |= {name: getattr(self, name) for name in ("before", "after", "difference")}
        row |= {name: metric and getattr(metric, name) for name in ("state", "reason", "margin")}
        return row | {"needed": metric and metric.needed and metric.needed.number}


def compare_measurements(before: Measurement, after: Measurement) -> list[TrainingChange]:
    """Return all changes on the same questions: nDCG@10, over all and by position, position effects
    and the cosine.
    """
    first, other = (analyze(measured.values).overall for measured in (before, after))
    findings = [decide(group) for group in (first, other)]
    change = compare_groups(first, other, paired=True)
    observed = [Observations.from_ranks(measured.values.ranks) for measured in (before, after)]
    paired, thirds = subtract_observations(*observed), []
    for position in Position:
        first_mean, other_mean = (
            estimate_mean(*select_third(observations, position)) for observations in observed
        )
        difference = estimate_difference(*select_third(paired, position))
        thirds.append(
            TrainingChange(f"{NDCG}, {position.title}", first_mean, other_mean, difference)
        )
    cosines = (
        before.unrelated_cosine,
        after.unrelated_cosine,
        after.unrelated_cosine - before.unrelated_cosine,
    )
    # Without two articles there are no unrelated texts.
    cosine_before, cosine_after, risen = (
        Estimate(value) if np.isfinite(cosines[-1]) else None for value in cosines
    )
    return [
        _build_change(NDCG, first.ndcg, other.ndcg, change),
        *thirds,
        *(_build_effect_change(name, findings, change) for name in EFFECTS),
        TrainingChange(COSINE, cosine_before, cosine_after, risen),
    ]


def _build_effect_change(
    name: str, findings: Sequence[GroupFindings], change: Change
) -> TrainingChange:
    quantity = Quantity(METRICS[name])
    before, after = (result[quantity].estimate for result in findings)
    return _build_change(name, before, after, change)


def _build_change(
    score: str,
    before: Estimate | None,
    after: Estimate | None,
    change: Change,
    forgetting_check: str | None = None,
) -> TrainingChange:
    metric: MetricChange = getattr(change, METRICS[score])
    sentence = describe_change(METRICS[score], metric, "the base model", "the trained model")
    sentence = sentence[0].upper() + sentence[1:]
    return TrainingChange(
        score, before, after, metric.difference, metric, sentence, forgetting_check
    )


def summarize_measurement(label: str, measured: Measurement) -> TaskSummary:
    """Return a measurement as `posir report` takes results."""
    return TaskSummary(label, "", "", ("",), (), "", measured.values, score_result(measured.values))


def list_truncation(before: Measurement, after: Measurement, labels: Sequence[str]) -> list[str]:
    """Return sentences on the evidence beyond the window of each model, by its label, as `posir
    report` has them.
    """
    return list(truncation_notes(labels, list(map(summarize_measurement, labels, (before, after)))))


def find_warnings(changes: Sequence[TrainingChange]) -> list[str]:
    """Return what must be known before the changes are believed."""
    collapses = [
        f"The {change.title} has risen from {format_number(change.before.value, '.2f')} to "
        f"{format_number(change.after.value, '.2f')}: the embeddings are "
        "collapsing. Embeddings that are all alike do not depend on position, which is no cure."
        for change in changes
        if change.score == COSINE
        and change.before
        and change.after
        and change.after.value - change.before.value > COLLAPSE
    ]
    losses = [
        f"{change.title}: worse than the base model's."
        for change in changes
        if change.score == NDCG and change.metric and change.metric.state is ChangeState.WORSE
    ]
    return [*collapses, *losses]


def describe_changes(changes: Sequence[TrainingChange]) -> Iterator[str]:
    """Yield a paragraph for the held-out articles and for each forgetting check: how nDCG@10 and
    position effects change.
    """
    for name in dict.fromkeys(change.forgetting_check for change in changes):
        own = (
            change for change in changes if change.forgetting_check == name and change.difference
        )
        if sentences := [change.sentence for change in own if change.sentence]:
            yield " ".join(sentences if name is None else [f"Forgetting check {name}:", *sentences])


def build_table(changes: Sequence[TrainingChange], title: str, notes: Sequence[str]) -> Table:
    """Return the table of a report."""
    rows = []
    for change in changes:
        indexed = change.score == COSINE
        score, difference = (
            (format_psi, format_psi_difference) if indexed else (format_percent, format_points)
        )
        scores = (change.before, change.after)
        own = (
            format_estimate(value, format_points if change.score in EFFECTS else score)
            for value in scores
        )
        rows.append(
            (change.title, *own, format_estimate(change.difference, difference), change.label)
        )
    headings = ("Score", "Before", "After", "After - before", "Change")
    return Table(build_columns(headings, headings[1:4]), tuple(rows), title, tuple(notes))


def open_forgetting_check(name: str) -> Dataset | AbsTaskRetrieval:
    """Return the data of a forgetting check: what `open_data` takes, or a retrieval task of
    mteb.
    """
    path = Path(name).expanduser()
    # What no task is named.
    if "/" in name or path.suffix or path.exists():
        return open_dataset(name)
    if (task := find_retrieval_task(name)) is None:
        raise PosirError(
            f"--guard {name}: no file or folder, and mteb has no such retrieval task. Choose one, "
            "such as SciFact; "
            "`posir tasks` lists some."
        )
    return open_dataset(name) if isinstance(task, PositionTask) else task


def check_forgetting(
    data: Dataset | AbsTaskRetrieval,
    models: tuple[SentenceTransformer, SentenceTransformer],
    labels: tuple[str, str],
    trained_on: Collection[str],
) -> tuple[list[TrainingChange], list[str]]:
    """Compare the base model and the trained one, by their labels, on the data of a forgetting
    check.

    With positions of the evidence, these are all scores that held-out questions have, in the whole
    corpus, paired by query, and intervals are for new articles. Another task has nDCG@10, and its
    queries count as independent. There are notes on articles of the data that were trained on, and
    on what the models truncate.
    """
    if isinstance(data, AbsTaskRetrieval):
        name = data.metadata.name
        change = compare_queries(name, *(_measure_queries(data, model) for model in models))
        return [change], [
            f"Forgetting check {name}: a task of mteb, whose queries count as independent."
        ]
    before, after = (measure(model, data) for model in models)
    named = [name_articles(subset, subset.read().evidence) for subset in data.subsets]
    articles = {name for names in named for name in names}
    counts = pluralize(sum(map(len, named)), "question"), pluralize(len(articles), "article")
    common = len(articles.intersection(trained_on))
    warning = f" {common} of these were trained on." if common else ""
    notes = [f"{counts[0]} about {counts[1]}.{warning}", *list_truncation(before, after, labels)]
    return (
        [
            replace(change, forgetting_check=data.name)
            for change in compare_measurements(before, after)
        ],
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
            gains |= {
                f"{subset}/{split}/{query}": score
                for query, score in zip(relevant, scores, strict=True)
            }
    return gains


def compare_queries(
    name: str, before: Mapping[str, float], after: Mapping[str, float]
) -> TrainingChange:
    """Return the change of nDCG@10 of a task, paired by query; queries count as independent."""
    queries = sorted(before)
    values = [np.array([scores[query] for query in queries]) for scores in (before, after)]
    clusters = np.arange(len(queries))
    first, second = (estimate_mean(scores, clusters) for scores in values)
    return _build_change(NDCG, first, second, compare_gains(values[1] - values[0], clusters), name)


def describe(settings: TrainingSettings, trained: TrainedModel) -> list[str]:
    """Return what a model was trained on and measured with, in sentences."""
    training, held_out = trained.data, trained.data.held_out
    tasks = " ".join(f"-t {name}" for name in list_tasks(trained.held_out))
    shares = ", ".join(f"{share:.2f}" for share in settings.weights.shares)
    sampled = (
        f"Positions in batches: {settings.positions} (begin, middle, end: {shares}), balanced "
        "within length bins; "
        f"{settings.loss}, scale {settings.scale:g}."
        if settings.objective == "retrieval"
        else f"Objective: {settings.objective}; positions of the evidence play no part in it."
    )
    return [
        f"Trained on {training.description}. {sampled} Batches of {settings.batch_size}, learning "
        "rate "
        f"{settings.learning_rate:g}, seed {settings.seed}; the weights are those of step "
        f"{trained.steps:,}.",
        f"Measured with {pluralize(len(held_out.examples), 'question')} about "
        f"{pluralize(len(held_out.articles), 'article')} "
        "that were not trained on, searched in the whole corpus of "
        f"{pluralize(len(held_out.corpus), 'document')}. They are in "
        f"`{HELD_OUT}` in this folder, where `POSIR_DATA={HELD_OUT} mteb run {tasks} -m .` "
        "repeats the figures.",
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
    """Each score of the base model and of the trained model, on held-out articles first, then on
    the data of `guard`.
    """
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

    @property
    def pictures(self) -> tuple[Strip, ...]:
        """The pictures of the answer before and after training."""
        named = zip(("before", "after"), self.measured, strict=True)
        return tuple(
            build_strip(summary.findings[0], analyze(summary.values).overall, name)
            for name, summary in named
        )

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return the findings, then the tables."""
        findings = to_paragraphs(describe_changes(self.changes))
        return (
            *findings,
            DisplaySection(tables=self.tables, strips=self.pictures),
            DisplaySection(sentences=(DEPLOYMENT,)),
        )

    def records(self) -> list[dict[str, Any]]:
        """Return a row for each score and data."""
        return [change.record() for change in self.changes]

    def document(self) -> dict[str, Any]:
        """Return settings, notes and changes."""
        return {"settings": self.settings, "notes": self.notes, "changes": self.records()}

    def closing(self) -> tuple[str, ...]:
        """Return the folder of the model, and the commands that repeat the figures."""
        opening = (
            f"{self.folder}: the trained model, of step {self.steps:,}. To repeat the figures "
            "with mteb:"
        )
        return (opening, "\n".join(self.commands))

    def legend(self) -> tuple[str, ...]:
        """Return what the columns mean."""
        return (BRIEF,)

    def explanation(self) -> tuple[str, ...]:
        """Return what every column means."""
        return (LEGEND,)


def build_report(
    settings: TrainingSettings,
    folder: Path,
    trained: TrainedModel,
    forgetting_checks: Sequence[Dataset | AbsTaskRetrieval],
) -> TrainingReport:
    """Compare the trained model with the base model on held-out articles and on the data of
    forgetting checks.
    """
    labels, articles = (display_name(settings.model), TRAINED), trained.data.articles
    changes = compare_measurements(trained.before, trained.after)
    forgetting_notes: list[str] = []
    if forgetting_checks:
        models = load_base(settings), trained.model
        for data in progress(forgetting_checks, "Forgetting checks"):
            changed, said = check_forgetting(data, models, labels, articles)
            changes += changed
            forgetting_notes += said
    truncated = list_truncation(trained.before, trained.after, labels)
    retrieval = settings.objective == "retrieval"
    results, tasks = (
        folder / WORK / "results",
        [part for name in list_tasks(trained.held_out) for part in ("-t", name)],
    )
    # mteb knows no other pooling, window or prompt of the base model.
    altered = settings.model_dump(
        include={"revision", "pooling", "window", "query_prompt"}, exclude_none=True
    )
    base = [] if altered else [settings.model]
    runs = [
        f"POSIR_DATA={shlex.quote(str(folder / HELD_OUT))} "
        + shlex.join(["mteb", "run", *tasks, "-m", model, "--output-folder", str(results)])
        for model in [*base, str(folder)]
    ]
    return TrainingReport(
        title=f"{labels[0]}, trained "
        f"{f'on {settings.positions}' if retrieval else f'with {settings.objective}'}",
        settings=settings.to_json(),
        folder=folder,
        steps=trained.steps,
        changes=tuple(changes),
        notes=(
            *find_warnings(changes),
            *(f"Held-out articles: {note}" for note in truncated),
            *forgetting_notes,
            *trained.data.notes,
            *describe(settings, trained),
        ),
        commands=(*runs, shlex.join(["posir", "compare" if base else "report", str(results)])),
        measured=(
            summarize_measurement(labels[0], trained.before),
            summarize_measurement(TRAINED, trained.after),
        ),
    )


def compare_seeds(reports: Mapping[int, TrainingReport]) -> Result:
    """Return the changes by trainings that differ in their seed alone, and their means with 95%
    intervals for new seeds.
    """
    rows, cells, sentences = [], [], []
    for changes in zip(*(report.changes for report in reports.values()), strict=True):
        first, form = (
            changes[0],
            format_psi_difference if changes[0].score == COSINE else format_points,
        )
        values = [change.difference.value for change in changes if change.difference]
        mean = None
        if len(values) == len(changes):
            half = float(t.ppf(0.975, len(values) - 1) * sem(values))
            mean = Estimate(
                float(np.mean(values)),
                (float(np.mean(values)) - half, float(np.mean(values)) + half),
            )
            sentences += (
                [
                    f"Over {len(values)} seeds, {first.title} changes by "
                    f"{format_estimate(mean, form)}."
                ]
                if first.metric
                else []
            )
        own = {
            f"seed_{seed}": change.difference for seed, change in zip(reports, changes, strict=True)
        }
        rows.append(
            {"score": first.score, "forgetting_check": first.forgetting_check, "mean": mean, **own}
        )
        cells.append(
            (first.title, *(format_estimate(change, form) for change in (*own.values(), mean)))
        )
    headings = ("Score", *(f"Seed {seed}" for seed in reports), "Over seeds")
    table = Table(build_columns(headings, headings[1:]), tuple(cells))
    note = (
        "After - before on the same held-out articles. Of a seed: the interval is for new "
        "articles. Over seeds: the mean, and "
        "its interval for new seeds on these articles, by Student's t."
    )
    title, folders = (
        next(iter(reports.values())).title,
        [str(report.folder) for report in reports.values()],
    )
    return Result(
        title=title, rows=rows, tables=[table], sentences=sentences, notes=[note], footer=folders
    )


def write_report(report: TrainingReport, model: SentenceTransformer) -> None:
    """Write the report into the work folder, and into the model card with its curve before and
    after training.
    """
    work_folder = report.folder / WORK
    sentences = list(describe_changes(report.changes))
    markdown = "\n\n".join([*sentences, *map(to_markdown, report.tables)])
    for name, text in {
        "report.json": report.to_json(),
        "report.md": markdown,
        "report.html": report.to_html(),
    }.items():
        write_text(work_folder / name, text)
    Picture(draw_strips(report.pictures)).save(work_folder / "curve.png")
    image = f"![{' '.join(strip.description for strip in report.pictures)}]({WORK}/curve.png)"
    card = "\n\n".join([*sentences, image, *map(to_markdown, report.tables), DEPLOYMENT])
    add_to_card(report.folder, card, model.model_card_data.base_model)
