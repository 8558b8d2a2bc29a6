import pytest
import torch
from pydantic import ValidationError

from posir_tasks.errors import PosirError
from posir_tasks.text.tokenizer import EstimatedTokenizer
from posir_train.preparation import PadsLoss, build_pairs, prepare_data
from posir_train.settings import Objective, TrainingSettings
from tests.plugins.posir_train.texts import build_examples

TEXTS = [document.text for document in build_examples().documents]


def test_samples_are_half_of_a_text():
    pairs = build_pairs(TEXTS, EstimatedTokenizer(), Objective.PADS, seed=1)
    assert pairs["label"] == [1] * len(TEXTS) + [-1] * len(TEXTS)
    for row, text in enumerate(TEXTS):
        for column in ("first", "second"):
            sample = pairs[column][row]
            assert sample in text
            assert len(sample) == pytest.approx(len(text) / 2, rel=0.1)
    assert all(first not in text for first, text in zip(pairs["second"][len(TEXTS) :], TEXTS, strict=True))
    assert build_pairs(TEXTS, EstimatedTokenizer(), Objective.PADS_PUBLISHED, seed=1)["label"][-1] == 0
    with pytest.raises(PosirError, match="two different texts"):
        build_pairs(TEXTS[:1], EstimatedTokenizer(), Objective.PADS, seed=1)


def test_settings_are_those_of_the_published_code_unless_set():
    """Batches of one pair, Adam with a constant learning rate of 2e-5, three epochs."""
    settings = TrainingSettings(model="m", data="d", objective="pads")
    assert (settings.batch_size, settings.learning_rate, settings.epochs, settings.warmup) == (1, 2e-5, 3, 0)
    assert (settings.schedule, settings.chosen) == ("constant", "last")
    assert TrainingSettings(model="m", data="d", objective=Objective.PADS_PUBLISHED, batch_size=4).batch_size == 4
    assert TrainingSettings(model="m", data="d").batch_size == 32
    assert TrainingSettings.model_validate(settings.model_dump()) == settings
    for fields, message in (({"batch_size": 1}, "at least 2"), ({"texts": "t"}, "only PADS trains on texts")):
        with pytest.raises(ValidationError, match=message):
            TrainingSettings(model="m", data="d", **fields)


class Reader:
    tokens = EstimatedTokenizer()


def test_plain_texts_are_trained_on_and_all_questions_measured_with(tmp_path):
    for number, text in enumerate(TEXTS[:3]):
        (tmp_path / f"{number}.txt").write_text(text)
    data = build_examples(seed=3)
    settings = TrainingSettings(model="m", data="d", objective="pads", texts=str(tmp_path))
    prepared = prepare_data(settings, data, Reader())
    assert len(prepared.dataset) == 6
    assert prepared.held_out == data
    assert all(any(first in text for text in TEXTS[:3]) for first in prepared.dataset["first"])
    assert prepared.description == f"{tmp_path.name}: 6 pairs of 3 texts"


def test_documents_without_questions_are_trained_on():
    data = build_examples(articles=8)
    few = data.select(example for example in data.examples if example.document.id in ("d0", "d1", "d2", "d3"))
    prepared = prepare_data(TrainingSettings(model="m", data="d", objective="pads", held_out=0.5), few, Reader())
    assert prepared.description == "made-up: 12 pairs of 6 texts"
    assert not prepared.articles & {*prepared.held_out.articles}


def test_negatives_labeled_0_do_not_train():
    vectors = torch.tensor([[1.0, 0.0], [1.0, 1.0]], requires_grad=True)
    loss = PadsLoss(lambda features: {"sentence_embedding": features})
    features = [vectors[:1], vectors[1:]]
    assert loss(features, torch.tensor([0])).item() == 0
    assert loss(features, torch.tensor([-1])).item() == pytest.approx(0.5**0.5)
    assert loss(features, torch.tensor([1])).item() == pytest.approx(1 - 0.5**0.5)
