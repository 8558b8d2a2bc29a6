"""Both orders: the mean of a document's embedding and that of the document with its sentences in reverse order.

What is at the start of one text is at the end of the other. Ours: no paper on embeddings with this method is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from posir_mitigate.division import divide_text, find_sentences
from posir_mitigate.document_encoder import DocumentEncoder
from posir_mitigate.method import format_method, require_encoder

if TYPE_CHECKING:
    from mteb.models import EncoderProtocol
    from mteb.models.models_protocols import MTEBModels

    from posir_mitigate.encoding import EncodingContext, Vectors


@dataclass(frozen=True)
class BothOrders:
    """Average the embeddings of each document in forward and in reverse order."""

    NAME: ClassVar[str] = "both_orders"

    sentences: Annotated[int, Field(gt=0)] = 1
    """Sentences that stay together in their order."""

    def __str__(self) -> str:
        return format_method(self)

    @property
    def cost(self) -> str:
        """What it costs: vectors per document, and work against the plain model."""
        return "one vector; encodes every document twice"

    @property
    def changed_metadata(self) -> dict[str, Any]:
        """Of a document beyond its window the model reads both ends, so the window says nothing."""
        return {"max_tokens": None}

    def apply(self, base: MTEBModels) -> MTEBModels:
        """Return the model that averages both orders; raise PosirError if the model is no encoder."""
        return DocumentEncoder(require_encoder(self, base), self.average)

    def reverse(self, text: str) -> str:
        """Return a text with its sentences, or groups of them, in reverse order; a text of one as it is."""
        (units,) = find_sentences([text])
        return " ".join(reversed(divide_text(text, units, self.sentences, self.sentences)))

    def average(self, model: EncoderProtocol, texts: Sequence[str], context: EncodingContext) -> Vectors:
        """Return the mean of the embeddings in both orders, shape (n, dimensions)."""
        both = context.encode_documents(model, [*texts, *map(self.reverse, texts)])
        average: Vectors = both.reshape(2, len(texts), -1).mean(axis=0, dtype=np.float32)
        return average
