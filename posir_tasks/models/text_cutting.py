"""Texts cut to a number of tokens before they are sent, by a tokenizer or an estimate."""

from __future__ import annotations

import re
from collections.abc import Sequence

from posir_tasks.base.errors import PosirError
from posir_tasks.text.tokenizer import ModelTokenizer
from posir_tasks.text.words import BYTES_PER_TOKEN, is_unspaced

#: The last characters of a cut text that may be half a word.
HALF_WORD = re.compile(r"\s\S{0,40}\Z")


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
    there is none. Raise PosirError for less than a token.
    """
    if tokens < 1:
        raise PosirError(
            "the window leaves no token for a text after special tokens and the question. Give a "
            "larger one."
        )
    if tokenizer is None:
        return [cut_to_estimate(text, tokens) for text in texts]
    cut = list(texts)
    for row, count in enumerate(tokenizer.count_all(texts)):
        if count <= tokens:
            continue
        (spans,) = tokenizer.find_tokens([texts[row]])
        cut[row] = ""
        for kept in range(min(tokens, len(spans)), 0, -1):
            head = texts[row][: int(spans[kept - 1, 1])]
            # The end of a text may be other tokens than the same characters within it.
            if tokenizer.count(head) <= tokens:
                cut[row] = head
                break
    return cut
