"""What is different for a model is different for the store, and what is not, is not."""

import shutil
from pathlib import Path

import mteb
import pytest
import torch
from mteb.models import CompressionWrapper, SentenceTransformerEncoderWrapper
from mteb.models.instruct_wrapper import InstructSentenceTransformerModel
from mteb.types import PromptType
from torch import nn

from posir_tasks.embeddings.key import Encoding, encoding_of, plain, weights_digest, weights_of
from tests.support.encoders import NotingEncoder, NotingTransformer, write_tiny_bert

ENGLISH, GERMAN = mteb.get_task("PosIR-English").metadata, mteb.get_task("PosIR-German-English").metadata
QUERY, DOCUMENT = PromptType.query, PromptType.document


def encoding(model: object, metadata=ENGLISH, prompt_type=DOCUMENT, subset="sports", **arguments: object) -> Encoding | None:
    told = {"task_metadata": metadata, "hf_split": "test", "hf_subset": subset, "prompt_type": prompt_type}
    return encoding_of(model, weights_of(model), arguments, **told)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_bert(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def transformer(tiny: Path) -> NotingTransformer:
    return NotingTransformer(tiny)


def wrapped(transformer: NotingTransformer, **prompts: str) -> SentenceTransformerEncoderWrapper:
    wrapper = SentenceTransformerEncoderWrapper(transformer)
    wrapper.model_prompts = {name.replace("_", "-"): prompt for name, prompt in prompts.items()} or None
    return wrapper


def instructed(transformer: NotingTransformer, **attributes: object) -> InstructSentenceTransformerModel:
    """An instruction model as `mteb.get_model` makes it, of a model that is there already."""
    model = InstructSentenceTransformerModel.__new__(InstructSentenceTransformerModel)
    model.model, model.instruction_template, model.apply_instruction_to_passages = transformer, "Do: {instruction}\n", False
    vars(model).update(attributes)
    return model


def test_tasks_with_one_prompt_are_one_encoding_and_their_queries_and_documents_two(transformer):
    model = wrapped(transformer)
    assert encoding(model, ENGLISH) == encoding(model, GERMAN, subset="game") != encoding(model, ENGLISH, QUERY)
    assert encoding(model).shared


def test_a_prompt_is_part_of_the_encoding_and_its_name_is_not(transformer):
    model = wrapped(transformer, query="query: ", document="text: ")
    assert encoding(model).told == "text: "
    assert encoding(model, prompt_type=QUERY).told == "query: "
    # A prompt that mteb knows for one of two tasks keeps their embeddings apart, the same prompt for both does not.
    for_one = wrapped(transformer, **{"PosIR-English-document": "English: "})
    assert encoding(for_one, ENGLISH) != encoding(for_one, GERMAN)
    for_both = wrapped(transformer, **{"PosIR-English": "same: ", "PosIR-German-English": "same: "})
    assert encoding(for_both, ENGLISH) == encoding(for_both, GERMAN)


def test_an_instruction_is_part_of_the_encoding(transformer):
    model = instructed(transformer)
    prompt = ENGLISH.prompt["query"]
    assert encoding(model, ENGLISH, QUERY).told == f"Do: {prompt}\n"
    assert encoding(model, ENGLISH, QUERY) == encoding(model, GERMAN, QUERY)
    assert encoding(model).told is None
    other = ENGLISH.model_copy(update={"prompt": {"query": "Find"}})
    assert encoding(model, other, QUERY) != encoding(model, ENGLISH, QUERY)
    assert encoding(model, other) == encoding(model, ENGLISH)
    passages_too = instructed(transformer, apply_instruction_to_passages=True)
    assert encoding(passages_too, ENGLISH.model_copy(update={"prompt": "Find"})).told == "Do: Find\n"


def test_a_way_of_encoding_that_is_not_known_is_told_all_of_the_task():
    model = NotingEncoder()
    assert not encoding(model).shared
    assert encoding(model) == encoding(model)
    assert len({encoding(model, ENGLISH).told, encoding(model, GERMAN).told, encoding(model, subset="game").told}) == 3


class Overriding(SentenceTransformerEncoderWrapper):
    def encode(self, *args, **kwargs):
        return super().encode(*args, **kwargs)


def test_a_wrapper_that_encodes_in_its_own_way_is_not_known(transformer):
    assert not encoding(Overriding(transformer)).shared
    replaced = wrapped(transformer)
    replaced.encode = lambda *_, **__: None
    assert not encoding(replaced).shared


def change_weights(model):
    with torch.no_grad():
        next(model.parameters()).add_(1)


def change_buffer(model):
    model.register_buffer("scale", torch.ones(1))


CHANGES = {
    "weights": change_weights,
    "weights behind PyTorch's back": lambda model: next(model.parameters()).data.add_(1),
    "buffer": change_buffer,
    "dtype": lambda model: model.half(),
    "window": lambda model: setattr(model, "max_seq_length", 8),
    "dimensions": lambda model: setattr(model, "truncate_dim", 8),
    "prompts": lambda model: model.prompts.update(document="text: "),
    "pooling": lambda model: setattr(model[1], "pooling_mode", "cls"),
    "padding": lambda model: setattr(model.tokenizer, "padding_side", "left"),
    "layers": lambda model: model.append(nn.Identity()),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_the_model_is_another_encoding(transformer, change):
    model = wrapped(transformer)
    before = encoding(model)
    assert before == encoding(model)
    change(transformer)
    assert encoding(model).digest() != before.digest()


def test_what_only_rounds_or_says_where_is_no_part_of_the_encoding(transformer):
    model = wrapped(transformer)
    before = encoding(model)
    transformer.train()
    assert encoding(model, batch_size=4, show_progress_bar=False) == before
    assert encoding(model, precision="int8") != before


def test_a_model_is_the_same_wherever_it_is_loaded_from(tiny: Path, tmp_path: Path):
    shutil.copytree(tiny, tmp_path / "copy")
    first, second = (encoding(wrapped(NotingTransformer(folder))) for folder in (tiny, tmp_path / "copy"))
    assert first.digest() == second.digest()
    other = encoding(wrapped(NotingTransformer(write_tiny_bert(tmp_path / "other", seed=1))))
    assert other.digest() != first.digest()


def test_loading_is_part_of_the_encoding_and_the_device_is_not(transformer):
    def loaded(**kwargs: object) -> Encoding:
        model = wrapped(transformer)
        model.mteb_model_meta = model.mteb_model_meta.model_copy(update={"loader_kwargs": kwargs})
        return encoding(model)

    assert loaded(device="cuda") == loaded(device="cpu") == loaded()
    assert loaded(pooling="cls") != loaded()


def test_a_model_that_nothing_tells_from_others_has_no_encoding():
    assert encoding(NotingEncoder(revision=None)) is None
    assert encoding(NotingEncoder(revision="2")) != encoding(NotingEncoder(revision="1"))
    changed = NotingEncoder()
    changed.prefix = "other"
    assert encoding(changed) != encoding(NotingEncoder())


def test_what_changes_another_encoders_embeddings_has_no_encoding(transformer):
    assert encoding(CompressionWrapper(wrapped(transformer))) is None


def test_weights_that_are_not_there_tell_nothing():
    with torch.device("meta"):
        assert weights_digest(nn.Linear(2, 2)) is None
    assert weights_digest(nn.Identity()) is None
    assert weights_digest(nn.Linear(2, 2)) != weights_digest(nn.Linear(2, 2))


def test_whatever_a_model_holds_becomes_json():
    class Thing:
        pass

    value = {"a": (1, 2.5, None, True), 3: {"y", "x"}, "thing": Thing(), "function": change_weights, "type": Thing}
    name = f"{__name__}.test_whatever_a_model_holds_becomes_json.<locals>.Thing"
    assert plain(value) == {
        "a": [1, 2.5, None, True],
        "3": ["x", "y"],
        "thing": name,
        "function": f"{__name__}.change_weights",
        "type": name,
    }
