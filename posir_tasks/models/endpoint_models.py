"""mteb's models behind an endpoint, an encoder and a cross-encoder, with the requests to servers and checks of their answers.

Encoders have the OpenAI-compatible embeddings API. Rerankers have the rerank API of Cohere, Jina, vLLM and llama.cpp, or that
of Text Embeddings Inference, whose fields have other names.
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from mteb.models.abs_encoder import AbsEncoder, get_prompt
from numpy.typing import NDArray

from posir_tasks.display.progress import progress
from posir_tasks.display.wording import pluralize, sanitized
from posir_tasks.errors import PosirError
from posir_tasks.gate import GateError, parse_json
from posir_tasks.models import connection
from posir_tasks.models.connection import Connection, RequestError, shorten
from posir_tasks.models.references import RERANK, Endpoint
from posir_tasks.read_part import estimate_tokens

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models import ModelMeta
    from mteb.types import BatchedInput, PromptType
    from torch.utils.data import DataLoader

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Embeddings = NDArray[np.float32]
Scores = NDArray[np.float64]

ADVICE = (
    "If texts are too long for the model, let the server truncate them; if a request is too large, set a smaller --batch-size."
)
#: A query, and texts that the server must embed, or score, before any data is read.
FIRST_QUERY, FIRST_TEXTS = "position", ("position", "A bell was cast in copper.")
#: Most requests that the server has to answer at the same time.
MAX_IN_FLIGHT = 8
#: Fewest texts that cannot all have one vector. Fewer may differ in nothing that the model reads, such as their case.
MIN_DISTINCT = 8
#: Characters in which these differ: beyond a model's window texts do not change its vector.
BEGINNING = 300
#: Shorter texts are not checked for truncation.
MIN_CHECKED_TOKENS = 128
#: Cosine similarity from which the embeddings of a text and of its beginning are the same, up to rounding in half precision.
SAME = 1 - 1e-4
#: Statuses of a request that lacks a field: Text Embeddings Inference has `texts` for `documents`.
OTHER_FIELDS = (400, 422)


class _EndpointModel:
    """Requests to the server of an endpoint; may be used by several threads."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint, self._connection = endpoint, Connection(endpoint.address, retries=connection.RETRIES)

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return a server's answer, in JSON."""
        text = self._connection.send(f"{self._endpoint.address}{path}", body)
        try:
            return parse_json(text, self._endpoint)
        except GateError as error:
            raise self._invalid(f"cannot be read: {error.problem}") from None

    def _failed(self, error: RequestError) -> PosirError:
        return PosirError(f"{self._endpoint}: {self._connection.explain(error, advice=ADVICE)}")

    def _invalid(self, reason: str) -> PosirError:
        return PosirError(f"{self._endpoint}: the server's answer {reason}. Check the server and its model.")


class EndpointEncoder(_EndpointModel, AbsEncoder):
    """Encodes texts by requests to a server, several at a time."""

    def __init__(self, endpoint: Endpoint, model_prompts: dict[str, str] | None = None) -> None:
        super().__init__(endpoint)
        self.reference, self.model_prompts = str(endpoint), model_prompts or {}
        self._longest_checked: float = 0
        self._dimensions: int | None = None
        # A wrong address, model or key is reported before any data is read.
        first, second = (self.embed([text])[0] for text in FIRST_TEXTS)
        if np.array_equal(first, second):
            raise self._invalid(f"has the same vector for {FIRST_TEXTS[0]!r} and {FIRST_TEXTS[1]!r}: {shorten(first)}")
        self._dimensions = len(first)

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return the embeddings of texts from one request, shape (n, dimensions).

        Raises:
            PosirError: The server cannot be reached, refuses the request, or its answer is not one finite vector per text, each
                of the same dimensions as before; or the vectors are all zero, or the same for different texts.
        """
        body = {"model": self._endpoint.model, "input": list(texts), "encoding_format": "float"}
        try:
            # Servers that work on texts in parallel may return them in any order.
            rows = sorted(self._post("/embeddings", body)["data"], key=lambda row: row["index"])
            indices, vectors = [row["index"] for row in rows], [row["embedding"] for row in rows]
            lengths = set(map(len, vectors)) | ({self._dimensions} if self._dimensions else set())
        except RequestError as error:
            raise self._failed(error) from None
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
        # A text without content may have a vector of zeros, and so may a few others.
        with_content = [bool(text.strip()) for text in texts]
        if any(with_content) and not embeddings[with_content].any():
            raise self._invalid(f"has only zeros, in {pluralize(len(texts), 'vector')} of {embeddings.shape[1]:,} dimensions")
        distinct = len({text[:BEGINNING].casefold() for text in texts})
        if distinct >= MIN_DISTINCT and (embeddings == embeddings[0]).all():
            raise self._invalid(f"has the same vector for {distinct:,} different texts: {shorten(embeddings[0])}")
        return embeddings

    @contextmanager
    def measure(self, retries: int | None = None) -> Iterator[None]:
        """Do not check for truncation while the context is open, in which it is measured more exactly.

        A server may fail for a text that is too long, so a failed request is repeated at most `retries` times, if given; where
        a limit is exceeded, as often as ever.
        """
        usual = self._longest_checked, self._connection.retries
        self._longest_checked, self._connection.retries = math.inf, usual[1] if retries is None else retries
        try:
            yield
        finally:
            self._longest_checked, self._connection.retries = usual

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
        embeddings = np.concatenate(_map_in_flight(self.embed, batches, description))
        self._warn_if_truncated(max(texts, key=len))
        return embeddings

    def _warn_if_truncated(self, text: str) -> None:
        """Warn if the server ignores the end of a text, which it may do without saying so."""
        if len(text) <= self._longest_checked or estimate_tokens(text) < MIN_CHECKED_TOKENS:
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
    """Return how many of a text's characters are read, to 2 %, by the beginnings with its embedding; all if beyond 90 %."""
    step = max(1, length // 50)
    tried = range(step, round(0.9 * length) + step, step)
    return tried[bisect_left(tried, True, key=is_complete)] if is_complete(tried[-1]) else length


class RerankEndpoint(_EndpointModel):
    """One of mteb's cross-encoders: a server scores each query's texts, several requests at a time."""

    mteb_model_meta: ModelMeta

    def __init__(self, endpoint: Endpoint, **_: Any) -> None:
        super().__init__(endpoint)
        self._is_text_embeddings_inference = False
        # A wrong address, model or key is reported before any data is read.
        self.rerank(FIRST_QUERY, FIRST_TEXTS)

    def predict(self, inputs1: DataLoader[BatchedInput], inputs2: DataLoader[BatchedInput], **options: Any) -> Scores:
        """Return the score of each pair of a query and a text, shape (n,); errors as `rerank`."""
        pairs = list(zip(_read_texts(inputs1), _read_texts(inputs2), strict=True))
        requests = list(split_requests(pairs, options.get("batch_size", 32)))
        return np.concatenate([np.zeros(0), *_map_in_flight(lambda request: self.rerank(*request), requests)])

    def rerank(self, query: str, texts: Sequence[str]) -> Scores:
        """Return the score of each text from one request, shape (n,); raise PosirError if not all are finite numbers."""
        try:
            answer = self._post("/rerank", self._build_body(query, texts))
        except RequestError as refused:
            if self._is_text_embeddings_inference or refused.status not in OTHER_FIELDS:
                raise self._failed(refused) from None
            self._is_text_embeddings_inference = True
            try:
                answer = self._post("/rerank", self._build_body(query, texts))
            except RequestError:
                self._is_text_embeddings_inference = False
                raise self._failed(refused) from None
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

    def _build_body(self, query: str, texts: Sequence[str]) -> dict[str, Any]:
        if self._is_text_embeddings_inference:
            return {"query": query, "texts": list(texts), "truncate": True}
        model = {"model": self._endpoint.model.removesuffix(f":{RERANK}")} if self._endpoint.model != RERANK else {}
        return {**model, "query": query, "documents": list(texts), "top_n": len(texts)}


def split_requests(pairs: Sequence[tuple[str, str]], size: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the query and the texts of each request, in order: consecutive pairs of one query, at most `size`."""
    for query, group in groupby(pairs, key=lambda pair: pair[0]):
        texts = [text for _, text in group]
        for start in range(0, len(texts), size):
            yield query, texts[start : start + size]


def _read_texts(inputs: DataLoader[BatchedInput]) -> list[str]:
    return [text for batch in inputs for text in batch["text"]]


def _map_in_flight(send: Callable[[Item], NDArray[Any]], items: Sequence[Item], description: str | None = None) -> list[Any]:
    """Return the answers to requests, of which several are in flight; after an error no further one is sent."""
    with ThreadPoolExecutor(MAX_IN_FLIGHT) as pool:
        futures = [pool.submit(send, item) for item in items]
        try:
            return [future.result() for future in (progress(futures, description) if description else futures)]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
