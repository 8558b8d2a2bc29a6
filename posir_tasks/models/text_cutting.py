"""Texts cut to a number of tokens before they are sent: by a tokenizer, an estimate, or the count
of the server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from posir_tasks.text.tokenizer import ModelTokenizer
from posir_tasks.text.words import BYTES_PER_TOKEN, is_unspaced

Answer = TypeVar("Answer")

#: A text that is cut by the server's count is sent at most so often, until the count is within this
#: share of the window.
MAX_CUTS = 6
MAX_SHARE_MISSED = 0.02
#: The last characters of a cut text that may be half a word.
HALF_WORD = re.compile(r"\s\S{0,40}\Z")


class CountedBy(StrEnum):
    """The way in which the tokens of texts are counted that are cut before they are sent."""

    TOKENIZER = "tokenizer"
    """The tokenizer that the user names."""
    SERVER = "server"
    """The server's own count of the tokens of a request."""
    ESTIMATE = "estimate"
    """A token for every four bytes of UTF-8."""


def cut_text(text: str, characters: int) -> str:
    """Return the first characters of a text, without half a word at their end in a script with
    spaces.
    """
    head = text[:characters]
    if len(head) == len(text) or text[len(head)].isspace() or is_unspaced(head):
        return head
    return HALF_WORD.sub("", head) or head


def cut_to_estimate(text: str, tokens: int) -> str:
    """Return the first tokens of a text, estimated as four bytes each."""
    head = text.encode()[: tokens * BYTES_PER_TOKEN].decode(errors="ignore")
    return cut_text(text, len(head))


def cut_all(texts: Sequence[str], tokens: int, tokenizer: ModelTokenizer | None) -> list[str]:
    """Return the first tokens of each text, without special ones: by a tokenizer, or estimated if
    there is none.
    """
    if tokenizer is None:
        return [cut_to_estimate(text, tokens) for text in texts]
    counts = tokenizer.count_all(texts)
    return [
        text if count <= tokens else _cut_with(tokenizer, text, tokens)
        for text, count in zip(texts, counts, strict=True)
    ]


def _cut_with(tokenizer: ModelTokenizer, text: str, tokens: int) -> str:
    (spans,) = tokenizer.find_tokens([text])
    for kept in range(min(tokens, len(spans)), 0, -1):
        head = text[: int(spans[kept - 1, 1])]
        # The end of a text may be other tokens than the same characters within it.
        if tokenizer.count(head) <= tokens:
            return head
    return ""


@dataclass(frozen=True)
class CountedText(Generic[Answer]):
    """The beginning of a text, and the answer of a server that counts its tokens."""

    text: str
    answer: Answer


def cut_by_count(
    text: str, tokens: int, ask: Callable[[str], tuple[Answer, int] | None]
) -> CountedText[Answer] | None:
    """Find the beginning of a text that a server counts as at most so many tokens, and nearly so
    many if it is cut.

    Args:
        text: The text.
        tokens: Most tokens, special ones included.
        ask: Returns a server's answer to a text and the tokens that it counts; None if it refuses
            the text as too long.

    Returns:
        The longest such beginning that was found, with its answer; None if there is none.
    """
    longest: CountedText[Answer] | None = None
    size = len(cut_to_estimate(text, tokens))
    low = 0
    high = len(text) + 1
    for _ in range(MAX_CUTS):
        head = cut_text(text, size)
        answer = ask(head)
        counted = answer[1] if answer else 2 * tokens
        if answer and counted <= tokens:
            longest = CountedText(head, answer[0])
            low = size
            if size == len(text) or counted >= tokens * (1 - MAX_SHARE_MISSED):
                break
        else:
            high = size
        if high - low <= 1:
            break
        size = min(max(size * tokens // max(counted, 1), low + 1), high - 1)
    return longest
