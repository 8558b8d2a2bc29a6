"""The evaluator for trainers of sentence-transformers, and the curve in TensorBoard."""

import csv
import math
from types import SimpleNamespace

import mteb
import numpy as np
import pytest
from sentence_transformers.base.evaluation import BaseEvaluator, SequentialEvaluator

import posir
from posir_tasks.errors import DataError, PosirError
from posir_tasks.sources.opening import open_data
from posir_tasks.tasks.posir import PosIRMini
from posir_train.evaluation import CRITERION, PositionCurveCallback, PositionEvaluator, measure
from tests.support.tiny_encoders import build_encoder

KEYS = [f"{name}{end}" for name in ("ndcg_at_10", "start_to_end", "psi") for end in ("", "_low", "_high")]
THIRDS = ["ndcg_at_10_begin", "ndcg_at_10_middle", "ndcg_at_10_end"]


@pytest.fixture(scope="module")
def model():
    """A model whose window truncates most documents."""
    return build_encoder(window=24).model


@pytest.fixture(scope="module")
def evaluated(model, tmp_path_factory):
    """Evaluator, its folder, and the scores of two evaluations."""
    folder, evaluator = (
        tmp_path_factory.mktemp("eval"),
        posir.PositionEvaluator("PosIR-Mini", name="mini", primary_metric="psi"),
    )
    first = evaluator(model, output_path=str(folder), epoch=0.5, steps=10)
    return evaluator, folder, (first, evaluator(model, output_path=str(folder), epoch=1.0, steps=20))


def test_the_scores_are_those_of_mteb(model, evaluated):
    scores = mteb.evaluate(model, PosIRMini(), cache=None, co2_tracker=False).task_results[0].scores["test"][0]
    expected = scores["position_scores"]["all"]
    wanted = [end for key in KEYS[::3] for end in (expected[key], *expected[f"{key}_interval"])]
    assert [evaluated[2][0][f"mini_{key}"] for key in KEYS] == pytest.approx(wanted, abs=1e-6)
    assert scores["main_score"] == pytest.approx(evaluated[2][0]["mini_ndcg_at_10"], abs=1e-6)


def test_it_behaves_as_its_siblings(model, evaluated):
    evaluator, folder, scores = evaluated
    assert isinstance(evaluator, BaseEvaluator)
    assert evaluator.primary_metric == "mini_psi"
    assert not evaluator.greater_is_better
    assert scores[0] == scores[1]
    assert all(isinstance(value, float) for value in scores[0].values())
    assert evaluator.description == "Position"
    with (folder / "Position_evaluation_mini_results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["epoch", "steps", *KEYS, *THIRDS]
    assert [(row["epoch"], row["steps"]) for row in rows] == [("0.5", "10"), ("1.0", "20")]
    assert float(rows[1]["psi"]) == scores[1]["mini_psi"]
    together = SequentialEvaluator([evaluator])(model)
    assert together["sequential_score"] == scores[0]["mini_psi"]


def test_the_data_is_anything_that_can_be_opened(tmp_path):
    rows = [f'{{"id": "{row}", "text": "A text about topic {row}."}}' for row in range(3)]
    (tmp_path / "texts.jsonl").write_text("\n".join(rows))
    with pytest.raises(DataError, match="PositionEvaluator needs"):
        PositionEvaluator(tmp_path / "texts.jsonl")
    with pytest.raises(PosirError, match="no such file"):
        PositionEvaluator(tmp_path / "nothing")
    with pytest.raises(PosirError, match=r"primary_metric 'ndcg': .*ndcg_at_10, ndcg_at_10_low, "):
        PositionEvaluator("PosIR-Mini", primary_metric="ndcg")


def test_a_baseline_adds_the_criterion_of_posir_train(model, evaluated):
    ranks = evaluated[0].ranks[10]
    assert measure(model, open_data("PosIR-Mini")).ranks.profile == ranks.profile
    evaluator = PositionEvaluator("PosIR-Mini", primary_metric=CRITERION, baseline=ranks)
    scores = evaluator(model)
    assert scores[CRITERION] == 1 - scores["psi"]


def test_the_curve_of_each_evaluation_is_drawn(evaluated, monkeypatch):
    images = []
    writer = SimpleNamespace(add_image=lambda tag, image, step, dataformats: images.append((tag, image, step, dataformats)))
    callback = PositionCurveCallback(evaluated[0], writer)
    for step, first in ((10, True), (15, True), (20, False)):
        callback.on_evaluate(None, SimpleNamespace(global_step=step, is_world_process_zero=first), None)
    ((tag, image, step, dataformats),) = images
    assert (tag, step, dataformats) == ("mini/ndcg_at_10_by_position", 10, "HWC")
    assert image.ndim == 3
    assert len(np.unique(image.reshape(-1, image.shape[-1]), axis=0)) > 3
    monkeypatch.setattr("posir_train.evaluation.find_spec", lambda _: None)
    with pytest.raises(PosirError, match="pip install tensorboard"):
        PositionCurveCallback(evaluated[0])


def test_what_is_undefined_is_not_a_number():
    """Without questions in a third, there is no difference from start to end."""
    evaluator = PositionEvaluator("PosIR-Mini")
    ((subset, data),) = evaluator._data
    early = [row for row, place in enumerate(data.evidence.starts / data.evidence.characters) if place < 0.3]
    evaluator._data = [(subset, data.select(early))]
    scores = evaluator(build_encoder(window=24).model)
    assert math.isnan(scores["start_to_end"])
    assert math.isnan(scores["ndcg_at_10_end"])
    assert scores["ndcg_at_10_low"] <= scores["ndcg_at_10"] <= scores["ndcg_at_10_high"]
