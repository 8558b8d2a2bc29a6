"""Models without a padding token."""

import numpy as np
import pytest

from posir_probe.data import ProbeData
from posir_probe.probe import run_plans
from posir_probe.segments import SegmentSimilarity
from posir_tasks.embeddings.encoding import load_encoder
from posir_tasks.host.mteb_patches import ensure_padding
from tests.support.models import write_tiny_gpt2

TEXTS = [
    "The mill burned in 1901, and nobody in the village knew why.",
    "It was built again of stone in the dry summer of 1902.",
]


def test_a_model_like_gpt2_is_probed_as_if_each_text_were_alone(tmp_path):
    folder = str(write_tiny_gpt2(tmp_path / "gpt2"))
    probe = SegmentSimilarity(3)
    (together,) = run_plans(load_encoder(folder, None, batch_size=8), [probe.plan(ProbeData.from_texts(TEXTS))])
    (alone,) = run_plans(load_encoder(folder, None, batch_size=1), [probe.plan(ProbeData.from_texts(TEXTS))])
    np.testing.assert_allclose(together.values, alone.values, atol=1e-5)
    assert np.ptp(together.values) > 1e-4


@pytest.mark.parametrize(("pad", "end", "expected"), [(None, "</s>", "</s>"), ("<pad>", "</s>", "<pad>"), (None, None, None)])
def test_only_a_missing_padding_token_is_replaced(pad, end, expected):
    class Model:
        pass

    model = Model()
    model.tokenizer = Model()
    model.tokenizer.pad_token, model.tokenizer.eos_token = pad, end
    ensure_padding(model)
    assert model.tokenizer.pad_token == expected
    ensure_padding(object())
