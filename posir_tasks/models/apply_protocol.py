"""A row of the protocols applied to a model of mteb, whole or not at all, before anything is
encoded.

What only a loader can do is set before loading, the rest after it, by class. Then the loaded model
is read: every field that differs from the row, or that its class cannot take, is an error that
names it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import unwrap
from typing import TYPE_CHECKING, Any

import torch
import transformers
from mteb.models.instruct_wrapper import InstructSentenceTransformerModel
from mteb.models.sentence_transformer_wrapper import (
    CrossEncoderWrapper,
    MultiVectorWrapper,
    SentenceTransformerEncoderWrapper,
)
from packaging.version import Version

from posir_tasks.base.errors import PosirError
from posir_tasks.models.loaded_model import (
    DOCUMENT,
    QUERY,
    LoadedModel,
    find_inner_tokenizer,
    find_pooling,
    find_transformer,
    read_loaded_model,
)
from posir_tasks.models.prompts import replace_prompts
from posir_tasks.models.protocols import SETTINGS, Protocol, quote_value
from posir_tasks.models.window import cut_queries, set_window

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels

#: Classes that pass `model_kwargs` on to sentence-transformers, and a function that makes one of
#: them.
SENTENCE_TRANSFORMERS = (
    SentenceTransformerEncoderWrapper,
    InstructSentenceTransformerModel,
    CrossEncoderWrapper,
)
FUNCTIONS = ("q3e_instruct_loader",)
#: Classes whose own code puts the paper's text before texts, of which nothing can be read here.
OWN_PROMPTS = {"JinaV4Wrapper", "MultiVectorModel"}
#: Ways to pool that sentence-transformers has.
POOLINGS = ("cls", "mean", "lasttoken")
#: Fields that are compared by the ends of texts, and by pairs of question and text.
COMPARED_APART = ("eos", "rerank_instruction", "rerank_template")
#: What transformers calls the precision; until 4.56, it only knows the older name.
DTYPE = "dtype" if Version(transformers.__version__) >= Version("4.56") else "torch_dtype"
#: Attribute of a loaded model with what was asked of it and what it says of itself, as results
#: record it.
RECORD = "posir_protocol"


class ProtocolDifferenceError(PosirError):
    """A loaded model differs from its row, and cannot be changed to match it."""


def prepare_loading(meta: ModelMeta, protocol: Protocol) -> ModelMeta:
    """Return metadata whose loader sets what only a loader can set."""
    loader: Any = meta.loader
    # Of a loader around another one, the inner.
    kind: Any = unwrap(loader) if callable(loader) else loader
    name = getattr(kind, "__name__", "")
    weights = {}
    dtype = protocol.find("dtype")
    if dtype:
        weights[DTYPE] = getattr(torch, dtype)
    attention = protocol.find("attention")
    if attention:
        weights["attn_implementation"] = attention
    options = {**meta.loader_kwargs}
    if name in FUNCTIONS or (isinstance(kind, type) and issubclass(kind, SENTENCE_TRANSFORMERS)):
        if weights:
            options["model_kwargs"] = {**options.get("model_kwargs", {}), **weights}
    elif name == "Qwen3RerankerWrapper":
        options |= weights
    elif name == "JinaV4Wrapper":
        options |= {"torch_dtype" if key == DTYPE else key: value for key, value in weights.items()}
    elif name == "LlamaEmbedNemotron":
        named: Any = partial(_load_with, loader, weights)
        named.__name__ = loader.__name__
        loader = named
    update: dict[str, Any] = {"loader": loader, "loader_kwargs": options}
    # An API is asked for the dimensions of the metadata.
    dimensions = protocol.find("dimensions")
    if dimensions and protocol.kind == "api":
        update["embed_dim"] = int(dimensions)
    return meta.model_copy(update=update)


def _load_with(
    loader: Callable[..., MTEBModels], weights: dict[str, Any], *arguments: Any, **options: Any
) -> MTEBModels:
    """Load a model of a class that fixes precision and attention, with others."""
    load = transformers.AutoModel.from_pretrained

    def load_otherwise(*arguments: Any, **options: Any) -> Any:
        for other in ("dtype", "torch_dtype") if DTYPE in weights else ():
            options.pop(other, None)
        return load(*arguments, **(options | weights))

    transformers.AutoModel.from_pretrained = load_otherwise  # type: ignore[method-assign]
    try:
        return loader(*arguments, **options)
    finally:
        transformers.AutoModel.from_pretrained = load  # type: ignore[method-assign]


def apply_protocol(model: Any, protocol: Protocol) -> None:
    """Apply a row to a loaded model, and record it; raise PosirError for the first field that it
    does not have then.
    """
    records = [getattr(inner, RECORD) for inner in vars(model).values() if hasattr(inner, RECORD)]
    if records:
        # A mitigation, or another model around one that has it.
        setattr(model, RECORD, records[0])
        return
    if find_transformer(model) is not None:
        _set_texts(model, protocol)
        _set_weights(model, protocol)
    loaded = read_loaded_model(model)
    for name, value in find_differences(model, protocol, loaded).items():
        has = f"cannot be given to the class {type(model).__name__}"
        if value is not None:
            has = f"is {quote_value(value)} after loading"
        raise ProtocolDifferenceError(
            f"protocol {protocol.paper}, {protocol.model}: {SETTINGS[name]} "
            f"{quote_value(getattr(protocol, name))} {has}. "
            f"Run the authors' code ({protocol.source}), or run without a protocol."
        )
    setattr(model, RECORD, {"asked": protocol.asked(), "loaded": loaded.to_json()})


def _find_unsaid(model: Any, protocol: Protocol) -> set[str]:
    """Find the fields that a loaded model does not report."""
    name = type(model).__name__
    prompts = {"query_prompt", "document_prompt"}
    if find_transformer(model) is None:
        return set() if protocol.query_prompt or protocol.document_prompt else prompts
    fields = set[str]()
    if find_pooling(model) is None or protocol.pooling not in POOLINGS:
        fields.add("pooling")
    if name == "LlamaEmbedNemotron":
        fields.add("prompt_is_pooled")
    if protocol.kind == "reranker":
        fields.add("max_query_tokens")
    if name in OWN_PROMPTS:
        fields |= {*prompts, "max_query_tokens", "max_document_tokens"}
    return fields


def _set_texts(model: Any, protocol: Protocol) -> None:
    """Set what is put before and after texts, and where they are cut."""
    name = type(model).__name__
    window = protocol.find("max_document_tokens")
    if name == "Qwen3RerankerWrapper":
        instruct = type(model).format_instruction
        model.format_instruction = lambda _, query, document: instruct(
            protocol.find("rerank_instruction"), query, document
        )
    elif name == "JinaV4Wrapper" and window:
        model.model.encode_text = partial(model.model.encode_text, max_length=int(window))
    elif name not in OWN_PROMPTS:
        replace_prompts(
            model, protocol.find("query_prompt") or "", protocol.find("document_prompt")
        )
    if window and name not in OWN_PROMPTS:
        # FlagEmbedding gives the question three quarters of it, as in the authors' call.
        set_window(model, int(window))
    end = protocol.find("eos")
    tokenizer = find_inner_tokenizer(model)
    if end is not None and hasattr(tokenizer, "add_eos_token"):
        tokenizer.add_eos_token = False
    if end not in (None, "none") and isinstance(model, InstructSentenceTransformerModel):
        _append_end(model.model, str(end))
    queries = protocol.find("max_query_tokens")
    if protocol.kind == "dense" and queries and queries != window:
        cut_queries(model, int(queries))


def _append_end(model: Any, end: str) -> None:
    """Append a text to every text of a model of sentence-transformers before it is tokenized."""
    name = "preprocess" if hasattr(model, "preprocess") else "tokenize"
    tokenize = getattr(model, name)

    def tokenize_with_end(texts: list[str], **options: Any) -> Any:
        return tokenize([f"{text}{end}" for text in texts], **options)

    setattr(model, name, tokenize_with_end)


def _set_weights(model: Any, protocol: Protocol) -> None:
    """Set padding, pooling, precision and attention where the loader has not."""
    transformer: Any = find_transformer(model)
    tokenizer = find_inner_tokenizer(model)
    pooling = find_pooling(model)
    side = protocol.find("padding_side")
    if type(model).__name__ == "_NVEmbedWrapper" and not side:
        # mteb sets it after loading.
        side = tokenizer.init_kwargs.get("padding_side", type(tokenizer).padding_side)
    if side:
        tokenizer.padding_side = side
    if pooling is not None and protocol.find("prompt_is_pooled"):
        pooling.include_prompt = protocol.prompt_is_pooled == "true"
    is_plain = type(model) is SentenceTransformerEncoderWrapper
    if pooling is not None and protocol.pooling == "cls" and is_plain:
        pooling.pooling_mode = "cls"
    # In single precision, all digits of a checkpoint are there; a multi-vector head has that of its
    # transformer.
    dtype = protocol.find("dtype")
    if dtype and next(transformer.parameters()).dtype == torch.float32:
        whole = model.model if isinstance(model, MultiVectorWrapper) else transformer
        whole.to(getattr(torch, dtype))
    attention = protocol.find("attention")
    if attention:
        transformer.set_attn_implementation(attention)


def find_differences(model: Any, protocol: Protocol, loaded: LoadedModel) -> dict[str, str | None]:
    """Compare a loaded model with a row: its value of each field that differs, None for a value
    that its class does not have.
    """
    differences: dict[str, str | None] = {}
    tokenizer = find_inner_tokenizer(model)
    unsaid = _find_unsaid(model, protocol)
    end = protocol.eos if protocol.find("eos") and protocol.eos != "none" else ""
    samples = {
        "query_prompt": (loaded.query, QUERY),
        "document_prompt": (loaded.document, DOCUMENT),
    }
    for name in SETTINGS:
        wanted = protocol.find(name)
        if wanted is None or name in unsaid or name in COMPARED_APART:
            continue
        if name not in samples:
            has = getattr(loaded, name, None)
            if has is None or str(has) != wanted:
                differences[name] = None if has is None else str(has)
        elif protocol.kind != "reranker":
            text, sample = samples[name]
            if text is None or not text.is_made_of(tokenizer, wanted + sample + end):
                differences[name] = text.core if text else None
    read = loaded.document
    if protocol.find("eos") is not None:
        last_ids = read.ids[-2:] if read else ()
        wanted_ends = int(protocol.eos != "none")
        if read is None or last_ids.count(tokenizer.eos_token_id) != wanted_ends:
            differences["eos"] = read.text if read else None
    return differences | _compare_pair(protocol, loaded, tokenizer)


def _compare_pair(protocol: Protocol, loaded: LoadedModel, tokenizer: Any) -> dict[str, str | None]:
    """Compare the template and the instruction that a reranker gets with those of a row."""
    template = protocol.find("rerank_template")
    read = loaded.document
    if template is None:
        return {}
    if read is None:
        return {"rerank_template": None}
    template = template.replace("{query}", QUERY).replace("{text}", DOCUMENT)
    before, mark, after = template.partition("{instruction}")
    instruction = protocol.rerank_instruction if mark else ""
    if read.is_made_of(tokenizer, before + instruction + after):
        return {}
    if mark and read.text.startswith(before) and read.text.endswith(after):
        return {"rerank_instruction": read.text.removeprefix(before).removesuffix(after)}
    return {"rerank_template": read.text}
