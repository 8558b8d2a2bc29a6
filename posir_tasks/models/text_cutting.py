"""Texts cut to a number of tokens before they are sent: by a tokenizer, an estimate, or the count
of the server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from posir_tasks.text.tokenizer import ModelTokenizer
from posir_tasks.text.words import BYTES_PER_TOKEN, is_unspaced

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
class CountedText:
    """The beginning of a text, with the answer of a server that counts its tokens."""

    text: str
    vectors: NDArray[np.float32]
    """The embedding, shape (1, dimensions)."""
    tokens: int
    """The server's count."""


def cut_by_count(
    text: str, tokens: int, test: Callable[[str], CountedText | None]
) -> CountedText | None:
    """Find the beginning of a text that a server counts as at most so many tokens, and nearly so
    many if it is cut.

    Args:
        text: The text.
        tokens: Maximum number of tokens, special ones included.
        test: Returns a server's answer to a text; None if it refuses the text as too long.

    Returns:
        The longest such beginning that was found, with its answer; None if there is none.
    """
    longest: CountedText | None = None
    size = len(cut_to_estimate(text, tokens))
    low = 0
    high = len(text) + 1
    for _ in range(MAX_CUTS):
        counted = test(cut_text(text, size))
        count = counted.tokens if counted else 2 * tokens
        if counted and count <= tokens:
            longest = counted
            low = size
            if size == len(text) or count >= tokens * (1 - MAX_SHARE_MISSED):
                break
        else:
            high = size
        if high - low <= 1:
            break
        size = min(max(size * tokens // max(count, 1), low + 1), high - 1)
    return longest
