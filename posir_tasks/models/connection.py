"""HTTP connections to embedding, reranking and language model servers: keys, retries, limits and
error messages.

The time and the decompressed size of responses are limited. Redirects are not followed, so that
texts never reach another server.
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
from posir_tasks.base.limits import MAX_BYTES, describe_bytes, read_line_limit
from posir_tasks.base.secrets import add_address, add_secret, redact
from posir_tasks.base.untrusted import InputError, parse_json
from posir_tasks.base.wording import sanitize

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")

#: Environment variable with the API key, if the server needs one.
KEY_VARIABLE = "OPENAI_API_KEY"
#: Retries after status 408, 409, 429 or 5xx, or without a response.
RETRIES = 10
#: Maximum Retry-After, in seconds. Longer waits are ignored.
MAX_RETRY_AFTER = 120.0
#: First and maximum wait in seconds: 0.5, 1, 2, 4, 8, reduced by up to a quarter at random.
FIRST_WAIT = 0.5
MAX_WAIT = 8.0
#: Timeouts in seconds: for connecting, and for the next bytes of a response.
CONNECT_SECONDS = 5.0
RESPONSE_SECONDS = 600.0
#: Timeout for a complete response, as a multiple of `RESPONSE_SECONDS`. After this timeout, the
#: request is not retried.
COMPLETE_FACTOR = 2
#: Maximum length of a stored error message, and of one on screen, in characters.
MAX_ERROR = 10_000
MAX_MESSAGE = 500
#: Internal status of a response that posir discards.
DISCARDED_STATUS = 598
#: Statuses of rejected requests, and the error messages about long texts that some servers send
#: with status 500.
REJECTED_STATUSES = (400, 413, 422)
TEXT_TOO_LONG = re.compile(r"too (large|long)|context (length|size|window)|exceed", re.IGNORECASE)
#: Maximum number of list values to show.
MAX_VALUES = 10


class RequestError(Exception):
    """A request received no usable response."""

    def __init__(
        self,
        reason: str,
        status: int = 0,
        headers: Mapping[str, str] | None = None,
        *,
        is_timeout: bool = False,
    ) -> None:
        """Remove secrets from `reason`, the server's message. `status` is 0 without a response.

        If `is_timeout` is true, the server accepted the connection but did not respond in time.
        """
        self.reason = redact(reason)
        self.status = status
        self.headers = headers or {}
        self.is_timeout = is_timeout
        super().__init__(sanitize(self.reason, MAX_MESSAGE), status)

    @property
    def is_rejected(self) -> bool:
        """True if the server rejected the request, or failed because a text is too long."""
        is_too_large = self.status == 500 and bool(TEXT_TOO_LONG.search(self.reason))
        return self.status in REJECTED_STATUSES or is_too_large

    @property
    def is_text_error(self) -> bool:
        """True if a text may be the cause: the server rejected it or failed."""
        return self.is_rejected or self.status == 500

    @property
    def is_temporary(self) -> bool:
        """True if a retry or another server may succeed."""
        return not self.is_rejected and (self.status in (0, 408, 409, 429) or self.status >= 500)


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Parse a Retry-After header (RFC 9110, section 10.2.3) as seconds, or return None."""
    value = headers.get("retry-after", "").strip()
    with suppress(TypeError, ValueError, OverflowError):
        if value.replace(".", "", 1).isdecimal():
            return float(value)
        return max((parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds(), 0.0)
    return None


class Connection:
    """A thread-safe connection to a server. Error messages never contain the API key."""

    def __init__(
        self,
        address: str,
        *,
        key_variable: str = KEY_VARIABLE,
        retries: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Prepare a connection without sending anything.

        Args:
            address: Base address of the API, which usually ends in `/v1`.
            key_variable: Environment variable with the API key.
            retries: Retries after temporary failures; by default `RETRIES`.
            timeout: Maximum seconds until the next bytes of a response, ten minutes by default. A
                complete response may take twice as long.

        Raises:
            PosirError: The key contains characters that an HTTP header does not allow.
        """
        key = os.environ.get(key_variable, "").strip()
        if not (key.isascii() and key.isprintable()):
            raise PosirError(
                f"the key in {key_variable} contains characters that HTTP does not allow. Set it "
                "again."
            )
        add_secret(key)
        self._key = key
        self._key_variable = key_variable
        self.address = address
        self.retries = RETRIES if retries is None else retries
        #: Retries after status 429, an exceeded rate limit.
        self.limit_retries = self.retries
        self.connect_seconds = timeout or CONNECT_SECONDS
        self.seconds = timeout or RESPONSE_SECONDS
        # aiohttp's `trust_env` would also read credentials from ~/.netrc.
        parts = urlsplit(address)
        has_proxy = not proxy_bypass(parts.hostname or "")
        self._proxy = getproxies().get(parts.scheme) if has_proxy else None
        add_address(self._proxy)

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        """HTTP session, bound to the event loop of the first request."""
        # Most commands send no requests and do not need the slow import.
        import aiohttp

        session = aiohttp.ClientSession(
            headers={
                "Authorization": f"Bearer {self._key or 'none'}",
                "Accept-Encoding": "gzip",
                "User-Agent": "posir",
            },
            connector=aiohttp.TCPConnector(limit=0),
        )
        # aiohttp warns about sessions that are not closed.
        atexit.register(lambda: session.closed or submit(session.close()).result())
        return session

    async def send_async(
        self,
        url: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None = None,
        *,
        retries: int | None = None,
    ) -> str:
        """Send a request and retry after temporary failures. Return the text of the response.

        Args:
            url: The address.
            body: JSON of a POST request; None for a GET request.
            headers: Additional headers.
            retries: Maximum number of retries after status 500.

        Raises:
            RequestError: There is no usable response.
        """
        import aiohttp

        attempt = 0
        while True:
            try:
                return await self._read(url, json=body, headers=headers)
            except RequestError as error:
                failure = error
            except (aiohttp.ClientError, OSError, ValueError) as error:
                failure = self._explain_failure(error)
            max_retries = self.limit_retries if failure.status == 429 else self.retries
            if retries is not None and failure.status == 500:
                max_retries = min(max_retries, retries)
            is_final = not failure.is_temporary or failure.status == DISCARDED_STATUS
            if is_final or attempt >= max_retries:
                raise failure
            wait = read_retry_after(failure.headers) or 0.0
            if not 0 < wait <= MAX_RETRY_AFTER:
                wait = min(FIRST_WAIT * 2.0 ** min(attempt, 20), MAX_WAIT)
                wait *= random.uniform(0.75, 1)
            await asyncio.sleep(wait)
            attempt += 1

    async def _read(self, url: str, **options: Any) -> str:
        import aiohttp

        # Built per request, since callers may change `seconds`.
        timeout = aiohttp.ClientTimeout(
            total=COMPLETE_FACTOR * self.seconds,
            connect=self.connect_seconds,
            sock_read=self.seconds,
        )
        async with self._session.request(
            "GET" if options["json"] is None else "POST",
            url,
            **options,
            allow_redirects=False,
            proxy=self._proxy,
            timeout=timeout,
        ) as response:
            if "Location" in response.headers and 300 <= response.status < 400:
                raise RequestError(
                    f"redirects to {response.headers['Location']}, which would receive the texts; "
                    "use that address if this is intended",
                    DISCARDED_STATUS,
                )
            text = await _read_text(response)
            if response.ok:
                return text
            raise RequestError(
                _extract_message(text)[:MAX_ERROR], response.status, response.headers
            )

    def _explain_failure(self, error: Exception) -> RequestError:
        import aiohttp

        is_server_timeout = isinstance(error, aiohttp.ServerTimeoutError)
        if isinstance(error, TimeoutError) and not is_server_timeout:
            seconds = COMPLETE_FACTOR * self.seconds
            reason = f"is not complete after {seconds:,.0f} seconds"
            return RequestError(reason, DISCARDED_STATUS, is_timeout=True)
        cause = getattr(error, "os_error", error)
        code = getattr(cause, "errno", None)
        reason = str(cause) or repr(cause)
        if code and code > 0:
            reason = os.strerror(code)
        return RequestError(reason, is_timeout=isinstance(error, aiohttp.SocketTimeoutError))

    def explain(self, error: RequestError, *, advice: str) -> str:
        """Describe a failed request and a remedy. `advice` is for rejected requests."""
        attempts = self.retries + 1
        status = error.status
        reason = quote_message(error.reason)
        if error.is_rejected:
            return f"the server rejects a request ({status}: {reason}). {advice}"
        match status:
            case 0 if error.is_timeout:
                return (
                    f"no response within {self.seconds:,.0f} seconds. Is the server overloaded, or "
                    "loading its model?"
                )
            case 0:
                return f"no response after {attempts} attempts ({reason}). Is the server running?"
            case 598:
                return f"the server's response is not accepted: it {reason}."
            case 401 | 403:
                name = self._key_variable
                key = f"the key in {name}" if self._key else f"requests without a key; set {name}"
                return f"the server rejects {key} ({status}: {reason})."
            case 404:
                return (
                    f"the server has no such model or address (404: {reason}). Addresses usually "
                    "end in /v1."
                )
            case 429:
                return (
                    f"the server's rate limit is still exceeded after all attempts (429: "
                    f"{reason}). Run again later."
                )
        return f"the server failed up to {attempts} times ({status}: {reason})."


def quote_message(message: str) -> str:
    """Return a server's message on one line, shortened and without control characters."""
    return sanitize(" ".join(message.split()), MAX_MESSAGE)


@cache
def _start_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="posir requests", daemon=True).start()
    return loop


def submit(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine in the event loop for requests."""
    return asyncio.run_coroutine_threadsafe(coroutine, _start_loop())


def _extract_message(text: str) -> str:
    """Extract the message from an error response of OpenAI, FastAPI, Text Embeddings Inference or
    Ollama; return any other text unchanged.
    """
    try:
        response = parse_json(text, "response")
    except InputError:
        return text
    for key in ("error", "detail", "message"):
        if isinstance(response, dict) and response.get(key):
            response = response[key]
    return response if isinstance(response, str) else str(response)


async def _read_text(response: aiohttp.ClientResponse) -> str:
    content = bytearray()
    limit = read_line_limit()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > limit:
            problem = (
                f"is larger than {describe_bytes(limit)}; set {MAX_BYTES.variable} to a larger "
                "number to read it"
            )
            raise RequestError(problem, DISCARDED_STATUS)
    return content.decode("utf-8", "replace")


def join_first(values: Sequence[object]) -> str:
    """Join at most `MAX_VALUES` values on one line."""
    text = ", ".join(sanitize(str(value)) for value in values[:MAX_VALUES])
    return text + (", ..." if len(values) > MAX_VALUES else "")
