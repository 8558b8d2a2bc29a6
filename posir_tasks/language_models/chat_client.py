"""Requests to language models behind OpenAI-compatible chat APIs: several servers, and a bound on
what they cost.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from string import Template
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from posir_tasks.base.digests import digest, digest_json
from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.secrets import redact_collected
from posir_tasks.base.untrusted import GateError, parse_json, parse_json_at
from posir_tasks.base.wording import sanitized
from posir_tasks.language_models.call_log import Completion
from posir_tasks.language_models.settings import LanguageModelSettings
from posir_tasks.models.connection import Connection, RequestError, quote_message
from posir_tasks.text.words import estimate_tokens

#: Seconds for which a server that cannot be reached gets no request, if there is another.
REST_SECONDS = 30.0
#: How often a request is sent again after an answer that is not one of a chat API; proxies return
#: pages of their own.
INVALID_ANSWERS = 2
#: Most characters of an answer that are parsed.
MAX_ANSWER = 2**26
#: Retries on one of several servers, before the next is tried.
RETRIES_PER_SERVER = 2
ADVICE = (
    "Check the settings of llm; some models accept no temperature (temperature: null) or no JSON "
    "schema (structured_output)."
)


class RejectedError(Exception):
    """The server refuses one request, for example because it is too long."""


@dataclass(frozen=True)
class ChatRequest:
    """A request to a language model."""

    prompt: str
    """Name and version of the prompt."""
    body: Mapping[str, Any]
    """The JSON that is sent."""
    key: str
    """The identity of the request: a digest of all that is asked, in 32 hexadecimal digits."""
    input_tokens: int
    """An estimate."""


@dataclass
class _Server:
    """One endpoint."""

    connection: Connection
    in_flight: int = 0
    resting_until: float = 0.0


class ChatClient:
    """Sends requests to the servers of a language model, from one event loop."""

    def __init__(self, settings: LanguageModelSettings) -> None:
        addresses = [str(endpoint).rstrip("/") for endpoint in settings.endpoints]
        retries = (
            settings.retries if len(addresses) == 1 else min(settings.retries, RETRIES_PER_SERVER)
        )
        self._model = settings.model
        self._servers = []
        for address in addresses:
            connection = Connection(
                address,
                key_variable=settings.key_variable,
                retries=retries,
                timeout=settings.timeout,
            )
            self._servers.append(_Server(connection))

    async def aclose(self) -> None:
        """Close the connections to the servers."""
        await asyncio.gather(*(server.connection.aclose() for server in self._servers))

    async def complete(self, request: ChatRequest) -> Completion:
        """Return an answer of any server that works; raise RejectedError if this request is
        refused, else PosirError.
        """
        tried: list[_Server] = []
        while True:
            now = time.monotonic()
            untried = [server for server in self._servers if server not in tried]
            # One at rest is asked only if there is no other.
            server = min(
                untried, key=lambda endpoint: (endpoint.resting_until > now, endpoint.in_flight)
            )
            server.in_flight += 1
            try:
                return await self._send(server, request)
            except RequestError as error:
                tried.append(server)
                if error.may_pass and len(tried) < len(self._servers):
                    server.resting_until = time.monotonic() + REST_SECONDS
                    continue
                reason = server.connection.explain(error, advice=ADVICE)
                if error.refused:
                    raise RejectedError(reason) from None
                raise PosirError(
                    f"{self._model}@{server.connection.address}: {reason} Answers so far are saved."
                ) from None
            finally:
                server.in_flight -= 1

    async def _send(self, server: _Server, request: ChatRequest) -> Completion:
        # Gateways that honor the key do not charge a request twice whose answer was lost on the
        # way.
        headers = {"Idempotency-Key": request.key}
        url = f"{server.connection.address}/chat/completions"
        for _ in range(INVALID_ANSWERS + 1):
            text = await server.connection.send_async(url, request.body, headers=headers)
            completion = read_completion(text, request.input_tokens)
            if completion is not None:
                return completion
        shown = quote_message(text)
        raise PosirError(
            f"{self._model}@{server.connection.address}: the server's answer is not one of an "
            "OpenAI-compatible chat API "
            f"({shown})."
        )


def read_completion(text: str, input_tokens: int) -> Completion | None:
    """Return the completion in a server's answer, tokens as estimated if not counted; None if it is
    not one of a chat API.
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
    # It is stored, and a server may repeat the key.
    content = redact_collected(replace_surrogates(content))
    return Completion(
        content,
        sanitized(finish),
        _read_count(usage.get("prompt_tokens"), input_tokens),
        _read_count(usage.get("completion_tokens"), estimate_tokens(content)),
        sanitized(served) if isinstance(served, str) else "",
    )


def _read_count(value: Any, estimate: int) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**40 else estimate


def replace_surrogates(text: str) -> str:
    """Return a text with `?` for each surrogate, which JSON can contain and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode()


AnswerT = TypeVar("AnswerT", bound=BaseModel)

PROMPTS = Path(__file__).parent / "prompts"
HEADING = "=== user ===\n"
#: Where JSON is looked for in an answer, at most.
MAX_STARTS = 50
#: Words with which models refuse, at the start of an answer.
REFUSAL = re.compile(
    r"\W*(i(['’]m| am)? (sorry|unable|not able)|i can(no|['’])t|i apologi[sz]e|as an "
    r"ai|sorry\b|unfortunately|es tut mir leid|"
    r"ich kann (das|dies|nicht)|désolé|je suis désolé|lo siento|mi dispiace|desculpe|извините|к "
    r"сожалению|"
    r"申し訳|すみません|抱歉|对不起|很抱歉|죄송|عذر|آسف|"
    r"(ich kann|je ne peux pas|no puedo|non posso|não posso|я не могу|nie mogę|我?(无法|不能)|لا "
    r"أستطيع|لا يمكنني).{0,30}"
    r"(helfen|übersetz|aider|tradui|ayudar|traduc|aiutar|tradu[rz]|ajudar|помочь|перев|pomóc|przetłum|帮助|协助|翻译|مساعد|ترجم))",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class PromptTemplate(Generic[AnswerT]):
    """A prompt, and the type of its answer."""

    name: str
    version: int
    system: Template
    user: Template
    """Both with placeholders such as `$document` for values."""
    answer: type[AnswerT]

    @cached_property
    def id(self) -> str:
        """Name, version, and a digest of content and answer type, such as `locate@1-3f2a90c1`."""
        content = repr(
            (self.system.template, self.user.template, sorted(self.schema.items(), key=repr))
        )
        return f"{self.name}@{self.version}-{digest(content, size=4).hex()}"

    @cached_property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the answer."""
        return self.answer.model_json_schema()

    def build_request(
        self, values: Mapping[str, str], attempt: int, settings: LanguageModelSettings
    ) -> ChatRequest:
        """Return the request for given values of the placeholders; attempts at one answer count
        from 0.
        """
        texts = {"system": self.system.substitute(values), "user": self.user.substitute(values)}
        messages = [{"role": role, "content": content} for role, content in texts.items()]
        body: dict[str, Any] = {
            "model": settings.model,
            "messages": messages,
            "max_tokens": settings.max_tokens,
        }
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        if attempt:
            # Another seed, or a deterministic server would repeat an answer that could not be read.
            body["seed"] = attempt
        if settings.structured_output == "json_schema":
            schema = {"name": self.name, "strict": True, "schema": self.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif settings.structured_output == "json_object":
            body["response_format"] = {"type": "json_object"}
        chosen = {name: value for name, value in body.items() if name != "messages"}
        key = digest_json([self.id, attempt, chosen, list(texts.items())])
        return ChatRequest(self.id, body, key, sum(map(estimate_tokens, texts.values())))


def load_prompt(name: str, answer: type[AnswerT]) -> PromptTemplate[AnswerT]:
    """Return the newest version of a prompt."""
    versions = {int(file.stem.rpartition(".v")[2]): file for file in PROMPTS.glob(f"{name}.v*.txt")}
    system, _, user = versions[max(versions)].read_text(encoding="utf-8").partition(HEADING)
    return PromptTemplate(
        name, max(versions), Template(system.strip()), Template(user.strip()), answer
    )


class ModelAnswer(BaseModel):
    """An answer in JSON. Servers are asked for exactly these fields; others in an answer are
    ignored.
    """

    model_config = ConfigDict(
        frozen=True, extra="ignore", json_schema_extra={"additionalProperties": False}
    )


class UnusableAnswerError(Exception):
    """An answer that cannot be used; the text is the reason."""


def parse_answer(completion: Completion, answer: type[AnswerT]) -> AnswerT:
    """Return the answer in the JSON that a language model wrote; raise UnusableAnswerError if there
    is none or it refused.
    """
    text, problem, end = completion.text, "the answer has no JSON", 0
    for _ in range(MAX_STARTS):
        start = text.find("{", end)
        if start < 0:
            break
        try:
            value, end = parse_json_at(text, start, "answer")
            # JSON can contain what UTF-8 cannot represent.
            return answer.model_validate(
                parse_json(replace_surrogates(json.dumps(value, ensure_ascii=False)), "answer")
            )
        except GateError as error:
            problem = (
                "the answer's JSON "
                f"{'repeats a key' if 'occurs twice' in error.problem else 'is incomplete'}"
            )
            end = start + 1
        except ValidationError as error:
            if "JSON is incomplete" not in problem:
                problem = f"the answer's JSON has other fields ({summarize_error(error)})"
    if completion.finish_reason in ("refusal", "content_filter") or REFUSAL.match(text):
        raise UnusableAnswerError("the model refused")
    raise UnusableAnswerError(
        "the answer was cut off" if completion.finish_reason == "length" else problem
    )
