"""The public names of this package: `posir.train`, and `posir.PositionEvaluator` and its callback for any trainer."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_tasks.display.progress import track
from posir_tasks.errors import PosirError
from posir_tasks.settings_file import load_settings
from posir_train.evaluation import PositionCurveCallback as PositionCurveCallback
from posir_train.evaluation import PositionEvaluator as PositionEvaluator
from posir_train.settings import RunFolder, TrainingSettings

if TYPE_CHECKING:
    from posir_train.report import TrainingReport


def run_training(settings: TrainingSettings, folder: RunFolder, *, resume: bool = False) -> TrainingReport:
    """Train a model, or continue an unfinished run, compare it with the base model, and write model and report.

    Raises:
        PosirError: accelerate is not installed; model, data or settings do not fit together; or training failed.
    """
    if find_spec("accelerate") is None:
        raise PosirError("`posir train` needs accelerate: pip install 'accelerate>=1.1'")
    with track("Loading libraries"):
        from posir_train import training
        from posir_train.examples import read_examples
        from posir_train.report import build_report, open_forgetting_check, write_report
        from posir_train.settings import open_dataset

    forgetting_checks = [open_forgetting_check(name) for name in settings.guard]
    with track("Reading the data"):
        examples = read_examples(open_dataset(settings.data))
    trained = training.train(settings, folder, examples, resume=resume)
    with track("Comparing with the base model"):
        report = build_report(settings, folder, trained, forgetting_checks)
    write_report(report, trained.model)
    return report


def train(
    model: str | Path | None = None,
    data: str | Path | None = None,
    *,
    output: str | Path,
    positions: str | None = None,
    guard: str | Path | Sequence[str | Path] = (),
    config: str | Path | None = None,
    resume: bool = False,
    **settings: Any,
) -> TrainingReport:
    """Train a model on evidence at chosen positions, and compare it with the base model on held-out articles.

    Args:
        model: A registered model or a local folder: dense, of sentence-transformers. None if `config` has it.
        data: A task, or any file, folder or Hub dataset of questions with evidence. None if `config` has it.
        output: Folder for the model, which must be empty; checkpoints, report and settings are in its `training/`.
        positions: `begin`, `middle`, `end`, `uniform` (the default), or three weights such as `2,1,1`.
        guard: Data of forgetting checks, one or several: tasks of mteb, or what `data` takes.
        config: YAML file with settings; the other arguments take precedence. `training/settings.yaml` of a run repeats it.
        resume: Whether to continue an interrupted run of the same settings in `output`.
        settings: Further fields by name, such as `learning_rate` (default 2e-5), `epochs` (3), `window` in tokens, and
            `held_out`, a share of the articles in [0, 1]; `posir train --settings-help` lists them all.

    Returns:
        The changes by training: nDCG@10 and start to end in [-1, 1], PSI in [0, 1] and the cosine of unrelated texts, before
        and after, with 95 % intervals; `folder` of the model; `notes`, warnings first.

    Raises:
        PosirError: accelerate is not installed; there is no such model or data; a setting is wrong; `output` is not empty; or
            training failed.

    Examples:
        >>> import posir
        >>> quick = {"max_steps": 1, "batch_size": 4, "held_out": 0.4, "budget": "most", "drop_beyond": True}
        >>> report = posir.train("./my-model", "squad.json", positions="begin", output="my-tuned-model", **quick)
        >>> report.folder.name, report.to_polars()["score"][0]
        ('my-tuned-model', 'nDCG@10')
    """
    checks = [guard] if isinstance(guard, str | Path) else guard
    options = {
        "model": None if model is None else str(model),
        "data": None if data is None else str(data),
        "positions": positions,
        "guard": [str(check) for check in checks],
    }
    loaded = load_settings(TrainingSettings, Path(config) if config is not None else None, settings, options)
    return run_training(loaded, RunFolder(Path(output)), resume=resume)
