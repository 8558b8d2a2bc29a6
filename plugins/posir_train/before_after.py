"""The report of a training run: every comparison of the base model and the trained one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_probe.probe import TextProbe
from posir_tasks.display.presentation import Presentable, to_paragraphs
from posir_tasks.display.progress import progress
from posir_tasks.display.sections import DisplaySection
from posir_tasks.display.tables import Table, to_markdown
from posir_tasks.files import atomic_write
from posir_tasks.sources.opening import Dataset
from posir_train.forgetting import ForgettingCheck, ForgettingResult, TrainedOn
from posir_train.layout import list_tasks
from posir_train.model import load_base
from posir_train.model_card import add_to_card, describe
from posir_train.probe_curves import CurvePoint, build_curve_table, build_probe_data, measure_curves
from posir_train.report import (
    BRIEF,
    LEGEND,
    Change,
    TrainingComparison,
    build_table,
    correct,
    describe_changes,
    find_warnings,
    summarize_measurement,
    title_changes,
    to_records,
)
from posir_train.settings import RunFolder, TrainingSettings
from posir_train.sources import display_name
from posir_train.training import TrainedModel

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from posir_report.summary import TaskSummary
    from posir_tasks.display.charts.figures import Figure

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
    changes: tuple[Change, ...]
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
        from posir_train.curve_picture import draw_before_after

        return [draw_before_after(self.measured, title_changes(self.changes), self.title)]

    def records(self) -> list[dict[str, Any]]:
        """Return a row for each score and data."""
        return to_records(self.changes)

    def document(self) -> dict[str, Any]:
        """Return settings, notes, changes and curves."""
        return {
            "settings": self.settings,
            "notes": self.notes,
            "changes": self.records(),
            "curves": self.curves,
        }

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
    probes: Sequence[TextProbe],
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
    changes = correct([*held_out.changes, *(change for result in forgetting_results for change in result.changes)])
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
        measured=(
            summarize_measurement(base_name, trained.before),
            summarize_measurement("The trained model", trained.after),
        ),
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
