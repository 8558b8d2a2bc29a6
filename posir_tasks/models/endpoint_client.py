"""Embeddings from a server: the kinds of servers, how each is asked, and checks of their answers.

What the kinds have in common is code, what tells them apart is the table `KINDS`. Neither mteb nor
PyTorch is imported.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from operator import getitem
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from posir_tasks.base.batches import split_batches
from posir_tasks.base.errors import NoAnswerError, PosirError
from posir_tasks.base.untrusted import GateError, parse_json
from posir_tasks.base.wording import pluralize, sanitized
from posir_tasks.models import connection
from posir_tasks.models.connection import Connection, RequestError, shorten
from posir_tasks.models.endpoint_kinds import FORMAT, KINDS, TRIED, EndpointKind, Fields
from posir_tasks.models.references import Endpoint, RequestFields
from posir_tasks.text.words import estimate_tokens

Embeddings: TypeAlias = NDArray[np.float32]
Item = TypeVar("Item")
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


@dataclass(frozen=True)
class CountedTokens:
    """The count of a server, and the time that it took."""

    limit: int | None = None
    """Tokens that it says it reads of a text, or states in refusing one; None if it does not
    say.
    """
    refuses: bool = False
    """Whether it refuses longer texts."""
    seconds_per_word: float = 0.0
    is_other: bool = False
    """Whether it counts nothing, or something else, such as characters."""


class EndpointModel:
    """Requests to the server of an endpoint; may be used by several threads."""

    advice = f"{ADVICE}."
    """The remedy for a request that is refused."""

    def __init__(self, endpoint: Endpoint, retries: int | None = None) -> None:
        usual = connection.RETRIES
        self._endpoint = endpoint
        self._connection = Connection(
            endpoint.address, retries=min(usual, retries or usual), retries_of_limits=usual
        )

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

    def _failed(self, error: RequestError, tried: str = "") -> PosirError:
        kind = NoAnswerError if error.is_timeout else PosirError
        failure = kind(
            f"{self._endpoint}: {self._connection.explain(error, advice=self.advice)}{tried}"
        )
        failure.reason = connection.quote_message(error.reason) if error.refused else ""
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
    """Asks a server for embeddings, and finds out of which kind it is."""

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
        seconds = self._connection.seconds
        if retries is not None:
            self._connection.seconds = min(FIRST_SECONDS, seconds)
        self.fields = fields or RequestFields()
        self.is_measured = False
        """Whether it is found out, more exactly than otherwise, which texts are cut."""
        self._format: Fields = {}
        self._dimensions: int | None = None
        self._most_documents: int | None = None
        self._sends_alone = False
        self._is_probing = False
        documents = [[text] for text in FIRST_TEXTS]
        self.kind, answer = self._find_kind(documents)
        if answer:
            first, second = self._read(self.kind, documents, answer)
        else:
            first, second = self._embed(self.kind, documents)
        if np.array_equal(first, second):
            raise self._invalid(
                f"has the same vector for {FIRST_TEXTS[0]!r} and {FIRST_TEXTS[1]!r}: "
                f"{shorten(first)}"
            )
        self._dimensions = len(first)
        self._connection.seconds = seconds
        if self.kind.truncation:
            self.advice = f"{ADVICE} ({self.kind.truncation})."

    def _find_kind(self, documents: Documents) -> tuple[EndpointKind, Any]:
        """Return the kind that reference or host name, or else the first that the server has a
        route of; and its answer.

        There is none if the server takes fewer documents at a time.
        """
        endpoint = self._endpoint
        if endpoint.kind:
            candidates = [KINDS[endpoint.kind]]
        else:
            candidates = [kind for kind in KINDS.values() if kind.serves(endpoint.host)]
        tried = candidates or [KINDS[name] for name in TRIED]
        failures = list[RequestError]()
        for kind in tried:
            chosen = kind
            nested = kind.in_context
            if nested and nested.nests:
                # Models that read chunks in context have no other route, and others do not have
                # this one.
                if "context" in endpoint.model:
                    chosen = replace(nested, in_context=nested)
                else:
                    chosen = replace(kind, in_context=None)
            try:
                return chosen, self._request(chosen, documents, query=False)
            except RequestError as error:
                if _refuses_number(error):
                    self._most_documents = 1
                    return chosen, None
                failures.append(error)
                if error.status not in NO_ROUTE:
                    break
        has_route = failures[-1].status not in NO_ROUTE
        failure = failures[-1] if has_route else failures[0]
        advice = ""
        if len(failures) > 1:
            routes = ", ".join(f"{kind.name} ({kind.route})" for kind in tried[: len(failures)])
            advice = (
                f" Tried: {routes}. Say which it is, as in {endpoint.model}@tei+{endpoint.address}."
            )
        if candidates and chosen.route != "/embeddings":
            self._connection.address_advice = (
                f"Check both: {chosen.name} is asked at {chosen.address(endpoint)}."
            )
        raise self._failed(failure, advice) from None

    def _request(
        self,
        kind: EndpointKind,
        documents: Documents,
        *,
        query: bool,
        retries: int | None = None,
    ) -> Any:
        """Return the answer to a request; a server that refuses the format of the vectors is asked
        in its own.
        """
        body = dict[str, Any]()
        if kind.names_model:
            body["model"] = self._endpoint.model
        body[kind.texts] = list(map(list, documents)) if kind.nests else _flatten(documents)
        user_fields = self.fields.query if query else self.fields.passage
        body |= {**kind.fields, **(kind.query_fields if query else kind.passage_fields)}
        body |= {**self._format, **user_fields}
        body = {name: value for name, value in body.items() if value is not None}
        try:
            return self._ask(kind.address(self._endpoint), body, retries=retries)
        except RequestError as error:
            if (
                not (error.refused and FORMAT in error.reason and FORMAT in body)
                or FORMAT in user_fields
            ):
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
        max_documents = 1 if self._sends_alone else self._most_documents
        if max_documents and max_documents < number:
            return self._embed_parts(kind, documents, max_documents, query=query)
        try:
            return self._read(kind, documents, self._request_texts(kind, documents, query=query))
        except RequestError as error:
            if number > 1 and _refuses_number(error):
                numbers = _find_numbers(error.reason, below=number)
                self._most_documents = max(numbers, default=number // 2)
                return self._embed(kind, documents, query=query)
            if not error.is_of_text or (number > 1 and self._is_probing):
                raise self._failed(error) from None
            if number > 1:
                return self._embed_parts(kind, documents, number // 2, query=query)
            # A limit of texts was perhaps one of their length.
            self._most_documents = None
            failure = self._describe_failure(error, " ".join(documents[0]))
            return self._leave_out(documents[0], failure, query=query)
        except NoVectorError as failure:
            if number == 1:
                named = PosirError(f"{failure}{_describe_text(' '.join(documents[0]))}")
                return self._leave_out(documents[0], named, query=query)
            if self._is_probing or not (self.skips_failed or isinstance(failure, NotFiniteError)):
                raise
            return self._embed_parts(kind, documents, number // 2, query=query)

    def _embed_parts(
        self, kind: EndpointKind, documents: Documents, size: int, *, query: bool
    ) -> Embeddings:
        """Return the embeddings of documents from requests with at most `size` of them each."""
        parts = split_batches(documents, size)
        return np.concatenate([self._embed(kind, part, query=query) for part in parts])

    def _request_texts(self, kind: EndpointKind, documents: Documents, *, query: bool) -> Any:
        """Return the answer to a request; a server that fails for any text is waited for, and not
        one text.

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
        dimensions); raise the failure.
        """
        raise failure

    def _describe_failure(self, error: RequestError, text: str) -> PosirError:
        """Return the error for a text that the server cannot embed, with its length and its
        beginning.
        """
        failure = self._failed(error, _describe_text(text))
        failure.reason = connection.quote_message(error.reason)
        return failure

    def _read(self, kind: EndpointKind, documents: Documents, answer: Any) -> Embeddings:
        texts = _flatten(documents)
        try:
            rows = reduce(getitem, filter(None, kind.vectors.split(".")), answer)
            if kind.nests:
                answers = list[Any]()
                for row, chunks in zip(self._order(rows, len(documents)), documents, strict=True):
                    answers += self._order(row["data"], len(chunks))
            else:
                answers = self._order(rows, len(texts))
            vectors = self._decode(
                kind, [row["embedding"] if isinstance(row, dict) else row for row in answers]
            )
            lengths = set(map(len, vectors))
            if self._dimensions:
                lengths.add(self._dimensions)
        except (TypeError, ValueError, KeyError):
            raise self._invalid(
                f"is not one of an embeddings API of the kind {kind.name}"
            ) from None
        if len(lengths) != 1 or 0 in lengths:
            reason = f"has vectors of different dimensions: {shorten(sorted(lengths))}"
            raise self._invalid(reason, NoVectorError)
        entries = _flatten(vector for vector in vectors if isinstance(vector, list))
        wrong = [entry for entry in entries if type(entry) not in (int, float)]
        if wrong:
            raise self._invalid(
                f"has vectors with entries that are not numbers, such as {sanitized(wrong[0])}"
            )
        return self._check(np.array(vectors, np.float32), texts)

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

    def _decode(self, kind: EndpointKind, vectors: list[Any]) -> list[Any]:
        """Return the vectors of an answer, of which base64 has the entries as float32 or int8."""
        if not all(isinstance(vector, str) for vector in vectors):
            return vectors
        contents = [base64.b64decode(vector, validate=True) for vector in vectors]
        if self._dimensions:
            is_float = len(contents[0]) == 4 * self._dimensions
        elif is_float := not any(len(content) % 4 for content in contents):
            vector_format = {**kind.fields, **self._format, **self.fields.passage}.get(FORMAT)
            largest = [
                np.abs(np.frombuffer(content, "<f4")).max(initial=0.0) for content in contents
            ]
            is_usual = all(1 / MAX_ENTRY < entry < MAX_ENTRY for entry in largest)
            is_float = is_usual and "int8" not in str(vector_format)
        return [np.frombuffer(content, "<f4" if is_float else np.int8) for content in contents]

    def _check(self, embeddings: Embeddings, texts: Sequence[str]) -> Embeddings:
        """Return the embeddings of texts; raise PosirError if they are not finite, zero, or the
        same for all.
        """
        finite = np.isfinite(embeddings).all(axis=1)
        if not finite.all():
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
        return embeddings

    def read_limit(self) -> tuple[int | None, bool]:
        """Return how many tokens of a text the server says that it reads, special ones included,
        and that it refuses others.

        None where it does not say how many.
        """
        if not self.kind.limit_route:
            return None, False
        body = {"model": self._endpoint.model} if self.kind.names_model else None
        try:
            answer = self._ask(self.kind.address(self._endpoint, self.kind.limit_route), body)
        except (RequestError, PosirError):
            return None, False
        self._most_documents = self._most_documents or _find_count(answer, "max_client_batch_size")
        refuses = isinstance(answer, Mapping) and answer.get("auto_truncate") is False
        return _find_count(answer, self.kind.limit), refuses

    def count_tokens(self, text: str, *, query: bool = False) -> tuple[Embeddings, int | None]:
        """Return the embedding of a text, shape (1, dimensions), and the tokens that the server
        says that it read of it.

        None where it does not say, or says what is billed. Raise RequestError if it cannot embed
        the text.
        """
        answer = self._request(self.kind, [[text]], query=query, retries=TEXT_RETRIES)
        return self._read(self.kind, [[text]], answer), _find_count(answer, self.kind.tokens)

    def count_read(self, texts: Iterable[str]) -> CountedTokens:
        """Return how many tokens the server says that it read, asked about longer and longer texts
        of words.

        It is asked no more once it states a limit, its counts are of something else, or a text is
        expected to take longer than `MAX_COUNT_SECONDS`. Raise NoAnswerError if it does not answer
        a text within `FIRST_SECONDS`.
        """
        total = CountedTokens()
        usual = self._connection.seconds
        self._connection.seconds = min(FIRST_SECONDS, usual)
        try:
            for text in texts:
                words = len(text.split())
                if total.seconds_per_word * words > MAX_COUNT_SECONDS:
                    break
                counted = self._count_words(text, words)
                seconds = max(counted.seconds_per_word, total.seconds_per_word)
                total = replace(counted, seconds_per_word=seconds)
                if total.limit or total.refuses or total.is_other:
                    break
        finally:
            self._connection.seconds = usual
        return total

    def _count_words(self, text: str, words: int) -> CountedTokens:
        start = time.perf_counter()
        try:
            counted = _find_count(self._request(self.kind, [[text]], query=False), self.kind.tokens)
        except RequestError as error:
            if error.is_timeout:
                raise self._failed(
                    error, f" It was asked for a text of {words:,} words, after short ones."
                ) from None
            return CountedTokens(
                max(_find_numbers(error.reason, below=words), default=None), refuses=error.refused
            )
        seconds = (time.perf_counter() - start) / words
        # A count of words that are all there is no limit, and neither are characters or 0.
        is_other = bool(self.kind.tokens) and (counted is None or counted > 2 * words)
        return CountedTokens(
            counted if counted and counted < words else None,
            seconds_per_word=seconds,
            is_other=is_other,
        )

    @contextmanager
    def measure(self, retries: int | None = None) -> Iterator[None]:
        """Repeat a failed request at most `retries` times while the context is open, if given; wait
        for limits as ever.

        A server may fail for a text that is too long.
        """
        usual = self._connection.retries
        was_measured = self.is_measured
        was_probing = self._is_probing
        self._connection.retries = usual if retries is None else retries
        self.is_measured = True
        self._is_probing = retries is not None
        try:
            yield
        finally:
            self._connection.retries = usual
            self.is_measured = was_measured
            self._is_probing = was_probing


def _flatten(parts: Iterable[Iterable[Item]]) -> list[Item]:
    return [item for part in parts for item in part]


def _describe_text(text: str) -> str:
    """Return the length and the beginning of a text that has no embedding, as a sentence."""
    length = f"{len(text):,} characters (about {estimate_tokens(text):,} tokens)"
    return f" The text has {length} and begins {sanitized(text[:SHOWN_TEXT])!r}."


def _find_count(answer: Any, keys: str) -> int | None:
    """Return a positive number in an answer, by keys of which a server may have longer ones; None
    if there is none.
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
    """Return the positive numbers below another in a server's message."""
    numbers = (int(number.replace(",", "")) for number in NUMBER.findall(message))
    return [number for number in numbers if 0 < number < below]
