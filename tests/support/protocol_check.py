"""Protocols on mteb's own classes: what reaches the tokenizer, and whether it is what the row of a
paper says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mteb

from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.models.apply_protocol import (
    PROTOCOL_ATTRIBUTE,
    ProtocolDifferenceError,
    find_differences,
)
from posir_tasks.models.embeddings.context import EncodingContext
from posir_tasks.models.loaded_model import DOCUMENT, QUERY, read_loaded_model
from posir_tasks.models.protocols import Protocol
from posir_tasks.models.run_settings import override_settings
from posir_tasks.tasks.posir import PosIRMini
from posir_tasks.tasks.posq import SQuADPosQ
from posir_tasks.values.result_schema import SPLIT
from tests.support.registered_models import OWN, with_tiny_weights

#: Tasks of the papers that have some; a class may take their prompts.
PROMPTED = {"posq": SQuADPosQ, "myopic-trap": SQuADPosQ, "posir": PosIRMini}


@dataclass(frozen=True)
class ProtocolCheck:
    """The outcome for one model."""

    loaded: Mapping[str, Any]
    """The loaded model's own account; empty if it was not loaded."""
    problem: str = ""
    """The difference from the row, or why the model cannot be loaded here."""
    differs: bool = False
    """Whether the problem is a difference."""


def check_protocol(protocol: Protocol) -> ProtocolCheck:
    """Apply a row to mteb's class for its model, with tiny random weights."""
    try:
        registered = mteb.get_model_meta(protocol.model, fetch_from_hf=False)
        with (
            override_settings(protocol=protocol.paper),
            with_tiny_weights(registered, protocol) as meta,
        ):
            model = meta.load_model(device="cpu")
    except ProtocolDifferenceError as error:
        return ProtocolCheck({}, str(error), differs=True)
    except (PosirError, ImportError, KeyError) as error:
        return ProtocolCheck({}, f"cannot be loaded here ({summarize_error(error)})")
    return ProtocolCheck(getattr(model, PROTOCOL_ATTRIBUTE)["loaded"])


def find_mteb_settings(protocol: Protocol) -> dict[str, str]:
    """Return what mteb's class for a model sets otherwise than a row, by field, in the paper's
    task; nothing is downloaded.

    What it leaves to the model's own weights is not among it.
    """
    registered, task = (
        mteb.get_model_meta(protocol.model, fetch_from_hf=False),
        PROMPTED.get(protocol.paper),
    )
    with override_settings(protocol=""), with_tiny_weights(registered, protocol) as meta:
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
