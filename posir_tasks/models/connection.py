"""A connection to a server with an OpenAI-compatible API: key, retries, and what an error means for the user."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
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
#: Most characters of a server's message that are shown.
MAX_MESSAGE = 500
#: Most values of a list that are shown.
MAX_VALUES = 10


class Connection:
    """The client of a server; may be used by several threads. The key is in no public attribute and in no message."""

    def __init__(self, address: str, *, key_variable: str = KEY_VARIABLE, retries: int, timeout: float | None = None) -> None:
        """Prepare a connection; nothing is sent.

        Args:
            address: Base address of the API, which usually ends in `/v1`.
            key_variable: Environment variable with the key.
            retries: How often a request is repeated after a failure that may pass.
            timeout: Seconds to wait for an answer; None for the client's default, ten minutes.

        Raises:
            PosirError: The key cannot be sent in a header.
        """
        key = os.environ.get(key_variable, "").strip()
        if not (key.isascii() and key.isprintable()):
            raise PosirError(f"the key in {key_variable} has characters that HTTP does not allow. Set it again.")
        retries = min(retries, FIRST_RETRIES.get())
        self._key, self._key_variable, self._retries = key, key_variable, retries
        wait = openai.NOT_GIVEN if timeout is None else timeout
        self._options: dict[str, Any] = {
            "api_key": key or NO_KEY,
            "base_url": address,
            "max_retries": retries,
            "timeout": wait,
        }

    @cached_property
    def client(self) -> openai.OpenAI:
        """The client, for any number of threads."""
        return openai.OpenAI(**self._options)

    @contextmanager
    def limit_retries(self, retries: int) -> Iterator[None]:
        """Repeat a failed request at most so often while the context is open."""
        usual, self._retries = self._retries, retries
        self.client.max_retries = retries
        try:
            yield
        finally:
            self._retries = self.client.max_retries = usual

    def open_async_client(self) -> openai.AsyncOpenAI:
        """Return a client for one event loop, which has to be closed there; it needs the package aiohttp.

        With aiohttp, a request takes half the processor time that it takes with the client's own transport in threads.
        """
        return openai.AsyncOpenAI(**self._options, http_client=openai.DefaultAioHttpClient())

    def explain(self, error: openai.OpenAIError, *, advice: str) -> str:
        """Return what a failed request means and what to do, with the server's own message.

        Args:
            error: The error of the client. It should not be chained: it has the server's answer, which may repeat the key.
            advice: What to do if the server refuses the request itself, as a sentence.
        """
        attempts = self._retries + 1
        if isinstance(error, openai.APIConnectionError):
            return f"no answer after {attempts} attempts ({self.redact(error.__cause__ or error)}). Is the server running?"
        if not isinstance(error, openai.APIStatusError):
            return f"the server's answer cannot be read ({self.redact(error)})."
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
                return f"the server's limit is still exceeded after up to {attempts} attempts ({status}). Run again later."
            case _:
                return f"the server failed up to {attempts} times ({status})."

    def _list_models(self) -> str:
        try:
            models = self.client.with_options(max_retries=0, timeout=10).models.list().data
            return f" Its models: {self.redact(shorten([model.id for model in models]))}."
        except (openai.OpenAIError, TypeError, ValueError, AttributeError):
            return ""

    def redact(self, message: object) -> str:
        """Return a message without the key, on one line, of limited length."""
        text = str(message).replace(self._key, "***") if self._key else str(message)
        return " ".join(text.split())[:MAX_MESSAGE]


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
