"""Requests to a server with the OpenAI-compatible embeddings API, and checks of its answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import openai
from numpy.typing import NDArray

from posir_tasks.display.wording import pluralize, sanitized
from posir_tasks.errors import PosirError
from posir_tasks.gate import GateError, parse_json
from posir_tasks.models import connection
from posir_tasks.models.connection import Connection, shorten
from posir_tasks.models.endpoint import Endpoint

ADVICE = (
    "If texts are too long for the model, let the server truncate them; if a request is too large, set a smaller --batch-size."
)

#: Texts that are sent to learn what the server answers.
FIRST_TEXTS = ("position", "A bell was cast in copper.")
#: Fewest texts that cannot all have one vector. Fewer may differ in nothing that the model reads, such as their case.
MIN_DISTINCT = 8
#: Characters in which these differ: beyond a model's window texts do not change its vector.
BEGINNING = 300

Embeddings = NDArray[np.float32]


class EndpointClient:
    """Embeds texts with a model behind an endpoint; may be used by several threads."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._connection = Connection(endpoint.address, retries=connection.RETRIES)
        self.limit_retries = self._connection.limit_retries
        # A wrong address, model or key is reported before any data is read.
        self.dimensions: int | None = None
        first, second = (self.embed([text])[0] for text in FIRST_TEXTS)
        if np.array_equal(first, second):
            raise self._invalid(f"has the same vector for {FIRST_TEXTS[0]!r} and {FIRST_TEXTS[1]!r}: {shorten(first)}")
        self.dimensions = len(first)

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return the embeddings of texts from one request, shape (n, dimensions).

        Raises:
            PosirError: The server cannot be reached, refuses the request, or its answer is not one finite vector per text, each
                of the same dimensions as before; or the vectors are all zero, or the same for different texts.
        """
        # The client would turn booleans into numbers.
        create = self._connection.client.embeddings.with_raw_response.create
        try:
            response = create(model=self._endpoint.model, input=list(texts), encoding_format="float").http_response
            answer = parse_json(response.content, self._endpoint)
            # Servers that work on texts in parallel may return them in any order.
            rows = sorted(answer["data"], key=lambda row: row["index"])
            indices, vectors = [row["index"] for row in rows], [row["embedding"] for row in rows]
            lengths = set(map(len, vectors)) | ({self.dimensions} if self.dimensions else set())
        except openai.OpenAIError as error:
            raise PosirError(f"{self._endpoint}: {self._connection.explain(error, advice=ADVICE)}") from None
        except GateError as error:
            raise self._invalid(f"cannot be read: {error.problem}") from None
        except (TypeError, ValueError, KeyError):
            raise self._invalid("is not one of an OpenAI-compatible embeddings API") from None
        if indices != list(range(len(texts))):
            raise self._invalid(f"to {len(texts):,} texts has {len(indices):,} vectors, with the indices {shorten(indices)}")
        if len(lengths) != 1 or 0 in lengths:
            raise self._invalid(f"has vectors of different dimensions: {shorten(sorted(lengths))}")
        wrong = [entry for vector in vectors for entry in vector if type(entry) not in (int, float)]
        if wrong:
            raise self._invalid(f"has vectors with entries that are not numbers, such as {sanitized(wrong[0])}")
        embeddings = np.array(vectors, np.float32)
        finite = np.isfinite(embeddings).all(axis=1)
        if not finite.all():
            text = texts[int(finite.argmin())]
            raise self._invalid(f"has NaN or infinity in the vector of the text that begins {text[:80]!r}")
        if reason := find_degeneracy(texts, embeddings):
            raise self._invalid(reason)
        return embeddings

    def _invalid(self, reason: str) -> PosirError:
        return PosirError(f"{self._endpoint}: the server's answer {reason}. Check the server and its model.")


def find_degeneracy(texts: Sequence[str], embeddings: Embeddings) -> str | None:
    """Return why embeddings, shape (n, dimensions), cannot rank the n texts; None if they can.

    A text without content may have a vector of zeros, and so may a few others.
    """
    with_content = [bool(text.strip()) for text in texts]
    if any(with_content) and not embeddings[with_content].any():
        return f"has only zeros, in {pluralize(len(texts), 'vector')} of {embeddings.shape[1]:,} dimensions"
    distinct = len({text[:BEGINNING].casefold() for text in texts})
    if distinct >= MIN_DISTINCT and (embeddings == embeddings[0]).all():
        return f"has the same vector for {distinct:,} different texts: {shorten(embeddings[0])}"
    return None
