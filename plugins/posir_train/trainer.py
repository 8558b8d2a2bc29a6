"""sentence-transformers' trainer with batches by position, and what a user is told if training fails."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from safetensors import SafetensorError
from sentence_transformers import SentenceTransformerTrainer
from torch.utils.data import BatchSampler
from transformers import TrainerCallback
from transformers.integrations.integration_utils import get_reporting_integration_callbacks
from transformers.trainer import TRAINER_STATE_NAME, TRAINING_ARGS_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from posir_tasks.display.progress import Advance
from posir_tasks.errors import PosirError
from posir_tasks.files import DISK_FULL, atomic_write
from posir_train.sampler import BatchPlan, PositionBatchSampler

#: Free bytes below which an error of writing is one of a full disk.
ALMOST_FULL = 2**24
#: Key of the path of the best checkpoint in the state of the trainer.
BEST_CHECKPOINT = "best_model_checkpoint"


class PositionTrainer(SentenceTransformerTrainer):
    """A trainer whose batches follow a plan, and that stops if the loss is not a number."""

    def __init__(self, plan: BatchPlan | None, **options: Any) -> None:
        self._plan = plan
        super().__init__(**options)

    def get_batch_sampler(self, dataset: Dataset, batch_size: int, *args: Any, **options: Any) -> BatchSampler | None:
        """Return the sampler of the plan; without a plan, sentence-transformers' own."""
        if self._plan is None:
            return super().get_batch_sampler(dataset, batch_size, *args, **options)
        return PositionBatchSampler(dataset, self._plan, batch_size, self.args.seed)

    def compute_loss(self, *args: Any, **options: Any) -> Any:
        """Compute the loss; raise PosirError if it is not finite, before it changes the weights."""
        computed = super().compute_loss(*args, **options)
        loss = computed[0] if isinstance(computed, tuple) else computed
        if not math.isfinite(loss.item()):
            raise PosirError(f"the loss is {loss.item()} in step {self.state.global_step + 1}. Lower learning_rate.")
        return computed


class StepCounter(TrainerCallback):
    """Counts the steps of a training run."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance

    def on_step_end(self, *_: object, **__: object) -> None:
        """Count a step."""
        self._advance()


def check_trackers(names: Sequence[str]) -> None:
    """Raise PosirError if transformers does not know a tracker, or its package is missing."""
    try:
        for callback in get_reporting_integration_callbacks(list(names)):  # type: ignore[no-untyped-call]
            callback()
    except (ValueError, RuntimeError, ImportError) as error:
        raise PosirError(f"trackers: {', '.join(names)}: {error}") from error


def read_step(checkpoint: Path | None) -> int:
    """Return the step of a checkpoint, 0 for none; raise OSError, ValueError or KeyError if it is incomplete."""
    if checkpoint is None:
        return 0
    return int(json.loads((checkpoint / TRAINER_STATE_NAME).read_text(encoding="utf-8"))["global_step"])


def find_checkpoint(folder: Path) -> Path | None:
    """Return the last complete checkpoint in a folder, None if there is none; remove incomplete ones.

    The state of the trainer is the last file that is written.
    """
    checkpoints: dict[int, Path] = {}
    for path in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        try:
            checkpoints[read_step(path)] = path
        except (OSError, ValueError, KeyError):
            shutil.rmtree(path, ignore_errors=True)
    return checkpoints[max(checkpoints)] if checkpoints else None


def place_best_checkpoint(checkpoints: Path, parent: Path) -> None:
    """Write into the checkpoints in a folder where the best of them is.

    transformers writes its path, which is wrong once the folder is moved, and says how folders of the user are named.

    Args:
        checkpoints: The folder of the checkpoints.
        parent: The folder in which the best one is said to be; `Path()` for its name alone.
    """
    for file in checkpoints.glob(f"{PREFIX_CHECKPOINT_DIR}-*/{TRAINER_STATE_NAME}"):
        state = json.loads(file.read_text(encoding="utf-8"))
        if best := state.get(BEST_CHECKPOINT):
            state[BEST_CHECKPOINT] = str(parent / Path(best).name)
            with atomic_write(file) as temporary:
                temporary.write_text(json.dumps(state, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def anonymize_checkpoints(checkpoints: Path) -> None:
    """Remove folders of the user from the checkpoints of a completed run, which can still be continued."""
    place_best_checkpoint(checkpoints, Path())
    # The arguments of the run, output folder included, which nothing reads: they are built from the settings.
    for file in checkpoints.glob(f"{PREFIX_CHECKPOINT_DIR}-*/{TRAINING_ARGS_NAME}"):
        file.unlink()


@contextmanager
def explain_failures(checkpoints: Path) -> Iterator[None]:
    """Turn errors of training into a PosirError that says what happened, what to do, and which checkpoint is complete."""
    try:
        yield
    except PosirError as error:
        raise PosirError(
            f"Training stopped: {error} Choose another --output for other settings. {_describe_checkpoint(checkpoints)}."
        ) from error
    except torch.OutOfMemoryError as error:
        raise PosirError(
            "Training stopped: the GPU has not enough memory. Lower mini_batch_size (for steps, with the loss "
            "CachedMultipleNegativesRankingLoss) and run the same command with --resume; or choose a lower batch_size or "
            f"window, and another --output. {_describe_checkpoint(checkpoints)}."
        ) from error
    except (OSError, RuntimeError, SafetensorError) as error:
        if not _is_disk_full(error, checkpoints):
            raise
        raise PosirError(
            f"Training stopped: {checkpoints}: not enough disk space. Free some, and run the same command with --resume. "
            f"{_describe_checkpoint(checkpoints)}."
        ) from error


def _is_disk_full(error: BaseException, folder: Path) -> bool:
    """Return whether an error is one of a full disk; PyTorch and safetensors do not keep the system's error number."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in DISK_FULL
    if any(f"{text} {number}" in str(error) for text in ("os error", "code:") for number in DISK_FULL):
        return True
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return "write" in str(error).lower() and shutil.disk_usage(existing).free < ALMOST_FULL


def _describe_checkpoint(folder: Path) -> str:
    checkpoint = find_checkpoint(folder)
    return f"The last checkpoint, {checkpoint}, is complete" if checkpoint else "There is no checkpoint yet"
