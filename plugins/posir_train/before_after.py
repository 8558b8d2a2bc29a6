"""The report of a training run: every comparison of the base model and the trained one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from mteb.types import PromptType

from posir_probe.data import ProbeData, ProbeQuestion
from posir_probe.probe import Probe, run_plans
from posir_probe.probing import select_probes
from posir_tasks.display.numbers import format_estimate, format_psi
from posir_tasks.display.presentation import Presentable, to_paragraphs
from posir_tasks.display.progress import progress
from posir_tasks.display.sections import DisplaySection
from posir_tasks.display.tables import Table, build_columns, to_markdown
from posir_tasks.display.wording import pluralize
from posir_tasks.embeddings.encoding import Vectors
from posir_tasks.errors import PosirError
from posir_tasks.estimates import Estimate
from posir_tasks.files import atomic_write
from posir_tasks.models.landmarks import LandmarkTransformer
from posir_tasks.sources.opening import Dataset
from posir_tasks.text.spans import Span
from posir_train.examples import Example, list_tasks
from posir_train.model import load_base
from posir_train.report import (
    BRIEF,
    LEGEND,
    ForgettingCheck,
    ForgettingResult,
    TrainedOn,
    TrainingChange,
    TrainingComparison,
    build_table,
    describe_changes,
    find_warnings,
    summarize_measurement,
    title_changes,
    to_records,
)
from posir_train.settings import HELD_OUT, Objective, RunFolder, TrainingSettings, display_name
from posir_train.training import TrainedModel

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from posir_report.summary import TaskSummary
    from posir_tasks.display.charts.figures import Figure
    from posir_train.settings import TrainingSettings
    from posir_train.training import TrainedModel

#: Most documents that probes measure.
DOCUMENTS = 50
HEADINGS = ("Probe", "Position", "Before", "After")


@dataclass(frozen=True)
class SentenceEncoder:
    """A model of sentence-transformers as the probes call it."""

    model: SentenceTransformer

    def __call__(self, texts: Sequence[str], prompt_type: PromptType) -> Vectors:
        """Return the embeddings of n texts, shape (n, dimensions)."""
        encode = self.model.encode_query if prompt_type == PromptType.query else self.model.encode_document
        return np.asarray(encode(list(texts), show_progress_bar=False), np.float32)


@dataclass(frozen=True)
class CurvePoint:
    """A value of a probe at one position."""

    probe: str
    position: str
    before: Estimate | None
    after: Estimate | None


def select_text_probes(names: Sequence[str]) -> list[Probe]:
    """Return probes by name; raise PosirError for one that needs more than embeddings of texts."""
    chosen = select_probes(names) if names else []
    others = [probe.name for probe in chosen if probe.needs_all]
    if others:
        raise PosirError(f"probes: {others[0]} needs more than embeddings. Run `posir probe` with the trained model instead.")
    return chosen


def build_probe_data(examples: Sequence[Example]) -> ProbeData:
    """Return a random sample of the documents of examples, with their questions."""
    names = {example.document: f"{example.document.corpus}/{example.document.id}" for example in examples}
    questions = [
        ProbeQuestion(example.question, names[example.document], Span(example.start, example.end)) for example in examples
    ]
    return ProbeData({name: document.text for document, name in names.items()}, tuple(questions)).sample(DOCUMENTS)


def measure_curves(
    probes: Sequence[Probe], data: ProbeData, before: SentenceTransformer, after: SentenceTransformer
) -> list[CurvePoint]:
    """Measure two models with the same probes."""
    plans = [probe.plan(data) for probe in probes]
    curves = [run_plans(SentenceEncoder(model), plans) if plans else [] for model in (before, after)]
    return [
        CurvePoint(probe.name, position, first, second)
        for probe, before_curve, after_curve in zip(probes, *curves, strict=True)
        for position, first, second in zip(
            before_curve.positions, before_curve.estimates(), after_curve.estimates(), strict=True
        )
    ]


def build_curve_table(points: Sequence[CurvePoint]) -> Table:
    """Return a table with the curves of all probes."""
    rows = tuple(
        (point.probe, point.position, format_estimate(point.before, format_psi), format_estimate(point.after, format_psi))
        for point in points
    )
    return Table(build_columns(HEADINGS), rows, f"Probes, on {DOCUMENTS} held-out documents at most", keys=2)


CARD_FILE, HEADING = "README.md", "## Position of the evidence"


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
        *_describe_landmarks(trained.model),
    ]


def _describe_landmarks(model: SentenceTransformer) -> list[str]:
    """Return how a model with landmarks is loaded and what its window holds; nothing about another model."""
    first = model[0]
    if not isinstance(first, LandmarkTransformer):
        return []
    window, read = first.max_seq_length, first.text_window
    room = f" Its window of {window:,} tokens holds {window - read:,} less of a long text for it." if window and read else ""
    return [
        f"Landmark pooling (arXiv 2601.21525): a separator after every {first.landmark_size} tokens, and the mean of their "
        f"states.{room} Loading it needs posir: `SentenceTransformer(FOLDER, trust_remote_code=True)`, or this folder as a "
        "model of `mteb run` and `posir`."
    ]


def add_to_card(folder: Path, report: str, base: str | None) -> None:
    """Add a report to the model card in a folder, in place of an earlier one.

    Args:
        folder: A model.
        report: Markdown.
        base: Name of the base model. sentence-transformers links to it on the Hub; the name of a folder is no such link.
    """
    card = folder / CARD_FILE
    text = card.read_text(encoding="utf-8").partition(HEADING)[0] if card.exists() else ""
    if base and "/" not in base:
        text = text.replace(f"[{base}](https://huggingface.co/{base})", base)
    with atomic_write(card) as temporary:
        temporary.write_text(f"{text.rstrip()}\n\n{HEADING}\n\n{report}\n", encoding="utf-8")


MARKDOWN_FILE, RESULTS_FILE, PAGE_FILE, CURVE_FILE = "report.md", "report.json", "report.html", "curve.png"


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
    curves: tuple[CurvePoint, ...]
    """Values of probes before and after."""
    notes: tuple[str, ...]
    """Warnings first, then what was left out, and what was trained on and measured with."""
    commands: tuple[str, ...]
    """Commands of a shell that repeat the figures of held-out articles."""
    measured: tuple[TaskSummary, TaskSummary]
    """The base model and the trained one on held-out articles."""

    @property
    def tables(self) -> tuple[Table, ...]:
        """The table of changes, and that of probes if there are any."""
        curves = [build_curve_table(self.curves)] if self.curves else []
        return (build_table(self.changes, self.title, self.notes), *curves)

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return the findings, then the tables."""
        return (*to_paragraphs(describe_changes(self.changes)), DisplaySection(tables=self.tables, draw=self._draw))

    def _draw(self) -> list[Figure]:
        # Altair takes a second to import.
        from posir_train.position_evaluator import draw_before_after

        return [draw_before_after(self.measured, title_changes(self.changes), self.title)]

    def records(self) -> list[dict[str, Any]]:
        """Return a row for each score and data."""
        return to_records(self.changes)

    def document(self) -> dict[str, Any]:
        """Return settings, notes, changes and curves."""
        return {"settings": self.settings, "notes": self.notes, "changes": self.records(), "curves": self.curves}

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
    forgetting_checks: Sequence[ForgettingCheck],
    probes: Sequence[Probe],
) -> TrainingReport:
    """Compare the trained model with the base model on held-out articles, on the data of forgetting checks, and by probes."""
    base_name = display_name(settings.model)
    about = TrainedOn(trained.data.training.articles, (base_name, "The trained model"))
    held_out = TrainingComparison(trained.before, trained.after, about.labels)
    forgetting_results: list[ForgettingResult] = []
    curves: list[CurvePoint] = []
    if forgetting_checks or probes:
        base = load_base(settings)
        forgetting_results = [
            forgetting_check.compare(base, trained.model, about)
            for forgetting_check in progress(forgetting_checks, "Forgetting checks")
        ]
        curves = measure_curves(probes, build_probe_data(trained.data.held_out.examples), base, trained.model)
    changes = [*held_out.changes, *(change for result in forgetting_results for change in result.changes)]
    notes = [
        *find_warnings(changes),
        *(f"Held-out articles: {note}" for note in held_out.truncation),
        *(note for result in forgetting_results for note in result.notes),
        *trained.data.training.notes,
        *describe(settings, trained),
    ]
    return TrainingReport(
        title=f"{base_name}, trained {settings.description}",
        settings=settings.to_json(),
        folder=folder.output,
        steps=trained.steps,
        changes=tuple(changes),
        curves=tuple(curves),
        notes=tuple(notes),
        commands=tuple(list_commands(settings, folder, trained.held_out)),
        measured=(summarize_measurement(base_name, trained.before), summarize_measurement("The trained model", trained.after)),
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
    # Altair takes a second to import.
    from posir_tasks.display.charts.figures import SCALE

    with atomic_write(work_folder / CURVE_FILE) as temporary:
        figure.chart.save(temporary, format="png", scale_factor=SCALE)
    image = f"![{figure.title}]({work_folder.name}/{CURVE_FILE})"
    card = "\n\n".join([*sentences, image, *map(to_markdown, report.tables)])
    add_to_card(report.folder, card, model.model_card_data.base_model)
