"""A whole training run: from settings to a model in a folder and the report on what training changed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from posir_tasks.display.progress import track
from posir_tasks.errors import PosirError
from posir_train.settings import RunFolder, TrainingSettings

if TYPE_CHECKING:
    from posir_train.before_after import TrainingReport


def run_training(settings: TrainingSettings, folder: RunFolder, *, resume: bool = False) -> TrainingReport:
    """Train a model, compare it with the base model, and write model and report.

    Args:
        settings: What is trained, and how.
        folder: Where to.
        resume: Whether to continue an unfinished run of the same settings.

    Raises:
        PosirError: accelerate is not installed; model, data or settings do not fit together; or training failed.
    """
    if find_spec("accelerate") is None:
        raise PosirError("`posir train` needs accelerate: pip install 'accelerate>=1.1'")
    with track("Loading libraries"):
        from posir_train import training
        from posir_train.before_after import build_report, write_report
        from posir_train.examples import read_examples
        from posir_train.forgetting import open_forgetting_check
        from posir_train.probe_curves import select_text_probes
        from posir_train.sources import open_dataset

    forgetting_checks = [open_forgetting_check(name) for name in settings.guard]
    probes = select_text_probes(settings.probes)
    with track("Reading the data"):
        examples = read_examples(open_dataset(settings.data))
    trained = training.train(settings, folder, examples, resume=resume)
    with track("Comparing with the base model"):
        report = build_report(settings, folder, trained, forgetting_checks, probes)
    write_report(report, trained.model)
    return report
