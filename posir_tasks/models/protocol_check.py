"""Protocols on mteb's own classes: what reaches the tokenizer, and whether it is what the row of a paper says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mteb
from huggingface_hub import try_to_load_from_cache

from posir_tasks.errors import PosirError, summarize_error
from posir_tasks.models.apply_protocol import RECORD, ProtocolDifferenceError
from posir_tasks.models.protocols import SETTINGS, STATED, UNKNOWN, Protocol, quote_value
from posir_tasks.models.run_settings import with_settings
from posir_tasks.models.tiny_model import with_tiny_weights

if TYPE_CHECKING:
    from mteb.models import ModelMeta

#: What a model says of itself, with its names in sentences.
TITLES = {
    "query_text": "query",
    "document_text": "document",
    "max_query_tokens": "query window",
    "max_document_tokens": "window",
    **{name: SETTINGS[name] for name in ("dimensions", "dtype", "attention", "padding_side", "pooling")},
}


@dataclass(frozen=True)
class ProtocolCheck:
    """The outcome for one model."""

    protocol: Protocol
    weights: str
    """`own`, or `tiny random` where the model's own are not on this machine."""
    loaded: Mapping[str, Any]
    """The loaded model's own account; empty if it was not loaded."""
    problem: str = ""
    """The difference from the row, or why the model cannot be loaded here."""
    differs: bool = False
    """Whether the problem is a difference."""

    def __str__(self) -> str:
        name, stated = f"{self.protocol.model} ({self.weights} weights)", []
        if self.problem:
            return f"{name}: {self.problem}"
        said = [f"{title} {quote_value(str(self.loaded[key]))}" for key, title in TITLES.items() if key in self.loaded]
        stated += [f"{title} {getattr(self.protocol, key)}" for key, title in STATED.items() if getattr(self.protocol, key)]
        unknown = [title for key, title in (SETTINGS | STATED).items() if getattr(self.protocol, key) == UNKNOWN]
        parts = [", ".join(said) or "nothing to set"]
        parts += [f"not set by it: {', '.join(stated)}"] if stated else []
        parts += [f"unknown: {', '.join(unknown)}"] if unknown else []
        return f"{name}: {'; '.join([*parts, 'no difference'])}"


def check_protocol(protocol: Protocol, *, own_weights: bool = False) -> ProtocolCheck:
    """Apply a row to mteb's class for its model, and return what it says; nothing is downloaded.

    Args:
        protocol: The row.
        own_weights: Load the model's own weights if they are on this machine, whatever their size.
    """
    weights = "tiny random"
    try:
        registered = mteb.get_model_meta(protocol.model, fetch_from_hf=False)
    except KeyError:
        return ProtocolCheck(
            protocol, weights, {}, "not registered with mteb, which would load it by the files of its repository"
        )
    try:
        if own_weights and isinstance(try_to_load_from_cache(protocol.model, "config.json", revision=registered.revision), str):
            weights = "own"
        with with_settings(protocol=protocol.paper), _open_weights(registered, protocol, weights) as meta:
            model = meta.load_model(device="cpu")
    except ProtocolDifferenceError as error:
        return ProtocolCheck(protocol, weights, {}, str(error), differs=True)
    except (PosirError, ImportError) as error:
        return ProtocolCheck(protocol, weights, {}, f"cannot be loaded here ({summarize_error(error)})")
    return ProtocolCheck(protocol, weights, getattr(model, RECORD)["loaded"])


@contextmanager
def _open_weights(meta: ModelMeta, protocol: Protocol, weights: str) -> Iterator[ModelMeta]:
    if weights == "own":
        yield meta
        return
    with with_tiny_weights(meta, protocol) as tiny:
        yield tiny
