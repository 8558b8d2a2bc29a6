"""Properties of a loaded model: the text that reaches its weights, windows, dtype, dimensions.

The text is captured as the token ids that mteb's class passes to the transformers model. The
forward pass is then aborted to save time.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

from datasets import Dataset, disable_progress_bars
from mteb.models import CrossEncoderProtocol, EncoderProtocol
from mteb.models.sentence_transformer_wrapper import MultiVectorWrapper
from mteb.types import PromptType
from torch import nn
from transformers import PreTrainedModel

from posir_tasks.models.embeddings.context import EncodingContext, build_context, build_texts

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

#: Texts to capture.
QUERY = "Where does the river rise?"
DOCUMENT = "The river rises in the hills."
#: Models that encode queries and documents separately. Others encode pairs.
ENCODERS = EncoderProtocol | MultiVectorWrapper
#: Number of words in a text that is longer than the window of every model in the papers.
MANY_WORDS = 33_000


@dataclass(frozen=True)
class CapturedText:
    """A text as it reaches the weights."""

    ids: tuple[int, ...]
    text: str
    """Decoded ids, including special tokens."""
    core: str
    """Decoded ids without leading and trailing special tokens."""

    def matches(self, tokenizer: Any, text: str) -> bool:
        """Return True if the ids are the tokens of `text`, with or without special tokens."""
        for special in (True, False):
            ids = tokenizer(text, verbose=False, add_special_tokens=special)["input_ids"]
            if tuple(ids) == self.ids:
                return True
        return text in (self.text, self.core)


@dataclass(frozen=True)
class LoadedModel:
    """Properties of a loaded model. Unknown properties are None."""

    query: CapturedText | None = None
    document: CapturedText | None = None
    """For rerankers, query and document together."""
    max_query_tokens: int | None = None
    max_document_tokens: int | None = None
    dimensions: int | None = None
    dtype: str | None = None
    attention: str | None = None
    padding_side: str | None = None
    pooling: str | None = None
    prompt_is_pooled: str | None = None
    last_token: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the known properties in the format of results."""
        values: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, CapturedText):
                values[f"{name}_text"] = value.text
            elif value is not None:
                values[name] = value
        return values


def list_inner_models(model: object) -> Iterator[Any]:
    """Yield an mteb model and the models nested in it."""
    for _ in range(4):
        if model is None:
            return
        yield model
        model = getattr(model, "model", None)


def find_transformer(model: object) -> PreTrainedModel | None:
    """Return the transformers model in an mteb model, or None (for example, for an API)."""
    modules = _list_modules(model)
    return next((module for module in modules if isinstance(module, PreTrainedModel)), None)


def _list_modules(model: object) -> Iterator[nn.Module]:
    for inner in list_inner_models(model):
        if isinstance(inner, nn.Module):
            yield from inner.modules()


def find_inner_tokenizer(model: object) -> Any:
    """Return the tokenizer in an mteb model, or None."""
    tokenizers = (getattr(inner, "tokenizer", None) for inner in list_inner_models(model))
    return next((tokenizer for tokenizer in tokenizers if hasattr(tokenizer, "padding_side")), None)


def find_pooling(model: object) -> Any:
    """Return the pooling layer, or None."""
    layers = _list_modules(model)
    return next((layer for layer in layers if type(layer).__name__ == "Pooling"), None)


class _InputsCapturedError(BaseException):
    """Aborts a forward pass and contains its inputs.

    It is a BaseException, so that no error handler catches it.
    """

    def __init__(self, ids: list[int]) -> None:
        super().__init__()
        self.ids = ids


def read_ids(
    model: MTEBModels,
    query: Dataset | None,
    document: Dataset | None,
    context: EncodingContext | None = None,
) -> list[int] | None:
    """Return the token ids that reach the weights for a query or a document (for rerankers, both),
    or None if the weights are not local.

    By default, the context is a task without a specific prompt.
    """
    transformer = find_transformer(model)
    if transformer is None or not isinstance(model, ENCODERS | CrossEncoderProtocol):
        return None

    forward: Any = transformer.forward
    # A multi-vector search encodes the query before the document.
    skips_query = document is not None and isinstance(model, MultiVectorWrapper)

    @wraps(forward)
    def capture_inputs(*arguments: Any, **options: Any) -> Any:
        nonlocal skips_query
        if skips_query:
            skips_query = False
            return forward(*arguments, **options)
        ids: Any = options.get("input_ids", arguments[0] if arguments else None)
        mask: Any = options.get("attention_mask")
        inputs = ids[0] if mask is None else ids[0][mask[0].bool()]
        raise _InputsCapturedError(inputs.tolist())

    context = context or build_context("eng-Latn")
    text = build_texts([QUERY])
    # A hook would not be enough, since classes may call `forward` directly.
    vars(transformer)["forward"] = capture_inputs
    try:
        if isinstance(model, EncoderProtocol):
            context.encode(
                model,
                query or document or text,
                PromptType.query if document is None else PromptType.document,
            )
        elif isinstance(model, MultiVectorWrapper):
            arguments = context.search_arguments
            search: Any = copy(model)
            search.index(document or text, **arguments)
            search.search(query or text, top_k=1, **arguments)
        else:
            queries = context.load(query or text, PromptType.query)
            texts = context.load(document or text, PromptType.document)
            model.predict(queries, texts, **context.task_arguments, **context.encode_kwargs)
    except _InputsCapturedError as inputs:
        return inputs.ids
    finally:
        del vars(transformer)["forward"]
    return None


def read_loaded_model(model: MTEBModels, context: EncodingContext | None = None) -> LoadedModel:
    """Return the properties of a loaded model, with the prompts for the context's task."""
    transformer = find_transformer(model)
    meta: Any = model.mteb_model_meta
    if transformer is None:
        window = meta.max_tokens and int(meta.max_tokens)
        return LoadedModel(
            max_query_tokens=window, max_document_tokens=window, dimensions=meta.embed_dim
        )
    is_encoder = isinstance(model, ENCODERS)
    dimensions = None
    if is_encoder:
        dimensions = getattr(transformer.config, "hidden_size", None)
        for inner in list_inner_models(model):
            if callable(getattr(inner, "get_embedding_dimension", None)):
                dimensions = inner.get_embedding_dimension()
                break
    tokenizer = find_inner_tokenizer(model)
    pooling = find_pooling(model)
    mode = getattr(pooling, "pooling_mode", None)
    texts: dict[str, Any] = {}
    if tokenizer is not None:
        query = build_texts([QUERY])
        document = build_texts([DOCUMENT])
        texts = _read_pair(model, tokenizer, query, document, context)
        texts["max_document_tokens"] = _find_window(model, tokenizer, query)
        if is_encoder:
            texts["max_query_tokens"] = _find_window(model, tokenizer, None)
    return LoadedModel(
        dimensions=dimensions,
        dtype=str(next(transformer.parameters()).dtype).removeprefix("torch."),
        attention=getattr(transformer.config, "_attn_implementation", None),
        padding_side=getattr(tokenizer, "padding_side", None),
        pooling=mode if isinstance(mode, str) else None,
        prompt_is_pooled=None if pooling is None else str(pooling.include_prompt).lower(),
        **texts,
    )


def _find_window(model: MTEBModels, tokenizer: Any, query: Dataset | None) -> int | None:
    """Return the number of tokens after which a long document is truncated, or, if `query` is None,
    a long query. Return None if it is not truncated.
    """
    text = " ".join(["the"] * MANY_WORDS)
    long = build_texts([text])
    is_encoder = isinstance(model, ENCODERS)
    texts = (long, None) if query is None else (None if is_encoder else query, long)
    ids = read_ids(model, *texts)
    count = len(tokenizer(text, verbose=False)["input_ids"])
    return len(ids) if ids and len(ids) < count else None


def _read_pair(
    model: MTEBModels,
    tokenizer: Any,
    query: Dataset,
    document: Dataset,
    context: EncodingContext | None,
) -> dict[str, Any]:
    """Capture a query and a document (for rerankers, as a pair), and the last token."""
    disable_progress_bars()
    query_text = None
    pair_query: Dataset | None = query
    if isinstance(model, ENCODERS):
        query_text = _decode(tokenizer, read_ids(model, query, None, context))
        pair_query = None
    text = _decode(tokenizer, read_ids(model, pair_query, document, context))
    last_token = tokenizer.decode([text.ids[-1]]) if text else None
    return {"query": query_text, "document": text, "last_token": last_token}


def read_example(
    model: MTEBModels, query: Dataset, document: Dataset, context: EncodingContext
) -> dict[str, Any]:
    """Return a dataset's query and document as they reach the weights, in the format of results;
    empty if the weights are not local.
    """
    tokenizer = find_inner_tokenizer(model)
    if tokenizer is None:
        return {}
    return LoadedModel(**_read_pair(model, tokenizer, query, document, context)).to_json()


def _decode(tokenizer: Any, ids: list[int] | None) -> CapturedText | None:
    if not ids:
        return None
    special = {*tokenizer.all_special_ids}
    core = list(ids)
    while core and core[0] in special:
        core.pop(0)
    while core and core[-1] in special:
        core.pop()
    return CapturedText(tuple(ids), tokenizer.decode(ids), tokenizer.decode(core))
