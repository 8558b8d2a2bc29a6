"""Prompts: versioned files with a system message and a user message, the type of the answer, and how it is read.

A prompt is changed by adding a file with the next version. What a prompt says is part of the key of its calls, so a change
redoes the calls of this prompt and what depends on them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from string import Template
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from posir_tasks.digests import digest
from posir_tasks.errors import summarize_error
from posir_tasks.gate import GateError, parse_json_at
from posir_tasks.language_models.call_log import Completion
from posir_tasks.language_models.chat_client import ChatRequest, replace_surrogates
from posir_tasks.language_models.settings import LanguageModelSettings

AnswerT = TypeVar("AnswerT", bound=BaseModel)

FILE_NAME = re.compile(r"(?P<name>[a-z_]+)\.v(?P<version>\d+)\.txt")
HEADING = "=== user ===\n"
#: Where JSON is looked for in an answer, at most.
MAX_STARTS = 50
#: Words with which models refuse, at the start of an answer.
REFUSAL = re.compile(
    r"\W*(i(['’]m| am)? (sorry|unable|not able)|i can(no|['’])t|i apologi[sz]e|as an ai|sorry\b|unfortunately|es tut mir leid|"
    r"ich kann (das|dies|nicht)|désolé|je suis désolé|lo siento|mi dispiace|desculpe|извините|к сожалению|"
    r"申し訳|すみません|抱歉|对不起|很抱歉|죄송|عذر|آسف|"
    r"(ich kann|je ne peux pas|no puedo|non posso|não posso|я не могу|nie mogę|我?(无法|不能)|لا أستطيع|لا يمكنني).{0,30}"
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
        content = repr((self.system.template, self.user.template, sorted(self.schema.items(), key=repr)))
        return f"{self.name}@{self.version}-{digest(content, size=4).hex()}"

    @cached_property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the answer."""
        return self.answer.model_json_schema()

    def build_request(self, values: Mapping[str, str], attempt: int, settings: LanguageModelSettings) -> ChatRequest:
        """Return the request for given values of the placeholders."""
        messages = (("system", self.system.substitute(values)), ("user", self.user.substitute(values)))
        return ChatRequest(self.id, messages, self.schema, attempt, settings)


def load_prompt(name: str, answer: type[AnswerT]) -> PromptTemplate[AnswerT]:
    """Return the newest version of a prompt."""
    versions = [match for file in (files(__package__) / "prompts").iterdir() if (match := FILE_NAME.fullmatch(file.name))]
    newest = max((match for match in versions if match["name"] == name), key=lambda match: int(match["version"]))
    text = (files(__package__) / "prompts" / newest[0]).read_text(encoding="utf-8")
    system, _, user = text.partition(HEADING)
    return PromptTemplate(name, int(newest["version"]), Template(system.strip()), Template(user.strip()), answer)


class ModelAnswer(BaseModel):
    """An answer in JSON. Servers are asked for exactly these fields; others in an answer are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", json_schema_extra={"additionalProperties": False})


class UnusableAnswerError(Exception):
    """An answer that cannot be used; the text is the reason."""


def parse_answer(completion: Completion, answer: type[AnswerT]) -> AnswerT:
    """Return the answer that a language model wrote, with or without text around its JSON.

    Raises:
        UnusableAnswerError: It refused, its answer was cut off, or there is no JSON with the fields of the answer.
    """
    problem = "the answer has no JSON"
    for value in _find_values(completion.text):
        if isinstance(value, GateError):
            problem = f"the answer's JSON {'repeats a key' if 'occurs twice' in value.problem else 'is incomplete'}"
            continue
        try:
            return answer.model_validate(value)
        except ValidationError as error:
            if "JSON is incomplete" not in problem:
                problem = f"the answer's JSON has other fields ({summarize_error(error)})"
    if completion.finish_reason in ("refusal", "content_filter") or REFUSAL.match(completion.text):
        raise UnusableAnswerError("the model refused")
    raise UnusableAnswerError("the answer was cut off" if completion.finish_reason == "length" else problem)


def _find_values(text: str) -> Iterator[Any]:
    """Yield the JSON objects in a text, and an error for each brace that begins none."""
    start = text.find("{")
    for _ in range(MAX_STARTS):
        if start < 0:
            return
        try:
            value, end = parse_json_at(text, start, "answer")
            yield _clean(value)
        except GateError as error:
            yield error
            end = start + 1
        start = text.find("{", end)


def _clean(value: Any) -> Any:
    """Replace what UTF-8 cannot represent, in all texts of a JSON value."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    return list(map(_clean, value)) if isinstance(value, list) else value
