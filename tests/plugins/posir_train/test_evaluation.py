"""`PositionEvaluator`, its callback, and forgetting checks."""

import csv
import io
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from zlib import crc32

import mteb
import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator, SequentialEvaluator
from torch import nn

import posir
from posir_significance.findings import EFFECTS, POSITION_METRICS, ChangeState, Metric
from posir_significance.observations import Observations
from posir_tasks.base.errors import PosirError, ScoreError
from posir_tasks.data import mini
from posir_tasks.datasets.opening import open_data
from posir_tasks.tasks.posir import PosIRMini
from posir_tasks.values.rotation_ranks import ROTATED_VARIABLE
from posir_train.evaluation import (
    CRITERION,
    ESTIMATES,
    PositionCurveCallback,
    PositionEvaluator,
    compute_scores,
)
from posir_train.examples import TrainingDocument, list_tasks, write_dataset
from posir_train.measurement import Measurement, measure_model
from posir_train.report import (
    check_forgetting,
    compare_measurements,
    compare_queries,
    open_forgetting_check,
)
from tests.plugins.posir_train.texts import build_examples, write_squad
from tests.support.datasets import read_part_of_mini
from tests.support.models import build_encoder

DATA = build_examples(articles=12, questions=9)
LABELS = ("base", "trained")


class WeightedModel(SentenceTransformer):
    """A model that scores a document by the weight of the third with the evidence, and documents
    without the evidence by 0.5.
    """

    def __init__(self, weights):
        super().__init__(modules=[nn.Identity()])
        self.weights = weights
        self.columns = {example.question: column for column, example in enumerate(DATA.examples)}

    def encode_document(self, texts, **_):
        vectors = np.full((len(texts), len(self.columns)), 0.5)
        for row, text in enumerate(texts):
            for column, example in enumerate(DATA.examples):
                start = text.find(example.evidence)
                if start >= 0:
                    vectors[row, column] = self.weights[3 * start // len(text)]
        return vectors

    def encode_query(self, texts, **_):
        return np.eye(len(self.columns))[[self.columns[text] for text in texts]]

    def similarity(self, a, b):
        return torch.as_tensor(np.asarray(a) @ np.asarray(b).T)


@pytest.fixture(scope="module")
def held_out(tmp_path_factory):
    return write_dataset(DATA, tmp_path_factory.mktemp("data") / "held-out")


@pytest.fixture(scope="module")
def measurements(held_out):
    """Measurements of an unbiased model, and of a model that misses evidence at the end."""
    return [measure_model(WeightedModel([1.0, 1.0, end]), held_out) for end in (1.0, 0.1)]


def test_write_dataset_replaces_only_datasets(tmp_path):
    revisions = [write_dataset(DATA, tmp_path / "held-out").find_revision() for _ in range(2)]
    assert revisions[0] == revisions[1]
    thesis = tmp_path / "held-out" / "thesis.tex"
    thesis.write_text("years of work")
    with pytest.raises(PosirError, match=r"thesis\.tex: was not written by posir"):
        write_dataset(DATA, tmp_path / "held-out")
    thesis.rename(tmp_path / "elsewhere")
    (tmp_path / "held-out" / "link").symlink_to(tmp_path)
    with pytest.raises(PosirError, match="link: was not written by posir"):
        write_dataset(DATA, tmp_path / "held-out")
    assert (tmp_path / "elsewhere").read_text() == "years of work"


def test_scores_by_position_with_article_clusters(measurements):
    base, biased = measurements
    scores = compute_scores(biased.values, base.values)
    thirds = [scores[f"ndcg_at_10_{name}"] for name in ("begin", "middle", "end")]
    assert thirds[:2] == pytest.approx([1, 1])
    assert thirds[2] < 0.5
    for name in ("position_effect", "start_minus_end"):
        assert 0.3 < scores[f"{name}_low"] <= scores[name] <= scores[f"{name}_high"]
    copy = Measurement.from_json(biased.to_json())
    assert (copy.values.ranks, copy.values.rotations) == (
        biased.values.ranks,
        biased.values.rotations,
    )
    assert copy.unrelated_cosine == biased.unrelated_cosine
    assert len(np.unique(Observations.from_ranks(copy.values.ranks).layout.clusters)) == len(
        DATA.articles
    )


def test_criterion_prefers_less_bias_without_loss(held_out, measurements):
    base, bad = (measure_model(WeightedModel([begin, 0.1, 0.1]), held_out) for begin in (1.0, 0.1))
    unbiased_score, biased_score, bad_score = (
        compute_scores(model.values, base.values)[CRITERION] for model in (*measurements, bad)
    )
    assert bad_score < 0 < biased_score < unbiased_score


def test_mteb_reproduces_the_scores(tmp_path, monkeypatch):
    class Model(WeightedModel):
        def encode_document(self, texts, **_):
            rows = [np.random.default_rng(crc32(text.encode())).normal(size=8) for text in texts]
            return np.stack(rows).astype(np.float32)

        encode_query = encode_document

    distractors = tuple(
        TrainingDocument(f"x{row}", f"Distractor {row}.", "eng-Latn/c", f"x{row}")
        for row in range(30)
    )
    dataset = write_dataset(replace(DATA, distractors=distractors), tmp_path / "held-out")
    model = Model([1, 1, 1])
    corpus = pl.read_parquet(next(tmp_path.rglob("corpus.parquet")))
    assert corpus.height == len(DATA.documents) + 30
    measurement = measure_model(model, dataset)
    changes = compare_measurements(measurement, measurement)
    estimates = {change.metric: change.a for change in changes}
    monkeypatch.setenv("POSIR_DATA", str(tmp_path / "held-out"))
    (name,) = list_tasks(dataset)
    scores = (
        mteb.evaluate(model, mteb.get_task(name), cache=None, co2_tracker=False)
        .task_results[0]
        .scores["test"][0]
    )
    expected = scores["position_scores"]["all"]
    for metric in POSITION_METRICS:
        estimate = estimates[metric]
        if expected[metric.key] is None:
            assert estimate is None
            continue
        numbers = expected[metric.key], *expected[f"{metric.key}_interval"]
        assert (estimate.value, estimate.low, estimate.high) == pytest.approx(numbers, abs=1e-6)


def test_nan_raises(held_out):
    class Model(WeightedModel):
        def encode_document(self, texts, **_):
            return np.full((len(texts), len(self.columns)), np.nan)

    with pytest.raises(ScoreError, match="NaN"):
        measure_model(Model([1, 1, 1]), held_out)


KEYS = [f"{name}{end}" for name in ESTIMATES for end in ("", "_low", "_high")]
THIRDS = ["ndcg_at_10_begin", "ndcg_at_10_middle", "ndcg_at_10_end"]


@pytest.fixture(scope="module")
def part_of_mini():
    """Read a third of the documents as PosIR-Mini."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mini, "read_mini", lambda: read_part_of_mini(3))
        yield


@pytest.fixture(scope="module")
def model(part_of_mini):  # noqa: ARG001
    return build_encoder(window=24).model


@pytest.fixture(scope="module")
def evaluation(model, tmp_path_factory):
    """The evaluator, its output folder, and the scores of two evaluations. The second evaluation
    uses a `SequentialEvaluator`.
    """
    folder = tmp_path_factory.mktemp("eval")
    evaluator = posir.PositionEvaluator(
        "PosIR-Mini", name="mini", primary_metric="position_effect", rotated=12
    )
    sequence = SequentialEvaluator([evaluator])
    first = evaluator(model, output_path=str(folder), epoch=0.5, steps=10)
    second = sequence(model, output_path=str(folder), epoch=1.0, steps=20)
    return evaluator, folder, (first, second)


def test_scores_equal_mteb(model, evaluation, monkeypatch):
    monkeypatch.setenv(ROTATED_VARIABLE, "12")
    scores = (
        mteb.evaluate(model, PosIRMini(), cache=None, co2_tracker=False)
        .task_results[0]
        .scores["test"][0]
    )
    expected = scores["position_scores"]["all"]
    numbers = []
    for name in ESTIMATES:
        if expected[name] is None:
            # No excerpt of two sentences fits the window.
            numbers += [math.nan] * 3
        else:
            numbers += [expected[name], *expected[f"{name}_interval"]]
    _, _, (first, _) = evaluation
    assert [first[f"mini_{key}"] for key in KEYS] == pytest.approx(numbers, abs=1e-6, nan_ok=True)
    assert scores["main_score"] == pytest.approx(first["mini_ndcg_at_10"], abs=1e-6)
    (ndcg, *_), _ = check_forgetting(
        open_forgetting_check("PosIR-Mini"), (model, model), LABELS, ()
    )
    assert [ndcg.a.value, ndcg.a.low, ndcg.a.high] == pytest.approx(numbers[:3], abs=1e-6)


def test_behaves_like_other_evaluators(evaluation):
    evaluator, folder, (first, second) = evaluation
    assert isinstance(evaluator, BaseEvaluator)
    assert (evaluator.primary_metric, evaluator.greater_is_better, evaluator.description) == (
        "mini_position_effect",
        False,
        "Position",
    )
    assert second == pytest.approx(
        first | {"sequential_score": first["mini_position_effect"]}, nan_ok=True
    )
    assert all(isinstance(value, float) for value in first.values())
    with (folder / "Position_evaluation_mini_results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["epoch", "steps", *KEYS, *THIRDS]
    assert [(row["epoch"], row["steps"]) for row in rows] == [("0.5", "10"), ("1.0", "20")]
    assert float(rows[1]["position_effect"]) == second["mini_position_effect"]


@pytest.mark.parametrize(
    ("data", "metric", "message"),
    [
        ("texts.jsonl", "position_effect", "PositionEvaluator needs"),
        ("nothing.json", "position_effect", "no such file"),
        ("PosIR-Mini", "ndcg", r"primary_metric 'ndcg': .*ndcg_at_10, ndcg_at_10_low, "),
    ],
)
def test_invalid_data_or_metric_raises(data, metric, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.jsonl").write_text(
        "\n".join(f'{{"id": "{row}", "text": "A text about {row}."}}' for row in range(3))
    )
    with pytest.raises(PosirError, match=message):
        PositionEvaluator(data, primary_metric=metric)


def test_baseline_adds_the_criterion(model, evaluation):
    values = evaluation[0].values[10]
    assert measure_model(model, open_data("PosIR-Mini")).values.profile == values.profile
    assert (
        PositionEvaluator("PosIR-Mini", primary_metric=CRITERION, baseline=values).primary_metric
        == CRITERION
    )
    scores = compute_scores(values, values)
    assert scores[CRITERION] == 1 - abs(scores["position_effect"])


def call_on_evaluate(evaluator, folder, *trackers):
    callback = PositionCurveCallback(evaluator)
    args = SimpleNamespace(output_dir=str(folder), report_to=list(trackers))
    for step, is_main in ((10, True), (15, True), (20, False)):
        state = SimpleNamespace(global_step=step, is_world_process_zero=is_main)
        callback.on_evaluate(args, state, None)


def test_curve_is_saved_without_trackers(evaluation, tmp_path):
    call_on_evaluate(evaluation[0], tmp_path)
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert file.relative_to(tmp_path) == Path("position/mini_ndcg_at_10_by_position-10.png")
    assert len(Image.open(file).convert("RGB").getcolors(10_000)) > 3


def test_curve_is_logged_to_trackers(evaluation, tmp_path, monkeypatch):
    logged = []
    wandb = SimpleNamespace(log=logged.append, Image=lambda file: file)
    mlflow = SimpleNamespace(log_artifact=lambda *arguments: logged.append(arguments))
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    call_on_evaluate(evaluation[0], tmp_path, "wandb", "mlflow", "comet_ml")
    (file,) = map(str, tmp_path.rglob("*.png"))
    assert logged == [
        {"mini/ndcg_at_10_by_position": file, "train/global_step": 10},
        (file, "position"),
    ]


@pytest.mark.slow
def test_curve_is_logged_to_tensorboard(evaluation, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    call_on_evaluate(evaluation[0], tmp_path, "tensorboard")
    events = EventAccumulator(str(tmp_path / "runs" / "position")).Reload()
    (image,) = events.Images("mini/ndcg_at_10_by_position")
    assert image.step == 10
    assert Image.open(io.BytesIO(image.encoded_image_string)).width == image.width


def test_undefined_scores_are_nan(model):
    """Without questions about the last third, start minus end is undefined."""
    evaluator = PositionEvaluator("PosIR-Mini")
    ((subset, data),) = evaluator._data
    starts = data.evidence.starts / data.evidence.characters
    early_rows = [row for row, start in enumerate(starts) if start < 0.3]
    evaluator._data = [(subset, data.select(early_rows[:40]))]
    scores = evaluator(model)
    assert math.isnan(scores["start_minus_end"])
    assert math.isnan(scores["ndcg_at_10_end"])
    assert scores["ndcg_at_10_low"] <= scores["ndcg_at_10"] <= scores["ndcg_at_10_high"]


def test_changes_are_paired_by_query():
    before = {str(row): 0.5 for row in range(40)}
    after = {name: 0.5 - 0.2 * (int(name) % 4 > 0) for name in reversed(list(before))}
    change = compare_queries("SciFact", before, after)
    assert (change.subject.task, change.state) == ("SciFact", ChangeState.WORSE)
    assert (change.a.value, change.estimate.value) == pytest.approx((0.5, -0.15))
    assert compare_queries("SciFact", before, before).state is ChangeState.EQUIVALENT


def test_forgetting_check_by_position(tmp_path):
    forgetting_check = open_forgetting_check(str(write_squad(tmp_path / "facts.json", DATA)))
    models = WeightedModel([1.0, 1.0, 1.0]), WeightedModel([1.0, 1.0, 0.1])
    changes, (note, *_) = check_forgetting(forgetting_check, models, LABELS, DATA.articles[:2])
    by_metric = {change.metric: change for change in changes}
    assert {change.subject.task for change in changes} == {"facts"}
    assert by_metric[Metric.NDCG_AT_10].state is by_metric[EFFECTS[0]].state is ChangeState.WORSE
    assert by_metric[Metric.NDCG_AT_10_BEGIN].estimate.value == 0
    counts = f"{len(DATA.examples)} questions about {len(DATA.articles)} articles. 2 of these"
    assert note.startswith(f"Forgetting check facts: {counts}")


@pytest.mark.parametrize("name", ["Nothing", "STS12"])
def test_unknown_forgetting_check_raises(name):
    with pytest.raises(PosirError, match="not a file or folder, and mteb has no"):
        open_forgetting_check(name)
