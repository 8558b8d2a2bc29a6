"""Apply a protocol to an mteb model, completely or not at all.

Depending on the class, settings are passed to the loader or set after loading. Any remaining
difference between the model and the protocol is an error.
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

from posir_tasks.base.errors import PosirError
from posir_tasks.base.overrides import override
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

#: Classes and loader functions that pass `model_kwargs` to sentence-transformers.
SENTENCE_TRANSFORMERS = (
    SentenceTransformerEncoderWrapper,
    InstructSentenceTransformerModel,
    CrossEncoderWrapper,
)
LOADER_FUNCTIONS = ("q3e_instruct_loader",)
#: Classes whose code adds the paper's prompts. These prompts cannot be verified.
SELF_PROMPTING_CLASSES = {"JinaV4Wrapper", "MultiVectorModel"}
#: Pooling modes of sentence-transformers.
POOLINGS = ("cls", "mean", "lasttoken")
#: Fields that `find_differences` compares separately.
SEPARATE_FIELDS = ("eos", "rerank_instruction", "rerank_template")
#: Model attribute that stores the applied protocol for results.
PROTOCOL_ATTRIBUTE = "posir_protocol"


class ProtocolDifferenceError(PosirError):
    """A loaded model does not match its protocol."""


def add_loader_settings(meta: ModelMeta, protocol: Protocol) -> ModelMeta:
    """Return metadata that includes the settings that only the loader can apply."""
    loader: Any = meta.loader
    unwrapped_loader: Any = unwrap(loader) if callable(loader) else loader
    name = getattr(unwrapped_loader, "__name__", "")
    model_kwargs = {}
    dtype = protocol.find("dtype")
    if dtype:
        model_kwargs["dtype"] = getattr(torch, dtype)
    attention = protocol.find("attention")
    if attention:
        model_kwargs["attn_implementation"] = attention
    options = {**meta.loader_kwargs}
    if name in LOADER_FUNCTIONS or (
        isinstance(unwrapped_loader, type) and issubclass(unwrapped_loader, SENTENCE_TRANSFORMERS)
    ):
        if model_kwargs:
            options["model_kwargs"] = {**options.get("model_kwargs", {}), **model_kwargs}
    elif name == "Qwen3RerankerWrapper":
        options |= model_kwargs
    elif name == "JinaV4Wrapper":
        options |= {
            "torch_dtype" if key == "dtype" else key: value for key, value in model_kwargs.items()
        }
    elif name == "LlamaEmbedNemotron":
        load: Any = partial(_load_with_model_kwargs, loader, model_kwargs)
        load.__name__ = loader.__name__
        loader = load
    update: dict[str, Any] = {"loader": loader, "loader_kwargs": options}
    # API models request as many dimensions as their metadata states.
    dimensions = protocol.find("dimensions")
    if dimensions and protocol.kind == "api":
        update["embed_dim"] = int(dimensions)
    return meta.model_copy(update=update)


def _load_with_model_kwargs(
    loader: Callable[..., MTEBModels], model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
) -> MTEBModels:
    """Load a model, overriding the dtype and attention that its class sets."""
    load = transformers.AutoModel.from_pretrained

    def load_with_model_kwargs(*args: Any, **kwargs: Any) -> Any:
        if "dtype" in model_kwargs:
            # The old name of `dtype`.
            kwargs.pop("torch_dtype", None)
        return load(*args, **(kwargs | model_kwargs))

    with override(transformers.AutoModel, from_pretrained=load_with_model_kwargs):
        return loader(*args, **kwargs)


def apply_protocol(model: Any, protocol: Protocol) -> None:
    """Apply a protocol to a loaded model and record it.

    Raises:
        ProtocolDifferenceError: A setting of the model differs from the protocol.
    """
    records = [
        getattr(inner, PROTOCOL_ATTRIBUTE)
        for inner in vars(model).values()
        if hasattr(inner, PROTOCOL_ATTRIBUTE)
    ]
    if records:
        # The wrapped model already follows the protocol.
        setattr(model, PROTOCOL_ATTRIBUTE, records[0])
        return
    if find_transformer(model) is not None:
        _configure_inputs(model, protocol)
        _configure_model(model, protocol)
    properties = read_loaded_model(model)
    for name, value in find_differences(model, protocol, properties).items():
        problem = f"cannot be set for the class {type(model).__name__}"
        if value is not None:
            problem = f"is {quote_value(value)} after loading"
        raise ProtocolDifferenceError(
            f"protocol {protocol.paper}, {protocol.model}: {SETTINGS[name]} "
            f"{quote_value(getattr(protocol, name))} {problem}. "
            f"Run the authors' code ({protocol.source}), or run without a protocol."
        )
    setattr(
        model, PROTOCOL_ATTRIBUTE, {"asked": protocol.list_values(), "loaded": properties.to_json()}
    )


def _list_uninspectable_fields(model: Any, protocol: Protocol) -> set[str]:
    """Return the protocol fields that a loaded model does not reveal."""
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
    if name in SELF_PROMPTING_CLASSES:
        fields |= {*prompts, "max_query_tokens", "max_document_tokens"}
    return fields


def _configure_inputs(model: Any, protocol: Protocol) -> None:
    name = type(model).__name__
    window = protocol.find("max_document_tokens")
    if name == "Qwen3RerankerWrapper":
        instruct = type(model).format_instruction
        model.format_instruction = lambda _, query, document: instruct(
            protocol.find("rerank_instruction"), query, document
        )
    elif name == "JinaV4Wrapper" and window:
        model.model.encode_text = partial(model.model.encode_text, max_length=int(window))
    elif name not in SELF_PROMPTING_CLASSES:
        replace_prompts(
            model, protocol.find("query_prompt") or "", protocol.find("document_prompt")
        )
    if window and name not in SELF_PROMPTING_CLASSES:
        # FlagEmbedding reserves up to three quarters for the query, as in the authors' call.
        set_window(model, int(window))
    eos = protocol.find("eos")
    tokenizer = find_inner_tokenizer(model)
    if eos is not None and hasattr(tokenizer, "add_eos_token"):
        tokenizer.add_eos_token = False
    if eos not in (None, "none") and isinstance(model, InstructSentenceTransformerModel):
        _append_eos(model.model, str(eos))
    query_window = protocol.find("max_query_tokens")
    if protocol.kind == "dense" and query_window and query_window != window:
        cut_queries(model, int(query_window))


def _append_eos(model: Any, eos: str) -> None:
    name = "preprocess" if hasattr(model, "preprocess") else "tokenize"
    tokenize = getattr(model, name)

    def tokenize_with_eos(texts: list[str], **options: Any) -> Any:
        return tokenize([f"{text}{eos}" for text in texts], **options)

    setattr(model, name, tokenize_with_eos)


def _configure_model(model: Any, protocol: Protocol) -> None:
    """Set padding, pooling, dtype and attention unless the loader has already set them."""
    transformer: Any = find_transformer(model)
    tokenizer = find_inner_tokenizer(model)
    pooling = find_pooling(model)
    side = protocol.find("padding_side")
    if type(model).__name__ == "_NVEmbedWrapper" and not side:
        # mteb overwrites the tokenizer's own side after loading.
        side = tokenizer.init_kwargs.get("padding_side", type(tokenizer).padding_side)
    if side:
        tokenizer.padding_side = side
    if pooling is not None and protocol.find("prompt_is_pooled"):
        pooling.include_prompt = protocol.prompt_is_pooled == "true"
    is_plain = type(model) is SentenceTransformerEncoderWrapper
    if pooling is not None and protocol.pooling == "cls" and is_plain:
        pooling.pooling_mode = "cls"
    # Convert only float32 weights, since others may already be rounded. A multi-vector head has the
    # same dtype as its transformer.
    dtype = protocol.find("dtype")
    if dtype and next(transformer.parameters()).dtype == torch.float32:
        module = model.model if isinstance(model, MultiVectorWrapper) else transformer
        module.to(getattr(torch, dtype))
    attention = protocol.find("attention")
    if attention:
        transformer.set_attn_implementation(attention)


def find_differences(
    model: Any, protocol: Protocol, properties: LoadedModel
) -> dict[str, str | None]:
    """Compare a loaded model with its protocol.

    Returns:
        The model's value for each field that differs; None if its class has no such field.
    """
    differences: dict[str, str | None] = {}
    tokenizer = find_inner_tokenizer(model)
    uninspectable_fields = _list_uninspectable_fields(model, protocol)
    eos = protocol.eos if protocol.find("eos") and protocol.eos != "none" else ""
    samples = {
        "query_prompt": (properties.query, QUERY),
        "document_prompt": (properties.document, DOCUMENT),
    }
    for name in SETTINGS:
        expected_value = protocol.find(name)
        if expected_value is None or name in uninspectable_fields or name in SEPARATE_FIELDS:
            continue
        if name not in samples:
            value = getattr(properties, name, None)
            text = None if value is None else str(value)
            if text != expected_value:
                differences[name] = text
        elif protocol.kind != "reranker":
            captured_text, sample = samples[name]
            if captured_text is None or not captured_text.matches(
                tokenizer, expected_value + sample + eos
            ):
                differences[name] = captured_text.core if captured_text else None
    document = properties.document
    if protocol.find("eos") is not None:
        count = document.ids[-2:].count(tokenizer.eos_token_id) if document else None
        if count != int(protocol.eos != "none"):
            differences["eos"] = document.text if document else None
    return differences | _compare_pair(protocol, properties, tokenizer)


def _compare_pair(
    protocol: Protocol, properties: LoadedModel, tokenizer: Any
) -> dict[str, str | None]:
    template = protocol.find("rerank_template")
    pair = properties.document
    if template is None:
        return {}
    if pair is None:
        return {"rerank_template": None}
    template = template.replace("{query}", QUERY).replace("{text}", DOCUMENT)
    prefix, placeholder, suffix = template.partition("{instruction}")
    instruction = protocol.rerank_instruction if placeholder else ""
    if pair.matches(tokenizer, prefix + instruction + suffix):
        return {}
    if placeholder and pair.text.startswith(prefix) and pair.text.endswith(suffix):
        return {"rerank_instruction": pair.text.removeprefix(prefix).removesuffix(suffix)}
    return {"rerank_template": pair.text}
