"""Models in local folders: kind, name, revision, and errors."""

import json
import os
import runpy
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import mteb
import numpy as np
import pytest
import torch
from huggingface_hub import constants
from mteb.types import PromptType
from safetensors.torch import load_file, save_file

from posir_tasks.base.errors import PosirError
from posir_tasks.models import run_settings
from posir_tasks.models.embeddings.encoding import load_encoder
from posir_tasks.models.folder import digest_folder
from posir_tasks.models.references import ModelReference, get_portable_reference
from posir_tasks.models.registry import find_model
from tests.support.audit import forbid_foreign_code
from tests.support.models import TINY_KINDS, write_tiny_model


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A dense model in the folder `my-model` of the working directory."""
    monkeypatch.chdir(tmp_path)
    return write_tiny_model(tmp_path / "my-model")


def find_meta(name="./my-model"):
    return find_model(ModelReference(str(name)))


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_the_kind_of_model_is_detected_and_loaded(tmp_path, kind):
    write_tiny_model(tmp_path / "mine", kind)
    meta = find_meta(tmp_path / "mine")
    assert (meta.name, meta.model_type, meta.max_tokens) == ("local/mine", [kind], 64)
    model = mteb.get_model(str(tmp_path / "mine"), device="cpu")
    assert type(model).__name__ == meta.to_dict()["loader"]
    assert model.mteb_model_meta.revision == meta.revision


def test_all_spellings_of_a_path_are_the_same_model(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    metas = [
        find_meta(name) for name in ("my-model", "./my-model", "my-model/", "~/my-model", folder)
    ]
    assert {meta.name for meta in metas} == {"local/my-model"}
    assert {meta.revision for meta in metas} == {digest_folder(folder)}
    assert {get_portable_reference(meta) for meta in metas} == {str(folder)}
    monkeypatch.chdir(folder)
    assert get_portable_reference(find_meta(".")) == str(folder)
    # The name of a registered model takes precedence over a folder.
    shutil.copytree(folder, "baseline-bm25s")
    assert [find_meta(f"{path}baseline-bm25s").name.split("/")[0] for path in ("", "./")] == [
        "mteb",
        "local",
    ]


@pytest.mark.parametrize(
    ("card", "name"),
    [
        ("My Model v2", "My-Model-v2-3942345c"),
        ("my-org/my-model (best)", "my-org-my-model-best-d4e72e32"),
        ("SentenceTransformer based on org/base", "my-model"),
        ("SPLADE Sparse Encoder", "my-model"),
        ("[1", "my-model"),
        ("模型", "model-0a7383fb"),
        (None, "my-model"),
    ],
)
def test_the_name_is_from_the_model_card_or_the_folder(folder, card, name):
    metadata = f"---\nmodel_name: {card}\n---\n" if card else "no metadata"
    (folder / "README.md").write_text(metadata, encoding="utf-8")
    assert find_meta().name == f"local/{name}"
    shutil.copytree(folder, "run-7/checkpoint-500", ignore=lambda *_: ["README.md"])
    assert find_meta("run-7/checkpoint-500").name == "local/run-7-checkpoint-500"


def edit_json(path, **values):
    path.write_text(json.dumps((json.loads(path.read_text()) if path.is_file() else {}) | values))


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: write_tiny_model(folder, seed=1),
        lambda folder: edit_json(folder / "config.json", layer_norm_eps=1e-5),
        lambda folder: edit_json(folder / "1_Pooling" / "config.json", pooling_mode="cls"),
        lambda folder: edit_json(folder / "tokenizer_config.json", do_lower_case=False),
        lambda folder: edit_json(
            folder / "config_sentence_transformers.json", prompts={"query": "search: "}
        ),
        lambda folder: (folder / "modeling_custom.py").write_text("SCALE = 2"),
        lambda folder: torch.save({"weight": torch.ones(1)}, folder / "pytorch_model.bin"),
    ],
)
def test_a_change_of_the_embeddings_changes_the_revision(folder, change):
    before = find_meta().revision
    assert find_meta().revision == before
    change(folder)
    assert find_meta().revision != before


def test_training_files_do_not_change_the_revision(folder):
    before = find_meta().revision
    (folder / "results" / "results").mkdir(parents=True)
    for file in (
        "README.md",
        "optimizer.pt",
        "trainer_state.json",
        "results/results/model_meta.json",
    ):
        (folder / file).write_text("{}")
    shutil.copytree(folder, folder.parent / "copy")
    shutil.move(folder.parent / "copy", folder / "checkpoint-5")
    assert find_meta().revision == before


def test_links_into_a_cache_are_resolved(folder, tmp_path):
    before = find_meta().revision
    for name in ("model.safetensors", "1_Pooling"):
        (folder / name).rename(tmp_path / name)
        (folder / name).symlink_to(tmp_path / name)
    assert find_meta().revision == before
    edit_json(tmp_path / "1_Pooling" / "config.json", pooling_mode="cls")
    assert find_meta().revision != before


@pytest.mark.parametrize(
    ("prepare", "name", "message"),
    [
        (lambda _: None, "./none", r"\./none: no such folder\."),
        (
            lambda folder: (folder.parent / "empty").mkdir(),
            "empty/",
            r"empty/: not a model; .* its `save_pretrained`\.",
        ),
        (
            lambda folder: (folder / "config.json").write_text("{"),
            "./my-model",
            r"config\.json: cannot be read",
        ),
    ],
)
def test_a_folder_without_a_model_raises_one_error(folder, prepare, name, message):
    prepare(folder)
    with pytest.raises(PosirError, match=message):
        find_meta(name)
    with pytest.raises(PosirError, match=message):
        mteb.get_model(name)


@pytest.mark.parametrize(
    ("prompts", "field"),
    [
        (["query: "], "prompts"),
        ("query: ", "prompts"),
        (5, "prompts"),
        ({"document": ["passage: "]}, "prompts.document"),
        ({"query": "query: ", "document": 5}, "prompts.document"),
        ({"PosIR-Mini-query": {"text": "query: "}}, "prompts.PosIR-Mini-query"),
    ],
)
def test_prompts_that_are_no_texts_are_rejected(folder, prompts, field):
    edit_json(folder / "config_sentence_transformers.json", prompts=prompts)
    with pytest.raises(PosirError, match=rf"config_sentence_transformers\.json: {field} "):
        mteb.get_model("./my-model")


def test_prompts_may_be_null(folder):
    edit_json(folder / "config_sentence_transformers.json", prompts={"query": None})
    assert find_meta().name == "local/my-model"


def test_a_corrupt_or_changing_folder_is_rejected(folder):
    meta = find_meta()
    edit_json(folder / "config.json", layer_norm_eps=1e-5)
    with pytest.raises(PosirError, match=r"local/my-model changed while it was loaded"):
        meta.load_model(device="cpu")
    # transformers creates a tokenizer without a vocabulary.
    (folder / "tokenizer.json").unlink()
    with pytest.raises(PosirError, match=r"my-model: the tokenizer only has the 5 special tokens"):
        mteb.get_model("./my-model")
    (folder / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(PosirError, match=r"my-model: the model cannot be loaded \(SafetensorError"):
        mteb.get_model("./my-model")
    with pytest.raises(PosirError, match=r"Expected [0-9a-f]{16}\."):
        find_model(ModelReference("./my-model", "0000000000000000"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_hidden_layers": 3}, r"32 are missing .*layer\.1\.\S+, "),
        ({"intermediate_size": 24}, r"layer\.0\.inter"),
    ],
)
@pytest.mark.parametrize("kind", TINY_KINDS)
def test_weights_that_do_not_match_the_settings_are_rejected(tmp_path, kind, settings, message):
    """transformers would initialize missing weights randomly."""
    folder = write_tiny_model(tmp_path / "mine", kind)
    edit_json(folder / "config.json", **settings)
    with pytest.raises(PosirError, match=rf"mine: .*{message}"):
        mteb.get_model(str(folder), device="cpu")
    if kind == "dense":
        torch.save({"weight": torch.ones(4, 16)}, folder / "colbert_linear.pt")
        with pytest.raises(PosirError, match=message):
            mteb.get_model(f"{folder}:colbert", device="cpu")


def test_a_transformers_model_is_dense_and_needs_no_pooler(
    folder,
):
    shutil.copytree(
        "my-model",
        "plain",
        ignore=shutil.ignore_patterns("modules.json", "*sentence*", "1_Pooling"),
    )
    assert find_meta("plain").model_type == ["dense"]
    assert mteb.get_model("plain").mteb_model_meta.name == "local/plain"
    weights = load_file(folder / "model.safetensors")
    save_file(
        {name: value for name, value in weights.items() if "pooler" not in name},
        folder / "model.safetensors",
    )
    assert len(load_file(folder / "model.safetensors")) < len(weights)
    assert mteb.get_model("./my-model", device="cpu") is not None


def test_an_impossible_number_of_layers_is_rejected(folder):
    for layers in (-1, 10**9):
        edit_json(folder / "config.json", num_hidden_layers=layers)
        with pytest.raises(
            PosirError,
            match=rf"config\.json: num_hidden_layers is {layers}; must be from 0 to 10,000",
        ):
            mteb.get_model("./my-model")


def evil_code(folder):
    return f"open({str(folder / 'ran')!r}, 'w')"


def plant_hub_code(folder):
    """Write a repository with code into the Hub's cache. Return the `auto_map` for its classes."""
    repository = Path(constants.HF_HUB_CACHE) / "models--stranger--code"
    for name, content in (
        ("refs/main", "1" * 40),
        (f"snapshots/{'1' * 40}/evil.py", evil_code(folder)),
    ):
        (repository / name).parent.mkdir(parents=True)
        (repository / name).write_text(content)
    return {
        name: f"stranger/code--evil.{name}" for name in ("AutoConfig", "AutoModel", "AutoTokenizer")
    }


def escape(file, text, escaped):
    file.write_text(file.read_text().replace(text, escaped))


def name_escaped_code(folder):
    file = folder / "config.json"
    edit_json(file, auto_map=plant_hub_code(folder), model_type="stranger")
    escape(file, '"auto_map"', '"auto\\u005fmap"')


def name_code_in_a_subfolder(folder):
    (folder / "0_T").mkdir()
    for file in [
        file for file in folder.iterdir() if file.is_file() and file.name != "modules.json"
    ]:
        file.rename(folder / "0_T" / file.name)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = "0_T"
    (folder / "modules.json").write_text(json.dumps(modules))
    edit_json(
        folder / "0_T" / "config.json", auto_map=plant_hub_code(folder), model_type="stranger"
    )


def name_code_behind_a_link(folder):
    name_code_in_a_subfolder(folder)
    (folder / "0_T").rename(folder.parent / "elsewhere")
    (folder / "0_T").symlink_to(folder.parent / "elsewhere")
    escape(folder / "modules.json", '"0_T"', '"\\u0030_T"')


def name_code_in_the_tokenizer(folder):
    edit_json(
        folder / "tokenizer_config.json",
        auto_map={"AutoTokenizer": [None, "evil.Tokenizer"]},
        tokenizer_class="Evil",
    )
    (folder / "evil.py").write_text(evil_code(folder))


def pickle_weights(folder):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {folder / 'ran'}",)

    weights = next(folder.glob("*.safetensors"))
    torch.save({"weight": Evil()}, weights.with_name("pytorch_model.bin"))
    weights.unlink()


def unpickle_weights(folder):
    pickle_weights(folder)
    edit_json(
        folder / "sentence_bert_config.json",
        **{key: {"weights_only": False} for key in ("model_kwargs", "model_args")},
    )


def name_module(folder, reference):
    (folder / "modules.json").write_text(
        json.dumps([{"idx": 0, "name": "0", "path": "", "type": reference}])
    )
    (folder / "evil.py").write_text(evil_code(folder))


def route_to_a_foreign_module(folder):
    name_module(folder, "sentence_transformers.base.modules.Router")
    types, structure = {"query_0_E": "evil.Module"}, {"query": ["query_0_E"]}
    edit_json(folder / "router_config.json", types=types, structure=structure, parameters={})


def write_adapter(folder, **settings):
    edit_json(folder / "adapter_config.json", peft_type="LORA", **settings)


def write_adapter_with_foreign_base(folder):
    base = shutil.copytree(folder, folder.parent / "base")
    name_code_in_the_tokenizer(base)
    write_adapter(folder, base_model_name_or_path=str(base), auto_mapping=None)


#: Ways in which a folder can make a library run code.
ATTACKS = [
    name_escaped_code,
    name_code_in_a_subfolder,
    name_code_behind_a_link,
    name_code_in_the_tokenizer,
    pickle_weights,
    unpickle_weights,
    lambda folder: name_module(folder, "evil.Module"),
    lambda folder: name_module(folder, "sentence_transformers.util.misc.import_from_string"),
    route_to_a_foreign_module,
    write_adapter_with_foreign_base,
    lambda folder: write_adapter(
        folder, auto_mapping={"base_model_class": "Model", "parent_library": "evil.library"}
    ),
    lambda folder: edit_json(folder / "config.json", attn_implementation="stranger/kernel"),
    lambda folder: edit_json(
        folder / "config.json", sentence_transformers={"activation_fn": "evil.Function"}
    ),
    lambda folder: (folder / "config.json").write_text("[" * 100_000),
]
ATTACKS_ON_ALL_KINDS = [name_escaped_code, name_code_in_the_tokenizer, unpickle_weights]


@pytest.mark.parametrize(
    ("kind", "attack"),
    [
        *(("dense", attack) for attack in ATTACKS),
        *(
            (kind, attack)
            for kind in TINY_KINDS
            if kind != "dense"
            for attack in ATTACKS_ON_ALL_KINDS
        ),
    ],
)
def test_a_folder_never_runs_code(tmp_path, monkeypatch, kind, attack):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = write_tiny_model(tmp_path / "mine", kind)
    attack(folder)
    with forbid_foreign_code(), pytest.raises(PosirError):
        mteb.get_model(str(folder), device="cpu")
    assert not (folder / "ran").exists()
    assert not (tmp_path / "base" / "ran").exists()


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_trust_remote_code_is_rejected_and_not_needed(tmp_path, kind):
    folder = write_tiny_model(tmp_path / "mine", kind)
    (folder / "vocabulary.json").write_text('{"auto_map": 7}')
    with forbid_foreign_code():
        assert mteb.get_model(str(folder), device="cpu") is not None
    with pytest.raises(PosirError, match="trust_remote_code"):
        mteb.get_model(str(folder), device="cpu", trust_remote_code=True)


def test_the_audit_hook_detects_code_outside_the_folder(tmp_path):
    file = tmp_path / "evil.py"
    file.write_text("VALUE = 1")
    for run, what in ((runpy.run_path, str(file)), (os.system, "true")):
        with pytest.raises(AssertionError), forbid_foreign_code(), suppress(RuntimeError):
            run(what)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("backend", "model", "message"),
    [
        ("onyx", "./my-model", "POSIR_BACKEND=onyx: not a backend. Write onnx or openvino"),
        ("onnx", "m@http://localhost:1/v1", "EndpointEncoder, which has no backends"),
    ],
)
def test_an_unsupported_backend_is_rejected(monkeypatch, backend, model, message):
    monkeypatch.setenv("POSIR_BACKEND", backend)
    with pytest.raises(PosirError, match=message):
        find_meta(model)


@pytest.mark.usefixtures("folder")
def test_a_backend_is_an_experiment_with_the_same_model(monkeypatch):
    monkeypatch.setenv("POSIR_BACKEND", "onnx:model_qint8.onnx")
    monkeypatch.setattr(run_settings, "import_module", lambda _: None)
    assert find_meta().experiment_kwargs["backend"] == "onnx:model_qint8.onnx"
    prepared = run_settings.prepare_for_loading(find_meta())
    assert prepared.experiment_kwargs is None
    assert prepared.loader_kwargs["backend"] == "onnx"
    assert prepared.loader_kwargs["model_kwargs"] == {"file_name": "model_qint8.onnx"}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("error", [ModuleNotFoundError, ImportError, RuntimeError])
def test_a_missing_backend_package_is_reported_with_the_install_command(monkeypatch, error):
    def fail(_):
        raise error("no nms")

    monkeypatch.setenv("POSIR_BACKEND", "onnx")
    monkeypatch.setattr(run_settings, "import_module", fail)
    message = r"\(\w*Error: no nms\).*pip install 'sentence-transformers\[onnx\]'"
    with pytest.raises(PosirError, match=message):
        find_meta().load_model()


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("backend", "module"),
    [("onnx", "optimum.onnxruntime.modeling"), ("openvino", "optimum.intel.openvino.modeling")],
)
def test_backends_return_the_same_embeddings_as_torch(monkeypatch, backend, module):
    pytest.importorskip(module, exc_type=ImportError)
    texts = ["A mill burned down.", "Who lit it?"]
    by_torch = load_encoder("./my-model")(texts, PromptType.document)
    monkeypatch.setenv("POSIR_BACKEND", backend)
    encoder = load_encoder("./my-model")
    assert encoder.model.model.get_backend() == backend
    assert encoder.model.mteb_model_meta.experiment_kwargs == {"backend": backend}
    np.testing.assert_allclose(encoder(texts, PromptType.document), by_torch, atol=1e-3)


SOURCE = """
import numpy as np
import torch


class Lengths:
    def encode(self, texts):
        return np.array([[len(text), 1.0] for text in texts])


class Sides(Lengths):
    def encode_query(self, texts):
        return [[0.0, 1.0] for _ in texts]


class Flat:
    def encode(self, texts):
        return [0.0]


class Tensors:
    def __init__(self, kind=torch.bfloat16, parts=False):
        self.kind, self.parts = kind, parts

    def encode(self, sentences: list[str]):
        assert type(sentences) is list
        rows = [[len(text), 1.0] for text in sentences]
        rows = torch.tensor(rows, dtype=self.kind, requires_grad=True)
        return list(rows) if self.parts else rows


class Halves(Lengths):
    def encode(self, texts):
        return super().encode(texts).astype(np.float16)


class Failing(Lengths):
    def encode(self, texts):
        raise RuntimeError("out of words")


def make():
    return Lengths()


it, sides, flat, none = Lengths(), Sides(), Flat(), 7
tensors, parts, halves = Tensors(), Tensors(parts=True), Halves()
failing = Failing()
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Name of a module in the working directory that defines encoders."""
    name = f"encoders_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return name


def test_an_object_with_encode_is_a_model(module):
    meta = find_meta(f"{module}:it")
    assert (meta.name, get_portable_reference(meta)) == (f"local/{module}-it", f"{module}:it")
    assert len(meta.revision) == 16
    encoder = load_encoder(f"{module}:it")
    assert encoder(["ab", "abc"], PromptType.document).tolist() == [[2, 1], [3, 1]]
    assert encoder(["ab"], PromptType.query).tolist() == [[2, 1]]
    sides = load_encoder(f"{module}:sides")
    assert sides(["ab"], PromptType.query).tolist() == [[0, 1]]
    assert sides(["ab"], PromptType.document).tolist() == [[2, 1]]


@pytest.mark.parametrize("name", ["Lengths", "make", "Tensors", "tensors", "parts", "halves"])
def test_classes_factories_and_all_arrays_are_accepted(module, name):
    encoder = load_encoder(f"{module}:{name}")
    assert encoder(["ab", "abc"], PromptType.document).tolist() == [[2, 1], [3, 1]]


def test_an_object_that_cannot_encode_is_reported(module):
    with pytest.raises(PosirError, match=r"Failing.encode: failed \(RuntimeError: out of words\)"):
        load_encoder(f"{module}:failing")(["a"], PromptType.document)
    with pytest.raises(PosirError, match="is int, which has no `encode`"):
        find_meta(f"{module}:none")
    with pytest.raises(PosirError, match="cannot be imported"):
        find_meta(f"{module}:missing")
    with pytest.raises(PosirError, match=r"a vector for each of 2 texts"):
        load_encoder(f"{module}:flat")(["a", "b"], PromptType.document)
    with pytest.raises(PosirError, match="No module named 'no_such_module'"):
        find_meta("no_such_module:it")
