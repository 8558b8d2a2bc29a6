"""`PositionEvaluator` and its callback: retrieval by position in any trainer, exactly as `mteb run`
measures it.

`import posir` exposes both classes, so their frameworks are only imported when an instance is
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
from posir_significance.strips import build_position_chart
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
def _derive(cls: type, base: type) -> type:
    return type(cls.__name__, (cls, base), {})


def _defer_base(reference: str) -> type:
    """Return a stand-in for a framework's class, which takes seconds to import.

    An instance of a subclass of the stand-in is also an instance of the framework's class.
    """

    class StandIn:
        def __new__(cls, *_: Any, **__: Any) -> Any:
            own_class: Any = cls
            return object.__new__(_derive(own_class, resolve_name(reference)))

    return StandIn


if TYPE_CHECKING:
    from sentence_transformers.base.evaluation import BaseEvaluator
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
else:
    BaseEvaluator = _defer_base("sentence_transformers.base.evaluation:BaseEvaluator")
    TrainerCallback = _defer_base("transformers:TrainerCallback")


def select_third(observations: Observations, position: Position) -> tuple[Floats, Integers]:
    """Return gains and clusters of the queries with evidence in a third of the document."""
    rows = observations.query[assign_thirds(observations.bins)[observations.position] == position]
    return observations.gains[rows], observations.clusters[rows]


#: Name of the score by which `posir train` compares checkpoints; the trainer adds the prefix
#: `eval_`.
CRITERION = "position_criterion"
#: Scores with intervals in two additional keys, such as `position_effect_low` and
#: `position_effect_high`.
ESTIMATES = ("ndcg_at_10", "position_effect", "position_effect_in_window", "start_minus_end")
THIRDS = tuple(f"ndcg_at_10_{position.title}" for position in Position)


class PositionEvaluator(BaseEvaluator):
    """Evaluate retrieval and its dependence on the position of the evidence.

    Use it as `SentenceTransformerTrainer(evaluator=...)`, or call it with a model. The scores equal
    those of `mteb run` on the same data, in [0, 1]: every question is searched in the whole corpus,
    and subsets are pooled as in `posir report`.

    Keys with a 95% interval (`_low`, `_high`) are `ndcg_at_10`, `position_effect` (the same
    evidence in the first third of its document minus in the last), `position_effect_in_window`, and
    `start_minus_end` (in the data as it is). Other keys: `ndcg_at_10_begin`, `_middle` and `_end`.
    Undefined scores are NaN. Position effects are computed from rotated documents: by default only
    outside training, with `rotated` at every call. Keys are prefixed with the evaluator's name.
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
            primary_metric: Key of the score for selecting checkpoints, without the name.
            name: Prefix of the keys, also used in the name of the CSV file.
            batch_size: Number of texts per encoding batch.
            write_csv: If true, append a row per evaluation to a CSV file in the trainer's folder.
            rotated: Number of rotated documents per length bucket at every call; None to rotate the
                default sample, and only outside training.
            baseline: Values of a reference model on the same data. The scores then include
                `position_criterion`: 1 minus the absolute position effect. If the interval of
                nDCG@10 minus the baseline's nDCG@10 is below 0, the (negative) difference minus 1.

        Raises:
            PosirError: The data or the metric does not exist, or `rotated` is below 1.
            DataError: The data is invalid or has no questions with evidence.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        if not isinstance(data, Dataset):
            data = open_data(data).with_questions("PositionEvaluator")
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
        #: Values of each evaluation by training step; the step is -1 outside training.
        self.values: dict[int, ResultValues] = {}
        self._data = [(subset, subset.read()) for subset in self.dataset.subsets]

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        """Return the scores of a model by key.

        Args:
            model: A `SentenceTransformer`.
            output_path: Folder of the CSV file; None for no file.
            epoch: Training epoch, for the CSV file.
            steps: Training step, the key in `values`.

        Raises:
            ScoreError: The model returns NaN.
        """
        import pandas as pd

        from posir_train.measurement import build_request, rank_subset, wrap_model

        encoder = wrap_model(model)
        # A step of -1 is outside training.
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

    The plot is saved as a PNG file in the subfolder `position` of the trainer's output folder, and
    logged to TensorBoard, Weights & Biases and MLflow if the trainer reports to them. The scores
    themselves are logged by the trainer.
    """

    def __init__(self, evaluator: PositionEvaluator) -> None:
        """Store the trainer's evaluator."""
        self._evaluator = evaluator

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **_: Any,
    ) -> None:
        """Plot the curve after an evaluation by the evaluator, on the main process."""
        step = state.global_step
        values = self._evaluator.values.get(step)
        if values is None or not state.is_world_process_zero:
            return
        group = analyze(values).overall
        strip = build_position_chart(decide(group), group, f"step {step}")
        output_folder = Path(args.output_dir or "")
        tag = "/".join(filter(None, [self._evaluator.name, "ndcg_at_10_by_position"]))
        file = output_folder / "position" / f"{tag.replace('/', '_')}-{step}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(render_png(draw_position_charts([strip])))
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
        # Next to the trainer's own logs.
        with SummaryWriter(str(output_folder / "runs" / "position")) as writer:
            writer.add_image(tag, image, step, dataformats="HWC")


def compute_scores(values: ResultValues, baseline: ResultValues | None = None) -> dict[str, float]:
    """Compute the scores of `PositionEvaluator` by key, without prefix; undefined scores are
    NaN.
    """
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
        effect = findings.value(Quantity.POSITION_EFFECT)
        scores[CRITERION] = 0.0 if effect is None else 1 - abs(effect)
        if change and change.high is not None and change.high < 0:
            scores[CRITERION] = change.value - 1
    return {key: math.nan if value is None else float(value) for key, value in scores.items()}
