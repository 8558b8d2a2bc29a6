"""mteb encoder and cross-encoder that send requests to an endpoint.

Rerankers may have the rerank API of Cohere, Jina, vLLM and llama.cpp, or the API of Text Embeddings
Inference, which uses other field names.
"""

from __future__ import annotations

import logging
import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from mteb.models.abs_encoder import AbsEncoder, get_prompt
from mteb.types import PromptType

from posir_tasks.base.arrays import Floats
from posir_tasks.base.batches import split_batches
from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import track_items
from posir_tasks.base.wording import sanitize
from posir_tasks.models.connection import RequestError, join_first, quote_message
from posir_tasks.models.endpoint_client import (
    FIRST_TEXTS,
    EmbeddingClient,
    Embeddings,
    EndpointModel,
    NoVectorError,
)
from posir_tasks.models.reading_probe import SHORT_WORDS
from posir_tasks.models.references import RERANK, Endpoint
from posir_tasks.models.text_cutting import cut_text, cut_texts, cut_to_estimate
from posir_tasks.text.tokenizer import find_tokenizer
from posir_tasks.text.words import estimate_tokens
from posir_tasks.values.read_part import UNKNOWN, ReadPart

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models import ModelMeta
    from mteb.types import Array, BatchedInput
    from torch.utils.data import DataLoader

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Response = TypeVar("Response")

#: Query to rerank for as a test before any data is read.
FIRST_QUERY = "position"
#: Maximum number of concurrent requests.
MAX_IN_FLIGHT = 8
#: Minimum length of texts to check for truncation.
MIN_CHECKED_TOKENS = 128
#: To detect truncation, a text is compared with this share of it, from its start.
CHECKED_SHARE = 0.9
#: Embeddings with at least this cosine count as equal, to allow for rounding in half precision.
MIN_EQUAL_COSINE = 1 - 1e-4
#: Minimum cosine between a text's vectors from a batch and from a separate request. Rounding in
#: half precision and padding change the vector less.
MIN_BATCH_COSINE = 0.999
#: Maximum share of skipped texts.
MAX_FAILED = 0.2
#: Maximum number of skipped texts to list in a result, and of characters per text.
MAX_LISTED_TEXTS = 10
MAX_SHOWN_CHARACTERS = 80
#: Words that are single tokens in every vocabulary, and their maximum token count, including
#: special tokens. A server that reports more does not count tokens.
COUNTED_TEXT = " ".join(SHORT_WORDS.split()[:64])
MAX_COUNTED_TOKENS = 96
#: Maximum number of attempts to cut a text by the server's token count, and maximum share of the
#: window that may remain unused.
MAX_CUTS = 6
MAX_UNUSED_SHARE = 0.02
#: Statuses that may mean a missing field.
MISSING_FIELD_STATUSES = (400, 422)


class EndpointEncoder(EmbeddingClient, AbsEncoder):
    """Encodes texts with concurrent requests to a server."""

    read_part: ReadPart | None = None
    """`UNKNOWN` if the server truncates texts that are already cut to the window; else None."""

    def __init__(
        self, endpoint: Endpoint, model_prompts: dict[str, str] | None = None, **_: Any
    ) -> None:
        super().__init__(endpoint)
        self.reference = str(endpoint)
        self.model_prompts = model_prompts or {}
        self.advice += " --skip-failed skips texts that cannot be embedded."
        self._longest_checked = 0
        self._checked_batch = 1
        self._batch_cosine: float | None = None
        # Current task and subset; the reason for each skipped text and the number of texts, both
        # for queries and documents.
        self._subset = ("", "")
        self._failure_reasons: dict[str, dict[str, str]] = {}
        self._text_counts: Counter[str] = Counter()

    @property
    def skips_cache(self) -> bool:
        """True if embeddings must not be cached, since skipped texts have none."""
        return self.skips_failed

    @property
    def search_record(self) -> dict[str, Any] | None:
        """Record for a result: the source of token counts, the skipped texts, and the effect of
        batching on vectors. None if there is nothing to record.
        """
        record: dict[str, Any] = {}
        if self.max_length is not None:
            record["window_counted_by"] = self._token_count_source
        if self._batch_cosine is not None:
            record["cosine_within_batch"] = round(self._batch_cosine, 4)
        if self._failure_reasons:
            record["left_out"] = {
                side: {
                    "texts": len(reasons),
                    "named": [
                        {"begins": text[:MAX_SHOWN_CHARACTERS], "reason": reason}
                        for text, reason in list(reasons.items())[:MAX_LISTED_TEXTS]
                    ],
                }
                for side, reasons in self._failure_reasons.items()
            }
        return record or None

    @cached_property
    def _token_count_source(self) -> str:
        """Source of token counts: `tokenizer`, `server` or `estimate`."""
        if self.tokenizer is not None:
            return "tokenizer"
        with suppress(RequestError, PosirError):
            _, count = self.count_tokens(COUNTED_TEXT)
            if count and len(COUNTED_TEXT.split()) <= count <= MAX_COUNTED_TOKENS:
                return "server"
        logger.warning(
            "%s: there is no tokenizer, and the server does not count tokens. The window is "
            "estimated at four bytes per token. Use --tokenizer NAME (POSIR_TOKENIZER).",
            self.reference,
        )
        return "estimate"

    def encode(
        self,
        inputs: DataLoader[BatchedInput],
        *,
        task_metadata: TaskMetadata,
        prompt_type: PromptType | None = None,
        **kwargs: Any,
    ) -> Embeddings:
        """Return the embeddings of the texts, shape (n, dimensions). Skipped texts have zero
        vectors. Raises the same errors as `embed`.
        """
        prompt = get_prompt(self.model_prompts, task_metadata, prompt_type) or ""
        texts = [prompt + text for text in _read_texts(inputs)]
        query = prompt_type is PromptType.query
        side = _name_side(query=query)
        subset = (task_metadata.name, str(kwargs.get("hf_subset")))
        if subset != self._subset:
            self._subset = subset
            self._failure_reasons = {}
            self._text_counts.clear()
        self._text_counts[side] += len(texts)
        description = self.reference if kwargs.get("show_progress_bar", True) else None
        size = kwargs.get("batch_size", 32)
        window = self.max_length
        if window is not None and self._token_count_source == "server":
            embeddings = self._cut_and_embed_all(texts, window, size, description, query=query)
        else:
            if window is not None:
                tokenizer = find_tokenizer(self)
                special = tokenizer.special_tokens if tokenizer else 0
                texts = cut_texts(texts, window - special, tokenizer)
            embeddings = self._embed_batches(texts, size, description, query=query)
        reasons = self._failure_reasons.get(side, {})
        if reasons:
            text, reason = next(iter(reasons.items()))
            logger.warning(
                f"{self.reference}: the server cannot embed {len(reasons):,} of "
                f"{self._text_counts[side]:,} {side}. They are skipped and cannot be retrieved. "
                f"The first begins {sanitize(text[:MAX_SHOWN_CHARACTERS])!r}: {reason}"
            )
        self._warn_if_truncated(
            max((text for text in texts if text not in reasons), key=len, default="")
        )
        return embeddings

    def _embed_batches(
        self, texts: Sequence[str], size: int, description: str | None, *, query: bool
    ) -> Embeddings:
        batches = split_batches(texts, size)
        embed = partial(self.embed, query=query)
        first = list[Embeddings]()
        if len(batches[0]) > self._checked_batch:
            self._checked_batch = len(batches[0])
            first = [embed(batches[0])]
            if not self._sends_alone and not self._is_probing:
                self._compare_with_separate_requests(batches[0], first[0], query=query)
                if self._sends_alone:
                    first = [embed(batches[0])]
        return np.concatenate(first + send_in_flight(embed, batches[len(first) :], description))

    def _compare_with_separate_requests(
        self, batch: Sequence[str], batch_vectors: Embeddings, *, query: bool
    ) -> None:
        """Compare the vectors of a batch's shortest and longest texts with their vectors from
        separate requests. Padding affects the shortest text most.
        """
        rows = np.flatnonzero(batch_vectors.any(axis=1)).tolist()
        rows.sort(key=lambda row: len(batch[row]))
        for row in dict.fromkeys([*rows[:1], *rows[-1:]]):
            (separate_vector,) = self.embed([batch[row]], query=query)
            cosine = _compute_cosine(separate_vector, batch_vectors[row])
            if cosine >= MIN_BATCH_COSINE:
                continue
            self._batch_cosine = cosine
            (repeated_vector,) = self.embed([batch[row]], query=query)
            self._sends_alone = (
                _compute_cosine(separate_vector, repeated_vector) >= MIN_BATCH_COSINE
            )
            problem = (
                f"the same text has a different vector in each response (cosine {cosine:.3f}), so "
                "scores differ from run to run. Check the server and its model."
            )
            if self._sends_alone:
                problem = (
                    "the vector of a text depends on the other texts of its batch (cosine with its "
                    f"vector from a separate request: {cosine:.3f}, minimum {MIN_BATCH_COSINE}). "
                    "Texts are sent one at a time, which is slower. Check how the server pads and "
                    "pools batches."
                )
            logger.warning("%s: %s", self.reference, problem)
            return

    def _cut_and_embed_all(
        self, texts: list[str], window: int, size: int, description: str | None, *, query: bool
    ) -> Embeddings:
        """Cut texts in place to a window by the server's token count, and embed them.

        Long texts are sent one at a time, since the server reports one count per request.
        """
        is_long = np.array([2 * estimate_tokens(text) > window for text in texts])
        embeddings = np.zeros((len(texts), self._dimensions or 0), np.float32)
        short = [text for text, long in zip(texts, is_long, strict=True) if not long]
        if short:
            embeddings[~is_long] = self._embed_batches(short, size, description, query=query)
        rows = np.flatnonzero(is_long).tolist()
        embed = partial(self._cut_and_embed, window=window, query=query)
        responses = send_in_flight(embed, [texts[row] for row in rows], description)
        for row, (beginning, vectors) in zip(rows, responses, strict=True):
            texts[row] = beginning
            embeddings[row] = vectors[0]
        return embeddings

    def _cut_and_embed(self, text: str, *, window: int, query: bool) -> tuple[str, Embeddings]:
        """Cut a text to at most `window` tokens by the server's count. Return the shortened text
        and its embedding, shape (1, dimensions).
        """
        longest: tuple[str, Embeddings] | None = None
        failure: PosirError | None = None
        size = len(cut_to_estimate(text, window))
        low = 0
        high = len(text) + 1
        for _ in range(MAX_CUTS):
            head = cut_text(text, size)
            count = 2 * window
            try:
                vectors, server_count = self.count_tokens(head, query=query)
                count = server_count or estimate_tokens(head)
            except RequestError as error:
                failure = self._make_request_error(error)
                if not error.is_text_error:
                    raise failure from None
            except NoVectorError as error:
                failure = error
            if count > window:
                high = size
            else:
                longest = (head, vectors)
                low = size
                if size == len(text) or count >= window * (1 - MAX_UNUSED_SHARE):
                    break
            if high - low <= 1:
                break
            size = min(max(size * window // count, low + 1), high - 1)
        if longest:
            return longest
        if failure is None:
            raise PosirError(
                f"{self.reference}: window {window}: the server counts more than {window:,} tokens "
                "for every text. Give a larger window."
            )
        return text, self._handle_failure([text], failure, query=query)

    def _handle_failure(
        self, chunks: Sequence[str], failure: PosirError, *, query: bool
    ) -> Embeddings:
        """Return zero vectors for a skipped text. Raise the failure if texts must not be skipped,
        or PosirError if too many are.
        """
        if not self.skips_failed:
            return super()._handle_failure(chunks, failure, query=query)
        side = _name_side(query=query)
        reasons = self._failure_reasons.setdefault(side, {})
        reasons[" ".join(chunks)] = quote_message(failure.reason or str(failure))
        total = self._text_counts[side]
        if len(reasons) > MAX_FAILED * total:
            raise PosirError(
                f"{failure} In all, {len(reasons):,} of {total:,} {side} would be skipped; the "
                f"maximum is {MAX_FAILED:.0%}."
            )
        return np.zeros((len(chunks), self._dimensions or 0), np.float32)

    def similarity(self, embeddings1: Array, embeddings2: Array) -> Array:
        """Return cosines, shape (queries, documents); minus infinity for skipped texts."""
        scores = torch.as_tensor(super().similarity(embeddings1, embeddings2))
        if self.skips_failed:
            scores[~torch.as_tensor(embeddings1).any(dim=-1)] = -math.inf
            scores[..., ~torch.as_tensor(embeddings2).any(dim=-1)] = -math.inf
        return scores

    def embed_documents(self, documents: Sequence[Sequence[str]]) -> Embeddings:
        """Embed the chunks of documents in context, shape (all chunks, dimensions)."""
        if self.max_length is not None:
            raise PosirError(
                f"window {self.max_length}: contextual chunk embeddings need whole documents. "
                "Run without a window."
            )
        return np.concatenate(send_in_flight(self.embed_chunks, documents))

    def _warn_if_truncated(self, text: str) -> None:
        tokens = estimate_tokens(text)
        if self.is_measuring or len(text) <= self._longest_checked or tokens < MIN_CHECKED_TOKENS:
            return
        self._longest_checked = len(text)
        complete, beginning = self.embed([text, text[: round(CHECKED_SHARE * len(text))]])
        if _compute_cosine(complete, beginning) < MIN_EQUAL_COSINE:
            return
        if self.max_length is not None:
            self.read_part = UNKNOWN
        logger.warning(
            f"{self.reference}: the server ignores the end of a text of {len(text):,} characters "
            f"(about {tokens:,} tokens) and does not report it. Scores of longer texts show "
            "truncation as well as position bias. Measure its window: "
            f"posir window {shlex.quote(self.reference)}"
        )


class RerankEndpoint(EndpointModel):
    """mteb cross-encoder that scores query-text pairs with concurrent requests to a server."""

    mteb_model_meta: ModelMeta

    def __init__(self, endpoint: Endpoint, **_: Any) -> None:
        super().__init__(endpoint)
        # Text Embeddings Inference names the field `texts`.
        self._fields = ["documents", "texts"]
        # Report an invalid address, model or key before any data is read.
        self.rerank(FIRST_QUERY, FIRST_TEXTS)

    def predict(
        self, inputs1: DataLoader[BatchedInput], inputs2: DataLoader[BatchedInput], **options: Any
    ) -> Floats:
        """Return the scores of query-text pairs, shape (n,). Raises the same errors as `rerank`."""
        pairs = list(zip(_read_texts(inputs1), _read_texts(inputs2), strict=True))
        requests = list(split_requests(pairs, options.get("batch_size", 32)))
        return np.concatenate([np.zeros(0), *send_in_flight(self._cut_and_rerank, requests)])

    def _cut_and_rerank(self, request: tuple[str, Sequence[str]]) -> Floats:
        query, texts = request
        if self.max_length is None:
            return self.rerank(query, texts)
        tokenizer = find_tokenizer(self)
        query_tokens = estimate_tokens(query)
        if tokenizer:
            special = self.tokenizer.num_special_tokens_to_add(pair=True)
            query_tokens = special + tokenizer.count(query)
        return self.rerank(query, cut_texts(texts, self.max_length - query_tokens, tokenizer))

    def rerank(self, query: str, texts: Sequence[str]) -> Floats:
        """Score texts for a query with one request, shape (n,).

        Raises:
            PosirError: The server fails, or the scores are incomplete or not finite.
        """
        response = self._request(query, texts)
        try:
            rows = list(response["results"] if isinstance(response, Mapping) else response)
            scores = {row["index"]: row.get("relevance_score", row.get("score")) for row in rows}
        except (TypeError, ValueError, KeyError, AttributeError):
            raise self._make_response_error("does not have the format of a rerank API") from None
        if len(rows) != len(texts) or scores.keys() != set(range(len(texts))):
            raise self._make_response_error(
                f"to {len(texts):,} texts has {len(rows):,} scores, with the indices "
                f"{join_first(list(scores))}"
            )
        values = [scores[index] for index in range(len(texts))]
        if not all(type(value) in (int, float) and math.isfinite(value) for value in values):
            raise self._make_response_error("has a score that is not a finite number")
        return np.array(values, np.float64)

    def _request(self, query: str, texts: Sequence[str]) -> Any:
        """Send a request. Before the first success, try each field name for the texts."""
        failures = list[RequestError]()
        for name in self._fields:
            body: dict[str, Any] = {"query": query, name: list(texts)}
            if name == "texts":
                body["truncate"] = True
            else:
                body["top_n"] = len(texts)
                model = self._endpoint.model.removesuffix(f":{RERANK}")
                if model != RERANK:
                    body["model"] = model
            try:
                response = self._send(f"{self._endpoint.address}/rerank", body)
            except RequestError as error:
                failures.append(error)
                if error.status not in MISSING_FIELD_STATUSES:
                    break
            else:
                self._fields = [name]
                return response
        raise self._make_request_error(failures[0]) from None


def split_requests(
    pairs: Sequence[tuple[str, str]], size: int
) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield a query and its texts for up to `size` consecutive pairs with the same query."""
    for query, group in groupby(pairs, key=lambda pair: pair[0]):
        for texts in split_batches([text for _, text in group], size):
            yield query, texts


def _name_side(*, query: bool) -> str:
    return "queries" if query else "documents"


def _read_texts(inputs: DataLoader[BatchedInput]) -> list[str]:
    return [text for batch in inputs for text in batch["text"]]


def _compute_cosine(first: Embeddings, second: Embeddings) -> float:
    """Return the cosine of two vectors, or 1 if one is zero."""
    norms = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / norms if norms else 1.0


def send_in_flight(
    send: Callable[[Item], Response], items: Sequence[Item], description: str | None = None
) -> list[Response]:
    """Send requests concurrently and return the responses. Stop sending after an error."""
    with ThreadPoolExecutor(MAX_IN_FLIGHT) as pool:
        futures = [pool.submit(send, item) for item in items]
        pending_futures = track_items(futures, description) if description else futures
        try:
            return [future.result() for future in pending_futures]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
