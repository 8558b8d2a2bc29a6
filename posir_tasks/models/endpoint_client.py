"""Client for embedding servers that validates their responses.

`KINDS` defines the servers' formats. This module imports neither mteb nor PyTorch.
"""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posir_tasks.base.batches import split_batches
from posir_tasks.base.errors import NoResponseError, PosirError
from posir_tasks.base.overrides import override
from posir_tasks.base.records import Fields
from posir_tasks.base.settings_file import read_overrides
from posir_tasks.base.untrusted import InputError, parse_json
from posir_tasks.base.wording import pluralize, sanitize
from posir_tasks.models.connection import (
    Connection,
    RequestError,
    join_first,
    quote_message,
    submit,
)
from posir_tasks.models.endpoint_kinds import FORMAT, GENERIC_KINDS, KINDS, EndpointKind
from posir_tasks.models.references import Endpoint
from posir_tasks.text.tokenizer import ModelTokenizer
from posir_tasks.text.words import estimate_tokens

Embeddings: TypeAlias = NDArray[np.float32]
#: Documents, each as a sequence of chunks.
Documents: TypeAlias = Sequence[Sequence[str]]

ADVICE = (
    "If texts are too long for the model, cut them with --window N, or let the server truncate them"
)
#: Texts to embed as a test before any data is read.
FIRST_TEXTS = ("position", "A bell was cast in copper.")
#: Maximum seconds until a response starts while the window is measured. The server may need to load
#: its model first.
FIRST_SECONDS = 60.0
#: Lengths, in words, of the texts whose tokens the server counts: slightly longer than common
#: windows.
COUNTED_WORDS = (512 + 64, 2048 + 64, 8192 + 64)
#: Maximum expected seconds per text. Texts that would take longer are skipped.
MAX_COUNT_SECONDS = 30.0
#: Retries after status 500, since a single text may be the cause.
TEXT_RETRIES = 1
#: Number of characters to quote from a text that cannot be embedded.
MAX_QUOTED_CHARACTERS = 60
#: Minimum number of different texts for which identical vectors are an error. Fewer texts may
#: differ only in details that the model ignores, such as case.
MIN_DISTINCT = 8
#: Texts count as different if their first characters differ. Later ones may be truncated.
COMPARED_CHARACTERS = 300
#: Statuses for a missing route.
MISSING_ROUTE_STATUSES = (404, 405)
#: The largest entry of a float32 vector lies between 1 / MAX_ENTRY and MAX_ENTRY. int8 vectors that
#: are decoded as float32 fall outside this range.
MAX_ENTRY = 1e6
#: A number in an error message, such as a limit or the length of the input.
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?![\w]|\.\d)")
#: Error messages about the number of texts, not their length (llama.cpp's "physical batch size"
#: counts tokens).
TOO_MANY_TEXTS = re.compile(
    r"(?<!physical )(?<!current )batch|too many (texts|inputs|documents)", re.IGNORECASE
)


def read_request_fields(side: str) -> Fields:
    """Read the additional request fields for `query` or `passage` from the environment. Raise
    PosirError if one is not `KEY=VALUE`.
    """
    lines = os.environ.get(f"POSIR_{side.upper()}_FIELD", "").splitlines()
    return read_overrides([line for line in lines if line.strip()], f"--{side}-field")


class EndpointModel:
    """Thread-safe client for an endpoint."""

    advice = f"{ADVICE}."
    """Advice for a rejected request."""
    max_length: int | None = None
    """Maximum number of tokens per input, including special tokens; None for no limit."""
    tokenizer: Any = None
    """Tokenizer that counts input tokens. If None, the server counts them or they are estimated."""

    def __init__(self, endpoint: Endpoint, retries: int | None = None) -> None:
        self._endpoint = endpoint
        self._connection = Connection(endpoint.address)
        if retries is not None:
            self._connection.retries = min(retries, self._connection.retries)

    def use_tokenizer(self, name: str) -> None:
        """Count tokens with a tokenizer. Raise PosirError if it cannot be loaded."""
        self.tokenizer = ModelTokenizer.load(name).tokenizer
        # Texts are always truncated at the end.
        self.tokenizer.truncation_side = "right"

    def _send(self, address: str, body: Fields | None, *, retries: int | None = None) -> Any:
        request = self._connection.send_async(address, body, retries=retries)
        text = submit(request).result()
        try:
            return parse_json(text, self._endpoint)
        except InputError as error:
            kind = NotFiniteError if error.is_not_finite else PosirError
            raise self._make_response_error(f"cannot be read: {error.problem}", kind) from None

    def _make_request_error(self, error: RequestError, details: str = "") -> PosirError:
        kind = NoResponseError if error.is_timeout else PosirError
        reason = self._connection.explain(error, advice=self.advice)
        failure = kind(f"{self._endpoint}: {reason}{details}")
        if error.is_text_error:
            failure.reason = quote_message(error.reason)
        return failure

    def _make_response_error(self, reason: str, kind: type[PosirError] = PosirError) -> PosirError:
        return kind(
            f"{self._endpoint}: the server's response {reason}. Check the server and its model."
        )


class NoVectorError(PosirError):
    """A response contains no valid vector for at least one text."""


class NotFiniteError(NoVectorError):
    """A vector contains NaN or infinity."""


class EmbeddingClient(EndpointModel):
    """Client for embeddings, which detects the kind of the server."""

    skips_failed = False
    """If true, texts that the server cannot embed are skipped."""

    def __init__(self, endpoint: Endpoint, retries: int | None = None) -> None:
        """Detect the kind of the server, and embed two short texts as a test.

        If `retries` is given, the first response must start within `FIRST_SECONDS`.

        Raises:
            PosirError: The server does not embed the two texts.
        """
        super().__init__(endpoint, retries)
        self.query_fields = read_request_fields("query")
        self.passage_fields = read_request_fields("passage")
        self.is_measuring = False
        """If true, the window is being measured, so truncation needs no warning."""
        self._format: Fields = {}
        self._dimensions: int | None = None
        self._max_documents: int | None = None
        self._sends_alone = False
        self._is_probing = False
        documents = [[text] for text in FIRST_TEXTS]
        with self._limit_response_time() if retries is not None else nullcontext():
            self.kind, response = self._find_kind(documents)
            if response is None:
                first, second = self._embed(self.kind, documents)
            else:
                first, second = self._parse_response(self.kind, documents, response)
        if np.array_equal(first, second):
            raise self._make_response_error(
                f"has the same vector for {FIRST_TEXTS[0]!r} and {FIRST_TEXTS[1]!r}: "
                f"{join_first(first)}"
            )
        self._dimensions = len(first)
        if self.kind.truncation:
            self.advice = f"{ADVICE} ({self.kind.truncation})."

    @property
    def has_query_fields(self) -> bool:
        """True if query requests have additional fields, such as `input_type`."""
        return bool(self.kind.query_fields or self.query_fields)

    def _find_kind(self, documents: Documents) -> tuple[EndpointKind, Any]:
        """Return the server's kind and its first response, or None instead of the response if the
        server accepts only one document at a time.

        If neither the reference nor the host determines the kind, try each kind until the server
        has its route.
        """
        endpoint = self._endpoint
        kinds = [kind for kind in KINDS.values() if f".{endpoint.host}".endswith(kind.hosts)]
        if endpoint.kind:
            kinds = [KINDS[endpoint.kind]]
        failures = list[RequestError]()
        attempts = list[str]()
        for kind in kinds or [KINDS[name] for name in GENERIC_KINDS]:
            contextual = kind.in_context
            if contextual and contextual.nests:
                # Contextual models are only available at this route, other models only at the
                # default route.
                if "context" in endpoint.model:
                    kind = replace(contextual, in_context=contextual)
                else:
                    kind = replace(kind, in_context=None)
            try:
                return kind, self._request(kind, documents)
            except RequestError as error:
                if _is_count_error(error):
                    self._max_documents = 1
                    return kind, None
                failures.append(error)
                attempts.append(f"{kind.name} ({kind.build_address(endpoint)})")
                if error.status not in MISSING_ROUTE_STATUSES:
                    break
        has_route = failures[-1].status not in MISSING_ROUTE_STATUSES
        advice = f" Tried: {', '.join(attempts)}."
        if len(attempts) > 1:
            advice += f" Specify its kind, as in {endpoint.model}@tei+{endpoint.address}."
        raise self._make_request_error(failures[-1 if has_route else 0], advice) from None

    def _request(
        self,
        kind: EndpointKind,
        documents: Documents,
        *,
        query: bool = False,
        retries: int | None = None,
    ) -> Any:
        """Send a request. If the server rejects the vector format, send it again without one."""
        user_fields = self.query_fields if query else self.passage_fields
        side_fields = kind.query_fields if query else kind.passage_fields
        fields = {**kind.fields, **side_fields, **self._format, **user_fields}
        body = {name: value for name, value in fields.items() if value is not None}
        body[kind.texts] = list(map(list, documents)) if kind.nests else [*chain(*documents)]
        if kind.names_model:
            body["model"] = self._endpoint.model
        try:
            return self._send(kind.build_address(self._endpoint), body, retries=retries)
        except RequestError as error:
            rejects_format = error.is_rejected and FORMAT in error.reason and FORMAT in body
            if not rejects_format or FORMAT in user_fields:
                raise
            self._format = {FORMAT: None}
            return self._request(kind, documents, query=query, retries=retries)

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Embeddings:
        """Return the embeddings of texts, shape (n, dimensions).

        A batch that fails is halved until the failing text is isolated.

        Raises:
            PosirError: The server cannot be reached or cannot embed a text; the number or the
                dimensions of the vectors are wrong; or the vectors are not finite, all zero, or
                equal for different texts.
        """
        return self._embed(self.kind, [[text] for text in texts], query=query)

    def embed_chunks(self, chunks: Sequence[str]) -> Embeddings:
        """Embed a document's chunks in context, shape (chunks, dimensions), like `embed`."""
        assert self.kind.in_context
        return self._embed(self.kind.in_context, [chunks])

    def _embed(
        self, kind: EndpointKind, documents: Documents, *, query: bool = False
    ) -> Embeddings:
        total = len(documents)
        size = 1 if self._sends_alone else min(self._max_documents or total, total)
        failure: PosirError
        if size == total:
            try:
                response = self._request_texts(kind, documents, query=query)
                return self._parse_response(kind, documents, response)
            except RequestError as error:
                failure = self._make_request_error(error)
                if total > 1 and _is_count_error(error):
                    limits = _find_numbers(error.reason, below=total)
                    size = self._max_documents = max(limits, default=total // 2)
                elif not error.is_text_error or (total > 1 and self._is_probing):
                    raise failure from None
                else:
                    size = total // 2
            except NoVectorError as error:
                failure = error
                may_skip = self.skips_failed or isinstance(error, NotFiniteError)
                if total > 1 and (self._is_probing or not may_skip):
                    raise
                size = total // 2
        if not size:
            # The error about the number of texts may have been about their length.
            self._max_documents = None
            return self._handle_failure(documents[0], failure, query=query)
        batches = split_batches(documents, size)
        return np.concatenate([self._embed(kind, batch, query=query) for batch in batches])

    def _request_texts(self, kind: EndpointKind, documents: Documents, *, query: bool) -> Any:
        """Send a request with few retries. If a single text fails with status 500, check that the
        server still embeds another text.

        Raises:
            RequestError: The request failed.
            PosirError: The server no longer embeds the other text.
        """
        if self._is_probing or self._dimensions is None:
            return self._request(kind, documents, query=query)
        try:
            return self._request(kind, documents, query=query, retries=TEXT_RETRIES)
        except RequestError as error:
            if error.is_rejected or error.status != 500 or len(documents) > 1:
                raise
        try:
            self._request(kind, [[FIRST_TEXTS[0]]], query=query)
        except RequestError as error:
            raise self._make_request_error(error) from None
        return self._request(kind, documents, query=query, retries=TEXT_RETRIES)

    def _handle_failure(
        self,
        chunks: Sequence[str],
        failure: PosirError,
        *,
        query: bool,  # noqa: ARG002
    ) -> Embeddings:
        """Raise the failure with the document's length and first characters.

        Subclasses may return substitute vectors, shape (chunks, dimensions).
        """
        text = " ".join(chunks)
        error = PosirError(
            f"{failure} The text has {len(text):,} characters (about {estimate_tokens(text):,} "
            f"tokens) and begins {sanitize(text[:MAX_QUOTED_CHARACTERS])!r}."
        )
        error.reason = failure.reason
        raise error

    def _parse_response(
        self, kind: EndpointKind, documents: Documents, response: Any
    ) -> Embeddings:
        texts = [*chain(*documents)]
        try:
            rows = response
            for key in filter(None, kind.vectors.split(".")):
                rows = rows[key]
            rows = self._sort_rows(rows, len(documents) if kind.nests else len(texts))
            if kind.nests:
                chunks = zip(rows, documents, strict=True)
                rows = [
                    *chain(
                        *(self._sort_rows(row["data"], len(document)) for row, document in chunks)
                    )
                ]
            vectors = [row["embedding"] if isinstance(row, dict) else row for row in rows]
            if all(isinstance(vector, str) for vector in vectors):
                vectors = self._decode(vectors)
            lengths = set(map(len, vectors)) | {self._dimensions or len(vectors[0])}
        except (TypeError, ValueError, KeyError):
            raise self._make_response_error(
                f"does not have the format of an embeddings API of the kind {kind.name}"
            ) from None
        if len(lengths) != 1 or 0 in lengths:
            reason = f"has vectors of different dimensions: {join_first(sorted(lengths))}"
            raise self._make_response_error(reason, NoVectorError)
        for entry in chain(*(vector for vector in vectors if isinstance(vector, list))):
            if type(entry) not in (int, float):
                raise self._make_response_error(
                    f"has vectors with entries that are not numbers, such as {sanitize(entry)}"
                )
        embeddings = np.array(vectors, np.float32)
        self._check_embeddings(embeddings, texts)
        return embeddings

    def _sort_rows(self, rows: Any, total: int) -> list[Any]:
        """Sort the rows of a response by index. Raise NoVectorError unless there are `total`."""
        if not isinstance(rows, list):
            raise TypeError(rows)
        sorted_rows: list[Any] = rows
        indices = list(range(len(rows)))
        if any(isinstance(row, dict) and row.get("index") is not None for row in rows):
            # Servers that process texts in parallel may return rows in any order.
            sorted_rows = sorted(rows, key=lambda row: row["index"])
            indices = [row["index"] for row in sorted_rows]
        if indices != list(range(total)):
            reason = (
                f"to {total:,} texts has {pluralize(len(indices), 'vector')}, with the indices "
                f"{join_first(indices)}"
            )
            raise self._make_response_error(reason, NoVectorError)
        return sorted_rows

    def _decode(self, vectors: Sequence[str]) -> list[NDArray[Any]]:
        """Decode base64 vectors with float32 or int8 entries."""
        contents = [base64.b64decode(vector, validate=True) for vector in vectors]
        is_float = not any(len(content) % 4 for content in contents)
        if self._dimensions:
            is_float = len(contents[0]) == 4 * self._dimensions
        elif is_float:
            floats = [np.frombuffer(content, "<f4") for content in contents]
            largest = [np.abs(entries).max(initial=0.0) for entries in floats]
            is_float = all(1 / MAX_ENTRY < entry < MAX_ENTRY for entry in largest)
        return [np.frombuffer(content, "<f4" if is_float else np.int8) for content in contents]

    def _check_embeddings(self, embeddings: Embeddings, texts: Sequence[str]) -> None:
        if not np.isfinite(embeddings).all():
            raise self._make_response_error("has NaN or infinity in a vector", NotFiniteError)
        # Blank texts may have zero vectors. For other texts, only a batch of zeros is an error.
        with_content = [bool(text.strip()) for text in texts]
        if any(with_content) and not embeddings[with_content].any():
            raise self._make_response_error(
                f"has only zeros, in {pluralize(len(texts), 'vector')} of {embeddings.shape[1]:,} "
                "dimensions"
            )
        distinct = len({text[:COMPARED_CHARACTERS].casefold() for text in texts})
        if distinct >= MIN_DISTINCT and (embeddings == embeddings[0]).all():
            raise self._make_response_error(
                f"has the same vector for {distinct:,} different texts: {join_first(embeddings[0])}"
            )

    def read_limit(self) -> tuple[int | None, bool]:
        """Return the reported window in tokens, including special tokens, and whether the server
        rejects longer texts.

        The window is None if the server does not report it.
        """
        kind = self.kind
        if not kind.limit_route:
            return None, False
        body = {"model": self._endpoint.model} if kind.names_model else None
        try:
            response = self._send(kind.build_address(self._endpoint, kind.limit_route), body)
        except (RequestError, PosirError):
            return None, False
        self._max_documents = self._max_documents or _find_count(response, "max_client_batch_size")
        rejects_long_texts = (
            isinstance(response, Mapping) and response.get("auto_truncate") is False
        )
        return _find_count(response, kind.limit), rejects_long_texts

    def count_tokens(self, text: str, *, query: bool = False) -> tuple[Embeddings, int | None]:
        """Return the embedding of a text, shape (1, dimensions), and the server's token count.

        The count is None if the server reports none or only billed tokens.

        Raises:
            RequestError: The server cannot embed the text.
        """
        response = self._request(self.kind, [[text]], query=query, retries=TEXT_RETRIES)
        return self._parse_response(self.kind, [[text]], response), _find_count(
            response, self.kind.tokens
        )

    def detect_window(self, texts: Iterable[str]) -> tuple[int | None, bool, float]:
        """Send increasingly long texts until the server counts fewer tokens than words or rejects
        a text.

        Stop before a text that would take more than `MAX_COUNT_SECONDS`.

        Returns:
            The window in tokens or None, whether the server rejects longer texts, and the seconds
            per word.

        Raises:
            NoResponseError: The server does not respond within `FIRST_SECONDS`.
        """
        seconds_per_word = 0.0
        for text in texts:
            word_count = len(text.split())
            if seconds_per_word * word_count > MAX_COUNT_SECONDS:
                break
            start = time.perf_counter()
            with self._limit_response_time():
                try:
                    response = self._request(self.kind, [[text]])
                except RequestError as error:
                    if error.is_timeout:
                        details = (
                            f" The text had {word_count:,} words. Shorter texts were embedded."
                        )
                        raise self._make_request_error(error, details) from None
                    limit = max(_find_numbers(error.reason, below=word_count), default=None)
                    return limit, error.is_rejected, seconds_per_word
            seconds_per_word = max(seconds_per_word, (time.perf_counter() - start) / word_count)
            count = _find_count(response, self.kind.tokens)
            # A word has at least one token, so a lower count is the window.
            if count and count < word_count:
                return count, False, seconds_per_word
            # The server counts characters rather than tokens, or nothing.
            if self.kind.tokens and (count is None or count > 2 * word_count):
                break
        return None, False, seconds_per_word

    def _limit_response_time(self) -> AbstractContextManager[None]:
        seconds = min(FIRST_SECONDS, self._connection.seconds)
        return override(self._connection, seconds=seconds)

    @contextmanager
    def open_measurement(self, retries: int | None = None) -> Iterator[None]:
        """Limit retries while the window is measured, since a server may fail for overlong texts.
        Retries after status 429 are not limited.
        """
        is_probing = retries is not None
        if retries is None:
            retries = self._connection.retries
        with (
            override(self._connection, retries=retries),
            override(self, is_measuring=True, _is_probing=is_probing),
        ):
            yield


def _find_count(response: Any, keys: str) -> int | None:
    """Look up a positive integer by its dotted keys in a response, or return None.

    `context_length` also matches prefixed keys such as `bert.context_length`.
    """
    for key in keys.split("."):
        if not isinstance(response, Mapping):
            return None
        values = (value for name, value in response.items() if f".{name}".endswith(f".{key}"))
        response = next(values, None)
    return response if isinstance(response, int) and response > 0 else None


def _is_count_error(error: RequestError) -> bool:
    return error.is_rejected and bool(TOO_MANY_TEXTS.search(error.reason))


def _find_numbers(message: str, *, below: int) -> list[int]:
    numbers = (int(number.replace(",", "")) for number in NUMBER.findall(message))
    return [number for number in numbers if 0 < number < below]
