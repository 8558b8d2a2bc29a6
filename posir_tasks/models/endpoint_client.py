"""Requests to a server with the OpenAI-compatible embeddings API, and checks of its answers."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from posir_tasks.errors import PosirError
from posir_tasks.models.endpoint import Endpoint

try:
    import openai
except ModuleNotFoundError as missing:
    raise PosirError("models behind an endpoint need the client of OpenAI: pip install 'posir[endpoint]'") from missing

#: Environment variable with the key; servers without keys need none.
KEY_VARIABLE = "OPENAI_API_KEY"
#: Sent in place of a key, which the client requires.
NO_KEY = "none"
#: Retries of a request that is answered with 408, 409, 429 or 5xx, or not at all. It waits as long as the server asks (at most
#: two minutes), or else 0.5, 1, 2, 4 and then 8 seconds.
RETRIES = 10
#: Most characters of a server's message that are shown.
MAX_MESSAGE = 500
#: Most values of a list that are shown.
MAX_VALUES = 10

Embeddings = NDArray[np.float32]


class EndpointClient:
    """Embeds texts with a model behind an endpoint; may be used by several threads.

    The key is in no public attribute and in no message.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        key = os.environ.get(KEY_VARIABLE, "").strip()
        if not (key.isascii() and (key.isprintable())):
            raise PosirError(f"the key in {KEY_VARIABLE} has characters that HTTP does not allow. Set it again.")
        self._endpoint = endpoint
        self._key = key
        self._client = openai.OpenAI(api_key=key or NO_KEY, base_url=endpoint.address, max_retries=RETRIES)
        # A wrong address, model or key is reported before any data is read.
        self.dimensions: int | None = None
        self.dimensions = self.embed(["position"]).shape[1]

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return the embeddings of texts from one request, shape (n, dimensions).

        Raises:
            PosirError: The server cannot be reached, refuses the request, or its answer is not one finite vector per text, each
                of the same dimensions as before.
        """
        try:
            answer = self._client.embeddings.create(model=self._endpoint.model, input=list(texts), encoding_format="float")
            # Servers that work on texts in parallel may return them in any order.
            rows = sorted(answer.data, key=lambda one: one.index)
            indices, vectors = [row.index for row in rows], [row.embedding for row in rows]
            lengths = set(map(len, vectors)) | ({self.dimensions} if self.dimensions else set())
        except openai.OpenAIError as error:
            # The library's error is not chained: it has the server's answer, which may repeat the key.
            raise PosirError(f"{self._endpoint}: {self._explain(error)}") from None
        except (TypeError, ValueError, AttributeError):
            raise self._invalid("is not one of an OpenAI-compatible embeddings API") from None
        if indices != list(range(len(texts))):
            raise self._invalid(f"to {len(texts):,} texts has {len(indices):,} vectors, with the indices {_shorten(indices)}")
        if len(lengths) != 1 or 0 in lengths:
            raise self._invalid(f"has vectors of different dimensions: {_shorten(sorted(lengths))}")
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

    def _explain(self, error: openai.OpenAIError) -> str:
        """Return what a failed request means and what to do, with the server's own message."""
        if isinstance(error, openai.APIConnectionError):
            return f"no answer after {RETRIES + 1} attempts ({self._redact(error.__cause__ or error)}). Is the server running?"
        if not isinstance(error, openai.APIStatusError):
            return f"the server's answer cannot be read ({self._redact(error)})."
        status = self._redact(error.message)
        match error.status_code:
            case 401 | 403:
                refused = f"the key in {KEY_VARIABLE}" if self._key else f"requests without a key; set {KEY_VARIABLE}"
                return f"the server refuses {refused} ({status})."
            case 404:
                return f"the server has no such model or address ({status}). Addresses usually end in /v1.{self._list_models()}"
            case 400 | 413 | 422:
                return (
                    f"the server refuses a request ({status}). If texts are too long for the model, let the server truncate "
                    "them; if a request is too large, set a smaller --batch-size."
                )
            case 429:
                return f"the server's limit is still exceeded after up to {RETRIES + 1} attempts ({status}). Run again later."
            case _:
                return f"the server failed up to {RETRIES + 1} times ({status})."

    def _list_models(self) -> str:
        try:
            models = self._client.with_options(max_retries=0, timeout=10).models.list().data
            return f" Its models: {self._redact(_shorten([model.id for model in models]))}."
        except (openai.OpenAIError, TypeError, ValueError, AttributeError):
            return ""

    def _redact(self, message: object) -> str:
        """Return a message without the key, on one line, of limited length."""
        text = str(message).replace(self._key, "***") if self._key else str(message)
        return " ".join(text.split())[:MAX_MESSAGE]


def _shorten(values: Sequence[object]) -> str:
    return ", ".join(map(str, values[:MAX_VALUES])) + (", ..." if len(values) > MAX_VALUES else "")
