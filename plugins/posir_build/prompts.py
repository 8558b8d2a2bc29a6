"""Prompts: versioned files with a system message and a user message, and the type of the answer.

A prompt is changed by adding a file with the next version. What a prompt says is part of the key of its calls, so a change
redoes the calls of this prompt and what depends on them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from string import Template
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from posir_build.chat_client import ChatRequest
from posir_build.settings import LanguageModelSettings
from posir_tasks.digests import digest

AnswerT = TypeVar("AnswerT", bound=BaseModel)

FILE_NAME = re.compile(r"(?P<name>[a-z_]+)\.v(?P<version>\d+)\.txt")
HEADING = "=== user ===\n"


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
