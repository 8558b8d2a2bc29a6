"""Requests to language models behind OpenAI-compatible chat APIs: several servers, and a bound on what they cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import openai

from posir_tasks.digests import digest_json
from posir_tasks.display.wording import sanitized
from posir_tasks.errors import PosirError
from posir_tasks.gate import GateError, parse_json
from posir_tasks.language_models.call_log import Completion
from posir_tasks.language_models.settings import LanguageModelSettings, StructuredOutput
from posir_tasks.models.connection import Connection
from posir_tasks.tokens import estimate_tokens

#: Seconds for which a server that cannot be reached gets no request, if there is another.
REST_SECONDS = 30.0
#: How often a request is sent again after an answer that is not one of a chat API; proxies return pages of their own.
INVALID_ANSWERS = 2
#: Most characters of an answer that are parsed.
MAX_ANSWER = 2**26
#: Retries on one of several servers, before the next is tried.
RETRIES_PER_SERVER = 2
ADVICE = (
    "Check the settings of llm; some models accept no temperature (temperature: null) or no JSON schema (structured_output)."
)

#: Role and content of each message.
#: Role and content of each message.
Messages = tuple[tuple[str, str], ...]


class RejectedError(Exception):
    """The server refuses one request, for example because it is too long."""


@dataclass(frozen=True)
class ChatRequest:
    """A request to a language model."""

    prompt: str
    """Name and version of the prompt."""
    messages: Messages
    schema: Mapping[str, Any]
    """JSON schema of the answer."""
    attempt: int
    """Counts the requests for one answer, from 0."""
    settings: LanguageModelSettings

    @cached_property
    def body(self) -> dict[str, Any]:
        """The JSON that is sent."""
        settings = self.settings
        body: dict[str, Any] = {
            "model": settings.model,
            "messages": [{"role": role, "content": content} for role, content in self.messages],
            "max_tokens": settings.max_tokens,
        }
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        if self.attempt:
            # Another seed, or a deterministic server would repeat an answer that could not be read.
            body["seed"] = self.attempt
        if settings.structured_output is StructuredOutput.SCHEMA:
            schema = {"name": self.prompt.partition("@")[0], "strict": True, "schema": self.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif settings.structured_output is StructuredOutput.OBJECT:
            body["response_format"] = {"type": "json_object"}
        return body

    @cached_property
    def key(self) -> str:
        """The identity of the request: a digest of all that is asked, in 32 hexadecimal digits."""
        settings = {name: value for name, value in self.body.items() if name != "messages"}
        return digest_json([self.prompt, self.attempt, settings, self.messages])


@dataclass
class _Server:
    """One endpoint."""

    address: str
    connection: Connection
    client: openai.AsyncOpenAI
    in_flight: int = 0
    resting_until: float = 0.0


class ChatClient:
    """Sends requests to the servers of a language model, from one event loop."""

    def __init__(self, settings: LanguageModelSettings) -> None:
        addresses = [str(endpoint).rstrip("/") for endpoint in settings.endpoints]
        retries = settings.retries if len(addresses) == 1 else min(settings.retries, RETRIES_PER_SERVER)
        self._model = settings.model
        self._servers = []
        for address in addresses:
            connection = Connection(address, key_variable=settings.key_variable, retries=retries, timeout=settings.timeout)
            self._servers.append(_Server(address, connection, connection.open_async_client()))

    async def aclose(self) -> None:
        """Close the connections to the servers."""
        await asyncio.gather(*(server.client.close() for server in self._servers))

    async def complete(self, request: ChatRequest) -> Completion:
        """Return a server's answer. A server that cannot be reached or fails is replaced by another.

        Raises:
            RejectedError: The server refuses this request.
            PosirError: No server answers, or the key, the model or the address is refused.
        """
        tried: list[_Server] = []
        while True:
            server = self._choose(tried)
            server.in_flight += 1
            try:
                return await self._send(server, request)
            except openai.OpenAIError as error:
                tried.append(server)
                self._handle(server, error, is_last=len(tried) == len(self._servers))
            finally:
                server.in_flight -= 1

    def _choose(self, tried: Sequence[_Server]) -> _Server:
        """Return the untried server with the fewest requests in flight, one at rest only if there is no other."""
        now = time.monotonic()
        untried = [server for server in self._servers if server not in tried]
        return min(untried, key=lambda endpoint: (endpoint.resting_until > now, endpoint.in_flight))

    def _handle(self, server: _Server, error: openai.OpenAIError, *, is_last: bool) -> None:
        """Let a server rest, or raise if no other can do better."""
        # The errors of the library are not chained: they have the server's answer, which may repeat the key.
        if isinstance(error, openai.APIStatusError) and error.status_code in (400, 413, 422):
            raise RejectedError(server.connection.explain(error, advice=ADVICE)) from None
        status = error.status_code if isinstance(error, openai.APIStatusError) else 0
        may_pass = isinstance(error, openai.APIConnectionError) or status >= 500 or status in (408, 409, 429)
        if is_last or not may_pass:
            reason = server.connection.explain(error, advice=ADVICE)
            raise PosirError(f"{self._model}@{server.address}: {reason} Answers so far are saved.") from None
        server.resting_until = time.monotonic() + REST_SECONDS

    async def _send(self, server: _Server, request: ChatRequest) -> Completion:
        # Gateways that honor the key do not charge a request twice whose answer was lost on the way.
        options: Any = {"headers": {"Idempotency-Key": request.key}}
        # Merging a path with the base address takes longer than reading the complete address.
        url = f"{server.address}/chat/completions"
        for _ in range(INVALID_ANSWERS + 1):
            # Reading the answer as text takes a third of the time of the client's own models, and says what is wrong with it.
            text = await server.client.post(url, cast_to=str, body=request.body, options=options)
            completion = read_completion(text, request.messages)
            if completion is not None:
                return completion
        shown = server.connection.redact(text)
        raise PosirError(
            f"{self._model}@{server.address}: the server's answer is not one of an OpenAI-compatible chat API ({shown})."
        )


def read_completion(text: str, messages: Messages) -> Completion | None:
    """Return the completion in a server's answer; None if it is not one of a chat API.

    Tokens that the server does not count are estimated.
    """
    try:
        answer = parse_json(text, "answer", max_bytes=MAX_ANSWER)
        choice = answer["choices"][0]
        message = choice["message"]
        content = message.get("content") or ""
        finish = "refusal" if message.get("refusal") else choice.get("finish_reason") or "stop"
        usage = answer.get("usage") or {}
        served = answer.get("model")
        if not (isinstance(content, str) and isinstance(finish, str) and isinstance(usage, dict)):
            return None
    except (GateError, KeyError, IndexError, TypeError, AttributeError):
        return None
    content = replace_surrogates(content)
    return Completion(
        content,
        finish,
        _read_count(usage.get("prompt_tokens"), lambda: sum(estimate_tokens(content) for _, content in messages)),
        _read_count(usage.get("completion_tokens"), lambda: estimate_tokens(content)),
        sanitized(served) if isinstance(served, str) else "",
    )


def _read_count(value: Any, estimate: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**40 else estimate()


def replace_surrogates(text: str) -> str:
    """Return a text with `?` for each surrogate, which JSON can contain and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode()
