"""mteb's models behind an endpoint, an encoder and a cross-encoder, with the requests to servers and checks of their answers.

Encoders are asked by `endpoint_client.py`. Rerankers have the rerank API of Cohere, Jina, vLLM and llama.cpp, or that
of Text Embeddings Inference, whose fields have other names.
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from mteb.models.abs_encoder import AbsEncoder, get_prompt
from mteb.types import PromptType
from numpy.typing import NDArray

from posir_tasks.display.progress import progress
from posir_tasks.models.connection import RequestError, shorten
from posir_tasks.models.endpoint_client import FIRST_TEXTS, EmbeddingClient, Embeddings, EndpointModel
from posir_tasks.models.references import RERANK, Endpoint, RequestFields
from posir_tasks.read_part import estimate_tokens

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models import ModelMeta
    from mteb.types import BatchedInput
    from torch.utils.data import DataLoader

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Scores = NDArray[np.float64]

#: A query and texts that the server must score before any data is read.
FIRST_QUERY = "position"
#: Most requests that the server has to answer at the same time.
MAX_IN_FLIGHT = 8
#: Shorter texts are not checked for truncation.
MIN_CHECKED_TOKENS = 128
#: Cosine similarity from which the embeddings of a text and of its beginning are the same, up to rounding in half precision.
SAME = 1 - 1e-4
#: Statuses of a request that lacks a field: Text Embeddings Inference has `texts` for `documents`.
OTHER_FIELDS = (400, 422)


class EndpointEncoder(EmbeddingClient, AbsEncoder):
    """Encodes texts by requests to a server, several at a time."""

    advice = EndpointModel.advice

    def __init__(
        self, endpoint: Endpoint, model_prompts: dict[str, str] | None = None, fields: RequestFields | None = None
    ) -> None:
        super().__init__(endpoint, fields)
        self.reference, self.model_prompts = str(endpoint), model_prompts or {}
        self._longest_checked = 0

    def encode(
        self,
        inputs: DataLoader[BatchedInput],
        *,
        task_metadata: TaskMetadata,
        prompt_type: PromptType | None = None,
        **kwargs: Any,
    ) -> Embeddings:
        """Return the embeddings of the texts, shape (n, dimensions); errors as `embed`."""
        prompt = get_prompt(self.model_prompts, task_metadata, prompt_type) or ""
        texts = [prompt + text for text in _read_texts(inputs)]
        size = kwargs.get("batch_size", 32)
        batches = [texts[start : start + size] for start in range(0, len(texts), size)]
        description = self.reference if kwargs.get("show_progress_bar", True) else None
        embed = partial(self.embed, query=prompt_type is PromptType.query)
        embeddings = np.concatenate(send_in_flight(embed, batches, description))
        self._warn_if_truncated(max(texts, key=len))
        return embeddings

    def embed_documents(self, documents: Sequence[Sequence[str]]) -> Embeddings:
        """Return the embeddings of the chunks of documents, each in the context of its document; errors as `embed`."""
        return np.concatenate(send_in_flight(self.embed_chunks, documents))

    def _warn_if_truncated(self, text: str) -> None:
        """Warn if the server ignores the end of a text, which it may do without saying so."""
        if self.is_measured or len(text) <= self._longest_checked or estimate_tokens(text) < MIN_CHECKED_TOKENS:
            return
        self._longest_checked = len(text)
        (complete,) = self.embed([text])

        def is_complete(characters: int) -> bool:
            (beginning,) = self.embed([text[:characters]])
            return bool(complete @ beginning >= SAME * np.linalg.norm(complete) * np.linalg.norm(beginning))

        read = find_read_length(len(text), is_complete)
        if read < len(text):
            logger.warning(
                f"{self.reference}: the server reads only about the first {read:,} of the {len(text):,} characters of a text "
                f"({estimate_tokens(text[:read]):,} tokens, estimated) and does not report it. Scores of longer texts show "
                "truncation as well as position bias."
            )


def find_read_length(length: int, is_complete: Callable[[int], bool]) -> int:
    """Return how many of a text's characters are read, to 2%, by the beginnings with its embedding; all if beyond 90%."""
    step = max(1, length // 50)
    tried = range(step, round(0.9 * length) + step, step)
    return tried[bisect_left(tried, True, key=is_complete)] if is_complete(tried[-1]) else length


class RerankEndpoint(EndpointModel):
    """One of mteb's cross-encoders: a server scores each query's texts, several requests at a time."""

    mteb_model_meta: ModelMeta

    def __init__(self, endpoint: Endpoint, **_: Any) -> None:
        super().__init__(endpoint)
        self._texts_field = ""
        # A wrong address, model or key is reported before any data is read.
        self.rerank(FIRST_QUERY, FIRST_TEXTS)

    def predict(self, inputs1: DataLoader[BatchedInput], inputs2: DataLoader[BatchedInput], **options: Any) -> Scores:
        """Return the score of each pair of a query and a text, shape (n,); errors as `rerank`."""
        pairs = list(zip(_read_texts(inputs1), _read_texts(inputs2), strict=True))
        requests = list(split_requests(pairs, options.get("batch_size", 32)))
        return np.concatenate([np.zeros(0), *send_in_flight(lambda request: self.rerank(*request), requests)])

    def rerank(self, query: str, texts: Sequence[str]) -> Scores:
        """Return the score of each text from one request, shape (n,); raise PosirError if not all are finite numbers."""
        answer = self._ask_either(query, texts)
        try:
            rows = list(answer["results"] if isinstance(answer, Mapping) else answer)
            scores = {row["index"]: row.get("relevance_score", row.get("score")) for row in rows}
        except (TypeError, ValueError, KeyError, AttributeError):
            raise self._invalid("is not one of a rerank API") from None
        if len(rows) != len(texts) or scores.keys() != set(range(len(texts))):
            raise self._invalid(f"to {len(texts):,} texts has {len(rows):,} scores, with the indices {shorten(list(scores))}")
        values = [scores[index] for index in range(len(texts))]
        if not all(type(value) in (int, float) and math.isfinite(value) for value in values):
            raise self._invalid("has a score that is not a finite number")
        return np.array(values, np.float64)

    def _ask_either(self, query: str, texts: Sequence[str]) -> Any:
        """Return the answer to the form of request that has been answered before, or else to the first that is answered."""
        model = {"model": self._endpoint.model.removesuffix(f":{RERANK}")} if self._endpoint.model != RERANK else {}
        forms: dict[str, dict[str, Any]] = {"documents": {**model, "top_n": len(texts)}, "texts": {"truncate": True}}
        failures = list[RequestError]()
        for name in [self._texts_field] if self._texts_field else forms:
            try:
                answer = self._ask(f"{self._endpoint.address}/rerank", {"query": query, name: list(texts), **forms[name]})
            except RequestError as error:
                failures.append(error)
                if error.status not in OTHER_FIELDS:
                    break
            else:
                self._texts_field = name
                return answer
        raise self._failed(failures[0]) from None


def split_requests(pairs: Sequence[tuple[str, str]], size: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the query and the texts of each request, in order: consecutive pairs of one query, at most `size`."""
    for query, group in groupby(pairs, key=lambda pair: pair[0]):
        texts = [text for _, text in group]
        for start in range(0, len(texts), size):
            yield query, texts[start : start + size]


def _read_texts(inputs: DataLoader[BatchedInput]) -> list[str]:
    return [text for batch in inputs for text in batch["text"]]


def send_in_flight(send: Callable[[Item], NDArray[Any]], items: Sequence[Item], description: str | None = None) -> list[Any]:
    """Return the answers to requests, of which several are in flight; after an error no further one is sent."""
    with ThreadPoolExecutor(MAX_IN_FLIGHT) as pool:
        futures = [pool.submit(send, item) for item in items]
        try:
            return [future.result() for future in (progress(futures, description) if description else futures)]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
