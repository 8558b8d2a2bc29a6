"""Division of texts into chunks of consecutive tokens or sentences, as character spans of the text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Protocol, TypeAlias

from posir_mitigate.method import Method, format_method

#: Half-open interval of characters.
Span: TypeAlias = tuple[int, int]

#: The end of a sentence: terminators of common scripts with closing quotes and brackets, or a line break. Scripts with spaces
#: need one after the terminator, so that `3.5` is not divided.
SENTENCE_END = re.compile(r"[.!?؟۔।॥…]+[\"'”’»)\]]*(?=\s)|[。！？]+[”’」』）]*|\n+")


class Unit(StrEnum):
    """What the size of a chunk counts."""

    TOKENS = "tokens"
    SENTENCES = "sentences"


class DividingMethod(Method):
    """Base of the dataclasses of methods that divide documents into overlapping chunks."""

    DEFAULT_SIZES: ClassVar[Mapping[Unit, int]]
    """Units of a chunk unless its size is given."""

    size: int
    """Units of a chunk; 0 for the default."""
    stride: int
    """Units from the start of a chunk to that of the next; 0 for half the size."""
    unit: Unit

    def __str__(self) -> str:
        return format_method(self, size=self.units, stride=self.step)

    @property
    def units(self) -> int:
        """Units of a chunk."""
        return self.size or self.DEFAULT_SIZES[self.unit]

    @property
    def step(self) -> int:
        """Units from the start of a chunk to that of the next, at most its size: no unit is left out."""
        return min(self.stride or max(1, self.units // 2), self.units)


class UnitFinder(Protocol):
    """Finds the tokens or sentences of texts."""

    def __call__(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the spans of each text's units, in order."""


def find_sentences(texts: Sequence[str]) -> list[list[Span]]:
    """Return the spans of each text's sentences, without the white space around them."""
    return [_find_sentences(text) for text in texts]


def _find_sentences(text: str) -> list[Span]:
    ends = [match.end() for match in SENTENCE_END.finditer(text)]
    spans = []
    for start, end in zip([0, *ends], [*ends, len(text)], strict=True):
        sentence = text[start:end]
        if sentence.strip():
            spans.append((start + len(sentence) - len(sentence.lstrip()), start + len(sentence.rstrip())))
    return spans


class TokenFinder:
    """Finds the tokens of a fast tokenizer, without special tokens."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __call__(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the spans of each text's tokens, in order."""
        encoded = self._tokenizer(
            list(texts), add_special_tokens=False, truncation=False, return_offsets_mapping=True, verbose=False
        )
        return [[(start, end) for start, end in offsets if end > start] for offsets in encoded["offset_mapping"]]


def group_units(units: int, size: int, stride: int) -> list[Span]:
    """Return the first unit of every chunk and the one after its last: `size` units every `stride`, the last chunk the rest.

    At least one chunk, even of no unit.
    """
    chunks = [(0, min(size, units))]
    while chunks[-1][1] < units:
        start = chunks[-1][0] + stride
        chunks.append((start, min(start + size, units)))
    return chunks


def divide_text(text: str, units: Sequence[Span], size: int, stride: int) -> list[str]:
    """Return the chunks of a text. A text of one chunk is returned as it is, with the white space around it."""
    chunks = group_units(len(units), size, stride)
    if len(chunks) == 1:
        return [text]
    return [text[units[first][0] : units[following - 1][1]] for first, following in chunks]
