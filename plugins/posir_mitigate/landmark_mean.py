"""The untrained landmark mean (`lmk_mean` of DICE, arXiv 2606.18781): documents in one pass, with a separator after each chunk.

Landmarks and their mean are those of `posir_tasks.models.landmarks`, which landmark pooling in training has too.
"""

from __future__ import annotations

import copy
from functools import wraps
from typing import TYPE_CHECKING, Any

from mteb.types import PromptType

from posir_tasks.models.landmarks import LandmarkSettings, add_landmarks
from posir_tasks.models.prompts import share_prompts

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

    from posir_mitigate.transformer import TransformerParts


def average_landmarks(parts: TransformerParts, settings: LandmarkSettings, name: str) -> MTEBModels:
    """Return a copy of mteb's model, with the same weights, that pools landmarks of documents; queries are as by the plain one.

    Its class is a subclass of the model's, so that prompts, window and similarity are found as for the plain model.
    """
    plain: Any = type(parts.encoder)
    encoder = parts.encoder

    @wraps(plain.encode)
    def encode(self: Any, inputs: Any, *, prompt_type: PromptType | None = None, **kwargs: Any) -> Any:
        model = self if prompt_type is PromptType.document else encoder
        return plain.encode(model, inputs, prompt_type=prompt_type, **kwargs)

    made: Any = copy.copy(encoder)
    made.__class__ = type(f"Landmarked{plain.__name__}", (plain,), {"encode": share_prompts(encode, plain.encode)})
    made.model = add_landmarks(parts.loaded, settings)
    # Part of the key of cached embeddings.
    made.landmarks = name
    made.changes_model = True
    result: MTEBModels = made
    return result
