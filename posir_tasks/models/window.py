"""The context window of a loaded model: find, measure and set it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import wraps
from types import MethodType
from typing import TYPE_CHECKING, Any, NamedTuple

from mteb.models.model_implementations.bm25 import BM25Search
from mteb.types import PromptType
from torch import nn

from posir_tasks.base.errors import PosirError
from posir_tasks.base.overrides import override
from posir_tasks.models.loaded_model import find_inner_tokenizer, find_transformer
from posir_tasks.models.measured_windows import read_measured
from posir_tasks.values.read_part import UNKNOWN, Part, ReadKind, ReadPart, WindowSource

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

#: This value and higher ones mean no limit: transformers uses 10^30.
NO_LIMIT = 2**31
#: Attributes that store the limit, in order of precedence: late-interaction models,
#: sentence-transformers models, mteb's classes (such as LlamaEmbedNemotron and
#: Qwen3RerankerWrapper), and their inner models (FlagEmbedding's rerankers, 512 by default).
LIMIT_PATHS = (
    "model.0.document_length",
    "model.max_seq_length",
    "max_seq_length",
    "max_length",
    "model.max_length",
)
#: Attributes that store the limit in specific mteb classes.
LIMIT_PATHS_BY_CLASS = {
    "NoInstructModel": "tokenizer.model_max_length",
    "RepLLaMAModel": "model.config.max_length",
}
#: Model attribute that stores a window set by `set_window`.
WINDOW = "posir_window"


def find_read_part(model: MTEBModels) -> ReadPart:
    """Find the part of a text that a model reads, from its class, a measurement or metadata."""
    declared_part = getattr(model, "read_part", None)
    if isinstance(declared_part, ReadPart):
        return declared_part
    if isinstance(model, BM25Search):
        return ReadPart.all(WindowSource.CLASS)
    side = getattr(find_inner_tokenizer(model), "truncation_side", None)
    part = Part.LAST if side == "left" else Part.FIRST
    tokens = find_window(model)
    if tokens:
        return ReadPart(ReadKind.PART, part, tokens, known_by=WindowSource.CLASS)
    # Static embeddings have an infinite limit.
    is_infinite = any(limit.value == math.inf for limit in _list_limits(model))
    if is_infinite and _find_positions(model) is None:
        return ReadPart.all(WindowSource.CLASS)
    meta = model.mteb_model_meta
    measured_part = read_measured(str(meta.name), meta.revision) if meta else None
    max_tokens = meta.max_tokens if meta else None
    if measured_part:
        is_longer = (measured_part.least_tokens or 0) >= (max_tokens or 0)
        if measured_part.kind is not ReadKind.UNKNOWN or is_longer:
            return measured_part
    if max_tokens and max_tokens < NO_LIMIT:
        return ReadPart(ReadKind.PART, part, int(max_tokens), known_by=WindowSource.CLAIMED)
    return UNKNOWN


def find_window(model: MTEBModels) -> int | None:
    """Return the number of tokens that a loaded model reads, or None if unknown or unlimited."""
    return next((limit.value for limit in _list_limits(model) if limit.is_finite), None)


def set_window(model: MTEBModels, tokens: int) -> None:
    """Set the window of a loaded model in tokens.

    Raises:
        PosirError: The model cannot read `tokens` tokens, or its class has no attribute for the
            limit.
    """
    if any(getattr(inner, WINDOW, None) == tokens for inner in [model, *vars(model).values()]):
        return
    meta = model.mteb_model_meta
    capacity = find_capacity(model)
    if capacity is not None and tokens > capacity:
        raise PosirError(
            f"window {tokens}: {meta.name} cannot read more than {capacity:,} tokens. Give a "
            "smaller number."
        )
    limits = sorted(_list_limits(model), key=lambda limit: not limit.is_finite)
    for limit in limits[:1]:
        setattr(limit.owner, limit.attribute, tokens)
    if find_window(model) != tokens:
        raise PosirError(
            f"window {tokens}: the input window of {meta.name} cannot be set, since its class "
            f"{type(model).__name__} has no attribute for it. Run without a window."
        )
    vars(model)[WINDOW] = tokens


def cut_queries(model: Any, tokens: int) -> None:
    """Set a smaller window for queries than for documents. The encoder must have a window."""
    encode = model.encode.__func__
    limit = next(limit for limit in _list_limits(model) if limit.is_finite)

    @wraps(encode)
    def encode_cut(
        model: Any, *inputs: Any, prompt_type: PromptType | None = None, **options: Any
    ) -> Any:
        window = tokens if prompt_type is PromptType.query else limit.value
        with override(limit.owner, **{limit.attribute: window}):
            return encode(model, *inputs, prompt_type=prompt_type, **options)

    model.encode = MethodType(encode_cut, model)


def find_capacity(model: Any) -> int | None:
    """Return the maximum window of a model, from its position embeddings or metadata."""
    positions = _find_positions(model)
    if positions is not None:
        return positions
    max_tokens = getattr(getattr(model, "mteb_model_meta", None), "max_tokens", None)
    return int(max_tokens) if max_tokens and max_tokens < NO_LIMIT else None


def _find_positions(model: Any) -> int | None:
    """Return the number of position embeddings in a model's transformer, or None."""
    transformer = find_transformer(model)
    if transformer is None:
        return None
    positions = getattr(transformer.config.get_text_config(), "max_position_embeddings", None)
    if not isinstance(positions, int) or positions <= 0:
        return None
    # Models like RoBERTa reserve the positions up to the padding index.
    for name, inner in transformer.named_modules():
        if name.endswith("position_embeddings") and isinstance(inner, nn.Embedding):
            return positions - (0 if inner.padding_idx is None else inner.padding_idx + 1)
    return positions


class WindowLimit(NamedTuple):
    """The attribute that stores the window of a loaded model."""

    owner: Any
    attribute: str
    value: Any

    @property
    def is_finite(self) -> bool:
        """True if the value is a positive number below `NO_LIMIT`."""
        return isinstance(self.value, int) and 0 < self.value < NO_LIMIT


def _list_limits(model: Any) -> Iterator[WindowLimit]:
    """Yield the existing limit attributes of a loaded model in order of precedence."""
    class_path = LIMIT_PATHS_BY_CLASS.get(type(model).__name__)
    for path in (class_path,) if class_path else LIMIT_PATHS:
        *names, attribute = path.split(".")
        owner = model
        for name in names:
            owner = getattr(owner, name, None)
        if hasattr(owner, attribute):
            yield WindowLimit(owner, attribute, getattr(owner, attribute))
