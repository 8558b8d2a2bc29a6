"""Protocols on mteb's own classes: what reaches the tokenizer, and whether it is what the row of a
paper says.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import mteb
from huggingface_hub import try_to_load_from_cache

from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.models.apply_protocol import RECORD, ProtocolDifferenceError, find_differences
from posir_tasks.models.embeddings.context import EncodingContext
from posir_tasks.models.loaded_model import DOCUMENT, QUERY, read_loaded_model
from posir_tasks.models.protocols import SETTINGS, STATED, UNKNOWN, Protocol, quote_value
from posir_tasks.models.run_settings import with_settings
from posir_tasks.models.tiny_model import OWN, with_tiny_weights
from posir_tasks.tasks.posir import PosIRMini
from posir_tasks.tasks.posq import SQuADPosQ
from posir_tasks.values.result_schema import SPLIT

#: Tasks of the papers that have some; a class may take their prompts.
PROMPTED = {"posq": SQuADPosQ, "myopic-trap": SQuADPosQ, "posir": PosIRMini}
#: What a model says of itself, with its names in sentences.
TITLES = {
    "query_text": "query",
    "document_text": "document",
    "max_query_tokens": "query window",
    "max_document_tokens": "window",
    **{
        name: SETTINGS[name]
        for name in ("dimensions", "dtype", "attention", "padding_side", "pooling")
    },
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
    of_mteb: Mapping[str, str] = field(default_factory=dict)
    """Settings of mteb's class that differ from the row if that is not applied, by field."""

    def __str__(self) -> str:
        name, stated = f"{self.protocol.model} ({self.weights} weights)", []
        if self.problem:
            return f"{name}: {self.problem}"
        said = [
            f"{title} {quote_value(str(self.loaded[key]))}"
            for key, title in TITLES.items()
            if key in self.loaded
        ]
        stated += [
            f"{title} {getattr(self.protocol, key)}"
            for key, title in STATED.items()
            if getattr(self.protocol, key)
        ]
        unknown = [
            title
            for key, title in (SETTINGS | STATED).items()
            if getattr(self.protocol, key) == UNKNOWN
        ]
        parts = [", ".join(said) or "nothing to set"]
        parts += [f"not set by it: {', '.join(stated)}"] if stated else []
        parts += [f"unknown: {', '.join(unknown)}"] if unknown else []
        own = [f"{SETTINGS[key]} {quote_value(value)}" for key, value in self.of_mteb.items()]
        parts += [
            "no difference",
            *([f"without the protocol, mteb sets {', '.join(own)}"] if own else []),
        ]
        return f"{name}: {'; '.join(parts)}"


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
            protocol,
            weights,
            {},
            "not registered with mteb, which would load it by the files of its repository",
        )
    try:
        if own_weights and isinstance(
            try_to_load_from_cache(protocol.model, "config.json", revision=registered.revision), str
        ):
            weights = "own"
        opened = (
            nullcontext(registered) if weights == "own" else with_tiny_weights(registered, protocol)
        )
        with with_settings(protocol=protocol.paper), opened as meta:
            model = meta.load_model(device="cpu")
    except ProtocolDifferenceError as error:
        return ProtocolCheck(protocol, weights, {}, str(error), differs=True)
    except (PosirError, ImportError) as error:
        return ProtocolCheck(
            protocol, weights, {}, f"cannot be loaded here ({summarize_error(error)})"
        )
    return ProtocolCheck(protocol, weights, getattr(model, RECORD)["loaded"])


def find_mteb_settings(protocol: Protocol) -> dict[str, str]:
    """Return what mteb's class for a model sets otherwise than a row, by field, in the paper's
    task; nothing is downloaded.

    What it leaves to the model's own weights is not among it.
    """
    registered, task = (
        mteb.get_model_meta(protocol.model, fetch_from_hf=False),
        PROMPTED.get(protocol.paper),
    )
    with with_settings(protocol=""), with_tiny_weights(registered, protocol) as meta:
        model = meta.load_model(device="cpu")
    loaded = read_loaded_model(model, task and EncodingContext(task.metadata, SPLIT, "default"))
    others = {
        name: has
        for name, has in find_differences(model, protocol, loaded).items()
        if has is not None
    }
    # The window of queries is that of documents, and a prompt stands before the sample.
    others = {
        name: value.removesuffix(QUERY).removesuffix(DOCUMENT) for name, value in others.items()
    }
    return {
        name: value
        for name, value in others.items()
        if value != OWN.get(name) and name != "max_query_tokens"
    }
