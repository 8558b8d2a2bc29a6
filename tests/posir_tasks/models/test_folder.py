"""Models in local folders: their kind, name and revision, and what is not a model."""

import json
import shutil

import mteb
import pytest
import torch

from posir_tasks.errors import PosirError
from posir_tasks.models.folder import digest_folder
from posir_tasks.models.references import ModelReference, portable_name
from posir_tasks.models.registry import find_model
from tests.support.models import TINY_KINDS, write_tiny_model


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A dense model, which tests copy before they change it."""
    return write_tiny_model(tmp_path_factory.mktemp("saved") / "my-model")


@pytest.fixture
def folder(saved, tmp_path, monkeypatch):
    """The model as the folder `my-model` in the working directory."""
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(saved, tmp_path / "my-model")


def find(name="./my-model"):
    return find_model(ModelReference(str(name)))


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_the_kind_is_detected_and_loaded(tmp_path, kind):
    write_tiny_model(tmp_path / "mine", kind)
    meta = find(tmp_path / "mine")
    assert (meta.name, meta.model_type, meta.max_tokens) == ("local/mine", [kind], 64)
    model = mteb.get_model(str(tmp_path / "mine"), device="cpu")
    assert type(model).__name__ == meta.to_dict()["loader"]
    assert model.mteb_model_meta.revision == meta.revision


@pytest.mark.usefixtures("folder")
def test_a_model_of_transformers_alone_is_dense():
    shutil.copytree("my-model", "plain", ignore=shutil.ignore_patterns("modules.json", "*sentence*", "1_Pooling"))
    assert find("plain").model_type == ["dense"]
    assert mteb.get_model("plain").mteb_model_meta.name == "local/plain"


def test_every_way_to_write_the_path_is_the_same_model(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    metas = [find(name) for name in ("my-model", "./my-model", "my-model/", "~/my-model", folder)]
    assert {meta.name for meta in metas} == {"local/my-model"}
    assert {meta.revision for meta in metas} == {digest_folder(folder)}
    assert {portable_name(meta) for meta in metas} == {str(folder)}
    monkeypatch.chdir(folder)
    assert portable_name(find(".")) == str(folder)


@pytest.mark.usefixtures("folder")
def test_a_registered_name_is_not_a_folder():
    shutil.copytree("my-model", "baseline-bm25s")
    assert find("baseline-bm25s").name == "mteb/baseline-bm25s"
    assert find("./baseline-bm25s").name == "local/baseline-bm25s"


@pytest.mark.parametrize(
    ("card", "name"),
    [
        ("---\nmodel_name: My Model v2\n---\n", "My-Model-v2"),
        ("---\nmodel_name: my-org/my-model (best)\n---\n", "my-org-my-model-best"),
        ("---\nmodel_name: SentenceTransformer based on org/base\n---\n", "my-model"),
        ("---\nmodel_name: SPLADE Sparse Encoder\n---\n", "my-model"),
        ("---\nmodel_name: [1\n---\n", "my-model"),
        ("---\nmodel_name: 模型\n---\n", "model"),
        ("no metadata", "my-model"),
    ],
)
def test_the_model_card_names_the_model_or_else_its_folder(folder, card, name):
    (folder / "README.md").write_text(card, encoding="utf-8")
    assert find().name == f"local/{name}"


def test_a_checkpoint_is_named_with_its_run(folder):
    shutil.copytree(folder, "run-7/checkpoint-500")
    assert find("run-7/checkpoint-500").name == "local/run-7-checkpoint-500"


def edit_json(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def retrain(folder):
    write_tiny_model(folder, seed=1)


@pytest.mark.parametrize(
    "change",
    [
        retrain,
        lambda folder: edit_json(folder / "config.json", layer_norm_eps=1e-5),
        lambda folder: edit_json(folder / "1_Pooling" / "config.json", pooling_mode="cls"),
        lambda folder: edit_json(folder / "tokenizer_config.json", do_lower_case=False),
        lambda folder: edit_json(folder / "config_sentence_transformers.json", prompts={"query": "search: "}),
        lambda folder: (folder / "modeling_custom.py").write_text("SCALE = 2"),
        lambda folder: torch.save({"weight": torch.ones(1)}, folder / "pytorch_model.bin"),
    ],
)
def test_whatever_changes_embeddings_changes_the_revision(folder, change):
    before = find().revision
    assert find().revision == before
    change(folder)
    assert find().revision != before


def test_what_training_and_evaluation_leave_in_the_folder_does_not_change_the_revision(folder):
    before = find().revision
    (folder / "README.md").write_text("better described")
    (folder / "optimizer.pt").write_bytes(b"state")
    (folder / "trainer_state.json").write_text("{}")
    (folder / "results" / "results").mkdir(parents=True)
    (folder / "results" / "results" / "model_meta.json").write_text("{}")
    shutil.copytree(folder, folder.parent / "copy")
    shutil.move(folder.parent / "copy", folder / "checkpoint-5")
    assert find().revision == before


def test_a_link_into_a_cache_is_read_as_its_content(folder, tmp_path):
    before = find().revision
    (folder / "model.safetensors").rename(tmp_path / "blob")
    (folder / "model.safetensors").symlink_to(tmp_path / "blob")
    (folder / "1_Pooling").rename(tmp_path / "pooling")
    (folder / "1_Pooling").symlink_to(tmp_path / "pooling")
    assert find().revision == before
    edit_json(tmp_path / "pooling" / "config.json", pooling_mode="cls")
    assert find().revision != before


@pytest.mark.parametrize(
    ("prepare", "name", "message"),
    [
        (lambda _: None, "./none", r"\./none: no such folder\."),
        (lambda folder: (folder.parent / "empty").mkdir(), "empty/", r"empty/: not a model; .* its `save_pretrained`\."),
        (lambda folder: shutil.copytree(folder, folder.parent / "runs" / "checkpoint-9"), "./runs", "mean runs/checkpoint-9?"),
        (
            lambda folder: (folder / "config.json").write_text("{"),
            "./my-model",
            r"config\.json: cannot be read",
        ),
    ],
)
def test_what_is_not_a_model_is_one_message(folder, prepare, name, message):
    prepare(folder)
    with pytest.raises(PosirError, match=message):
        find(name)
    with pytest.raises(PosirError, match=message):
        mteb.get_model(name)


def test_damaged_weights_and_a_folder_that_is_being_written_are_refused(folder):
    meta = find()
    edit_json(folder / "config.json", layer_norm_eps=1e-5)
    with pytest.raises(PosirError, match=r"local/my-model changed while it was loaded"):
        meta.load_model(device="cpu")
    (folder / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(PosirError, match=r"my-model: the model cannot be loaded \(SafetensorError"):
        mteb.get_model("./my-model")


@pytest.mark.usefixtures("folder")
def test_another_revision_than_that_of_the_folder_is_refused():
    with pytest.raises(PosirError, match=r"Expected [0-9a-f]{16}\."):
        find_model(ModelReference("./my-model", "0000000000000000"))
