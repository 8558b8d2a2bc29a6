"""A connection to a server that is asked in JSON: key, retries, limits of answers, and what an
error means.

Embeddings, rerankers and language models are asked only through it. An answer is read within
limits of size (decompressed) and time, and texts never follow a redirect.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import random
import re
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from posir_tasks.base.errors import PosirError
from posir_tasks.base.limits import MAX_BYTES, describe_bytes, max_line
from posir_tasks.base.secrets import add_address, add_secret, redact
from posir_tasks.base.untrusted import GateError, parse_json
from posir_tasks.base.wording import sanitize

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")

#: Environment variable with the key; servers without keys need none.
KEY_VARIABLE = "OPENAI_API_KEY"
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
#: An answer must be complete within this multiple, however steadily it comes. It is not requested
#: again.
COMPLETE_FACTOR = 2
#: Maximum number of characters of an error's text that are read, and that are shown.
MAX_ERROR = 10_000
MAX_MESSAGE = 500
#: Status of an answer that was not read.
UNREAD_STATUS = 598
#: Statuses of a refused request, and the words of a server that fails instead of refusing a text
#: that is too long.
REFUSED = (400, 413, 422)
TOO_LARGE = re.compile(r"too (large|long)|context (length|size|window)|exceed", re.IGNORECASE)
#: Maximum number of values of a list that are shown.
MAX_VALUES = 10


class RequestError(Exception):
    """A request without an answer that can be used."""

    def __init__(
        self,
        reason: str,
        status: int = 0,
        headers: Mapping[str, str] | None = None,
        *,
        is_timeout: bool = False,
    ) -> None:
        """Keep the server's words without secrets, and the status of its answer: 0 without one.

        With `is_timeout`, the connection was made, and no answer came in time.
        """
        self.reason = redact(reason)
        self.status = status
        self.headers = headers or {}
        self.is_timeout = is_timeout
        super().__init__(sanitize(self.reason, MAX_MESSAGE), status)

    @property
    def refused(self) -> bool:
        """Whether the server refuses what it was sent; some fail for a text that is too long."""
        is_too_large = self.status == 500 and bool(TOO_LARGE.search(self.reason))
        return self.status in REFUSED or is_too_large

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


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait that a response asks for in Retry-After (RFC 9110, 10.2.3), or
    None.
    """
    stated_wait = headers.get("retry-after", "").strip()
    with suppress(TypeError, ValueError, OverflowError):
        if stated_wait.replace(".", "", 1).isdecimal():
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
        retries: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Prepare a connection, and send nothing.

        Args:
            address: Base address of the API, which usually ends in `/v1`.
            key_variable: Environment variable with the key.
            retries: Repetitions of a request after a failure that may pass; by default `RETRIES`.
            timeout: Seconds until something of an answer, half of those until it is complete; by
                default ten minutes.

        Raises:
            PosirError: The key cannot be sent in a header.
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
        self.retries = RETRIES if retries is None else retries
        #: The same where a limit is exceeded (429).
        self.limit_retries = self.retries
        self.connect_seconds = timeout or CONNECT_SECONDS
        self.seconds = timeout or ANSWER_SECONDS
        # With `trust_env`, aiohttp would also look for a key in ~/.netrc.
        parts = urlsplit(address)
        has_proxy = not proxy_bypass(parts.hostname or "")
        self._proxy = getproxies().get(parts.scheme) if has_proxy else None
        add_address(self._proxy)

    def send(
        self, url: str, body: Mapping[str, Any] | None = None, *, retries: int | None = None
    ) -> str:
        """Wait for the answer of `send_async`."""
        return submit(self.send_async(url, body, retries=retries)).result()

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        """The open connections, which belong to the event loop that sends the first request."""
        # Most commands that import this send no request, and need not wait for its import.
        import aiohttp

        session = aiohttp.ClientSession(
            headers={
                "Authorization": f"Bearer {self._key or 'none'}",
                "Accept-Encoding": "gzip",
                "User-Agent": "posir",
            },
            connector=aiohttp.TCPConnector(limit=0),
        )
        # At the end of the process; an open session would complain.
        atexit.register(lambda: session.closed or submit(session.close()).result())
        return session

    async def aclose(self) -> None:
        """Close the connections, in their event loop."""
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

        Without a body, it is a GET. A request that fails with the status 500 is repeated at most
        `retries` times, by default as often as any other.
        """
        import aiohttp

        attempt = 0
        while True:
            try:
                return await self._read(url, body, headers)
            except RequestError as error:
                failure = error
            except (aiohttp.ClientError, OSError, ValueError) as error:
                failure = self._explain_failure(error)
            max_retries = self.limit_retries if failure.status == 429 else self.retries
            if retries is not None and failure.status == 500:
                max_retries = min(max_retries, retries)
            is_final = not failure.may_pass or failure.status == UNREAD_STATUS
            if is_final or attempt >= max_retries:
                raise failure
            wait = read_retry_after(failure.headers) or 0.0
            if not 0 < wait <= MAX_ASKED_SECONDS:
                wait = min(FIRST_WAIT * 2.0 ** min(attempt, 20), MAX_WAIT)
                wait *= random.uniform(0.75, 1)
            await asyncio.sleep(wait)
            attempt += 1

    async def _read(
        self, url: str, body: Mapping[str, Any] | None, headers: Mapping[str, str] | None
    ) -> str:
        import aiohttp

        # The session has other seconds: a caller may change them.
        timeout = aiohttp.ClientTimeout(
            total=COMPLETE_FACTOR * self.seconds,
            connect=self.connect_seconds,
            sock_read=self.seconds,
        )
        async with self._session.request(
            "GET" if body is None else "POST",
            url,
            json=body,
            headers=headers,
            allow_redirects=False,
            proxy=self._proxy,
            timeout=timeout,
        ) as response:
            if "Location" in response.headers and 300 <= response.status < 400:
                raise RequestError(
                    f"redirects to {response.headers['Location']}, which would get the texts; give "
                    "its address if it should",
                    UNREAD_STATUS,
                )
            text = await _read_text(response)
            if response.ok:
                return text
            raise RequestError(_find_message(text)[:MAX_ERROR], response.status, response.headers)

    def _explain_failure(self, error: Exception) -> RequestError:
        """Explain an error of the network."""
        import aiohttp

        is_server_timeout = isinstance(error, aiohttp.ServerTimeoutError)
        if isinstance(error, TimeoutError) and not is_server_timeout:
            seconds = COMPLETE_FACTOR * self.seconds
            reason = f"is not complete after {seconds:,.0f} seconds"
            return RequestError(reason, UNREAD_STATUS, is_timeout=True)
        cause = getattr(error, "os_error", error)
        number = getattr(cause, "errno", None)
        reason = str(cause) or repr(cause)
        if number and number > 0:
            reason = os.strerror(number)
        return RequestError(reason, is_timeout=isinstance(error, aiohttp.SocketTimeoutError))

    def explain(self, error: RequestError, *, advice: str) -> str:
        """Explain a failed request and its remedy, with the server's own message;
        `advice` is for one it refuses.
        """
        attempts = self.retries + 1
        status = error.status
        reason = quote_message(error.reason)
        if error.refused:
            return f"the server refuses a request ({status}: {reason}). {advice}"
        match status:
            case 0 if error.is_timeout:
                return (
                    f"no answer within {self.seconds:,.0f} seconds. Is the server overloaded, or "
                    "loading its model?"
                )
            case 0:
                return f"no answer after {attempts} attempts ({reason}). Is the server running?"
            case 598:
                return f"the server's answer is refused: it {reason}."
            case 401 | 403:
                name = self._key_variable
                key = f"the key in {name}" if self._key else f"requests without a key; set {name}"
                return f"the server refuses {key} ({status}: {reason})."
            case 404:
                return (
                    f"the server has no such model or address (404: {reason}). Addresses usually "
                    "end in /v1."
                )
            case 429:
                return (
                    f"the server's limit is still exceeded after all attempts (429: {reason}). "
                    "Run again later."
                )
        return f"the server failed up to {attempts} times ({status}: {reason})."


def quote_message(message: str) -> str:
    """Return a server's message on one line, of limited length, without secrets and control
    characters.
    """
    return sanitize(" ".join(message.split()), MAX_MESSAGE)


@cache
def _start_loop() -> asyncio.AbstractEventLoop:
    """Start the event loop of all requests."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="posir requests", daemon=True).start()
    return loop


def submit(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Start a coroutine in the event loop of all requests."""
    return asyncio.run_coroutine_threadsafe(work, _start_loop())


def _find_message(text: str) -> str:
    """Find a server's message about an error: in JSON, where OpenAI, FastAPI, Text Embeddings
    Inference or Ollama have it.
    """
    try:
        answer = parse_json(text, "answer")
    except GateError:
        return text
    for key in ("error", "detail", "message"):
        if isinstance(answer, dict) and answer.get(key):
            answer = answer[key]
    return answer if isinstance(answer, str) else str(answer)


async def _read_text(response: aiohttp.ClientResponse) -> str:
    """Read the text of an answer within the limit of a line."""
    content = bytearray()
    limit = max_line()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > limit:
            problem = (
                f"is larger than {describe_bytes(limit)}; set {MAX_BYTES.variable} to a larger "
                "number to read it"
            )
            raise RequestError(problem, UNREAD_STATUS)
    return content.decode("utf-8", "replace")


def shorten(values: Sequence[object]) -> str:
    """Return the first values of a list as text on one line."""
    text = ", ".join(sanitize(str(value)) for value in values[:MAX_VALUES])
    return text + (", ..." if len(values) > MAX_VALUES else "")
