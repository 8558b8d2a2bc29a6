"""Mitigated models and their plain model share cached embeddings."""

import json

import numpy as np
import pytest
from mteb.types import PromptType

from posir_mitigate.references import resolve_mitigated
from posir_tasks.models.embeddings.cached_encoder import with_cache
from posir_tasks.models.folder import describe_folder
from tests.support.encode import encode
from tests.support.encoders import reset_process_state
from tests.support.models import write_tiny_model

TEXTS = ["A lantern. " * 20, "Who rang the copper bell? A doctor, they say."]


@pytest.fixture
def folder(tmp_path):
    return write_tiny_model(tmp_path / "tiny")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("POSIR_EMBEDDINGS", str(tmp_path / "cache"))
    reset_process_state()
    return tmp_path / "cache"


def load(folder, method):
    registry = {str(folder): describe_folder(folder)}
    return resolve_mitigated(f"{folder}+{method}", registry).load_model(device="cpu")


def cached_models(cache):
    return sorted(json.loads(file.read_text())["model"] for file in cache.rglob("about.json"))


@pytest.mark.parametrize("method", ["chunks(8,mean)", "both_orders"])
def test_embeddings_of_chunks_are_cached(folder, cache, method):
    model = with_cache(load(folder, method))
    plain_embeddings = encode(model, TEXTS)
    encode(model, TEXTS, PromptType.query)
    assert set(cached_models(cache)) == {"local/tiny"}
    reset_process_state()
    assert np.abs(encode(with_cache(load(folder, method)), TEXTS) - plain_embeddings).max() < 1e-6
