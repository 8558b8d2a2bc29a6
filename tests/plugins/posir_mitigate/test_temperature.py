"""Attention temperature against models with scaled query weights."""

import numpy as np
import pytest
import torch

from posir_mitigate.references import parse_reference
from posir_mitigate.temperature import Temperature
from posir_tasks.base.errors import PosirError
from posir_tasks.models.loaded_model import find_transformer
from posir_tasks.models.window import find_read_part
from posir_tasks.search.input_window import find_token_counter
from tests.support.encode import TASK, encode
from tests.support.models import build_encoder

TEXTS = ["The bell hung in the harbour.", "Who rang it? A doctor, they say. " * 3, "A lantern."]


def scale_queries(model: torch.nn.Module, architecture: str, factor: float) -> None:
    """Multiply the query weights of every layer by a factor."""
    size = model.config.hidden_size
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "self.query" in name or "q_norm" in name:
                weight.mul_(factor)
            elif architecture == "modernbert" and "Wqkv" in name:
                weight[:size].mul_(factor)


@pytest.mark.parametrize("architecture", ["bert", "qwen3", "modernbert"])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_temperature_is_set_only_during_encoding(architecture, temperature):
    model = build_encoder(architecture)
    plain = encode(model, TEXTS)
    mitigated = Temperature(temperature).wrap(model)
    embeddings = encode(mitigated, TEXTS)
    assert encode(model, TEXTS) == pytest.approx(plain, abs=1e-7)
    assert find_read_part(mitigated) == find_read_part(model)
    scale_queries(find_transformer(model), architecture, 1 / temperature)
    expected = encode(model, TEXTS)
    assert embeddings == pytest.approx(expected, abs=1e-5)
    assert (np.abs(embeddings - plain).max() > 1e-3) is np.bool_(temperature != 1)


def test_tokens_are_counted_as_for_the_plain_model():
    """If tokens were estimated, the truncated evidence would differ."""
    model = build_encoder(prompts={"document": "a passage: "})
    task = TASK["task_metadata"]
    tokenizer, special = find_token_counter(model, task)
    counted, counted_special = find_token_counter(Temperature().wrap(model), task)
    assert counted.tokenizer is tokenizer.tokenizer
    assert counted_special == special > 2


def test_custom_attention_is_rejected():
    class CustomAttention:
        def __init__(self, base):
            self.model, self.mteb_model_meta = base.model, base.mteb_model_meta
            self.similarity = self.similarity_pairwise = base.similarity

        def encode(self, inputs, **_):
            return np.ones((len(inputs.dataset), 2))

    model = Temperature().wrap(CustomAttention(build_encoder()))
    with pytest.raises(PosirError, match=r"\+temperature\(0.9\): has a custom attention"):
        encode(model, TEXTS)
    with pytest.raises(PosirError, match="temperature"):
        parse_reference("temperature(0)")
