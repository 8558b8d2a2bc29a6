"""Embeddings have the same key only if the model returns the same embedding for a text."""

from pathlib import Path

import mteb
import pytest
import torch
from mteb.models import CompressionWrapper, SentenceTransformerEncoderWrapper
from mteb.models.instruct_wrapper import InstructSentenceTransformerModel
from mteb.types import PromptType
from torch import nn

from posir_tasks.models.embeddings.cached_encoder import (
    EmbeddingKey,
    build_embedding_key,
    digest_module,
    digest_weights,
    serialize_value,
)
from tests.support.encoders import RecordingEncoder, RecordingTransformer
from tests.support.models import write_tiny_model

ENGLISH, GERMAN = (
    mteb.get_task("PosIR-English").metadata,
    mteb.get_task("PosIR-German-English").metadata,
)
QUERY, DOCUMENT = PromptType.query, PromptType.document


def build_key(
    model: object, metadata=ENGLISH, prompt_type=DOCUMENT, subset="sports", **arguments
) -> EmbeddingKey | None:
    task = {"task_metadata": metadata, "hf_split": "test", "hf_subset": subset}
    return build_embedding_key(model, digest_weights(model), task | arguments, prompt_type)


@pytest.fixture
def transformer(tmp_path: Path) -> RecordingTransformer:
    return RecordingTransformer(write_tiny_model(tmp_path / "tiny"))


def wrap(transformer: RecordingTransformer, **prompts: str) -> SentenceTransformerEncoderWrapper:
    wrapper = SentenceTransformerEncoderWrapper(transformer)
    wrapper.model_prompts = {
        name.replace("_", "-"): prompt for name, prompt in prompts.items()
    } or None
    return wrapper


def wrap_with_instructions(
    transformer: RecordingTransformer, **attributes: object
) -> InstructSentenceTransformerModel:
    model = InstructSentenceTransformerModel.__new__(InstructSentenceTransformerModel)
    model.model, model.instruction_template, model.apply_instruction_to_passages = (
        transformer,
        "Do: {instruction}\n",
        False,
    )
    vars(model).update(attributes)
    return model


def test_tasks_with_the_same_prompt_share_a_key(transformer):
    model = wrap(transformer)
    assert (
        build_key(model, ENGLISH)
        == build_key(model, GERMAN, subset="game")
        != build_key(model, ENGLISH, QUERY)
    )
    assert build_key(model).shared


def test_the_key_contains_the_prompt_but_not_its_name(transformer):
    model = wrap(transformer, query="query: ", document="text: ")
    assert build_key(model).task_context == "text: "
    assert build_key(model, prompt_type=QUERY).task_context == "query: "
    # Two tasks share a key if both have the same prompt, but not if only one has a prompt.
    for_one = wrap(transformer, **{"PosIR-English-document": "English: "})
    assert build_key(for_one, ENGLISH) != build_key(for_one, GERMAN)
    for_both = wrap(transformer, **{"PosIR-English": "same: ", "PosIR-German-English": "same: "})
    assert build_key(for_both, ENGLISH) == build_key(for_both, GERMAN)


def test_the_key_contains_the_instruction(transformer):
    model = wrap_with_instructions(transformer)
    prompt = ENGLISH.prompt["query"]
    assert build_key(model, ENGLISH, QUERY).task_context == f"Do: {prompt}\n"
    assert build_key(model, ENGLISH, QUERY) == build_key(model, GERMAN, QUERY)
    assert build_key(model).task_context is None
    other = ENGLISH.model_copy(update={"prompt": {"query": "Find"}})
    assert build_key(model, other, QUERY) != build_key(model, ENGLISH, QUERY)
    assert build_key(model, other) == build_key(model, ENGLISH)
    passages_too = wrap_with_instructions(transformer, apply_instruction_to_passages=True)
    assert (
        build_key(passages_too, ENGLISH.model_copy(update={"prompt": "Find"})).task_context
        == "Do: Find\n"
    )


def test_the_key_of_an_unknown_encoder_contains_the_whole_task():
    model = RecordingEncoder()
    keys = [build_key(model), build_key(model, GERMAN), build_key(model, subset="game")]
    assert (keys[0].shared, keys[0]) == (False, build_key(model))
    assert len({key.task_context for key in keys}) == 3


def test_a_wrapper_that_overrides_encode_is_unknown(transformer):
    overriding = type(
        "Overriding", (SentenceTransformerEncoderWrapper,), {"encode": lambda *_, **__: None}
    )
    replaced = wrap(transformer)
    replaced.encode = lambda *_, **__: None
    assert not build_key(overriding(transformer)).shared
    assert not build_key(replaced).shared


CHANGES = {
    "weights": torch.no_grad()(lambda model: next(model.parameters()).add_(1)),
    "weights behind PyTorch's back": lambda model: next(model.parameters()).data.add_(1),
    "buffer": lambda model: model.register_buffer("scale", torch.ones(1)),
    "dtype": lambda model: model.half(),
    "window": lambda model: setattr(model, "max_seq_length", 8),
    "dimensions": lambda model: setattr(model, "truncate_dim", 8),
    "prompts": lambda model: model.prompts.update(document="text: "),
    "pooling": lambda model: setattr(model[1], "pooling_mode", "cls"),
    "padding": lambda model: setattr(model.tokenizer, "padding_side", "left"),
    "layers": lambda model: model.append(nn.Identity()),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changing_the_model_changes_the_key(transformer, change):
    model = wrap(transformer)
    before = build_key(model)
    assert before == build_key(model)
    change(transformer)
    assert build_key(model).digest() != before.digest()


def test_the_key_ignores_batch_size_mode_folder_and_device(transformer, tmp_path: Path):
    def load_and_build_key(**kwargs: object) -> EmbeddingKey:
        model = wrap(transformer)
        model.mteb_model_meta = model.mteb_model_meta.model_copy(update={"loader_kwargs": kwargs})
        return build_key(model)

    model = wrap(transformer)
    before = build_key(model)
    folders = [write_tiny_model(tmp_path / str(seed), seed=seed) for seed in (0, 1)]
    same, other = (build_key(wrap(RecordingTransformer(folder))) for folder in folders)
    assert before.digest() == same.digest() != other.digest()
    transformer.train()
    assert build_key(model, batch_size=4, show_progress_bar=False) == before
    assert build_key(model, precision="int8") != before
    assert (
        load_and_build_key(device="cuda")
        == load_and_build_key(device="cpu")
        == load_and_build_key()
    )
    assert load_and_build_key(pooling="cls") != load_and_build_key()


def test_an_unidentified_model_has_no_key(transformer):
    assert build_key(CompressionWrapper(wrap(transformer))) is None
    assert build_key(RecordingEncoder(revision=None)) is None
    assert build_key(RecordingEncoder(revision="2")) != build_key(RecordingEncoder(revision="1"))
    changed = RecordingEncoder()
    changed.prefix = "other"
    assert build_key(changed) != build_key(RecordingEncoder())
    # Weights that are not in memory have no digest.
    with torch.device("meta"):
        assert digest_module(nn.Linear(2, 2)) is None
    assert digest_module(nn.Identity()) is None
    assert digest_module(nn.Linear(2, 2)) != digest_module(nn.Linear(2, 2))


def test_any_model_attribute_is_serialized():
    value = {
        "a": (1, 2.5, None, True),
        3: {"y", "x"},
        "thing": Path(),
        "function": wrap,
        "type": Path,
    }
    expected = {
        "a": [1, 2.5, None, True],
        "3": ["x", "y"],
        "function": f"{__name__}.wrap",
        "type": "pathlib.Path",
    }
    assert serialize_value(value) == expected | {"thing": "pathlib.PosixPath"}
