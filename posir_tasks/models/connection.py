"""A connection to a server that is asked in JSON: key, retries, limits of answers, and what an
error means.

Embeddings, rerankers and language models are asked through it alone. An answer is read within
limits of size (decompressed) and time, and texts never follow a redirect to another server.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import random
import re
import threading
import zlib
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache, cached_property
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from posir_tasks.base.errors import PosirError
from posir_tasks.base.limits import MAX_BYTES, describe_bytes, max_line
from posir_tasks.base.secrets import add_address, add_secret, redact
from posir_tasks.base.untrusted import GateError, parse_json
from posir_tasks.base.wording import sanitized

T = TypeVar("T")

#: Environment variable with the key; servers without keys need none.
KEY_VARIABLE = "OPENAI_API_KEY"
#: Sent instead of a key.
NO_KEY = "none"
#: Retries of a request that is answered with 408, 409, 429 or 5xx, or not at all. It waits as long
#: as the server asks (at most so many seconds), or else 0.5, 1, 2, 4 and then 8 seconds, of which
#: up to a quarter is left out at random.
RETRIES = 10
MAX_ASKED_SECONDS = 120.0
FIRST_WAIT = 0.5
MAX_WAIT = 8.0
#: Seconds in which a connection must be made, and in which something of an answer must come.
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 600.0
#: An answer must be complete within this multiple, however steadily it comes. It is not asked for
#: again.
COMPLETE_FACTOR = 2
#: Most characters of an answer with an error that are looked at.
MAX_ERROR = 10_000
#: Where an answer may have a message.
MESSAGE_KEYS = ("error", "detail", "message")
#: Most redirects of a request, all within one server.
MAX_REDIRECTS = 3
REDIRECTS = (301, 302, 303, 307, 308)
#: Status that stands for that of an answer that was not read.
UNREAD_STATUS = 598
#: Statuses of a request that is refused, and how a server that fails instead of refusing says that
#: a text is too long.
REFUSED = (400, 413, 422)
TOO_LARGE = re.compile(r"too (large|long)|context (length|size|window)|exceed", re.IGNORECASE)
#: Most characters of a server's message that are shown.
MAX_MESSAGE = 500
#: Most values of a list that are shown.
MAX_VALUES = 10


@dataclass(eq=False)
class RequestError(Exception):
    """A request without an answer that can be used."""

    reason: str
    """The server's own words, without secrets."""
    status: int = 0
    """Status of the answer; 0 if none came, `UNREAD_STATUS` if it was not read: the reason is then
    what it does.
    """
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    is_timeout: bool = False
    """Whether the connection was made, and no answer came in time."""

    def __post_init__(self) -> None:
        """Remove secrets from what is kept and printed."""
        self.reason = redact(self.reason)
        self.args = (sanitized(self.reason, MAX_MESSAGE), self.status)

    @property
    def refused(self) -> bool:
        """Whether the server refuses what it was sent; some fail for a text that is too long."""
        return self.status in REFUSED or (
            self.status == 500 and bool(TOO_LARGE.search(self.reason))
        )

    @property
    def is_of_text(self) -> bool:
        """Whether a text of the request may be the cause: the server refuses it, or fails for it,
        as for a vector of NaN.
        """
        return self.refused or self.status == 500

    @property
    def may_pass(self) -> bool:
        """Whether another server, or the same one later, may answer."""
        return not self.refused and (self.status in (0, 408, 409, 429) or self.status >= 500)

    @property
    def repeats(self) -> bool:
        """Whether the request should be sent again."""
        advice = (self.headers or {}).get("x-should-retry")
        if advice in ("true", "false"):
            return advice == "true"
        return self.may_pass and self.status != UNREAD_STATUS

    def find_wait(self, attempt: int) -> float:
        """Return the seconds until the next attempt; attempts count from 0."""
        stated_wait = read_retry_after(self.headers or {})
        if stated_wait and stated_wait <= MAX_ASKED_SECONDS:
            return stated_wait
        wait = FIRST_WAIT * 2.0 ** min(attempt, 20)
        return min(wait, MAX_WAIT) * random.uniform(0.75, 1)


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait that a response asks for in Retry-After (RFC 9110, 10.2.3); None
    if it names none.
    """
    stated_wait = headers.get("retry-after", "").strip()
    with suppress(TypeError, ValueError, OverflowError):
        is_number = stated_wait.replace(".", "", 1).isdecimal()
        if is_number:
            return float(stated_wait)
        return max((parsedate_to_datetime(stated_wait) - datetime.now(UTC)).total_seconds(), 0.0)
    return None


class Connection:
    """A server; may be used by several threads. The key is in no public attribute and in no
    message.
    """

    def __init__(
        self,
        address: str,
        *,
        key_variable: str = KEY_VARIABLE,
        retries: int,
        retries_of_limits: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Prepare a connection, and send nothing; raise PosirError for a key that cannot be sent in
        a header.

        Args:
            address: Base address of the API, which usually ends in `/v1`.
            key_variable: Environment variable with the key.
            retries: How often a request is repeated after a failure that may pass.
            retries_of_limits: The same where a limit is exceeded (429), however few the retries of
                other failures are.
            timeout: Seconds until something of an answer, half of those until it is complete; by
                default ten minutes.
        """
        key = os.environ.get(key_variable, "").strip()
        if not (key.isascii() and key.isprintable()):
            raise PosirError(
                f"the key in {key_variable} has characters that HTTP does not allow. Set it again."
            )
        add_secret(key)
        self._key = key
        self._key_variable = key_variable
        self.address = address
        self.retries = retries
        self.retries_of_limits = retries if retries_of_limits is None else retries_of_limits
        self.address_advice = "Addresses usually end in /v1."
        self.connect_seconds = timeout or CONNECT_SECONDS
        self.seconds = timeout or ANSWER_SECONDS
        # With `trust_env`, aiohttp would also look for a key in ~/.netrc.
        parts = urlsplit(address)
        self._proxy = None
        if not proxy_bypass(parts.hostname or ""):
            self._proxy = getproxies().get(parts.scheme)
        add_address(self._proxy)

    def send(
        self, url: str, body: Mapping[str, Any] | None = None, *, retries: int | None = None
    ) -> str:
        """Return a server's answer; raise RequestError. Without a body, it is asked with GET.

        A request that fails with the status 500 is repeated at most `retries` times, by default as
        often as any other.
        """
        return _run(self.send_async(url, body, retries=retries))

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        """The open connections, which are of the event loop that sends the first request."""
        session = aiohttp.ClientSession(
            headers={
                "Authorization": f"Bearer {self._key or NO_KEY}",
                "Accept-Encoding": "gzip",
                "User-Agent": "posir",
            },
            auto_decompress=False,
            connector=aiohttp.TCPConnector(limit=0),
        )
        # At the end of the process; an open session would complain.
        atexit.register(lambda: None if session.closed else _run(session.close()))
        return session

    async def aclose(self) -> None:
        """Close the connections, in the event loop that they are of."""
        await self._session.close()

    async def send_async(
        self,
        url: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None = None,
        *,
        retries: int | None = None,
    ) -> str:
        """Return the answer to a request, sent again where that may help; raise RequestError.
        Without a body, it is a GET.
        """
        seconds = COMPLETE_FACTOR * self.seconds
        attempt = 0
        while True:
            try:
                async with asyncio.timeout(seconds) as limit:
                    return await self._read(url, body, headers)
            except RequestError as error:
                failure = error
            except (aiohttp.ClientError, OSError, ValueError) as error:
                if limit.expired():
                    reason = f"is not complete after {seconds:,.0f} seconds"
                    failure = RequestError(reason, UNREAD_STATUS, is_timeout=True)
                else:
                    is_timeout = isinstance(error, aiohttp.SocketTimeoutError)
                    failure = RequestError(_describe(error), is_timeout=is_timeout)
            max_retries = self.retries_of_limits if failure.status == 429 else self.retries
            if retries is not None and failure.status == 500:
                max_retries = min(max_retries, retries)
            if not failure.repeats or attempt >= max_retries:
                raise failure
            await asyncio.sleep(failure.find_wait(attempt))
            attempt += 1

    async def _read(
        self, url: str, body: Mapping[str, Any] | None, headers: Mapping[str, str] | None
    ) -> str:
        method = "GET" if body is None else "POST"
        for _ in range(MAX_REDIRECTS + 1):
            sent: Any = {"json": body} if method == "POST" else {}
            # Not those of the session: a caller may change the seconds.
            timeout = aiohttp.ClientTimeout(
                total=None, connect=self.connect_seconds, sock_read=self.seconds
            )
            async with self._session.request(
                method,
                url,
                headers=headers,
                allow_redirects=False,
                proxy=self._proxy,
                timeout=timeout,
                **sent,
            ) as response:
                if response.status in REDIRECTS and "Location" in response.headers:
                    url = _find_redirect(response)
                    method = method if response.status in (307, 308) else "GET"
                    continue
                text = (await _read_content(response)).decode("utf-8", "replace")
                if response.ok:
                    return text
                raise RequestError(
                    _find_message(text)[:MAX_ERROR], response.status, response.headers
                )
        raise RequestError(f"redirects more than {MAX_REDIRECTS} times", UNREAD_STATUS)

    def explain(self, error: RequestError, *, advice: str) -> str:
        """Explain a failed request and its remedy, with the server's own message;
        `advice` is for one it refuses.
        """
        attempts = self.retries + 1
        reason = quote_message(error.reason)
        if error.refused:
            return f"the server refuses a request ({error.status}: {reason}). {advice}"
        match error.status:
            case 0 if error.is_timeout:
                return (
                    f"no answer within {self.seconds:,.0f} seconds. Is the server overloaded, or "
                    "loading its model?"
                )
            case 0:
                return f"no answer after {attempts} attempts ({reason}). Is the server running?"
            case status if status == UNREAD_STATUS:
                return f"the server's answer is refused: it {reason}."
            case 401 | 403:
                name = self._key_variable
                refused = (
                    f"the key in {name}" if self._key else f"requests without a key; set {name}"
                )
                return f"the server refuses {refused} ({error.status}: {reason})."
            case 404:
                models = self._list_models()
                return (
                    f"the server has no such model or address (404: {reason}). "
                    f"{self.address_advice}{models}"
                )
            case 429:
                return (
                    f"the server's limit is still exceeded after all attempts (429: {reason}). "
                    "Run again later."
                )
            case _:
                return f"the server failed up to {attempts} times ({error.status}: {reason})."

    def _list_models(self) -> str:
        try:
            # Its own session is perhaps of an event loop that waits for this.
            other = Connection(self.address, key_variable=self._key_variable, retries=0)
            answer = other.send(f"{self.address}/models")
            names = [model["id"] for model in parse_json(answer, self.address)["data"]]
            return f" Its models: {quote_message(shorten(names))}."
        except (RequestError, GateError, TypeError, KeyError):
            return ""


def quote_message(message: str) -> str:
    """Return a server's message on one line, of limited length, without secrets and control
    characters.
    """
    return sanitized(" ".join(message.split()), MAX_MESSAGE)


@cache
def _start_loop() -> asyncio.AbstractEventLoop:
    """Start the event loop of all requests that are waited for in threads."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="posir requests", daemon=True).start()
    return loop


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, _start_loop()).result()


def _describe(error: Exception) -> str:
    cause = getattr(error, "os_error", error)
    number = getattr(cause, "errno", None)
    if number and number > 0:
        return os.strerror(number)
    return str(cause) or repr(cause)


def _find_message(text: str) -> str:
    """Return the message of a server about an error: in JSON, where OpenAI, FastAPI, Text
    Embeddings Inference or Ollama have it.
    """
    try:
        answer = parse_json(text, "answer")
    except GateError:
        return text
    if not isinstance(answer, dict):
        return text
    message = next((answer[key] for key in MESSAGE_KEYS if answer.get(key)), answer)
    if isinstance(message, dict):
        message = message.get("message") or message
    return str(message)


async def _read_content(response: aiohttp.ClientResponse) -> bytes:
    """Return the content of an answer, decompressed within the limit of a line."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "deflate"):
        raise RequestError("is compressed in another way than asked for, gzip", UNREAD_STATUS)
    # Zlib tells gzip from deflate by the header.
    decoder = None if encoding == "identity" else zlib.decompressobj(zlib.MAX_WBITS | 32)
    content = bytearray()
    limit = max_line()
    async for chunk in response.content.iter_any():
        try:
            content += decoder.decompress(chunk, limit + 1 - len(content)) if decoder else chunk
        except zlib.error:
            raise RequestError("is not compressed as it says", UNREAD_STATUS) from None
        if len(content) > limit:
            problem = (
                f"is larger than {describe_bytes(limit)}; set {MAX_BYTES.variable} to a larger "
                "number to read it"
            )
            raise RequestError(problem, UNREAD_STATUS)
    if decoder and response.content.total_bytes and not decoder.eof:
        raise RequestError("ends in the middle", UNREAD_STATUS)
    return bytes(content)


def _find_redirect(response: aiohttp.ClientResponse) -> str:
    """Return the address that an answer redirects to; raise RequestError if that is another
    server.
    """
    here = response.url
    there = here.join(type(here)(response.headers["Location"]))
    same = (here.scheme, here.port) == (there.scheme, there.port)
    has_port = here.explicit_port is not None or there.explicit_port is not None
    encrypted = (here.scheme, there.scheme) == ("http", "https") and not has_port
    if here.host != there.host or not (same or encrypted):
        raise RequestError(
            f"redirects to another server, {there.scheme}://{there.authority}, which would get "
            "the texts; give its address if it should",
            UNREAD_STATUS,
        )
    return str(there)


def shorten(values: Sequence[object]) -> str:
    """Return the first values of a list as text on one line."""
    text = ", ".join(sanitized(str(value)) for value in values[:MAX_VALUES])
    return text + (", ..." if len(values) > MAX_VALUES else "")
