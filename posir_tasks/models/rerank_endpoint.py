"""One of mteb's cross-encoders behind an endpoint, and the requests to it.

Servers have the rerank API of Cohere, Jina, vLLM and llama.cpp, or that of Text Embeddings Inference, whose fields have other
names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import openai
from numpy.typing import NDArray

from posir_tasks.errors import PosirError
from posir_tasks.gate import GateError, parse_json
from posir_tasks.models import connection
from posir_tasks.models.connection import shorten
from posir_tasks.models.endpoint import RERANK, Endpoint

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.types import BatchedInput
    from torch.utils.data import DataLoader

#: Most requests that the server has to answer at the same time.
MAX_IN_FLIGHT = 8
#: Statuses of a request that lacks a field: Text Embeddings Inference has `texts` for `documents`.
OTHER_FIELDS = (400, 422)
ADVICE = (
    "If texts are too long for the model, let the server truncate them; if a request is too large, set a smaller --batch-size."
)
#: A query and a text that the server must score before any data is read.
FIRST_QUERY, FIRST_TEXTS = "position", ("position", "A bell was cast in copper.")


class RerankEndpoint:
    """One of mteb's cross-encoders: a server scores each query's texts, several requests at a time."""

    mteb_model_meta: ModelMeta

    def __init__(self, model_name: str, revision: str | None = None, device: str | None = None, *, endpoint: Endpoint) -> None:  # noqa: ARG002
        self._client = RerankClient(endpoint)

    def predict(
        self, inputs1: DataLoader[BatchedInput], inputs2: DataLoader[BatchedInput], **options: Any
    ) -> NDArray[np.float64]:
        """Return the score of each pair of a query and a text, shape (n,).

        Raises:
            PosirError: The server cannot be reached, refuses a request, or its answer is not one finite score per text.
        """
        pairs = list(zip(_read_texts(inputs1), _read_texts(inputs2), strict=True))
        requests = list(split_requests(pairs, options.get("batch_size", 32)))
        with ThreadPoolExecutor(MAX_IN_FLIGHT) as pool:
            try:
                scores = list(pool.map(lambda request: self._client.rerank(*request), requests))
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
        return np.concatenate([np.zeros(0), *scores])


def _read_texts(inputs: DataLoader[BatchedInput]) -> list[str]:
    return [text for batch in inputs for text in batch["text"]]


def split_requests(pairs: Sequence[tuple[str, str]], size: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the query and the texts of each request, in order: consecutive pairs of one query, at most `size`."""
    for query, group in groupby(pairs, key=lambda pair: pair[0]):
        texts = [text for _, text in group]
        for start in range(0, len(texts), size):
            yield query, texts[start : start + size]


class RerankClient:
    """Requests to a server with a rerank API; may be used by several threads."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._connection = connection.Connection(endpoint.address, retries=connection.RETRIES)
        self._is_text_embeddings_inference = False
        # A wrong address, model or key is reported before any data is read.
        self.rerank(FIRST_QUERY, FIRST_TEXTS)

    def rerank(self, query: str, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return the score of each text from one request, shape (n,); errors as `RerankEndpoint.predict`."""

        try:
            answer = self._post(self._build_body(query, texts))
        except openai.APIStatusError as error:
            if self._is_text_embeddings_inference or error.status_code not in OTHER_FIELDS:
                raise PosirError(f"{self._endpoint}: {self._connection.explain(error, advice=ADVICE)}") from None
            self._is_text_embeddings_inference = True
            return self._rerank_otherwise(query, texts, error)
        except openai.OpenAIError as error:
            raise PosirError(f"{self._endpoint}: {self._connection.explain(error, advice=ADVICE)}") from None
        return self._read_scores(answer, len(texts))

    def _rerank_otherwise(self, query: str, texts: Sequence[str], refused: Any) -> NDArray[np.float64]:
        """Ask in the other form; if that fails too, explain why the first was refused."""

        try:
            return self._read_scores(self._post(self._build_body(query, texts)), len(texts))
        except openai.OpenAIError:
            self._is_text_embeddings_inference = False
            raise PosirError(f"{self._endpoint}: {self._connection.explain(refused, advice=ADVICE)}") from None

    def _build_body(self, query: str, texts: Sequence[str]) -> dict[str, Any]:
        if self._is_text_embeddings_inference:
            return {"query": query, "texts": list(texts), "truncate": True}
        model = {"model": self._endpoint.model.removesuffix(f":{RERANK}")} if self._endpoint.model != RERANK else {}
        return {**model, "query": query, "documents": list(texts), "top_n": len(texts)}

    def _post(self, body: Mapping[str, Any]) -> str:
        return self._connection.client.post("/rerank", body=dict(body), cast_to=str)

    def _read_scores(self, text: str, count: int) -> NDArray[np.float64]:
        try:
            answer = parse_json(text, self._endpoint)
            rows = list(answer["results"] if isinstance(answer, Mapping) else answer)
            scores = {row["index"]: row.get("relevance_score", row.get("score")) for row in rows}
        except GateError as error:
            raise self._invalid(f"cannot be read: {error.problem}") from None
        except (TypeError, ValueError, KeyError, AttributeError):
            raise self._invalid("is not one of a rerank API") from None
        if len(rows) != count or scores.keys() != set(range(count)):
            raise self._invalid(f"to {count:,} texts has {len(rows):,} scores, with the indices {shorten(list(scores))}")
        values = [scores[index] for index in range(count)]
        if not all(type(value) in (int, float) and math.isfinite(value) for value in values):
            raise self._invalid("has a score that is not a finite number")
        return np.array(values, np.float64)

    def _invalid(self, reason: str) -> PosirError:
        return PosirError(f"{self._endpoint}: the server's answer {reason}. Check the server and its model.")
