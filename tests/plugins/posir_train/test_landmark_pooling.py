"""`posir train --pooling landmark`: what is trained, saved, loaded by name, and said about it."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import posir
from posir_mitigate.references import parse_reference
from posir_tasks.errors import PosirError
from posir_tasks.models.landmarks import LandmarkTransformer
from posir_tasks.models.reading_length import Bounds
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import load_model
from posir_train.evaluation import PositionEvaluator
from posir_train.preparation import ModelReader, load_base
from posir_train.report import build_report, write_report
from posir_train.settings import Pooling, RunFolder, TrainingSettings
from posir_train.training import build_trainer, train
from tests.plugins.posir_train.texts import build_examples
from tests.support.encode import encode
from tests.support.models import write_tiny_model

pytestmark = pytest.mark.slow

TEXT = " ".join(f"bell {number}" for number in range(60))


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    base = str(write_tiny_model(tmp_path_factory.mktemp("models") / "tiny"))
    options = {"max_steps": 2, "batch_size": 4, "held_out": 0.4, "evaluations": 1, "drop_beyond": True, "landmark_tokens": 8}
    return TrainingSettings(model=base, data="made-up", pooling=Pooling.LANDMARK, **options)


@pytest.fixture(scope="module")
def trained(settings, tmp_path_factory):
    folder = RunFolder(tmp_path_factory.mktemp("trained") / "landmarks")
    return folder, train(settings, folder, build_examples(articles=5, questions=4, sentences=6))


def test_a_saved_model_is_loaded_by_its_folder_and_by_sentence_transformers(trained):
    folder, result = trained
    expected = result.model.encode([TEXT, "A bell."])
    by_name = load_model(ModelReference(str(folder.output)))
    assert np.abs(encode(by_name, [TEXT, "A bell."]) - expected).max() < 1e-5
    alone = SentenceTransformer(str(folder.output), trust_remote_code=True)
    assert isinstance(alone[0], LandmarkTransformer)
    assert alone[0].landmarks == result.model[0].landmarks
    assert np.abs(alone.encode([TEXT, "A bell."]) - expected).max() < 1e-6
    for method in ("late_chunks", "calibrated"):
        with pytest.raises(PosirError, match="landmark"):
            parse_reference(method).apply(by_name)


def test_report_and_card_say_what_the_window_holds_and_how_to_load_the_model(settings, trained):
    folder, result = trained
    report = build_report(settings, folder, result, [])
    write_report(report, result.model)
    for text in (" ".join(report.notes), (folder.output / "README.md").read_text()):
        assert "Its window of 64 tokens holds 6 less of a long text" in text
        assert "trust_remote_code=True" in text


def test_the_window_of_a_model_with_landmarks_is_what_it_holds_of_a_text(trained):
    reading = posir.window(trained[0].output)
    assert (reading.tokens, reading.claim.tokens) == (Bounds(58, 58), 58)
    assert "It reads the first 58 tokens of a text, 2 of them special, as it claims" in str(reading)
    assert "Its window of 64 tokens holds 6 less of a long text for its landmarks." in str(reading)


def test_training_varies_the_distance_of_landmarks_and_measuring_does_not(settings, trained, monkeypatch):
    folder, result = trained
    seen = []
    original = LandmarkTransformer.preprocess
    monkeypatch.setattr(
        LandmarkTransformer,
        "preprocess",
        lambda self, *args, **options: seen.append(options.get("vary_landmarks", False)) or original(self, *args, **options),
    )
    trainer = build_trainer(settings, folder, result.data, result.model, PositionEvaluator(result.held_out, write_csv=False))
    seen.clear()  # the trainer counts tokens for the model card
    trainer.data_collator([{"anchor": "A bell?", "positive": TEXT}])
    assert seen == [True, True]
    result.model.encode([TEXT])
    assert seen[2:] == [False]


def test_the_reader_knows_that_landmarks_take_room(settings):
    plain = ModelReader.of_model(load_base(settings.model_copy(update={"pooling": None})), "tiny")
    landmarked = ModelReader.of_model(load_base(settings), "tiny")
    assert (plain.window, landmarked.window) == (64, 58)
    assert (plain.find_window(58), landmarked.find_window(58)) == (58, 64)
    with pytest.raises(PosirError, match=r"window of 64\. .* 62"):
        load_base(settings.model_copy(update={"landmark_tokens": 63}))


def test_the_pooling_of_a_model_with_landmarks_is_not_exchanged(settings, trained):
    folder, _ = trained
    again = settings.model_copy(update={"model": str(folder.output), "pooling": Pooling.MEAN})
    with pytest.raises(PosirError, match="pooling"):
        load_base(again)
    kept = load_base(settings.model_copy(update={"model": str(folder.output), "pooling": None}))
    assert isinstance(kept[0], LandmarkTransformer)
    assert torch.is_tensor(kept.encode([TEXT], convert_to_tensor=True))
