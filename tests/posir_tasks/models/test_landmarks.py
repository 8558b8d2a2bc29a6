"""Landmarks: their places against a plain count, the pooled states against a mean by hand, and what the window cuts."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.errors import PosirError
from posir_tasks.models.landmarks import (
    LANDMARKS,
    LandmarkSettings,
    LandmarkTransformer,
    add_landmarks,
    find_text_window,
    insert_landmarks,
    window_for,
)
from tests.support.tiny_encoders import build_encoder

TEXT = " ".join(f"bell {number}" for number in range(60))
TEXTS = [TEXT, "A lantern.", "Who rang the copper bell? " * 5]


@given(st.integers(0, 60), st.integers(1, 20), st.integers(2, 60))
def test_landmarks_stand_after_every_so_many_tokens_and_are_cut_afterward(tokens, size, window):
    expected = [-5]
    for number in range(tokens):
        expected.append(number)
        if (number + 1) % size == 0 or number + 1 == tokens:
            expected.append(-1)
    expected = ([*expected, -1] if tokens == 0 else expected)[:window]
    if -1 not in expected:
        expected[-1] = -1
    text = insert_landmarks(LandmarkSettings(size).divide(range(tokens)), -1, [-5], window)
    assert text.ids == expected
    assert text.is_landmark == [token == -1 for token in expected]


def test_the_size_of_a_text_in_training_is_drawn_from_its_tokens_alone():
    settings = LandmarkSettings(32, varied_sizes=(2, 4, 8))
    sizes = [len(settings.divide(range(start, start + 16), vary=True)[0]) for start in range(40)]
    assert set(sizes) == {2, 4, 8}
    assert sizes == [len(settings.divide(range(start, start + 16), vary=True)[0]) for start in range(40)]
    assert len(settings.divide(range(16))) == 1


def mean_of_separators(model, text, settings):
    """The vector by hand: tokens, separators, the model of transformers, and a mean in NumPy."""
    tokenizer, window = model.tokenizer, model.max_seq_length
    words = tokenizer(text, add_special_tokens=False)["input_ids"]
    ids = [tokenizer.cls_token_id]
    for start in range(0, len(words), settings.size):
        ids += [*words[start : start + settings.size], tokenizer.sep_token_id]
    ids = ids[:window]
    with torch.no_grad():
        states = model[0].auto_model(input_ids=torch.tensor([ids])).last_hidden_state[0].numpy()
    mean = states[[number for number, token in enumerate(ids) if token == tokenizer.sep_token_id]].mean(axis=0)
    return mean / np.linalg.norm(mean)


@pytest.mark.parametrize("size", [8, 31])
def test_the_vector_is_the_mean_of_the_separators_states(size):
    plain, settings = build_encoder("bert").model, LandmarkSettings(size)
    before = plain.encode(TEXTS)
    made = add_landmarks(plain, settings)
    expected = [mean_of_separators(plain, text, settings) for text in TEXTS]
    for batch_size in (1, 3):
        assert np.abs(made.encode(TEXTS, batch_size=batch_size) - expected).max() < 1e-5
    assert np.abs(plain.encode(TEXTS) - before).max() == 0
    assert type(plain[0]).__name__ == "Transformer"


def test_padding_on_the_left_changes_nothing():
    made = add_landmarks(build_encoder("qwen3", "lasttoken").model, LandmarkSettings(8))
    first = made.encode(TEXTS, batch_size=3)
    made.tokenizer.padding_side = "left"
    assert made.preprocess(TEXTS)["attention_mask"][1, 0] == 0
    assert np.abs(made.encode(TEXTS, batch_size=3) - first).max() < 1e-5


@pytest.mark.parametrize("settings", [LandmarkSettings(8), LandmarkSettings(32)])
def test_the_window_holds_less_text(settings):
    made = add_landmarks(build_encoder("bert", window=96).model, settings)
    assert isinstance(made[0], LandmarkTransformer)
    features = made.preprocess([TEXT])
    read = int((features[LANDMARKS] == 0).sum()) - 1
    assert find_text_window(made) == read + 2
    assert made[0].count_read(5) == 5
    assert read == 95 - 95 // (settings.size + 1)
    assert window_for(made, find_text_window(made)) in (96, 97)


def test_a_model_without_pooling_is_refused():
    model = build_encoder("bert").model
    del model[1]
    with pytest.raises(PosirError, match="a transformer, then pooling"):
        add_landmarks(model, LandmarkSettings())
