"""BGE's language model rerankers are loaded with the authors' FlagEmbedding class and settings."""

import sys
from types import ModuleType

import mteb
import pytest
from torch.utils.data import DataLoader

from posir_tasks.models.embeddings.context import build_texts
from posir_tasks.models.window import find_read_part, set_window
from posir_tasks.values.read_part import ReadPart, WindowSource
from tests.support.encode import TASK


class LanguageModelReranker:
    """Records its arguments. Scores are the lengths of the passages."""

    def __init__(self, name, max_length=512, **settings):
        self.name, self.max_length, self.settings = name, max_length, settings

    def compute_score(self, pairs, normalize=False):
        assert normalize, "probabilities"
        return [len(passage) / 100 for _, passage in pairs]


class LayerWiseReranker(LanguageModelReranker):
    """A separate class for layer-wise models."""


@pytest.mark.parametrize(
    ("name", "kind", "settings"),
    [
        ("BAAI/bge-reranker-v2-gemma", LanguageModelReranker, {}),
        ("BAAI/bge-reranker-v2-minicpm-layerwise", LayerWiseReranker, {"cutoff_layers": [28]}),
    ],
)
def test_flagembedding_loads_language_model_rerankers(name, kind, settings, monkeypatch):
    module = ModuleType("FlagEmbedding")
    module.FlagLLMReranker, module.LayerWiseFlagLLMReranker = (
        LanguageModelReranker,
        LayerWiseReranker,
    )
    monkeypatch.setitem(sys.modules, "FlagEmbedding", module)
    meta = mteb.get_model_meta(name, fetch_from_hf=False)
    assert (meta.name, meta.model_type, meta.extra_requirements_groups) == (
        name,
        ["cross-encoder"],
        ["flagembedding"],
    )
    model = meta.loader(name, None, device="cpu", **meta.loader_kwargs)
    assert type(model.model) is kind
    assert (model.model.name, model.model.settings) == (
        name,
        {"use_fp16": True, "devices": "cpu", **settings},
    )
    model.mteb_model_meta = meta
    assert find_read_part(model) == ReadPart.first(512, WindowSource.CLASS)
    set_window(model, 8192)
    assert model.model.max_length == 8192
    texts = DataLoader(build_texts(["a passage"]).add_column("query", ["who"]), batch_size=1)
    assert list(model.predict(texts, texts, **TASK)) == [0.09]
