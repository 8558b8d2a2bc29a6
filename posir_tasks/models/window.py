"""The input window of a loaded model: where its class cuts texts, how it is set for a run, and what
was measured of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mteb.models.model_implementations.bm25 import BM25Search
from torch import nn

from posir_tasks.base.errors import PosirError
from posir_tasks.models.loaded_model import find_transformer
from posir_tasks.models.measured_windows import read_measured
from posir_tasks.values.read_part import UNKNOWN, KnownBy, Part, ReadKind, ReadPart

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

#: Limits from here on mean that there is none: transformers writes 10^30.
NO_LIMIT = 2**31
#: Attributes by which classes cut texts, in order of precedence: the first module of a
#: late-interaction model, models of sentence-transformers, mteb's own classes (such as
#: LlamaEmbedNemotron and Qwen3RerankerWrapper), and the models that those hold (FlagEmbedding's
#: rerankers, whose `max_length` is 512 unless it is given).
CUTS = (
    "model.0.document_length",
    "model.max_seq_length",
    "max_seq_length",
    "max_length",
    "model.max_length",
)
#: Attributes of single classes of mteb, which cut by what is no limit in others.
CUTS_OF_CLASSES = {
    "NoInstructModel": "tokenizer.model_max_length",
    "RepLLaMAModel": "model.config.max_length",
}
#: Attribute of a model whose window was set.
WINDOW = "posir_window"


@dataclass(frozen=True)
class WindowLimit:
    """The attribute with the number of tokens after which a loaded model cuts a text."""

    owner: Any
    attribute: str

    @property
    def tokens(self) -> int | None:
        """The number of tokens; None if there is no limit."""
        value = getattr(self.owner, self.attribute, None)
        return value if isinstance(value, int) and 0 < value < NO_LIMIT else None

    @property
    def is_infinite(self) -> bool:
        """Whether the class states that it cuts nothing, as static embeddings do."""
        value = getattr(self.owner, self.attribute, None)
        return isinstance(value, float) and math.isinf(value) and value > 0


def find_read_part(model: MTEBModels) -> ReadPart:
    """Return which part of a text the model reads, by itself, its class, a measurement or else its
    metadata.
    """
    if isinstance(stated := getattr(model, "read_part", None), ReadPart):
        return stated
    if isinstance(model, BM25Search):
        return ReadPart.all(KnownBy.CLASS)
    loaded = getattr(model, "model", None)
    sides = (
        getattr(getattr(owner, "tokenizer", None), "truncation_side", None)
        for owner in (loaded, model)
    )
    part = Part.LAST if "left" in sides else Part.FIRST
    if cut := find_cut(model):
        return ReadPart(ReadKind.PART, part, cut.tokens, known_by=KnownBy.CLASS)
    if any(cut.is_infinite for cut in _list_cuts(model)) and _find_positions(model) is None:
        return ReadPart.all(KnownBy.CLASS)
    meta = model.mteb_model_meta
    measured = read_measured(str(meta.name), meta.revision) if meta else None
    claimed = meta.max_tokens if meta else None
    if measured and (
        measured.kind is not ReadKind.UNKNOWN or (measured.least_tokens or 0) >= (claimed or 0)
    ):
        return measured
    if claimed and claimed < NO_LIMIT:
        return ReadPart(ReadKind.PART, part, int(claimed), known_by=KnownBy.CLAIMED)
    return UNKNOWN


def find_cut(model: MTEBModels) -> WindowLimit | None:
    """Return where a loaded model cuts texts; None if its class does not say, or cuts none."""
    return next((cut for cut in _list_cuts(model) if cut.tokens), None)


def set_window(model: MTEBModels, tokens: int) -> None:
    """Let a loaded model read so many tokens of a text; raise PosirError if it cannot, or has no
    limit that can be set.
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
    cut = find_cut(model) or next(_list_cuts(model), None)
    if cut is not None:
        setattr(cut.owner, cut.attribute, tokens)
    if cut is None or cut.tokens != tokens:
        raise PosirError(
            f"window {tokens}: the input window of {meta.name} cannot be set, since its class "
            f"{type(model).__name__} does not say where it cuts texts. Run it without."
        )
    vars(model)[WINDOW] = tokens


def find_capacity(model: Any) -> int | None:
    """Return how many tokens a model of mteb or sentence-transformers can read: its positions, or
    what its metadata claims.
    """
    if (positions := _find_positions(model)) is not None:
        return positions
    claimed = getattr(getattr(model, "mteb_model_meta", None), "max_tokens", None)
    return int(claimed) if claimed and claimed < NO_LIMIT else None


def _find_positions(model: Any) -> int | None:
    """Return how many tokens the positions of a model's transformer allow; None if it has none, or
    no such limit.
    """
    if (transformer := find_transformer(model)) is None:
        return None
    positions = getattr(transformer.config.get_text_config(), "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:
        return positions - _count_reserved(transformer)
    return None


def _count_reserved(module: nn.Module) -> int:
    """Return the positions that texts never have: models like RoBERTa count from behind the index
    of padding.
    """
    for name, inner in module.named_modules():
        if name.endswith("position_embeddings") and isinstance(inner, nn.Embedding):
            return 0 if inner.padding_idx is None else inner.padding_idx + 1
    return 0


def _list_cuts(model: Any) -> Iterator[WindowLimit]:
    """Yield the attributes for the limit that a loaded model has, with or without a value, in order
    of precedence.
    """
    class_cut = CUTS_OF_CLASSES.get(type(model).__name__)
    for path in CUTS if class_cut is None else (class_cut,):
        *owners, attribute = path.split(".")
        owner = model
        for name in owners:
            if name == "0":
                owner = owner[0] if isinstance(owner, nn.Sequential) and len(owner) else None
            else:
                owner = getattr(owner, name, None)
        if hasattr(owner, attribute):
            yield WindowLimit(owner, attribute)
