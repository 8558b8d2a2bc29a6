"""Requests to a server with the OpenAI-compatible embeddings API, and checks of its answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from posir_tasks.errors import PosirError
from posir_tasks.models import connection
from posir_tasks.models.connection import Connection, openai, shorten
from posir_tasks.models.endpoint import Endpoint

ADVICE = (
    "If texts are too long for the model, let the server truncate them; if a request is too large, set a smaller --batch-size."
)

Embeddings = NDArray[np.float32]


class EndpointClient:
    """Embeds texts with a model behind an endpoint; may be used by several threads."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._connection = Connection(endpoint.address, retries=connection.RETRIES)
        # A wrong address, model or key is reported before any data is read.
        self.dimensions: int | None = None
        self.dimensions = self.embed(["position"]).shape[1]

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return the embeddings of texts from one request, shape (n, dimensions).

        Raises:
            PosirError: The server cannot be reached, refuses the request, or its answer is not one finite vector per text, each
                of the same dimensions as before.
        """
        create = self._connection.client.embeddings.create
        try:
            answer = create(model=self._endpoint.model, input=list(texts), encoding_format="float")
            # Servers that work on texts in parallel may return them in any order.
            rows = sorted(answer.data, key=lambda one: one.index)
            indices, vectors = [row.index for row in rows], [row.embedding for row in rows]
            lengths = set(map(len, vectors)) | ({self.dimensions} if self.dimensions else set())
        except openai.OpenAIError as error:
            raise PosirError(f"{self._endpoint}: {self._connection.explain(error, advice=ADVICE)}") from None
        except (TypeError, ValueError, AttributeError):
            raise self._invalid("is not one of an OpenAI-compatible embeddings API") from None
        if indices != list(range(len(texts))):
            raise self._invalid(f"to {len(texts):,} texts has {len(indices):,} vectors, with the indices {shorten(indices)}")
        if len(lengths) != 1 or 0 in lengths:
            raise self._invalid(f"has vectors of different dimensions: {shorten(sorted(lengths))}")
        try:
            embeddings = np.array(vectors, np.float32)
        except (TypeError, ValueError):
            raise self._invalid("has vectors with entries that are not numbers") from None
        finite = np.isfinite(embeddings).all(axis=1)
        if not finite.all():
            text = texts[int(finite.argmin())]
            raise self._invalid(f"has NaN or infinity in the vector of the text that begins {text[:80]!r}")
        return embeddings

    def _invalid(self, reason: str) -> PosirError:
        return PosirError(f"{self._endpoint}: the server's answer {reason}. Check the server and its model.")
