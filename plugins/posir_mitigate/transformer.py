"""The parts of a sentence-transformers model that mitigations inside the model need."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mteb.models.instruct_wrapper import InstructSentenceTransformerModel
from mteb.models.sentence_transformer_wrapper import SentenceTransformerEncoderWrapper

from posir_mitigate.method import Mitigation, refuse, require_encoder

if TYPE_CHECKING:
    from mteb.models import EncoderProtocol
    from mteb.models.models_protocols import MTEBModels


@dataclass(frozen=True)
class TransformerParts:
    """A loaded model: tokens to token states, pooling, and what follows it."""

    encoder: EncoderProtocol
    """mteb's model."""
    loaded: Any
    """The model of sentence-transformers."""
    transformer: Any
    """Its first module, with the model of transformers in `auto_model`."""
    pooling: Any
    after_pooling: tuple[Any, ...]

    @property
    def pooling_mode(self) -> str:
        """Name of the pooling, such as `cls`, `mean` or `lasttoken`."""
        return str(self.pooling.pooling_mode)


def without_normalization(encoder: EncoderProtocol) -> EncoderProtocol | None:
    """Return a model with the same weights whose vectors are as before it normalizes them; None if it does not, or elsewhere.

    The modules that normalize are the last ones of a model of sentence-transformers that is loaded here.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize

    loaded = getattr(encoder, "model", None)
    if not isinstance(loaded, SentenceTransformer):
        return None
    kept = dict(loaded.named_children())
    while len(kept) > 1 and isinstance(kept[last := next(reversed(kept))], Normalize):
        del kept[last]
    if len(kept) == len(loaded):
        return None
    stripped, raw = copy.copy(loaded), copy.copy(encoder)
    stripped._modules = dict(kept)
    raw.model = stripped  # type: ignore[attr-defined]
    return raw


def find_parts(method: Mitigation, model: MTEBModels) -> TransformerParts:
    """Return the parts of a model.

    Raises:
        PosirError: It is not a model of sentence-transformers that is loaded here, with a transformer, then pooling.
    """
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    encoder = require_encoder(method, model)
    loaded = getattr(model, "model", None)
    known = isinstance(model, SentenceTransformerEncoderWrapper | InstructSentenceTransformerModel)
    modules = list(loaded) if known and loaded is not None else []
    if len(modules) < 2 or not isinstance(modules[0], Transformer) or not isinstance(modules[1], Pooling):
        raise refuse(
            method, model, "works inside models of sentence-transformers that are loaded here, with a transformer and pooling."
        )
    return TransformerParts(encoder, loaded, modules[0], modules[1], tuple(modules[2:]))
