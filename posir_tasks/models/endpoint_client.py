"""Embeddings from a server: the kinds of servers, how each is asked, and checks of their answers.

What the kinds have in common is code, what tells them apart is the table `KINDS`. Neither mteb nor
PyTorch is imported.
"""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posir_tasks.base.batches import split_batches
from posir_tasks.base.errors import NoAnswerError, PosirError
from posir_tasks.base.settings_file import read_overrides
from posir_tasks.base.untrusted import GateError, parse_json
from posir_tasks.base.wording import pluralize, sanitize
from posir_tasks.models.connection import Connection, RequestError, quote_message, shorten
from posir_tasks.models.endpoint_kinds import FORMAT, KINDS, TRIED, EndpointKind, Fields
from posir_tasks.models.references import Endpoint, RequestFields
from posir_tasks.text.tokenizer import ModelTokenizer
from posir_tasks.text.words import estimate_tokens

Embeddings: TypeAlias = NDArray[np.float32]
#: Documents, each as its chunks.
Documents: TypeAlias = Sequence[Sequence[str]]

ADVICE = (
    "If texts are too long for the model, cut them with --window N, or let the server truncate them"
)
#: Texts that the server must embed before any data is read.
FIRST_TEXTS = ("position", "A bell was cast in copper.")
#: Seconds in which the first answer must begin where it is checked what a server reads; a server
#: may load its model first.
FIRST_SECONDS = 60.0
#: Words of the texts whose tokens a server is asked to count: a little more than usual windows, so
#: that one request shows them.
COUNTED_WORDS = (512 + 64, 2048 + 64, 8192 + 64)
#: No text is sent to be counted that is expected to take longer, in seconds.
MAX_COUNT_SECONDS = 30.0
#: Retries of texts after the status 500, of which one text may be the cause.
TEXT_RETRIES = 1
#: Characters that are shown of a text that has no embedding.
SHOWN_TEXT = 60
#: Fewest texts that cannot all have one vector. Fewer may differ in nothing that the model reads,
#: such as their case.
MIN_DISTINCT = 8
#: Characters in which these differ: beyond a model's window texts do not change its vector.
BEGINNING = 300
#: Statuses of a route that a server does not have.
NO_ROUTE = (404, 405)
#: The largest entry of a float32 vector is below this and above its inverse; of int8, read as
#: float32, it is not.
MAX_ENTRY = 1e6
#: A number in the message of a server that refuses a request: the limit, what it was sent, or
#: anything else.
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?![\w]|\.\d)")
#: How a server refuses a number of texts, and not the length of one (llama.cpp's "physical batch
#: size" is of tokens).
MANY_TEXTS = re.compile(
    r"(?<!physical )(?<!current )batch|too many (texts|inputs|documents)", re.IGNORECASE
)


def find_request_fields() -> RequestFields:
    """Read the fields of the run for requests to an endpoint; raise PosirError if one is not
    `KEY=VALUE`.
    """
    fields = []
    for kind in ("query", "passage"):
        lines = os.environ.get(f"POSIR_{kind.upper()}_FIELD", "").splitlines()
        fields.append(read_overrides([line for line in lines if line.strip()], f"--{kind}-field"))
    return RequestFields(*fields)


class EndpointModel:
    """Requests to the server of an endpoint; may be used by several threads."""

    advice = f"{ADVICE}."
    """The remedy for a request that is refused."""
    max_length: int | None = None
    """Tokens of an input, special ones included, that are sent; None for all."""
    tokenizer: Any = None
    """Counts them; None if they are estimated, or counted by the server."""

    def __init__(self, endpoint: Endpoint, retries: int | None = None) -> None:
        self._endpoint = endpoint
        self._connection = Connection(endpoint.address)
        if retries is not None:
            self._connection.retries = min(retries, self._connection.retries)

    def use_tokenizer(self, name: str) -> None:
        """Count tokens of texts that are cut with a tokenizer; raise PosirError if it cannot be
        loaded.
        """
        self.tokenizer = ModelTokenizer.load(name).tokenizer
        # Texts are cut at their end, whatever the tokenizer would do.
        self.tokenizer.truncation_side = "right"

    def _ask(
        self, address: str, body: Mapping[str, Any] | None = None, *, retries: int | None = None
    ) -> Any:
        """Return a server's answer, in JSON."""
        text = self._connection.send(address, body, retries=retries)
        try:
            return parse_json(text, self._endpoint)
        except GateError as error:
            kind = NotFiniteError if error.is_not_finite else PosirError
            raise self._invalid(f"cannot be read: {error.problem}", kind) from None

    def _failed(self, error: RequestError, details: str = "") -> PosirError:
        kind = NoAnswerError if error.is_timeout else PosirError
        explained = self._connection.explain(error, advice=self.advice)
        failure = kind(f"{self._endpoint}: {explained}{details}")
        if error.is_of_text:
            failure.reason = quote_message(error.reason)
        return failure

    def _invalid(self, reason: str, kind: type[PosirError] = PosirError) -> PosirError:
        return kind(
            f"{self._endpoint}: the server's answer {reason}. Check the server and its model."
        )


class NoVectorError(PosirError):
    """An answer has no vector for some of the texts, and may have one for each of the others."""


class NotFiniteError(NoVectorError):
    """A vector has NaN or infinity."""


class EmbeddingClient(EndpointModel):
    """Requests embeddings from a server, and detects of which kind it is."""

    skips_failed = False
    """Whether texts that the server cannot embed are left out."""

    def __init__(
        self, endpoint: Endpoint, fields: RequestFields | None = None, retries: int | None = None
    ) -> None:
        """Connect; raise PosirError if two short texts have no embeddings: no data was read before
        that.

        With a number of `retries`, the first answer must begin within `FIRST_SECONDS`.
        """
        super().__init__(endpoint, retries)
        self.fields = fields or RequestFields()
        self.is_measured = False
        """Whether the texts that are cut are being measured, so that no warning is needed."""
        self._format: Fields = {}
        self._dimensions: int | None = None
        self._max_documents: int | None = None
        self._sends_alone = False
        self._is_probing = False
        documents = [[text] for text in FIRST_TEXTS]
        with self._answer_soon() if retries is not None else nullcontext():
            self.kind, answer = self._find_kind(documents)
            if answer is None:
                first, second = self._embed(self.kind, documents)
            else:
                first, second = self._read(self.kind, documents, answer)
        if np.array_equal(first, second):
            raise self._invalid(
                f"has the same vector for {FIRST_TEXTS[0]!r} and {FIRST_TEXTS[1]!r}: "
                f"{shorten(first)}"
            )
        self._dimensions = len(first)
        if self.kind.truncation:
            self.advice = f"{ADVICE} ({self.kind.truncation})."

    def _find_kind(self, documents: Documents) -> tuple[EndpointKind, Any]:
        """Find the kind that reference or host name, or else the first that the server has a route
        of; return it with its answer, None if the server takes fewer documents at a time.
        """
        endpoint = self._endpoint
        kinds = [kind for kind in KINDS.values() if kind.serves(endpoint.host)]
        if endpoint.kind:
            kinds = [KINDS[endpoint.kind]]
        failures = list[RequestError]()
        tried = list[str]()
        for kind in kinds or [KINDS[name] for name in TRIED]:
            nested = kind.in_context
            if nested and nested.nests:
                # Models that read chunks in context have only this route, and others do not have
                # it.
                if "context" in endpoint.model:
                    kind = replace(nested, in_context=nested)
                else:
                    kind = replace(kind, in_context=None)
            try:
                return kind, self._request(kind, documents)
            except RequestError as error:
                if _refuses_number(error):
                    self._max_documents = 1
                    return kind, None
                failures.append(error)
                tried.append(f"{kind.name} ({kind.address(endpoint)})")
                if error.status not in NO_ROUTE:
                    break
        has_route = failures[-1].status not in NO_ROUTE
        advice = f" Tried: {', '.join(tried)}."
        if len(tried) > 1:
            advice += f" Say which it is, as in {endpoint.model}@tei+{endpoint.address}."
        raise self._failed(failures[-1 if has_route else 0], advice) from None

    def _request(
        self,
        kind: EndpointKind,
        documents: Documents,
        *,
        query: bool = False,
        retries: int | None = None,
    ) -> Any:
        """Return the answer to a request; a server that refuses the format of the vectors is asked
        without it.
        """
        user_fields = self.fields.query if query else self.fields.passage
        fields = {
            **kind.fields,
            **(kind.query_fields if query else kind.passage_fields),
            **self._format,
            **user_fields,
        }
        body = {name: value for name, value in fields.items() if value is not None}
        body[kind.texts] = list(map(list, documents)) if kind.nests else [*chain(*documents)]
        if kind.names_model:
            body["model"] = self._endpoint.model
        try:
            return self._ask(kind.address(self._endpoint), body, retries=retries)
        except RequestError as error:
            is_refused = error.refused and FORMAT in error.reason and FORMAT in body
            if not is_refused or FORMAT in user_fields:
                raise
            self._format = {FORMAT: None}
            return self._request(kind, documents, query=query, retries=retries)

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Embeddings:
        """Return the embeddings of texts, shape (n, dimensions), from one request if the server
        answers it.

        A batch that the server refuses or fails for is halved, down to the text that it cannot
        embed.

        Raises:
            PosirError: The server cannot be reached, or cannot embed a text, which is named. Or its
                answer is not one finite vector per text, each of the same dimensions as before; or
                the vectors are all zero, or the same for different texts.
        """
        return self._embed(self.kind, [[text] for text in texts], query=query)

    def embed_chunks(self, chunks: Sequence[str]) -> Embeddings:
        """Return the embeddings of the chunks of one document, each in its context, from one
        request; errors as `embed`.
        """
        assert self.kind.in_context
        return self._embed(self.kind.in_context, [chunks])

    def _embed(
        self, kind: EndpointKind, documents: Documents, *, query: bool = False
    ) -> Embeddings:
        number = len(documents)
        size = 1 if self._sends_alone else min(self._max_documents or number, number)
        failure: PosirError
        if size == number:
            try:
                answer = self._request_texts(kind, documents, query=query)
                return self._read(kind, documents, answer)
            except RequestError as error:
                failure = self._failed(error)
                if number > 1 and _refuses_number(error):
                    numbers = _find_numbers(error.reason, below=number)
                    size = self._max_documents = max(numbers, default=number // 2)
                elif not error.is_of_text or (number > 1 and self._is_probing):
                    raise failure from None
                else:
                    size = number // 2
            except NoVectorError as error:
                failure = error
                may_skip = self.skips_failed or isinstance(error, NotFiniteError)
                if number > 1 and (self._is_probing or not may_skip):
                    raise
                size = number // 2
        if not size:
            # A limit of texts was perhaps one of their length.
            self._max_documents = None
            return self._leave_out(documents[0], failure, query=query)
        parts = split_batches(documents, size)
        return np.concatenate([self._embed(kind, part, query=query) for part in parts])

    def _request_texts(self, kind: EndpointKind, documents: Documents, *, query: bool) -> Any:
        """Return the answer to a request. A server that fails for every text is waited for; a
        server that fails for one text is not.

        Raises:
            RequestError: The server does not answer the request. If its status is 500, it answers
                others.
            PosirError: The server fails for a text that it has answered before.
        """
        if self._is_probing or self._dimensions is None:
            return self._request(kind, documents, query=query)
        try:
            return self._request(kind, documents, query=query, retries=TEXT_RETRIES)
        except RequestError as error:
            if error.refused or error.status != 500 or len(documents) > 1:
                raise
        try:
            self._request(kind, [[FIRST_TEXTS[0]]], query=query)
        except RequestError as error:
            raise self._failed(error) from None
        return self._request(kind, documents, query=query, retries=TEXT_RETRIES)

    def _leave_out(self, chunks: Sequence[str], failure: PosirError, *, query: bool) -> Embeddings:  # noqa: ARG002
        """Return substitutes for the vectors of a document that has none, shape (chunks,
        dimensions), or raise the failure with the document's length and beginning.
        """
        text = " ".join(chunks)
        named = PosirError(
            f"{failure} The text has {len(text):,} characters (about {estimate_tokens(text):,} "
            f"tokens) and begins {sanitize(text[:SHOWN_TEXT])!r}."
        )
        named.reason = failure.reason
        raise named

    def _read(self, kind: EndpointKind, documents: Documents, answer: Any) -> Embeddings:
        texts = [*chain(*documents)]
        try:
            rows = answer
            for key in filter(None, kind.vectors.split(".")):
                rows = rows[key]
            rows = self._order(rows, len(documents) if kind.nests else len(texts))
            if kind.nests:
                chunks = zip(rows, documents, strict=True)
                rows = [*chain(*(self._order(row["data"], len(part)) for row, part in chunks))]
            vectors = [row["embedding"] if isinstance(row, dict) else row for row in rows]
            if all(isinstance(vector, str) for vector in vectors):
                vectors = self._decode(vectors)
            lengths = set(map(len, vectors)) | {self._dimensions or len(vectors[0])}
        except (TypeError, ValueError, KeyError):
            raise self._invalid(
                f"is not one of an embeddings API of the kind {kind.name}"
            ) from None
        if len(lengths) != 1 or 0 in lengths:
            reason = f"has vectors of different dimensions: {shorten(sorted(lengths))}"
            raise self._invalid(reason, NoVectorError)
        for entry in chain(*(vector for vector in vectors if isinstance(vector, list))):
            if type(entry) not in (int, float):
                raise self._invalid(
                    f"has vectors with entries that are not numbers, such as {sanitize(entry)}"
                )
        embeddings = np.array(vectors, np.float32)
        self._check(embeddings, texts)
        return embeddings

    def _order(self, rows: Any, number: int) -> list[Any]:
        """Return the rows of an answer in the order of the texts, which is theirs if they state no
        index.
        """
        if not isinstance(rows, list):
            raise TypeError(rows)
        ordered: list[Any] = rows
        indices = list(range(len(rows)))
        if any(isinstance(row, dict) and row.get("index") is not None for row in rows):
            # Servers that work on texts in parallel may return them in any order.
            ordered = sorted(rows, key=lambda row: row["index"])
            indices = [row["index"] for row in ordered]
        if indices != list(range(number)):
            reason = (
                f"to {number:,} texts has {pluralize(len(indices), 'vector')}, with the indices "
                f"{shorten(indices)}"
            )
            raise self._invalid(reason, NoVectorError)
        return ordered

    def _decode(self, vectors: Sequence[str]) -> list[NDArray[Any]]:
        """Decode vectors in base64, whose entries are float32 or int8."""
        contents = [base64.b64decode(vector, validate=True) for vector in vectors]
        is_float = not any(len(content) % 4 for content in contents)
        if self._dimensions:
            is_float = len(contents[0]) == 4 * self._dimensions
        elif is_float:
            floats = [np.frombuffer(content, "<f4") for content in contents]
            largest = [np.abs(entries).max(initial=0.0) for entries in floats]
            is_float = all(1 / MAX_ENTRY < entry < MAX_ENTRY for entry in largest)
        return [np.frombuffer(content, "<f4" if is_float else np.int8) for content in contents]

    def _check(self, embeddings: Embeddings, texts: Sequence[str]) -> None:
        """Raise PosirError if the embeddings of texts are not finite, zero, or the same for all."""
        if not np.isfinite(embeddings).all():
            raise self._invalid("has NaN or infinity in a vector", NotFiniteError)
        # A text without content may have a vector of zeros, and so may a few others.
        with_content = [bool(text.strip()) for text in texts]
        if any(with_content) and not embeddings[with_content].any():
            raise self._invalid(
                f"has only zeros, in {pluralize(len(texts), 'vector')} of {embeddings.shape[1]:,} "
                "dimensions"
            )
        distinct = len({text[:BEGINNING].casefold() for text in texts})
        if distinct >= MIN_DISTINCT and (embeddings == embeddings[0]).all():
            raise self._invalid(
                f"has the same vector for {distinct:,} different texts: {shorten(embeddings[0])}"
            )

    def read_limit(self) -> tuple[int | None, bool]:
        """Return how many tokens of a text the server says that it reads, special ones included,
        and whether it refuses longer texts.

        None where it does not say how many.
        """
        kind = self.kind
        if not kind.limit_route:
            return None, False
        body = {"model": self._endpoint.model} if kind.names_model else None
        try:
            answer = self._ask(kind.address(self._endpoint, kind.limit_route), body)
        except (RequestError, PosirError):
            return None, False
        self._max_documents = self._max_documents or _find_count(answer, "max_client_batch_size")
        refuses = isinstance(answer, Mapping) and answer.get("auto_truncate") is False
        return _find_count(answer, kind.limit), refuses

    def count_tokens(self, text: str, *, query: bool = False) -> tuple[Embeddings, int | None]:
        """Return the embedding of a text, shape (1, dimensions), and the tokens that the server
        says that it read of it.

        None where it does not say, or says what is billed. Raise RequestError if it cannot embed
        the text.
        """
        answer = self._request(self.kind, [[text]], query=query, retries=TEXT_RETRIES)
        return self._read(self.kind, [[text]], answer), _find_count(answer, self.kind.tokens)

    def count_read(self, texts: Iterable[str]) -> tuple[int | None, bool, float]:
        """Find the limit that the server states about longer and longer texts of words, by its
        count of their tokens or in refusing one.

        Returns the limit, whether longer texts are refused, and seconds per word. No text is sent
        that is expected to take longer than `MAX_COUNT_SECONDS`. Raise NoAnswerError if the server
        does not answer a text within `FIRST_SECONDS`.
        """
        speed = 0.0
        for text in texts:
            words = len(text.split())
            if speed * words > MAX_COUNT_SECONDS:
                break
            start = time.perf_counter()
            with self._answer_soon():
                try:
                    answer = self._request(self.kind, [[text]])
                except RequestError as error:
                    if error.is_timeout:
                        details = f" It was asked for a text of {words:,} words, after short ones."
                        raise self._failed(error, details) from None
                    limit = max(_find_numbers(error.reason, below=words), default=None)
                    return limit, error.refused, speed
            speed = max(speed, (time.perf_counter() - start) / words)
            counted = _find_count(answer, self.kind.tokens)
            # A count of words that are all there is no limit.
            if counted and counted < words:
                return counted, False, speed
            # Neither is one of characters.
            if self.kind.tokens and (counted is None or counted > 2 * words):
                break
        return None, False, speed

    @contextmanager
    def _answer_soon(self) -> Iterator[None]:
        """Expect the beginning of an answer within `FIRST_SECONDS`."""
        usual = self._connection.seconds
        self._connection.seconds = min(FIRST_SECONDS, usual)
        try:
            yield
        finally:
            self._connection.seconds = usual

    @contextmanager
    def measure(self, retries: int | None = None) -> Iterator[None]:
        """Repeat a failed request at most `retries` times while the context is open, if given; wait
        for limits as usual.

        A server may fail for a text that is too long.
        """
        usual = self._connection.retries, self.is_measured, self._is_probing
        self.is_measured = True
        self._is_probing = retries is not None
        if retries is not None:
            self._connection.retries = retries
        try:
            yield
        finally:
            self._connection.retries, self.is_measured, self._is_probing = usual


def _find_count(answer: Any, keys: str) -> int | None:
    """Find a positive number in an answer by keys, each of which may be the end of the server's;
    None without one.
    """
    for key in keys.split("."):
        if not isinstance(answer, Mapping):
            return None
        values = (value for name, value in answer.items() if f".{name}".endswith(f".{key}"))
        answer = next(values, None)
    return answer if isinstance(answer, int) and answer > 0 else None


def _refuses_number(error: RequestError) -> bool:
    return error.refused and bool(MANY_TEXTS.search(error.reason))


def _find_numbers(message: str, *, below: int) -> list[int]:
    """Find the positive numbers below another in a server's message."""
    numbers = (int(number.replace(",", "")) for number in NUMBER.findall(message))
    return [number for number in numbers if 0 < number < below]
