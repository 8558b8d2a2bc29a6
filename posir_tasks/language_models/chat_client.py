"""Requests to language models behind OpenAI-compatible chat APIs, on several servers."""

from __future__ import annotations

import asyncio
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
from posir_tasks.base.untrusted import GateError, parse_json, parse_json_at
from posir_tasks.base.wording import sanitize
from posir_tasks.language_models.call_log import Completion
from posir_tasks.language_models.settings import LanguageModelSettings
from posir_tasks.models.connection import Connection, RequestError, quote_message
from posir_tasks.text.words import estimate_tokens

#: Seconds for which a server that cannot be reached gets no request, if there is another.
REST_SECONDS = 30.0
#: How often a request is sent again after an answer that is not one of a chat API; proxies return
#: pages of their own.
INVALID_ANSWERS = 2
#: Maximum number of bytes of an answer.
MAX_ANSWER = 2**26
#: A number of tokens that no call has; a server that names it does not count.
MAX_COUNT = 2**40
#: Minimum temperature of a repeated question.
RETRY_TEMPERATURE = 0.5
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

    async def aclose(self) -> None:
        """Close the connections to the servers."""
        await asyncio.gather(*(server.connection.aclose() for server in self._servers))

    async def complete(self, request: ChatRequest) -> Completion:
        """Send a request to any server that works.

        Raises:
            RejectedError: The server refuses this request.
            PosirError: No server answers.
        """
        untried = list(self._servers)
        while True:
            now = time.monotonic()
            # A resting server gets a request only if there is no other.
            server = min(untried, key=lambda other: (other.resting_until > now, other.in_flight))
            untried.remove(server)
            server.in_flight += 1
            name = f"{self._model}@{server.connection.address}"
            try:
                for _ in range(INVALID_ANSWERS + 1):
                    text = await server.connection.send_async(
                        f"{server.connection.address}/chat/completions",
                        request.body,
                        # Gateways that honor the key do not charge a request twice whose answer
                        # was lost on the way.
                        headers={"Idempotency-Key": request.key},
                    )
                    completion = read_completion(text, request.input_tokens)
                    if completion is not None:
                        return completion
            except RequestError as error:
                if error.may_pass and untried:
                    server.resting_until = time.monotonic() + REST_SECONDS
                    continue
                reason = server.connection.explain(error, advice=ADVICE)
                if error.refused:
                    raise RejectedError(reason) from None
                raise PosirError(f"{name}: {reason} Answers so far are saved.") from None
            finally:
                server.in_flight -= 1
            reason = (
                "the server's answer is not one of an OpenAI-compatible chat API "
                f"({quote_message(text)})."
            )
            # Gateways report what is wrong with a single request in an answer without choices.
            if text.lstrip().startswith("{"):
                raise RejectedError(reason)
            raise PosirError(f"{name}: {reason}")


def read_completion(text: str, input_tokens: int) -> Completion | None:
    """Read a server's answer; return None if it is not one of a chat API.

    `input_tokens` is the estimate to use where the server counts no tokens.
    """
    try:
        answer = parse_json(text, "answer", max_bytes=MAX_ANSWER)
        choice = answer["choices"][0]
        message = choice["message"]
        content = _join_parts(message.get("content") or "")
        finish = "refusal" if message.get("refusal") else choice.get("finish_reason") or "stop"
        usage = answer.get("usage") or {}
        counts = [usage.get("prompt_tokens"), usage.get("completion_tokens")]
        served = answer.get("model")
    except (GateError, KeyError, IndexError, TypeError, AttributeError):
        return None
    if not (isinstance(content, str) and isinstance(finish, str)):
        return None
    # It is stored, and a server may repeat the key.
    content = redact_collected(replace_surrogates(content))
    estimates = [input_tokens, estimate_tokens(content)]
    for index, count in enumerate(counts):
        if isinstance(count, int) and 0 <= count < MAX_COUNT:
            estimates[index] = count
    served = sanitize(served) if isinstance(served, str) else ""
    return Completion(content, sanitize(finish), estimates[0], estimates[1], served)


def _join_parts(content: Any) -> Any:
    """Join the texts of an answer in parts, of which some may be thoughts."""
    if not isinstance(content, list):
        return content
    return "".join(part["text"] for part in content if part.get("type") == "text")


def replace_surrogates(text: str) -> str:
    """Replace each surrogate, which JSON can contain and UTF-8 cannot, with `?`."""
    return text.encode("utf-8", "replace").decode()


AnswerT = TypeVar("AnswerT", bound=BaseModel)

PROMPTS = Path(__file__).parent / "prompts"
HEADING = "=== user ===\n"
#: Maximum number of places in an answer where JSON is looked for.
MAX_STARTS = 50
#: Where JSON may start: an object, a list of objects, or the empty list as the whole answer.
START = re.compile(r"\{|\[(?=\s*\{)|\A\[(?=\s*\]\Z)")
#: A number, with at most two words before it: `Relevance: 3`.
NUMBER = re.compile(r"[\s*_`#]*(?:[^\W\d_]+[\s*_:=]+){0,2}(\d)[\s*_`.]*")
#: Strings, and commas after the last item of a list or object.
MENDED = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', re.DOTALL)
#: Thoughts before an answer: their first tag may be in the prompt, their last one cut off.
TAG = "(think|thinking|thought|reasoning)>"
THOUGHTS = re.compile(rf"(?!\s*[{{\[])(.*</{TAG}|\s*<{TAG}.*)", re.DOTALL | re.IGNORECASE)
#: Finish reasons of an answer that was cut off.
CUT_OFF = ("length", "max_tokens")
#: Finish reasons of an answer that was refused.
REFUSALS = ("refusal", "content_filter")
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
    is_bare: bool = False
    """Whether the answer is the value of its only field, a text, list or number, and no object."""

    @cached_property
    def id(self) -> str:
        """Name, version, and a digest of content and answer type, such as `locate@1-3f2a90c1`."""
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
        """Build the request for values of the placeholders; attempts are counted from 0."""
        system = self.system.substitute(values)
        user = self.user.substitute(values)
        options: dict[str, Any] = {"model": settings.model, "max_tokens": settings.max_tokens}
        if settings.temperature is not None:
            options["temperature"] = settings.temperature
        if attempt:
            # A server that is deterministic, or samples nothing at temperature 0, would repeat an
            # answer that could not be read.
            options["seed"] = attempt
            if settings.temperature is not None:
                options["temperature"] = max(settings.temperature, RETRY_TEMPERATURE)
        form = "none" if self.is_bare else settings.structured_output
        if form != "none":
            options["response_format"] = {"type": form}
        if form == "json_schema":
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
    """Load the newest version of a prompt."""
    versions = {int(file.suffixes[-2][2:]): file for file in PROMPTS.glob(f"{name}.v*.txt")}
    newest = max(versions)
    system, user = versions[newest].read_text(encoding="utf-8").split(HEADING)
    templates = Template(system.strip()), Template(user.strip())
    return PromptTemplate(name, newest, *templates, answer, is_bare)


class ModelAnswer(BaseModel):
    """An answer in JSON. Servers are asked for exactly these fields; others in an answer are
    ignored.
    """

    model_config = ConfigDict(
        frozen=True, extra="ignore", json_schema_extra={"additionalProperties": False}
    )

    @model_validator(mode="before")
    @classmethod
    def _spell_as_asked(cls, value: Any) -> Any:
        """Spell fields and choices as the prompt does: models write `"Answer": "Yes."`."""
        if not isinstance(value, dict):
            return value
        values = {str(name).lower(): item for name, item in value.items()}
        for name, field in cls.model_fields.items():
            if get_origin(field.annotation) is Literal and name in values:
                choices = {str(choice): choice for choice in get_args(field.annotation)}
                spelled = str(values[name]).strip(" .").lower().replace(" ", "_")
                values[name] = choices.get(spelled, values[name])
        return values


class AnswerFault(StrEnum):
    """Why an answer cannot be used."""

    EMPTY = "the answer is empty"
    NO_JSON = "the answer has no JSON"
    INVALID_JSON = "the answer's JSON is invalid or incomplete"
    OTHER_FIELDS = "the answer's JSON has other fields"
    CUT_OFF = "the answer was cut off"
    REFUSED = "the model refused"
    REJECTED = "the server refused the request"


class UnusableAnswerError(Exception):
    """An answer that cannot be used."""

    def __init__(self, fault: str, detail: str = "") -> None:
        super().__init__(fault, detail)
        self.fault = fault
        """An `AnswerFault`, or a reason of the caller's own."""
        self.detail = detail


def parse_answer(
    completion: Completion, answer: type[AnswerT], *, is_bare: bool = False
) -> AnswerT:
    """Parse what a language model answered: JSON, with prose or thoughts around it or not.

    Of an answer type with one field, the value without its object is read as well: a list, or a
    number; with `is_bare`, a text.

    Raises:
        UnusableAnswerError: There is no such JSON, or the model refused.
    """
    thoughts = THOUGHTS.match(completion.text)
    text = completion.text[thoughts.end() if thoughts else 0 :].strip()
    is_cut = completion.finish_reason in CUT_OFF
    is_refused = completion.finish_reason in REFUSALS or REFUSAL.match(text) is not None
    fault = AnswerFault.NO_JSON if text else AnswerFault.EMPTY
    detail = ""
    for form in _list_forms(text, answer, is_bare and not is_cut and not is_refused):
        try:
            if form is None:
                fault = AnswerFault.INVALID_JSON
                continue
            # JSON can contain what UTF-8 cannot represent.
            return answer.model_validate_json(
                replace_surrogates(json.dumps(form, ensure_ascii=False))
            )
        except ValidationError as error:
            if fault is not AnswerFault.INVALID_JSON:
                fault = AnswerFault.OTHER_FIELDS
                detail = detail or summarize_error(error)
    if is_refused:
        raise UnusableAnswerError(AnswerFault.REFUSED)
    if is_cut:
        raise UnusableAnswerError(AnswerFault.CUT_OFF)
    raise UnusableAnswerError(fault, detail)


def _list_forms(text: str, answer: type[BaseModel], is_bare: bool) -> Iterator[Any]:
    """Yield what in a text may be the answer, the likeliest first; None for JSON that is
    damaged.
    """
    name, *further = answer.model_fields
    number = NUMBER.fullmatch(text)
    if number and not further:
        yield {name: int(number[1])}
    for readable in dict.fromkeys((text, MENDED.sub(_mend, text))):
        for place, match in enumerate(islice(START.finditer(readable), MAX_STARTS)):
            try:
                value, _ = parse_json_at(readable, match.start(), "answer")
            except GateError:
                yield None
                continue
            if isinstance(value, dict):
                yield value
            if not further and isinstance(value, list):
                yield {name: value}
            elif not further and not place:
                yield {name: [value]}
    if is_bare and text and answer.model_fields[name].annotation is str:
        yield {name: text}


def _mend(match: re.Match[str]) -> str:
    """Drop a comma after the last item; escape line breaks and tabs in a string."""
    return (match[1] or "").replace("\n", "\\n").replace("\t", "\\t")
