"""The evaluator for trainers of sentence-transformers, and the curve in their trackers."""

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
from tests.support.models import build_encoder

DATA = build_examples(articles=12, questions=9)
LABELS = ("base", "trained")


class ListModel(SentenceTransformer):
    """Finds evidence by a weight of the third of the text that has it, among texts that all score
    one half.
    """

    def __init__(self, weights):
        super().__init__(modules=[nn.Identity()])
        self.weights = weights
        self.places = {example.question: place for place, example in enumerate(DATA.examples)}

    def encode_document(self, texts, **_):
        vectors = np.full((len(texts), len(self.places)), 0.5)
        for row, text in enumerate(texts):
            for place, example in enumerate(DATA.examples):
                start = text.find(example.evidence)
                if start >= 0:
                    vectors[row, place] = self.weights[3 * start // len(text)]
        return vectors

    def encode_query(self, texts, **_):
        return np.eye(len(self.places))[[self.places[text] for text in texts]]

    def similarity(self, a, b):
        return torch.as_tensor(np.asarray(a) @ np.asarray(b).T)


@pytest.fixture(scope="module")
def held_out(tmp_path_factory):
    return write_dataset(DATA, tmp_path_factory.mktemp("data") / "held-out")


@pytest.fixture(scope="module")
def measured(held_out):
    """Measurements of an even model, and of one that does not find the end."""
    return [measure_model(ListModel([1.0, 1.0, end]), held_out) for end in (1.0, 0.1)]


def test_held_out_data_replaces_only_held_out_data(tmp_path):
    written = [write_dataset(DATA, tmp_path / "held-out").find_revision() for _ in range(2)]
    assert written[0] == written[1]
    (thesis := tmp_path / "held-out" / "thesis.tex").write_text("years of work")
    with pytest.raises(PosirError, match=r"thesis\.tex: was not written by posir"):
        write_dataset(DATA, tmp_path / "held-out")
    thesis.rename(tmp_path / "elsewhere")
    (tmp_path / "held-out" / "link").symlink_to(tmp_path)
    with pytest.raises(PosirError, match="link: was not written by posir"):
        write_dataset(DATA, tmp_path / "held-out")
    assert (tmp_path / "elsewhere").read_text() == "years of work"


def test_ranks_and_scores_by_position_with_articles_as_clusters(measured):
    base, result = measured
    scores = compute_scores(result.values, base.values)
    thirds = [scores[f"ndcg_at_10_{name}"] for name in ("begin", "middle", "end")]
    assert thirds[:2] == pytest.approx([1, 1])
    assert thirds[2] < 0.5
    for name in ("position_effect", "start_minus_end"):
        assert 0.3 < scores[f"{name}_low"] <= scores[name] <= scores[f"{name}_high"]
    again = Measurement.from_json(result.to_json())
    assert (again.values.ranks, again.values.rotations) == (
        result.values.ranks,
        result.values.rotations,
    )
    assert again.unrelated_cosine == result.unrelated_cosine
    assert len(np.unique(Observations.from_ranks(again.values.ranks).clusters)) == len(
        DATA.articles
    )


def test_the_criterion_prefers_less_bias_unless_ndcg_is_lost(held_out, measured):
    base, lost = (measure_model(ListModel([begin, 0.1, 0.1]), held_out) for begin in (1.0, 0.1))
    even, biased, bad = (
        compute_scores(model.values, base.values)[CRITERION] for model in (*measured, lost)
    )
    assert bad < 0 < biased < even


def test_mteb_finds_the_same_figures_in_the_folder(tmp_path, monkeypatch):
    class Model(ListModel):
        def encode_document(self, texts, **_):
            rows = [np.random.default_rng(crc32(text.encode())).normal(size=8) for text in texts]
            return np.stack(rows).astype(np.float32)

        encode_query = encode_document

    others = tuple(
        TrainingDocument(f"x{row}", f"Distractor {row}.", "eng-Latn/c", f"x{row}")
        for row in range(30)
    )
    written, model = (
        write_dataset(replace(DATA, distractors=others), tmp_path / "held-out"),
        Model([1, 1, 1]),
    )
    assert (
        pl.read_parquet(next(tmp_path.rglob("corpus.parquet"))).height == len(DATA.documents) + 30
    )
    measured = measure_model(model, written)
    before = {change.metric: change.a for change in compare_measurements(measured, measured)}
    monkeypatch.setenv("POSIR_DATA", str(tmp_path / "held-out"))
    (name,) = list_tasks(written)
    scores = (
        mteb.evaluate(model, mteb.get_task(name), cache=None, co2_tracker=False)
        .task_results[0]
        .scores["test"][0]
    )
    expected = scores["position_scores"]["all"]
    for metric in POSITION_METRICS:
        score = before[metric]
        if expected[metric.key] is None:
            assert score is None
            continue
        figures = expected[metric.key], *expected[f"{metric.key}_interval"]
        assert (score.value, score.low, score.high) == pytest.approx(figures, abs=1e-6)


def test_nan_is_refused(held_out):
    class Model(ListModel):
        def encode_document(self, texts, **_):
            return np.full((len(texts), len(self.places)), np.nan)

    with pytest.raises(ScoreError, match="NaN"):
        measure_model(Model([1, 1, 1]), held_out)


KEYS = [f"{name}{end}" for name in ESTIMATES for end in ("", "_low", "_high")]
THIRDS = ["ndcg_at_10_begin", "ndcg_at_10_middle", "ndcg_at_10_end"]


@pytest.fixture(scope="module")
def model():
    return build_encoder(window=24).model


@pytest.fixture(scope="module")
def evaluated(model, tmp_path_factory):
    """Evaluator, its folder, and the scores of two evaluations, the second with that of a
    sequence.
    """
    folder = tmp_path_factory.mktemp("eval")
    evaluator = posir.PositionEvaluator(
        "PosIR-Mini", name="mini", primary_metric="position_effect", rotated=12
    )
    first = evaluator(model, output_path=str(folder), epoch=0.5, steps=10)
    return (
        evaluator,
        folder,
        (
            first,
            SequentialEvaluator([evaluator])(model, output_path=str(folder), epoch=1.0, steps=20),
        ),
    )


def test_the_scores_are_those_of_mteb(model, evaluated, monkeypatch):
    monkeypatch.setenv(ROTATED_VARIABLE, "12")
    scores = (
        mteb.evaluate(model, PosIRMini(), cache=None, co2_tracker=False)
        .task_results[0]
        .scores["test"][0]
    )
    expected = scores["position_scores"]["all"]
    # No excerpt of two sentences fits the window.
    undefined = [math.nan] * 3
    wanted = [
        end
        for key in KEYS[::3]
        for end in (
            (expected[key], *expected[f"{key}_interval"])
            if expected[key] is not None
            else undefined
        )
    ]
    assert [evaluated[2][0][f"mini_{key}"] for key in KEYS] == pytest.approx(
        wanted, abs=1e-6, nan_ok=True
    )
    assert scores["main_score"] == pytest.approx(evaluated[2][0]["mini_ndcg_at_10"], abs=1e-6)
    (ndcg, *_), _ = check_forgetting(
        open_forgetting_check("PosIR-Mini"), (model, model), LABELS, ()
    )
    assert [ndcg.a.value, ndcg.a.low, ndcg.a.high] == pytest.approx(wanted[:3], abs=1e-6)


def test_it_behaves_as_its_siblings(evaluated):
    evaluator, folder, (first, second) = evaluated
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
def test_the_data_is_anything_that_can_be_opened(data, metric, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.jsonl").write_text(
        "\n".join(f'{{"id": "{row}", "text": "A text about {row}."}}' for row in range(3))
    )
    with pytest.raises(PosirError, match=message):
        PositionEvaluator(data, primary_metric=metric)


def test_a_baseline_adds_the_criterion_of_posir_train(model, evaluated):
    values = evaluated[0].values[10]
    assert measure_model(model, open_data("PosIR-Mini")).values.profile == values.profile
    assert (
        PositionEvaluator("PosIR-Mini", primary_metric=CRITERION, baseline=values).primary_metric
        == CRITERION
    )
    scores = compute_scores(values, values)
    assert scores[CRITERION] == 1 - abs(scores["position_effect"])


def call_back(evaluator, folder, *trackers):
    callback = PositionCurveCallback(evaluator)
    args = SimpleNamespace(output_dir=str(folder), report_to=list(trackers))
    for step, first in ((10, True), (15, True), (20, False)):
        state = SimpleNamespace(global_step=step, is_world_process_zero=first)
        callback.on_evaluate(args, state, None)


def test_the_curve_of_each_evaluation_is_a_file(evaluated, tmp_path):
    """Without a tracker."""
    call_back(evaluated[0], tmp_path)
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert file.relative_to(tmp_path) == Path("position/mini_ndcg_at_10_by_position-10.png")
    assert len(Image.open(file).convert("RGB").getcolors(10_000)) > 3


def test_the_curve_is_an_image_in_trackers(evaluated, tmp_path, monkeypatch):
    logged = []
    wandb = SimpleNamespace(log=logged.append, Image=lambda file: file)
    mlflow = SimpleNamespace(log_artifact=lambda *given: logged.append(given))
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    call_back(evaluated[0], tmp_path, "wandb", "mlflow", "comet_ml")
    (file,) = map(str, tmp_path.rglob("*.png"))
    assert logged == [
        {"mini/ndcg_at_10_by_position": file, "train/global_step": 10},
        (file, "position"),
    ]


@pytest.mark.slow
def test_tensorboard_has_the_curve(evaluated, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    call_back(evaluated[0], tmp_path, "tensorboard")
    events = EventAccumulator(str(tmp_path / "runs" / "position")).Reload()
    (image,) = events.Images("mini/ndcg_at_10_by_position")
    assert image.step == 10
    assert Image.open(io.BytesIO(image.encoded_image_string)).width == image.width


def test_what_is_undefined_is_not_a_number(model):
    """Without questions in a third, there is no observed difference of start and end."""
    evaluator = PositionEvaluator("PosIR-Mini")
    ((subset, data),) = evaluator._data
    early = [
        row
        for row, place in enumerate(data.evidence.starts / data.evidence.characters)
        if place < 0.3
    ]
    evaluator._data = [(subset, data.select(early[:40]))]
    scores = evaluator(model)
    assert math.isnan(scores["start_minus_end"])
    assert math.isnan(scores["ndcg_at_10_end"])
    assert scores["ndcg_at_10_low"] <= scores["ndcg_at_10"] <= scores["ndcg_at_10_high"]


def test_queries_are_paired():
    before = {str(row): 0.5 for row in range(40)}
    after = {name: 0.5 - 0.2 * (int(name) % 4 > 0) for name in reversed(list(before))}
    queries = compare_queries("SciFact", before, after)
    assert (queries.subject.task, queries.state) == ("SciFact", ChangeState.WORSE)
    assert (queries.a.value, queries.estimate.value) == pytest.approx((0.5, -0.15))
    assert compare_queries("SciFact", before, before).state is ChangeState.EQUIVALENT


def test_data_with_evidence_is_measured_by_position(tmp_path):
    forgetting_check = open_forgetting_check(str(write_squad(tmp_path / "facts.json", DATA)))
    models = ListModel([1.0, 1.0, 1.0]), ListModel([1.0, 1.0, 0.1])
    changed, (note, *_) = check_forgetting(forgetting_check, models, LABELS, DATA.articles[:2])
    changes = {change.metric: change for change in changed}
    assert {change.subject.task for change in changed} == {"facts"}
    assert changes[Metric.NDCG_AT_10].state is changes[EFFECTS[0]].state is ChangeState.WORSE
    assert changes[Metric.NDCG_AT_10_BEGIN].estimate.value == 0
    counts = f"{len(DATA.examples)} questions about {len(DATA.articles)} articles. 2 of these"
    assert note.startswith(f"Forgetting check facts: {counts}")


@pytest.mark.parametrize("name", ["Nothing", "STS12"])
def test_other_names_are_refused(name):
    with pytest.raises(PosirError, match="not a file or folder, and mteb has no"):
        open_forgetting_check(name)
