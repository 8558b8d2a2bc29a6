"""Run a training: from settings and data to a trained model in a folder."""

from __future__ import annotations

import io
import json
import math
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from datasets import Dataset as PairDataset
from datasets import disable_progress_bars
from safetensors import SafetensorError
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer import losses
from torch.utils.data import BatchSampler
from transformers import PrinterCallback, TrainerCallback
from transformers.integrations.integration_utils import get_reporting_integration_callbacks
from transformers.trainer import TRAINER_STATE_NAME, TRAINING_ARGS_NAME
from transformers.trainer_callback import TrainerState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.utils import logging as transformers_logging

from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import (
    DISK_FULL,
    PART_SUFFIX,
    check_writable,
    is_unfinished,
    remove_all_parts,
    write_atomically,
    write_text,
)
from posir_tasks.base.progress import track
from posir_tasks.base.settings_file import dump_settings
from posir_tasks.base.untrusted import read_json
from posir_tasks.datasets.dataset import Dataset
from posir_tasks.datasets.opening import open_data
from posir_tasks.models.folder import digest_folder, is_model_folder
from posir_train.batches import BatchPlan, PositionBatchSampler
from posir_train.evaluation import CRITERION, PositionEvaluator
from posir_train.examples import Examples, write_dataset
from posir_train.measurement import Measurement, measure_model
from posir_train.preparation import (
    ModelWindow,
    PadsLoss,
    PreparedData,
    load_base_model,
    prepare_data,
)
from posir_train.settings import (
    CHECKPOINT_FOLDER,
    HELD_OUT_FOLDER,
    RUN_FILE,
    WORK_FOLDER,
    TrainingSettings,
)

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

#: A write error counts as a full disk if fewer bytes are free.
MIN_FREE_BYTES = 2**24


class PositionTrainer(SentenceTransformerTrainer):
    """A trainer that follows a batch plan and stops if the loss is not finite."""

    def __init__(self, plan: BatchPlan | None, **options: Any) -> None:
        self._plan = plan
        super().__init__(**options)

    def get_batch_sampler(
        self, dataset: PairDataset, batch_size: int, *args: Any, **options: Any
    ) -> BatchSampler | None:
        """Return a sampler for the batch plan or, without a plan, the default sampler."""
        if self._plan is None:
            return super().get_batch_sampler(dataset, batch_size, *args, **options)
        return PositionBatchSampler(dataset, self._plan, batch_size, self.args.seed)

    def compute_loss(self, *args: Any, **options: Any) -> Any:
        """Compute the loss. Raise PosirError if it is not finite, before the weights change."""
        result = super().compute_loss(*args, **options)
        loss = result[0] if isinstance(result, tuple) else result
        if not math.isfinite(loss.item()):
            raise PosirError(
                f"the loss is {loss.item()} in step {self.state.global_step + 1}. Lower "
                "learning_rate."
            )
        return result


def _continue_training(trainer: PositionTrainer, checkpoint: Path | None) -> None:
    """Train from a checkpoint or from scratch. If the checkpoint is from the last step, only load
    the weights.
    """
    if checkpoint is None:
        trainer.train()
        return
    state = _read_state(checkpoint)
    if state.global_step < state.max_steps:
        trainer.train(resume_from_checkpoint=str(checkpoint))
        return
    # Do not call `train`: transformers would run one more step, except at the end of an epoch.
    trainer.state = state
    best = state.best_model_checkpoint if trainer.args.load_best_model_at_end else None
    trainer._load_from_checkpoint(best or str(checkpoint))


def _read_state(checkpoint: Path) -> TrainerState:
    """Read the trainer state. Raise OSError, ValueError or TypeError if it is incomplete."""
    state: TrainerState = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
    return state


def find_last_checkpoint(folder: Path) -> Path | None:
    """Return the last complete checkpoint in a folder, or None. Remove incomplete checkpoints.

    Checkpoints are folders named `checkpoint-STEP`. The trainer state in them is written last.
    """
    checkpoints_by_step = {}
    for path in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        step = path.name.removeprefix(f"{PREFIX_CHECKPOINT_DIR}-")
        if not step.isdecimal() or path.is_symlink() or not path.is_dir():
            continue
        try:
            checkpoints_by_step[int(_read_state(path).global_step)] = path
        except (OSError, ValueError, TypeError):
            shutil.rmtree(path, ignore_errors=True)
    return checkpoints_by_step[max(checkpoints_by_step)] if checkpoints_by_step else None


def _set_best_checkpoint(checkpoints: Path, parent: Path) -> None:
    """Set the parent folder of the best checkpoint in every trainer state. `Path()` removes it.

    transformers writes absolute paths, which break if the folder is moved and expose the names of
    local folders.
    """
    for file in checkpoints.glob(f"{PREFIX_CHECKPOINT_DIR}-*/{TRAINER_STATE_NAME}"):
        state = _read_state(file.parent)
        if state.best_model_checkpoint:
            state.best_model_checkpoint = str(parent / Path(state.best_model_checkpoint).name)
            with write_atomically(file) as temporary:
                state.save_to_json(str(temporary))


@contextmanager
def _explain_failures(checkpoints: Path) -> Iterator[None]:
    try:
        yield
    except (PosirError, OSError, RuntimeError, SafetensorError) as error:
        if isinstance(error, PosirError):
            reason = f"{error} Choose another --output for the new settings."
        elif isinstance(error, torch.OutOfMemoryError):
            reason = (
                "not enough GPU memory. Lower mini_batch_size (with the loss "
                "CachedMultipleNegativesRankingLoss, it also applies to training steps) and run "
                "the same command with --resume. Or choose a lower batch_size or window, and "
                "another --output."
            )
        elif _is_disk_full(error, checkpoints):
            reason = (
                f"{checkpoints}: not enough disk space. Free some space, and run the same command "
                "with --resume."
            )
        else:
            raise
        last_checkpoint = find_last_checkpoint(checkpoints)
        progress = "There is no checkpoint yet."
        if last_checkpoint:
            progress = f"The last checkpoint, {last_checkpoint}, is complete."
        raise PosirError(f"Training stopped: {reason} {progress}") from error


def _is_disk_full(error: Exception, checkpoints: Path) -> bool:
    """Return True if a full disk caused the error."""
    errno = getattr(error, "errno", None)
    # PyTorch and safetensors report the errno only in the message.
    match = re.search(r"(?:os error|code:) (\d+)", str(error))
    if errno is None and match:
        errno = int(match[1])
    return errno in DISK_FULL or shutil.disk_usage(checkpoints.parents[1]).free < MIN_FREE_BYTES


#: Number of documents to rotate per length bucket when a checkpoint is evaluated.
ROTATED_SAMPLE = 50
#: Score for selecting checkpoints, by checkpoint rule.
METRICS_BY_RULE = {"balanced": CRITERION, "ndcg": "ndcg_at_10"}
#: File that identifies a sentence-transformers model.
MODULES_FILE = "modules.json"


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A trained model, its data, and measurements before and after training."""

    model: SentenceTransformer
    data: PreparedData
    held_out: Dataset
    before: Measurement
    after: Measurement
    steps: int
    """Training step of the selected weights."""


def train_model(
    settings: TrainingSettings, output: Path, data: Examples, *, resume: bool = False
) -> TrainedModel:
    """Train a model, measure it, and save it in the output folder. With `resume`, continue a run
    that has the same settings.

    Raises:
        PosirError: The output folder contains other files or a run with other settings, or
            training fails.
    """
    _check_run(settings, output, data, resume=resume)
    # The interrupted run has ended: its unfinished files are not needed.
    remove_all_parts(output)
    work_folder = output / WORK_FOLDER
    checkpoints = output / CHECKPOINT_FOLDER
    # Hide the libraries' progress bars and all messages except errors.
    disable_progress_bars()
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    with track("Loading the model"):
        model = load_base_model(settings)
    with track("Preparing the data"):
        prepared_data = prepare_data(settings, data, ModelWindow.from_model(model, settings.model))
    with _explain_failures(checkpoints):
        # Write this file first: a folder without it cannot be resumed.
        write_text(output / RUN_FILE, json.dumps(_record_settings(settings, data), indent=2))
        write_text(work_folder / "settings.yaml", dump_settings(settings))
        held_out = write_dataset(prepared_data.held_out, output / HELD_OUT_FOLDER)
        file = work_folder / "before.json"
        if file.exists():
            before = Measurement.from_json(read_json(file))
        else:
            with track("Measuring the base model"):
                before = measure_model(model, held_out, settings.mini_batch_size)
            write_text(file, json.dumps(before.to_json()))
    evaluator = PositionEvaluator(
        held_out,
        primary_metric=METRICS_BY_RULE.get(settings.checkpoint_rule, CRITERION),
        batch_size=settings.mini_batch_size,
        write_csv=False,
        baseline=before.values,
        rotated=ROTATED_SAMPLE,
    )
    trainer = _build_trainer(settings, checkpoints, prepared_data, model, evaluator)
    checkpoint = find_last_checkpoint(checkpoints)
    steps = _count_steps(settings, prepared_data)
    if checkpoint:
        steps -= _read_state(checkpoint).global_step
    with _explain_failures(checkpoints):
        with track("Training", steps) as advance:
            trainer.add_callback(
                type("StepCounter", (TrainerCallback,), {"on_step_end": lambda *_, **__: advance()})
            )
            _set_best_checkpoint(checkpoints, checkpoints)
            _continue_training(trainer, checkpoint)
        best_step = None
        if settings.checkpoint_rule in METRICS_BY_RULE:
            best_step = trainer.state.best_global_step
        step = best_step or trainer.state.global_step
        after = measure_model(model, held_out, settings.mini_batch_size)
        save_model(model, output)
        # Remove local paths from the checkpoints, which can still be resumed.
        _set_best_checkpoint(checkpoints, Path())
        # This unused file contains the output path.
        for arguments_file in checkpoints.glob(f"{PREFIX_CHECKPOINT_DIR}-*/{TRAINING_ARGS_NAME}"):
            arguments_file.unlink()
    return TrainedModel(model, prepared_data, held_out, before, after, step)


def _record_settings(settings: TrainingSettings, data: Examples) -> dict[str, Any]:
    """Convert the settings to JSON values, with the revisions of model and data."""
    base = Path(settings.model).expanduser()
    texts_revision = None
    if settings.texts is not None:
        texts_revision = open_data(settings.texts).find_revision()
    return settings.to_json() | {
        "data_revision": data.revision,
        "texts_revision": texts_revision,
        "model_digest": digest_folder(base) if is_model_folder(base) else None,
    }


def _check_run(settings: TrainingSettings, output: Path, data: Examples, *, resume: bool) -> None:
    """Raise PosirError if a tracker is not installed, or if the output folder is neither empty nor
    a run with the same settings to resume.
    """
    try:
        for callback in get_reporting_integration_callbacks(list(settings.trackers)):  # type: ignore[no-untyped-call]
            callback()
    except (ValueError, RuntimeError, ImportError) as error:
        raise PosirError(f"trackers: {', '.join(settings.trackers)}: {error}") from error
    check_writable(output)
    file = output / RUN_FILE
    if not resume:
        if any(output.iterdir()):
            raise PosirError(
                f"{output}: not empty. Resume an unfinished run with --resume, or choose another "
                "--output."
            )
    elif file.exists():
        current = _record_settings(settings, data)
        previous = read_json(file)
        names = sorted(current.keys() | previous.keys())
        changed_names = [name for name in names if current.get(name) != previous.get(name)]
        if changed_names:
            raise PosirError(
                f"{output}: cannot be resumed, since the run has other values of "
                f"{', '.join(changed_names)}. Give the same settings and data, or choose another "
                "--output."
            )
    elif any(not is_unfinished(path) for path in output.rglob("*") if not path.is_dir()):
        raise PosirError(
            f"{output}: contains files, but no run to resume ({RUN_FILE} is missing). Choose "
            "another --output."
        )


def _build_trainer(
    settings: TrainingSettings,
    folder: Path,
    data: PreparedData,
    model: SentenceTransformer,
    evaluator: PositionEvaluator,
) -> PositionTrainer:
    evaluation_steps = math.ceil(_count_steps(settings, data) / settings.evaluations)
    is_retrieval = settings.objective == "retrieval"
    prompts = {
        "anchor": model.prompts.get("query") or "",
        "positive": model.prompts.get("document") or "",
    }
    metric = METRICS_BY_RULE.get(settings.checkpoint_rule)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        num_train_epochs=settings.epochs,
        max_steps=settings.max_steps or -1,
        per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup,
        lr_scheduler_type=settings.schedule,
        # PADS trains with Adam, which is AdamW without weight decay.
        weight_decay=0.01 if is_retrieval else 0.0,
        seed=settings.seed,
        prompts=prompts if any(prompts.values()) and is_retrieval else None,
        eval_strategy="steps",
        eval_steps=evaluation_steps,
        save_strategy="steps",
        save_steps=evaluation_steps,
        logging_steps=evaluation_steps,
        save_total_limit=2,
        load_best_model_at_end=metric is not None,
        metric_for_best_model=metric and f"eval_{metric}",
        report_to=list(settings.trackers),
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
    )
    loss_options: dict[str, Any] = {"scale": settings.scale}
    if settings.loss.startswith("Cached"):
        loss_options["mini_batch_size"] = settings.mini_batch_size
    loss_class: Callable[..., torch.nn.Module] = getattr(losses, settings.loss)
    # The progress bar for the model card cannot be disabled in another way.
    with redirect_stderr(io.StringIO()):
        trainer = PositionTrainer(
            data.plan,
            model=model,
            args=arguments,
            train_dataset=data.dataset,
            loss=loss_class(model, **loss_options) if is_retrieval else PadsLoss(model),
            evaluator=evaluator,
        )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _count_steps(settings: TrainingSettings, data: PreparedData) -> int:
    if settings.max_steps:
        return settings.max_steps
    batch_size = settings.batch_size
    steps_per_epoch = math.ceil(len(data.dataset) / batch_size)
    if data.plan:
        steps_per_epoch = len(data.plan.form_batches(batch_size, settings.seed, 0))
    return max(1, math.ceil(steps_per_epoch * settings.epochs))


def save_model(model: SentenceTransformer, folder: Path) -> None:
    """Save a model in a folder, so that an interrupted write never looks like a complete model."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".model.", suffix=PART_SUFFIX) as temporary:
        model.save_pretrained(temporary)
        # Move the file that identifies the model last.
        for path in sorted(Path(temporary).iterdir(), key=lambda path: path.name == MODULES_FILE):
            if path.is_dir():
                shutil.rmtree(folder / path.name, ignore_errors=True)
            path.replace(folder / path.name)
