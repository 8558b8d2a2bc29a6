"""Client for language models behind OpenAI-compatible chat APIs, on one or more servers."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import islice
from pathlib import Path
from string import Template
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from posir_tasks.base.digests import digest, digest_json
from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.secrets import redact_collected
from posir_tasks.base.untrusted import InputError, parse_json, parse_json_at
from posir_tasks.base.wording import sanitize
from posir_tasks.language_models.call_log import Completion
from posir_tasks.language_models.settings import LanguageModelSettings
from posir_tasks.models.connection import Connection, RequestError, quote_message
from posir_tasks.text.words import estimate_tokens

#: Seconds without requests to a server that failed, if there is another server.
COOLDOWN_SECONDS = 30.0
#: Maximum number of retries after responses that are not in the format of a chat API, such as a
#: proxy's error page.
MAX_INVALID_RESPONSES = 2
#: Maximum size of a response in bytes.
MAX_RESPONSE_BYTES = 2**26
#: Token counts from this value on are ignored as implausible.
MAX_TOKEN_COUNT = 2**40
#: Minimum temperature of repeated requests.
RETRY_TEMPERATURE = 0.5
#: Maximum number of retries per server if there are several servers.
RETRIES_PER_SERVER = 2
REJECTION_ADVICE = (
    "Check the settings of llm; some models accept no temperature (temperature: null) or no JSON "
    "schema (structured_output)."
)


class RejectedError(Exception):
    """The server rejected a request, for example because it is too long."""


@dataclass(frozen=True)
class ChatRequest:
    """A request to a language model."""

    prompt: str
    """Name and version of the prompt."""
    body: Mapping[str, Any]
    """JSON body."""
    key: str
    """Hash of prompt, attempt, options and messages, 32 hexadecimal digits."""
    input_tokens: int
    """Estimated number of input tokens."""


@dataclass
class _Server:
    connection: Connection
    in_flight: int = 0
    cooldown_until: float = 0.0


class ChatClient:
    """Client that sends requests to a language model's servers, for use in one event loop."""

    def __init__(self, settings: LanguageModelSettings) -> None:
        retries = settings.retries
        if len(settings.endpoints) > 1:
            retries = min(retries, RETRIES_PER_SERVER)
        self._model = settings.model
        self._servers = [
            _Server(
                Connection(
                    str(endpoint).rstrip("/"),
                    key_variable=settings.key_variable,
                    retries=retries,
                    timeout=settings.timeout,
                )
            )
            for endpoint in settings.endpoints
        ]

    async def complete(self, request: ChatRequest) -> Completion:
        """Send a request to the server with the fewest requests in flight; after a failure, try the
        next server.

        Raises:
            RejectedError: The server rejects this request.
            PosirError: No server responds, or the response has an unknown format.
        """
        candidates = list(self._servers)
        while True:
            now = time.monotonic()
            # Servers that failed recently are tried last.
            server = min(
                candidates,
                key=lambda candidate: (candidate.cooldown_until > now, candidate.in_flight),
            )
            candidates.remove(server)
            server.in_flight += 1
            name = f"{self._model}@{server.connection.address}"
            try:
                for _ in range(MAX_INVALID_RESPONSES + 1):
                    text = await server.connection.send_async(
                        f"{server.connection.address}/chat/completions",
                        request.body,
                        # Gateways that support this header do not charge twice for lost responses.
                        headers={"Idempotency-Key": request.key},
                    )
                    completion = read_completion(text, request.input_tokens)
                    if completion is not None:
                        return completion
            except RequestError as error:
                if error.is_temporary and candidates:
                    server.cooldown_until = time.monotonic() + COOLDOWN_SECONDS
                    continue
                reason = server.connection.explain(error, advice=REJECTION_ADVICE)
                if error.is_rejected:
                    raise RejectedError(reason) from None
                raise PosirError(f"{name}: {reason} Answers so far are saved.") from None
            finally:
                server.in_flight -= 1
            reason = (
                "the server's response does not have the format of an OpenAI-compatible chat API "
                f"({quote_message(text)})."
            )
            # Gateways report errors of single requests as a response without choices.
            if text.lstrip().startswith("{"):
                raise RejectedError(reason)
            raise PosirError(f"{name}: {reason}")


def read_completion(text: str, input_tokens: int) -> Completion | None:
    """Parse a server's response. Return None if it is not in the format of a chat API.

    `input_tokens` is used if the server does not report token counts.
    """
    try:
        response = parse_json(text, "answer", max_bytes=MAX_RESPONSE_BYTES)
        choice = response["choices"][0]
        message = choice["message"]
        content = message.get("content") or ""
        if isinstance(content, list):
            # Drop the reasoning.
            content = "".join(entry["text"] for entry in content if entry.get("type") == "text")
        finish = "refusal" if message.get("refusal") else choice.get("finish_reason") or "stop"
        usage = response.get("usage") or {}
        counts = [usage.get("prompt_tokens"), usage.get("completion_tokens")]
        model = str(response.get("model") or "")
    except (InputError, KeyError, IndexError, TypeError, AttributeError):
        return None
    if not (isinstance(content, str) and isinstance(finish, str)):
        return None
    # The content will be stored and may repeat a secret.
    content = redact_collected(replace_surrogates(content))
    token_counts = [input_tokens, estimate_tokens(content)]
    for index, count in enumerate(counts):
        if isinstance(count, int) and 0 <= count < MAX_TOKEN_COUNT:
            token_counts[index] = count
    return Completion(content, sanitize(finish), token_counts[0], token_counts[1], sanitize(model))


def replace_surrogates(text: str) -> str:
    """Replace surrogates, which are valid in JSON but not in UTF-8, with `?`."""
    return text.encode("utf-8", "replace").decode()


AnswerT = TypeVar("AnswerT", bound=BaseModel)

PROMPTS = Path(__file__).parent / "prompts"
#: Line between system message and user message in a prompt file.
USER_HEADING = "=== user ===\n"
#: Maximum number of positions in an answer to try to parse JSON from.
MAX_JSON_STARTS = 50
#: Possible start of JSON: an object, a list of objects, or an empty list that is the whole answer.
JSON_START = re.compile(r"\{|\[(?=\s*\{)|\A\[(?=\s*\]\Z)")
#: A digit after at most two words, such as `Relevance: 3`.
NUMBER = re.compile(r"[\s*_`#]*(?:[^\W\d_]+[\s*_:=]+){0,2}(\d)[\s*_`.]*")
#: Strings, and trailing commas in lists and objects.
REPAIRABLE = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', re.DOTALL)
REASONING_TAG = "(think|thinking|thought|reasoning)>"
#: Reasoning before an answer. The opening tag may be missing because it is part of the prompt, and
#: the closing tag because the answer is truncated.
REASONING = re.compile(
    rf"(?!\s*[{{\[])(.*</{REASONING_TAG}|\s*<{REASONING_TAG}.*)", re.DOTALL | re.IGNORECASE
)
#: Finish reasons of truncated answers.
TRUNCATION_REASONS = ("length", "max_tokens")
#: Finish reasons of refusals.
REFUSAL_REASONS = ("refusal", "content_filter")
#: Maximum length of a generated question, in characters.
MAX_QUESTION_CHARACTERS = 1000
#: First words of typical refusals.
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
    """A prompt template and the type of its answer."""

    name: str
    version: str
    system: Template
    user: Template
    """User message with placeholders such as `$document`; `system` may contain them too."""
    answer: type[AnswerT]
    is_bare: bool = False
    """If true, the answer is the bare value of its only field instead of a JSON object."""

    @cached_property
    def id(self) -> str:
        """Name, version, and a hash of content and answer type, such as `locate@1-3f2a90c1`."""
        schema = sorted(self.schema.items(), key=repr)
        content = repr((self.system.template, self.user.template, schema))
        return f"{self.name}@{self.version}-{digest(content, size=4).hex()}"

    @cached_property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the answer."""
        return self.answer.model_json_schema()

    def build_request(
        self, values: Mapping[str, str], attempt: int, settings: LanguageModelSettings
    ) -> ChatRequest:
        """Build a request from placeholder values. `attempt` starts at 0."""
        system = self.system.substitute(values)
        user = self.user.substitute(values)
        options: dict[str, Any] = {"model": settings.model, "max_tokens": settings.max_tokens}
        temperature = settings.temperature
        if temperature is not None:
            options["temperature"] = max(temperature, RETRY_TEMPERATURE) if attempt else temperature
        if attempt:
            # A deterministic server would repeat the unusable answer.
            options["seed"] = attempt
        response_format = "none" if self.is_bare else settings.structured_output
        if response_format != "none":
            options["response_format"] = {"type": response_format}
        if response_format == "json_schema":
            schema = {"name": self.name, "strict": True, "schema": self.schema}
            options["response_format"]["json_schema"] = schema
        messages = [{"role": "user", "content": user}]
        if system:
            messages.insert(0, {"role": "system", "content": system})
        return ChatRequest(
            prompt=self.id,
            body=options | {"messages": messages},
            key=digest_json([self.id, attempt, options, messages]),
            input_tokens=estimate_tokens(system) + estimate_tokens(user),
        )


def load_prompt(
    name: str, answer: type[AnswerT], *, is_bare: bool = False
) -> PromptTemplate[AnswerT]:
    """Load a prompt from the file `NAME.vVERSION.txt` in this package."""
    (file,) = PROMPTS.glob(f"{name}.v*.txt")
    version = file.suffixes[0].removeprefix(".v")
    system, user = map(str.strip, file.read_text(encoding="utf-8").split(USER_HEADING))
    return PromptTemplate(name, version, Template(system), Template(user), answer, is_bare)


class ModelAnswer(BaseModel):
    """A JSON answer. Unknown fields are ignored."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", json_schema_extra={"additionalProperties": False}
    )

    @model_validator(mode="before")
    @classmethod
    def _normalize_spelling(cls, value: Any) -> Any:
        """Normalize the spelling of field names and choices, such as `"Answer": "Yes."`."""
        if not isinstance(value, dict):
            return value
        values = {str(name).lower(): item for name, item in value.items()}
        for name, field in cls.model_fields.items():
            if get_origin(field.annotation) is Literal and name in values:
                choices = {str(choice): choice for choice in get_args(field.annotation)}
                choice = str(values[name]).strip(" .").lower().replace(" ", "_")
                values[name] = choices.get(choice, values[name])
        return values


class AnswerFault(StrEnum):
    """A reason why an answer is unusable."""

    EMPTY = "the answer is empty"
    NO_JSON = "the answer contains no JSON"
    INVALID_JSON = "the answer's JSON is invalid or incomplete"
    WRONG_FIELDS = "the answer's JSON has the wrong fields"
    CUT_OFF = "the answer was cut off"
    REFUSED = "the model refused"
    REJECTED = "the server refused the request"


class UnusableAnswerError(Exception):
    """An answer is unusable."""

    def __init__(self, fault: str, detail: str = "") -> None:
        super().__init__(fault, detail)
        self.fault = fault
        """An `AnswerFault`, or the caller's reason."""
        self.detail = detail


def parse_answer(
    completion: Completion, answer: type[AnswerT], *, is_bare: bool = False
) -> AnswerT:
    """Parse a language model's answer: JSON, possibly surrounded by prose or reasoning.

    If the answer type has a single field, a bare value is also accepted: a list, a number or, with
    `is_bare`, a text.

    Raises:
        UnusableAnswerError: The answer does not match the type, or the model refused.
    """
    reasoning = REASONING.match(completion.text)
    text = completion.text[reasoning.end() if reasoning else 0 :].strip()
    is_truncated = completion.finish_reason in TRUNCATION_REASONS
    is_refused = completion.finish_reason in REFUSAL_REASONS or REFUSAL.match(text) is not None
    fault = AnswerFault.NO_JSON if text else AnswerFault.EMPTY
    detail = ""
    for value in _list_candidates(text, answer, is_bare and not is_truncated and not is_refused):
        try:
            if value is None:
                fault = AnswerFault.INVALID_JSON
                continue
            return answer.model_validate_json(
                replace_surrogates(json.dumps(value, ensure_ascii=False))
            )
        except ValidationError as error:
            if fault is not AnswerFault.INVALID_JSON:
                fault = AnswerFault.WRONG_FIELDS
                detail = detail or summarize_error(error)
    if is_refused:
        raise UnusableAnswerError(AnswerFault.REFUSED)
    if is_truncated:
        raise UnusableAnswerError(AnswerFault.CUT_OFF)
    raise UnusableAnswerError(fault, detail)


def _list_candidates(text: str, answer: type[BaseModel], is_bare: bool) -> Iterator[Any]:
    """Yield possible answers, most likely first, and None for invalid JSON."""
    name, *other_names = answer.model_fields
    number = NUMBER.fullmatch(text)
    if number and not other_names:
        yield {name: int(number[1])}
    for candidate in dict.fromkeys((text, REPAIRABLE.sub(_repair, text))):
        for index, match in enumerate(islice(JSON_START.finditer(candidate), MAX_JSON_STARTS)):
            try:
                value, _ = parse_json_at(candidate, match.start(), "answer")
            except InputError:
                yield None
                continue
            if isinstance(value, dict):
                yield value
            if not other_names and isinstance(value, list):
                yield {name: value}
            elif not other_names and not index:
                yield {name: [value]}
    if is_bare and text and answer.model_fields[name].annotation is str:
        yield {name: text}


def _repair(match: re.Match[str]) -> str:
    """Drop a trailing comma, or escape line breaks and tabs in a string."""
    return (match[1] or "").replace("\n", "\\n").replace("\t", "\\t")
