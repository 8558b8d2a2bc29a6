"""An evaluator and a callback for any trainer: retrieval by position, as in `mteb run`.

`import posir` exposes both classes, so their frameworks are imported only when an instance is
created.
"""

from __future__ import annotations

import math
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import numpy as np

from posir_significance.analysis import analyze
from posir_significance.decision import decide
from posir_significance.findings import Quantity
from posir_significance.intervals import estimate_difference
from posir_significance.observations import Floats, Integers, Observations, subtract_observations
from posir_significance.position_charts import build_position_chart
from posir_tasks.base.errors import PosirError
from posir_tasks.datasets.dataset import Dataset
from posir_tasks.datasets.opening import open_data
from posir_tasks.display.position_charts import draw_position_charts, render_png
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.profile import pool
from posir_tasks.values.rotation_ranks import read_sample_size
from posir_tasks.values.schemes import assign_thirds
from posir_tasks.values.scores import ResultValues, flatten
from posir_train.settings import Position


@cache
def _add_base(cls: type, base: type) -> type:
    return type(cls.__name__, (cls, base), {})


def _build_placeholder(reference: str) -> type:
    """Build a placeholder for a base class that takes seconds to import.

    Instances of its subclasses are also instances of the referenced class.
    """

    class Placeholder:
        def __new__(cls, *_: Any, **__: Any) -> Any:
            subclass: Any = cls
            return object.__new__(_add_base(subclass, resolve_name(reference)))

    return Placeholder


if TYPE_CHECKING:
    from sentence_transformers.base.evaluation import BaseEvaluator
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
else:
    BaseEvaluator = _build_placeholder("sentence_transformers.base.evaluation:BaseEvaluator")
    TrainerCallback = _build_placeholder("transformers:TrainerCallback")


def select_third(observations: Observations, position: Position) -> tuple[Floats, Integers]:
    """Select the queries with evidence in one third of the document. Return their gains and
    clusters, shape (queries,).
    """
    rows = observations.query[assign_thirds(observations.bins)[observations.position] == position]
    return observations.gains[rows], observations.clusters[rows]


#: Score for selecting checkpoints in `posir train`. The trainer adds the prefix `eval_`.
CRITERION = "position_criterion"
#: Scores with an interval, which has two keys such as `ndcg_at_10_low` and `ndcg_at_10_high`.
ESTIMATES = ("ndcg_at_10", "position_effect", "position_effect_in_window", "start_minus_end")
THIRDS = tuple(f"ndcg_at_10_{position.title}" for position in Position)


class PositionEvaluator(BaseEvaluator):
    """Evaluate retrieval and its dependence on the position of the evidence.

    Use it as `SentenceTransformerTrainer(evaluator=...)`, or call it with a model. The scores are
    the same as from `mteb run` on the same data: every question is searched in the whole corpus,
    and subsets are pooled as in `posir report`. nDCG@10 is in [0, 1], differences are in [-1, 1].

    Scores with a 95% interval (`_low`, `_high`) are `ndcg_at_10`, `position_effect` (same evidence,
    first minus last third of the document), `position_effect_in_window`, and `start_minus_end`
    (evidence at the start minus at the end, in the original data). Scores without an interval are
    `ndcg_at_10_begin`, `ndcg_at_10_middle` and `ndcg_at_10_end`. Undefined scores are NaN. Position
    effects need rotated documents. Documents are rotated only outside training, unless `rotated` is
    set. The evaluator's name is the prefix of all keys.
    """

    def __init__(
        self,
        data: str | Path | Dataset,
        *,
        primary_metric: str = "ndcg_at_10",
        name: str = "",
        batch_size: int = 32,
        write_csv: bool = True,
        rotated: int | None = None,
        baseline: ResultValues | None = None,
    ) -> None:
        """Read the data into memory.

        Args:
            data: A task, or any file, folder or Hub dataset of questions with evidence.
            primary_metric: Key of the score for selecting checkpoints, without the prefix.
            name: Prefix of the keys. The CSV file name also contains it.
            batch_size: Number of texts per encoding batch.
            write_csv: If true, append one row per evaluation to a CSV file in the trainer's folder.
            rotated: Number of documents to rotate per length bucket at every call. By default, a
                sample is rotated outside training only.
            baseline: Values of a reference model on the same data. They add the score
                `position_criterion`: 1 minus the absolute position effect, or the (negative) change
                in nDCG@10 minus 1 if the interval of the change is below 0.

        Raises:
            PosirError: The data or the metric does not exist, or `rotated` is below 1.
            DataError: The data is invalid or has no questions with evidence.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        if not isinstance(data, Dataset):
            data = open_data(data).select_questions("PositionEvaluator")
        if rotated is not None and rotated < 1:
            raise PosirError(
                f"rotated {rotated}: must be at least 1. Omit it to rotate documents only "
                "outside training."
            )
        self.dataset = data
        self.name = name
        self.batch_size = batch_size
        self.write_csv = write_csv
        self.rotated = rotated
        self.baseline = baseline
        self.csv_file = f"Position_evaluation{f'_{name}' if name else ''}_results.csv"
        keys = [key for name in ESTIMATES for key in flatten(name, Estimate(0.0))]
        keys += [*THIRDS, CRITERION] if baseline else THIRDS
        if primary_metric not in keys:
            raise PosirError(
                f"primary_metric '{primary_metric}': no such score. Choose from {', '.join(keys)}."
            )
        self.primary_metric = primary_metric
        self.greater_is_better = not primary_metric.startswith(
            ("position_effect", "start_minus_end")
        )
        #: Values by training step. The step is -1 outside training.
        self.values: dict[int, ResultValues] = {}
        self._data = [(subset, subset.read()) for subset in self.dataset.subsets]

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        """Evaluate a model and return its scores by key.

        Args:
            model: A `SentenceTransformer`.
            output_path: Folder for the CSV file; None to write no file.
            epoch: Training epoch, for the CSV file; -1 outside training.
            steps: Training step, for the CSV file and `values`; -1 outside training.

        Raises:
            ScoreError: The model returns NaN.
        """
        import pandas as pd

        from posir_train.measurement import build_request, rank_subset, wrap_model

        encoder = wrap_model(model)
        sample_size = self.rotated or (read_sample_size() if steps < 0 else 0)
        values = []
        for subset, data in self._data:
            request = build_request(self.dataset, subset, data, self.batch_size)
            values.append(rank_subset(encoder, self.dataset, subset, data, request, sample_size))
        self.values[steps] = pool(values)
        scores = compute_scores(self.values[steps], self.baseline)
        if output_path is not None and self.write_csv:
            file = Path(output_path) / self.csv_file
            file.parent.mkdir(parents=True, exist_ok=True)
            row = pd.DataFrame([{"epoch": epoch, "steps": steps, **scores}])
            row.to_csv(file, mode="a", header=not file.exists(), index=False, na_rep="NaN")
        metrics: dict[str, float] = self.prefix_name_to_metrics(scores, self.name)
        self.store_metrics_in_model_card_data(model, metrics, epoch, steps)  # type: ignore[arg-type]
        return metrics


class PositionCurveCallback(TrainerCallback):
    """Plots nDCG@10 by position of the evidence after each evaluation.

    The plot is saved as a PNG file in the subfolder `position` of the trainer's output folder. It
    is also logged to TensorBoard, Weights & Biases and MLflow if the trainer reports to them.
    """

    def __init__(self, evaluator: PositionEvaluator) -> None:
        """Create a callback for the evaluator of the trainer."""
        self._evaluator = evaluator

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **_: Any,
    ) -> None:
        """Plot the curve after an evaluation. Only the main process plots."""
        step = state.global_step
        values = self._evaluator.values.get(step)
        if values is None or not state.is_world_process_zero:
            return
        group = analyze(values).overall
        chart = build_position_chart(decide(group), group, f"step {step}")
        output_folder = Path(args.output_dir or "")
        tag = "/".join(filter(None, [self._evaluator.name, "ndcg_at_10_by_position"]))
        file = output_folder / "position" / f"{tag.replace('/', '_')}-{step}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(render_png(draw_position_charts([chart])))
        trackers = args.report_to or ()
        if "tensorboard" in trackers:
            self._log_to_tensorboard(output_folder, tag, file, step)
        if "wandb" in trackers:
            wandb = import_module("wandb")
            wandb.log({tag: wandb.Image(str(file)), "train/global_step": step})
        if "mlflow" in trackers:
            import_module("mlflow").log_artifact(str(file), "position")

    def _log_to_tensorboard(self, output_folder: Path, tag: str, file: Path, step: int) -> None:
        from PIL import Image
        from torch.utils.tensorboard import SummaryWriter

        image = np.asarray(Image.open(file).convert("RGB"))
        # The trainer's own logs are also in `runs`.
        with SummaryWriter(str(output_folder / "runs" / "position")) as writer:
            writer.add_image(tag, image, step, dataformats="HWC")


def compute_scores(values: ResultValues, baseline: ResultValues | None = None) -> dict[str, float]:
    """Compute the scores of `PositionEvaluator` by key. Undefined scores are NaN."""
    group = analyze(values).overall
    findings = decide(group)
    scores: dict[str, Any] = {}
    for name in ESTIMATES:
        estimate = findings[Quantity(name)].estimate
        scores |= flatten(name, estimate or Estimate(math.nan, (math.nan, math.nan)))
    for key, position in zip(THIRDS, Position, strict=True):
        gains, _ = select_third(group.observations, position)
        scores[key] = gains.mean() if len(gains) else math.nan
    if baseline:
        differences = subtract_observations(
            analyze(baseline).overall.observations, group.observations
        )
        change = estimate_difference(differences.gains, differences.clusters)
        effect = findings.get_value(Quantity.POSITION_EFFECT)
        scores[CRITERION] = 0.0 if effect is None else 1 - abs(effect)
        if change and change.high is not None and change.high < 0:
            scores[CRITERION] = change.value - 1
    return {key: math.nan if value is None else float(value) for key, value in scores.items()}
