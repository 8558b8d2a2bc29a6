"""A connection to a server with an OpenAI-compatible API: key, retries, limits of answers, and what an error means.

Embeddings, rerankers and language models are asked through it alone. An answer is read within limits of size (decompressed) and
time, and texts never follow a redirect to another server.
"""

from __future__ import annotations

import asyncio
import os
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from importlib import import_module
from typing import Any

import openai

from posir_tasks.errors import PosirError

#: Environment variable with the key; servers without keys need none.
KEY_VARIABLE = "OPENAI_API_KEY"
#: Sent in place of a key, which the client requires.
NO_KEY = "none"
#: Retries of a request that is answered with 408, 409, 429 or 5xx, or not at all. It waits as long as the server asks (at most
#: two minutes), or else 0.5, 1, 2, 4 and then 8 seconds.
RETRIES = 10
#: Most retries of a connection that is opened now.
FIRST_RETRIES: ContextVar[int] = ContextVar("FIRST_RETRIES", default=RETRIES)
#: Seconds in which a connection must be made, and in which something of an answer must come.
CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 600.0
#: An answer must be complete within this multiple, however steadily it comes. It is not asked for again.
COMPLETE_FACTOR = 2
#: Most bytes of an answer, decompressed: vectors of 2,048 texts.
MAX_ANSWER = 2**28
#: Most redirects of a request, all within one server.
MAX_REDIRECTS = 3
#: Status and extension of what stands for an answer that was not read, by what it does, or that did not come, by the error.
UNREAD_STATUS, UNREAD = 598, "unread"
#: Most characters of a server's message that are shown.
MAX_MESSAGE = 500
#: Most values of a list that are shown.
MAX_VALUES = 10


class Connection:
    """The client of a server; may be used by several threads. The key is in no public attribute and in no message."""

    def __init__(self, address: str, *, key_variable: str = KEY_VARIABLE, retries: int, timeout: float | None = None) -> None:
        """Prepare a connection, and send nothing; raise PosirError for a key that cannot be sent in a header.

        Args:
            address: Base address of the API, which usually ends in `/v1`.
            key_variable: Environment variable with the key.
            retries: How often a request is repeated after a failure that may pass.
            timeout: Seconds until something of an answer, half of those until it is complete; by default ten minutes.
        """
        key = os.environ.get(key_variable, "").strip()
        if not (key.isascii() and key.isprintable()):
            raise PosirError(f"the key in {key_variable} has characters that HTTP does not allow. Set it again.")
        self._key, self._key_variable = key, key_variable
        self.retries = min(retries, FIRST_RETRIES.get())
        wait = openai.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS) if timeout is None else timeout
        self._options: dict[str, Any] = {"api_key": key or NO_KEY, "base_url": address, "timeout": wait}

    @cached_property
    def client(self) -> openai.OpenAI:
        """The client, for any number of threads, which waits where a limit is exceeded (429) however few the retries are."""
        http_client = _LimitedClient()
        http_client.connection = self
        return openai.OpenAI(**self._options, max_retries=max(RETRIES, self.retries), http_client=http_client)

    def open_async_client(self) -> openai.AsyncOpenAI:
        """Return a client for one event loop, by aiohttp, which takes half the processor time of threads; close it there."""
        return openai.AsyncOpenAI(**self._options, max_retries=self.retries, http_client=_LimitedAsyncClient())

    def explain(self, error: openai.OpenAIError, *, advice: str) -> str:
        """Return what a failed request means and what to do, with the server's own message; `advice` is for one it refuses.

        The error should not be chained: it has the server's answer, which may repeat the key.
        """
        attempts = self.retries + 1
        unread = error.response.extensions.get(UNREAD) if isinstance(error, openai.APIStatusError) else None
        if isinstance(error, openai.APIConnectionError) or isinstance(unread, Exception):
            cause = unread or error.__cause__ or error
            return f"no answer after {attempts} attempts ({self.redact(cause)}). Is the server running?"
        if not isinstance(error, openai.APIStatusError):
            return f"the server's answer cannot be read ({self.redact(error)})."
        if unread:
            return f"the server's answer is refused: it {unread}."
        status = self.redact(error.message)
        match error.status_code:
            case 401 | 403:
                name = self._key_variable
                refused = f"the key in {name}" if self._key else f"requests without a key; set {name}"
                return f"the server refuses {refused} ({status})."
            case 404:
                return f"the server has no such model or address ({status}). Addresses usually end in /v1.{self._list_models()}"
            case 400 | 413 | 422:
                return f"the server refuses a request ({status}). {advice}"
            case 429:
                return f"the server's limit is still exceeded after all attempts ({status}). Run again later."
            case _:
                return f"the server failed up to {attempts} times ({status})."

    def _list_models(self) -> str:
        try:
            models = self.client.with_options(max_retries=0, timeout=10).models.list().data
            return f" Its models: {self.redact(shorten([model.id for model in models]))}."
        except (openai.OpenAIError, TypeError, ValueError, AttributeError, RecursionError):
            return ""

    def redact(self, message: object) -> str:
        """Return a message without the key, on one line, of limited length."""
        text = str(message).replace(self._key, "***") if self._key else str(message)
        return " ".join(text.split())[:MAX_MESSAGE]


class _UnreadError(Exception):
    """An answer is not read; the message is what it does, as in 'is larger than 1 MiB'."""


class _Body:
    """The content of an answer, decompressed within `MAX_ANSWER`."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip", "deflate"):
            raise _UnreadError("is compressed in another way than asked for, gzip")
        # Zlib tells gzip from deflate by the header.
        self._decoder = None if encoding == "identity" else zlib.decompressobj(zlib.MAX_WBITS | 32)
        self._parts: list[bytes] = []
        self._room = MAX_ANSWER

    def feed(self, chunk: bytes) -> None:
        try:
            part = self._decoder.decompress(chunk, self._room + 1) if self._decoder else chunk
        except zlib.error:
            raise _UnreadError("is not compressed as it says") from None
        self._room -= len(part)
        if self._room < 0:
            raise _UnreadError(f"is larger than {MAX_ANSWER >> 20:,} MiB")
        self._parts.append(part)

    def close(self) -> bytes:
        if self._decoder and self._parts and not self._decoder.eof:
            raise _UnreadError("ends in the middle")
        return b"".join(self._parts)


class _LimitedClient(openai.DefaultHttpxClient):
    """The HTTP client of one thread or several, with the limits of this module."""

    connection: Connection
    """Its retries are the most of any failure but an exceeded limit (429); the client of openai repeats all alike."""

    def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:  # noqa: ARG002
        """Send a request and read its answer; of one that is not read, a response of `UNREAD_STATUS` says why.

        It is sent and read in a thread, as a server may send a byte at a time, headers included.
        """
        results: list[Any] = []

        def work() -> None:
            try:
                results.append(self._read(request, options))
            except Exception as error:
                results.append(error)

        thread, seconds = threading.Thread(target=work, daemon=True), _find_seconds(request)
        thread.start()
        thread.join(seconds)
        result = results[0] if results else _UnreadError(f"is not complete after {seconds:,.0f} seconds")
        is_last = int(request.headers.get("x-stainless-retry-count", 0)) >= self.connection.retries
        if isinstance(result, _UnreadError):
            return _build_unread(request, str(result))
        if isinstance(result, Exception):
            if is_last:
                return _build_unread(request, result)
            raise result
        if is_last and result.status_code != 429:
            result.headers["x-should-retry"] = "false"
        return result

    def _read(self, request: Any, options: Mapping[str, Any]) -> Any:
        request.headers["Accept-Encoding"] = "gzip"
        target = request
        for _ in range(MAX_REDIRECTS + 1):
            response: Any = super().send(target, **{**options, "stream": True, "follow_redirects": False})
            try:
                target = _find_redirect(response)
                if target is None:
                    body = _Body(response.headers)
                    for chunk in response.iter_raw():
                        body.feed(chunk)
                    return _build_read(response, body.close())
            finally:
                response.close()
        raise _UnreadError(f"redirects more than {MAX_REDIRECTS} times")


class _LimitedAsyncClient(openai.DefaultAioHttpClient):
    """The HTTP client of an event loop, with the limits of this module."""

    async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:  # noqa: ARG002
        """Send a request and read its answer; of one that is not read, a response of `UNREAD_STATUS` says why."""
        seconds = _find_seconds(request)
        try:
            async with asyncio.timeout(seconds):
                return await self._read(request, options)
        except TimeoutError:
            return _build_unread(request, f"is not complete after {seconds:,.0f} seconds")
        except _UnreadError as error:
            return _build_unread(request, str(error))

    async def _read(self, request: Any, options: Mapping[str, Any]) -> Any:
        request.headers["Accept-Encoding"] = "gzip"
        target = request
        for _ in range(MAX_REDIRECTS + 1):
            response: Any = await super().send(target, **{**options, "stream": True, "follow_redirects": False})
            try:
                target = _find_redirect(response)
                if target is None:
                    body = _Body(response.headers)
                    async for chunk in response.aiter_raw():
                        body.feed(chunk)
                    return _build_read(response, body.close())
            finally:
                await response.aclose()
        raise _UnreadError(f"redirects more than {MAX_REDIRECTS} times")


def _find_seconds(request: Any) -> float:
    return COMPLETE_FACTOR * float(request.extensions.get("timeout", {}).get("read") or ANSWER_SECONDS)


def _find_redirect(response: Any) -> Any:
    """Return the request that an answer redirects to, None if it does not; raise _UnreadError if that is another server."""
    target = response.next_request
    if target is None:
        return None
    here, there = response.request.url, target.url
    same = (here.scheme, here.port) == (there.scheme, there.port)
    encrypted = (here.scheme, there.scheme, here.port, there.port) == ("http", "https", None, None)
    if here.host != there.host or not (same or encrypted):
        server = f"{there.scheme}://{there.netloc.decode('ascii', 'replace')}"
        raise _UnreadError(f"redirects to another server, {server}, which would get the texts; give its address if it should")
    return target


def _build_read(response: Any, content: bytes) -> Any:
    left_out = ("content-encoding", "content-length", "transfer-encoding")
    headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in left_out]
    return type(response)(response.status_code, headers=headers, content=content, request=response.request)


def _build_unread(request: Any, unread: str | Exception) -> Any:
    """Return a response in place of one that is not read, or did not come, which the client does not ask for again."""
    # The client is built on httpx or on httpx2.
    package = import_module(type(request).__module__.partition(".")[0])
    return package.Response(UNREAD_STATUS, headers={"x-should-retry": "false"}, request=request, extensions={UNREAD: unread})


@contextmanager
def limit_first_retries(retries: int) -> Iterator[None]:
    """Let the connections that are opened while the context is open repeat a failed request at most so often."""
    token = FIRST_RETRIES.set(retries)
    try:
        yield
    finally:
        FIRST_RETRIES.reset(token)


def shorten(values: Sequence[object]) -> str:
    """Return the first values of a list as text."""
    return ", ".join(map(str, values[:MAX_VALUES])) + (", ..." if len(values) > MAX_VALUES else "")
