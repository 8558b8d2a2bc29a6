"""A training run: from settings and data to a model in a folder."""

from __future__ import annotations

import io
import json
import math
import shutil
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from datasets import disable_progress_bars
from sentence_transformers import SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer import losses
from transformers import PrinterCallback
from transformers.utils import logging as transformers_logging

from posir_tasks.display.progress import track
from posir_tasks.errors import PosirError
from posir_tasks.files import PART_SUFFIX, atomic_write, check_writable
from posir_tasks.models.folder import digest_folder, is_model_folder
from posir_tasks.models.landmarks import LandmarkTransformer
from posir_tasks.settings_file import dump_settings
from posir_tasks.sources.opening import Dataset, open_data
from posir_train.evaluation import Measurement, measure
from posir_train.examples import Examples
from posir_train.layout import write_dataset
from posir_train.model import ModelReader, load_base
from posir_train.pads import PadsLoss
from posir_train.position_evaluator import CRITERION, PositionEvaluator
from posir_train.preparation import PreparedData, TrainingData, prepare_data
from posir_train.settings import Objective, RunFolder, Select, TrainingSettings
from posir_train.trainer import (
    PositionTrainer,
    StepCounter,
    anonymize_checkpoints,
    check_trackers,
    explain_failures,
    find_checkpoint,
    place_best_checkpoint,
    read_step,
)

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

BEFORE_FILE = "before.json"
#: Names of the scores that checkpoints are compared by.
METRICS = {Select.BALANCED: CRITERION, Select.NDCG: "ndcg_at_10"}
#: The file that makes a folder a model of sentence-transformers; it is written last.
MODULES_FILE = "modules.json"


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A trained model, and what is needed to compare it with the base model."""

    model: SentenceTransformer
    data: PreparedData
    held_out: Dataset
    """The held-out questions and the corpus, as a folder."""
    before: Measurement
    after: Measurement
    steps: int
    """The step whose weights it has."""


def train(settings: TrainingSettings, folder: RunFolder, data: Examples, *, resume: bool = False) -> TrainedModel:
    """Train a model, measure it, and write it into the output folder.

    Args:
        settings: What is trained, and how.
        folder: Where to.
        data: Examples of training and held-out articles.
        resume: Whether to continue an unfinished run of the same settings.

    Raises:
        PosirError: Model, data or settings do not fit together, the folder is taken, or training failed.
    """
    check_trackers(settings.trackers)
    check_folder(settings, folder, data, resume=resume)
    _limit_output()
    with track("Loading the model"):
        model = load_base(settings)
    with track("Preparing the data"):
        prepared = prepare_data(settings, data, ModelReader.of_model(model, settings.model))
    with explain_failures(folder.checkpoints):
        _write_text(folder.settings_file, dump_settings(settings))
        _write_text(folder.record_file, json.dumps(record_settings(settings, data), indent=2))
        held_out = write_dataset(prepared.held_out, folder.held_out)
        before = _measure_before(settings, folder, held_out, model)
    evaluator = PositionEvaluator(
        held_out,
        primary_metric=METRICS.get(settings.chosen, CRITERION),
        batch_size=settings.mini_batch_size,
        write_csv=False,
        baseline=before.ranks,
    )
    trainer = build_trainer(settings, folder, prepared, model, evaluator)
    checkpoint = find_checkpoint(folder.checkpoints)
    with explain_failures(folder.checkpoints):
        with track("Training", count_steps(settings, prepared.training) - read_step(checkpoint)) as advance:
            trainer.add_callback(StepCounter(advance))
            place_best_checkpoint(folder.checkpoints, folder.checkpoints)
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        best = trainer.state.best_global_step if settings.chosen in METRICS else None
        step = best or trainer.state.global_step
        after = measure(model, held_out, settings.mini_batch_size)
        save_model(model, folder.output)
        anonymize_checkpoints(folder.checkpoints)
    return TrainedModel(model, prepared, held_out, before, after, step)


def _limit_output() -> None:
    """Show none of the libraries' own bars, and of their messages errors only."""
    disable_progress_bars()
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def record_settings(settings: TrainingSettings, data: Examples) -> dict[str, Any]:
    """Return what a run that is continued must agree in."""
    base = Path(settings.model).expanduser()
    weights = digest_folder(base) if is_model_folder(base) else None
    texts = open_data(settings.texts).find_revision() if settings.texts is not None else None
    recorded: dict[str, Any] = json.loads(
        json.dumps(settings.to_json() | {"data_revision": data.revision, "texts_revision": texts, "model_digest": weights})
    )
    return recorded


def check_folder(settings: TrainingSettings, folder: RunFolder, data: Examples, *, resume: bool) -> None:
    """Check that the output folder is empty, or that of a run with the same settings, which is to be continued.

    Raises:
        PosirError: There is something in the folder and it is not to be resumed, or its settings are others.
    """
    check_writable(folder.output)
    file = folder.record_file
    if not resume:
        if any(folder.output.iterdir()):
            unfinished = " Continue it with --resume, or choose" if file.exists() else " Choose"
            raise PosirError(f"{folder.output}: not empty.{unfinished} another --output.")
    elif file.exists():
        stated, known = record_settings(settings, data), json.loads(file.read_text(encoding="utf-8"))
        changed = sorted(name for name in stated.keys() | known.keys() if stated.get(name) != known.get(name))
        if changed:
            raise PosirError(
                f"{folder.output}: cannot be continued, since it was started with other values of {', '.join(changed)}. "
                "Give the same settings and data, or choose another --output."
            )


def _write_text(file: Path, text: str) -> None:
    with atomic_write(file) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _measure_before(settings: TrainingSettings, folder: RunFolder, data: Dataset, model: SentenceTransformer) -> Measurement:
    """Measure the base model; what an earlier start of the run measured is read again."""
    file = folder.work_folder / BEFORE_FILE
    if file.exists():
        return Measurement.from_json(json.loads(file.read_text(encoding="utf-8")))
    with track("Measuring the base model"):
        measured = measure(model, data, settings.mini_batch_size)
    _write_text(file, json.dumps(measured.to_json()))
    return measured


def build_trainer(
    settings: TrainingSettings,
    folder: RunFolder,
    data: PreparedData,
    model: SentenceTransformer,
    evaluator: PositionEvaluator,
) -> PositionTrainer:
    """Return the trainer of a run."""
    arguments = build_arguments(settings, folder, count_steps(settings, data.training), model)
    # A progress bar of the model card cannot be switched off.
    with redirect_stderr(io.StringIO()):
        trainer = PositionTrainer(
            data.training.plan,
            model=model,
            args=arguments,
            train_dataset=data.training.dataset,
            loss=build_loss(settings, model),
            evaluator=evaluator,
        )
    trainer.remove_callback(PrinterCallback)
    if isinstance(model[0], LandmarkTransformer):
        # Only the texts that are trained on have landmarks at varied distances.
        trainer.data_collator.preprocess_fn = partial(model.preprocess, vary_landmarks=True)
    return trainer


def count_steps(settings: TrainingSettings, data: TrainingData) -> int:
    """Return the number of steps of a run."""
    if settings.max_steps:
        return settings.max_steps
    size = settings.batch_size
    epoch = len(data.plan.form_batches(size, settings.seed, 0)) if data.plan else math.ceil(len(data.dataset) / size)
    return max(1, math.ceil(epoch * settings.epochs))


def build_arguments(
    settings: TrainingSettings, folder: RunFolder, steps: int, model: SentenceTransformer
) -> SentenceTransformerTrainingArguments:
    """Return the arguments of sentence-transformers' trainer."""
    every = math.ceil(steps / settings.evaluations)
    prompts = {"anchor": model.prompts.get("query") or "", "positive": model.prompts.get("document") or ""}
    best = settings.chosen in METRICS
    return SentenceTransformerTrainingArguments(
        output_dir=str(folder.checkpoints),
        num_train_epochs=settings.epochs,
        max_steps=settings.max_steps or -1,
        per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup,
        lr_scheduler_type=settings.schedule,
        # Without weight decay AdamW is Adam, with which PADS trains.
        weight_decay=0.01 if settings.objective is Objective.RETRIEVAL else 0.0,
        seed=settings.seed,
        prompts=prompts if any(prompts.values()) and settings.objective is Objective.RETRIEVAL else None,
        eval_strategy="steps",
        eval_steps=every,
        save_strategy="steps",
        save_steps=every,
        logging_steps=every,
        save_total_limit=2,
        load_best_model_at_end=best,
        metric_for_best_model=f"eval_{METRICS[settings.chosen]}" if best else None,
        greater_is_better=True if best else None,
        report_to=list(settings.trackers),
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
    )


def build_loss(settings: TrainingSettings, model: SentenceTransformer) -> torch.nn.Module:
    """Return the loss."""
    if settings.objective is not Objective.RETRIEVAL:
        return PadsLoss(model)
    options: dict[str, Any] = {"scale": settings.scale}
    if settings.loss.startswith("Cached"):
        options["mini_batch_size"] = settings.mini_batch_size
    build: Callable[..., torch.nn.Module] = getattr(losses, settings.loss)
    return build(model, **options)


def save_model(model: SentenceTransformer, folder: Path) -> None:
    """Write a model into a folder; an interrupted attempt leaves no folder that is taken for a model."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".model.", suffix=PART_SUFFIX) as temporary:
        model.save_pretrained(temporary)
        # What makes the folder a model is moved last.
        for path in sorted(Path(temporary).iterdir(), key=lambda path: path.name == MODULES_FILE):
            if path.is_dir():
                shutil.rmtree(folder / path.name, ignore_errors=True)
            path.replace(folder / path.name)
