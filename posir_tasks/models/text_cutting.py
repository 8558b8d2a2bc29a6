"""Truncate texts to a number of tokens, counted with a tokenizer or estimated."""

from __future__ import annotations

import re
from collections.abc import Sequence

from posir_tasks.base.errors import PosirError
from posir_tasks.text.tokenizer import ModelTokenizer
from posir_tasks.text.words import BYTES_PER_TOKEN, is_unspaced

#: Last, possibly incomplete word of a truncated text.
LAST_WORD = re.compile(r"\s\S{0,40}\Z")


def cut_text(text: str, characters: int) -> str:
    """Return the first characters of a text, without an incomplete last word."""
    head = text[:characters]
    if len(head) == len(text) or text[len(head)].isspace() or is_unspaced(head):
        return head
    return LAST_WORD.sub("", head) or head


def cut_to_estimate(text: str, tokens: int) -> str:
    """Return the first tokens of a text, assuming four bytes per token."""
    head = text.encode()[: tokens * BYTES_PER_TOKEN].decode(errors="ignore")
    return cut_text(text, len(head))


def cut_texts(texts: Sequence[str], tokens: int, tokenizer: ModelTokenizer | None) -> list[str]:
    """Truncate texts to a number of tokens, excluding special tokens. Without a tokenizer, tokens
    are estimated. Raise PosirError if `tokens` is below 1.
    """
    if tokens < 1:
        raise PosirError(
            "the window leaves no tokens for a text after special tokens and the question. Give a "
            "larger window."
        )
    if tokenizer is None:
        return [cut_to_estimate(text, tokens) for text in texts]
    results = list(texts)
    for row, count in enumerate(tokenizer.count_all(texts)):
        if count > tokens:
            text = texts[row]
            (spans,) = tokenizer.find_tokens([text])
            heads = (text[:end] for end in spans[:tokens, 1][::-1].tolist())
            # Truncation may change the tokens at the end of a text.
            results[row] = next((head for head in heads if tokenizer.count(head) <= tokens), "")
    return results
