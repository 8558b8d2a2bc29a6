"""The length that a model claims to read, against the length that it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from posir_tasks.host.private_names import MODEL_REGISTRY
from posir_tasks.models.endpoint_resolver import EndpointLoader
from posir_tasks.models.landmarks import count_landmark_room
from posir_tasks.models.names import resolve_bare_name
from posir_tasks.models.reading_length import Bounds, ReadingLength
from posir_tasks.search.dispatch import NO_LIMIT, find_window

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

#: Estimated numbers of tokens are off by at most this factor.
ESTIMATE_FACTOR = 1.5
#: The same for frequent words, most of which are a token each.
SYNTHETIC_FACTOR = 1.1


@dataclass(frozen=True)
class Claim:
    """The number of tokens that a model claims to read."""

    tokens: int | None
    """Tokens, special ones included; None if it claims nothing."""
    model: str
    """Name of the model that claims it: for an endpoint, the registered model of the same name."""
    landmark_room: int = 0
    """Tokens of its window that landmarks take from a long text, which are not in `tokens`."""


def find_claim(model: MTEBModels) -> Claim:
    """Return what the metadata of a model claims; of an endpoint, the metadata of the registered model of that name."""
    meta = model.mteb_model_meta
    if isinstance(meta.loader, EndpointLoader):
        registered, name = MODEL_REGISTRY.resolve(), meta.loader.endpoint.model
        registration = dict.get(registered, name) or resolve_bare_name(name, registered)
        return Claim(_finite(registration.max_tokens), registration.name) if registration else Claim(None, str(meta.name))
    window, room = _finite(meta.max_tokens) or find_window(model), count_landmark_room(getattr(model, "model", None))
    return Claim(window - room if window else None, str(meta.name), room)


def _finite(tokens: float | None) -> int | None:
    return int(tokens) if tokens and tokens < NO_LIMIT else None


def describe_reading(
    reading: ReadingLength, total: Bounds, claim: Claim, special_tokens: int | None, prompt_tokens: int
) -> str:
    """Return in one sentence how far a model reads, and how that compares with what it claims.

    Args:
        reading: The length of the text that it reads.
        total: Tokens that it reads, special ones and prompt included; an estimate if the tokenizer is unknown.
        claim: The length that it claims to read.
        special_tokens: Special tokens of a text; None if the tokenizer is unknown.
        prompt_tokens: Tokens of its prompt for documents.
    """
    factor = 1.0
    if special_tokens is not None:
        length, parts = f"{describe_bounds(total)} tokens", _list_parts(special_tokens, prompt_tokens)
    else:
        factor = SYNTHETIC_FACTOR if reading.synthetic else ESTIMATE_FACTOR
        length, parts = f"{describe_bounds(reading.bounds)} {reading.unit}", ""
    about = "" if special_tokens is not None else _describe_estimate(reading)
    if reading.complete:
        claimed = f"; {claim.model} claims {claim.tokens:,} tokens" if claim.tokens else ""
        return f"It reads at least {length} of a text{about}{parts}, as many as were tried{claimed}."
    rest = "refuses longer texts" if reading.refusal else "ignores the rest without an error"
    if claim.tokens is None:
        return f"It reads {length} of a text{about}{parts}, and {rest}; it claims no length."
    if total.high * factor < claim.tokens:
        if special_tokens is not None:
            number = describe_bounds(total)
            return f"It reads only {number} of the {claim.tokens:,} tokens that {claim.model} claims{parts}, and {rest}."
        return f"It reads only {length} of a text{about}, and {rest}, although {claim.model} claims {claim.tokens:,} tokens."
    if total.low > claim.tokens * factor:
        comparison = f"more than the {claim.tokens:,} tokens that {claim.model} claims"
        return f"It reads {length} of a text{about}{parts}, {comparison}, and {rest}."
    return f"It reads {length} of a text{about}{parts}, as it claims, and {rest}."


def _list_parts(special_tokens: int, prompt_tokens: int) -> str:
    special = [f"{special_tokens} of them special"] if special_tokens else []
    prompt = [f"{prompt_tokens} of its prompt"] if prompt_tokens else []
    return "".join(f", {part}" for part in special + prompt)


def _describe_estimate(reading: ReadingLength) -> str:
    """Return how many tokens a length is whose tokenizer is unknown."""
    if reading.synthetic:
        return (
            " of frequent English words, about a token each"
            if reading.unit == "words"
            else f" (about {describe_bounds(reading.estimated_tokens)} tokens)"
        )
    return f" (about {reading.estimated_tokens.high:,} tokens, estimated)"


def describe_bounds(bounds: Bounds) -> str:
    """Return a number, or the two that it is between."""
    return f"{bounds.low:,}" if bounds.exact else f"{bounds.low:,} to {bounds.high:,}"
