"""Attention calibration: the rule against a plain implementation, and the controls on models of
several kinds.
"""

import copy

import numpy as np
import pytest
import torch
from mteb.types import PromptType

from posir_mitigate.calibrated import Baskets, Calibrated, calibrate
from posir_probe.posir_paper import require_gradients
from posir_tasks.base.errors import PosirError
from posir_tasks.models.embeddings.encoding import ModelEncoder
from posir_tasks.models.prompts import find_prompt
from tests.support.encode import TASK, encode
from tests.support.models import build_encoder

WORDS = [
    "harbour",
    "copper",
    "bell",
    "lantern",
    "river",
    "winter",
    "engine",
    "letter",
    "garden",
    "silver",
    "market",
    "doctor",
]
#: Of 3 to 90 tokens, in an order that makes batches of different lengths.
TEXTS = [
    " ".join(WORDS[(number * 7 + place) % 12] for place in range(length))
    for number, length in enumerate((90, 3, 40, 61))
]
SLOW = [("bert", "mean"), ("modernbert", "cls"), ("modernbert", "mean"), ("qwen3", "mean")]
KINDS = [
    ("bert", "cls"),
    ("qwen3", "lasttoken"),
    *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW),
]


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def model(request):
    return build_encoder(*request.param)


def method(**settings):
    return Calibrated(**{"basket": 16, **settings})


def calibrate_row(weights, isolated, basket, strength):
    """The rule for one row, token by token: `isolated` maps tokens to their mass, None for the
    plain one.
    """
    content = [token for token in range(len(weights)) if token not in isolated]
    groups = [content[start : start + basket] for start in range(0, len(content), basket)]
    groups = [group for group in groups if sum(weights[token] for token in group) > 0]
    target = {token: weights[token] if mass is None else mass for token, mass in isolated.items()}
    rest = 1 - sum(target.values())
    for group in groups:
        mass = sum(weights[token] for token in group)
        target |= {token: rest * weights[token] / mass / len(groups) for token in group}
    return [
        strength * target.get(token, 0) + (1 - strength) * weights[token]
        for token in range(len(weights))
    ]


@pytest.mark.parametrize(
    ("pooling", "isolated"), [("cls", {0: None}), ("mean", {}), ("lasttoken", {0: None, 20: 1 / 6})]
)
def test_the_rule_agrees_with_a_plain_implementation(pooling, isolated):
    row = torch.rand(21, generator=torch.Generator().manual_seed(1))
    row[0] = 0.1
    row /= row.sum()
    result = calibrate(
        row.reshape(1, 1, 1, -1), Baskets.of_batch(torch.ones(1, 21), pooling, 5), 0.7
    ).flatten()
    size = 21 - len(isolated)
    isolated = {token: mass and 1 / (-(-size // 5) + 2) for token, mass in isolated.items()}
    assert result.tolist() == pytest.approx(calibrate_row(row.tolist(), isolated, 5, 0.7), abs=1e-6)
    assert result.sum() == pytest.approx(1)


@pytest.mark.parametrize("pooling", ["cls", "mean", "lasttoken"])
def test_rows_sum_to_1_also_where_one_token_takes_all(pooling):
    mask = torch.tensor([[1] * 30, [0] * 9 + [1] * 21, [1] * 12 + [0] * 18])
    for temperature in (0.1, 1, 100):
        logits = torch.randn(3, 2, 4, 30, generator=torch.Generator().manual_seed(2)) * temperature
        weights = logits.masked_fill(mask[:, None, None, :] == 0, -torch.inf).softmax(dim=-1)
        result = calibrate(weights, Baskets.of_batch(mask, pooling, 8), 0.5)
        assert torch.allclose(result.sum(dim=-1), torch.ones(3, 2, 4), atol=1e-5)
        assert (result >= 0).all()
        assert (result.masked_select((mask == 0)[:, None, None, :].expand_as(result)) == 0).all()


def test_full_strength_gives_every_basket_the_same_mass_and_once_is_enough():
    weights = torch.rand(2, 3, 5, 23, generator=torch.Generator().manual_seed(3))
    weights /= weights.sum(dim=-1, keepdim=True)
    baskets = Baskets.of_batch(torch.ones(2, 23), "mean", 10)
    once = calibrate(weights, baskets, 1)
    assert torch.allclose(
        torch.stack([part.sum(dim=-1) for part in once.split(10, dim=-1)]),
        torch.tensor(1 / 3),
        atol=1e-6,
    )
    assert torch.allclose(calibrate(once, baskets, 1), once, atol=1e-6)
    even = torch.full((1, 1, 1, 21), 1 / 21)
    assert torch.allclose(
        calibrate(even, Baskets.of_batch(torch.ones(1, 21), "cls", 5), 1), even, atol=1e-7
    )
    tail = calibrate(even, Baskets.of_batch(torch.ones(1, 21), "cls", 16), 1)
    assert tail[..., -4:].sum() == pytest.approx(10 / 21)


def test_no_strength_equals_the_plain_model_and_some_does_not(model):
    plain = encode(model, TEXTS)
    assert np.abs(encode(method(strength=0).apply(model), TEXTS) - plain).max() < 1e-6
    calibrated = encode(method(strength=0.5).apply(model), TEXTS)
    changed = np.abs(calibrated - plain).max(axis=1)
    # The second text has fewer tokens than a basket.
    assert changed[1] < 1e-6
    assert changed[[0, 2, 3]].min() > 1e-4
    assert np.abs(encode(model, TEXTS) - plain).max() == 0


def test_batches_baskets_longer_than_the_text_and_queries_change_nothing(model):
    calibrated, plain = method().apply(model), encode(model, TEXTS)
    assert (
        np.abs(
            encode(calibrated, TEXTS, batch_size=1) - encode(calibrated, TEXTS, batch_size=8)
        ).max()
        < 1e-6
    )
    assert np.abs(encode(method(basket=128).apply(model), TEXTS) - plain).max() < 1e-6
    queries = encode(calibrated, TEXTS, PromptType.query)
    assert np.abs(queries - encode(model, TEXTS, PromptType.query)).max() == 0


def test_it_needs_no_second_copy_of_the_model_has_the_same_prompts_and_no_gradients_of_its_own():
    model = build_encoder("bert", "cls", prompts={"query": "query: ", "document": "passage: "})
    calibrated = Calibrated().apply(model)
    assert calibrated.model is model.model
    assert find_prompt(calibrated, TASK["task_metadata"], PromptType.document).text == "passage: "
    with pytest.raises(PosirError, match="with a mitigation"):
        require_gradients(ModelEncoder(calibrated))


def test_the_last_layers_are_calibrated(monkeypatch):
    model = build_encoder("bert", "cls")
    monkeypatch.setattr(
        "posir_mitigate.calibrated.calibrate_documents", lambda _parts, active, _name: active
    )
    for share, layers in ((0.5, [2, 3]), (1, [0, 1, 2, 3]), (0.1, [3])):
        active, every = (
            Calibrated(layers=share).apply(model),
            model.model[0].auto_model.encoder.layer,
        )
        assert [
            number
            for number, layer in enumerate(every)
            if id(layer.attention.self) in active.layers
        ] == layers


def test_what_cannot_be_calibrated_is_refused_in_a_sentence(monkeypatch):
    model = build_encoder("bert", "mean")
    with pytest.raises(PosirError, match="no rule for max pooling"):
        Calibrated().apply(build_encoder("bert", "max"))
    remote = copy.copy(model)
    monkeypatch.setattr(
        type(model.model[0].auto_model),
        "_can_set_attn_implementation",
        classmethod(lambda _: False),
    )
    with pytest.raises(PosirError, match="remote code"):
        Calibrated().apply(remote)
