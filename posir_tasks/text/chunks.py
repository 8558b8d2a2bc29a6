"""Text chunking: overlapping chunks of tokens or sentences, or chunks from any text splitter.

Chunks are slices of the text, not decoded tokens. By default, consecutive chunks overlap by half,
since boundaries within evidence cause a position effect. Chunks from text splitters (LangChain,
LlamaIndex, Chonkie) are located in the text.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count
from typing import Any, TypeAlias

from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.public import load_function
from posir_tasks.base.wording import sanitize
from posir_tasks.text.locating import locate_chunks
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import TokenSpans

#: Function that splits a text into a list of texts, such as LangChain's `splitter.split_text`.
Chunker: TypeAlias = Callable[[str], Any]


class ChunkUnit(StrEnum):
    """Unit of chunk sizes."""

    TOKENS = "tokens"
    SENTENCES = "sentences"


@dataclass(frozen=True)
class Chunking:
    """Size and overlap of chunks."""

    size: int
    stride: int = 0
    """Distance between the starts of consecutive chunks, in units; 0 for half the size."""
    unit: ChunkUnit = ChunkUnit.TOKENS

    @property
    def step(self) -> int:
        """Actual distance between the starts of consecutive chunks, at most `size`."""
        return min(self.stride or max(1, self.size // 2), self.size)

    def group(self, units: int) -> list[tuple[int, int]]:
        """Return the half-open unit range of each chunk; one empty chunk without units."""
        starts = range(0, max(1, units - self.size + self.step), self.step)
        return [(start, min(start + self.size, units)) for start in starts]

    def split_text(self, text: str, units: Sequence[tuple[int, int]] | TokenSpans) -> list[str]:
        """Split a text with the given unit spans. A single chunk is the whole text."""
        chunks = self.group(len(units))
        if len(chunks) == 1:
            return [text]
        return [text[units[first][0] : units[end - 1][1]] for first, end in chunks]


@dataclass(frozen=True)
class ChunkedText:
    """A text split into nonblank chunks, in the order of the splitter."""

    chunks: tuple[str, ...]
    """One or more chunks."""
    spans: tuple[Span | None, ...]
    """Span of each chunk; None if the text does not contain it."""


@dataclass(frozen=True)
class TextSplitter:
    """A named function that splits texts."""

    name: str
    split: Callable[[str], Any]
    """Returns a list of texts, or of objects with the attribute `text`."""

    def split_text(self, text: str) -> ChunkedText:
        """Split a text; raise PosirError if the function fails or does not return texts."""
        try:
            output = self.split(text)
            is_list = isinstance(output, Iterable) and not isinstance(output, str | bytes | Mapping)
            items = [*output] if is_list else [output]
        except (Exception, SystemExit) as error:  # the user's code
            raise PosirError(
                f"{self.name}: raised {sanitize(summarize_error(error), 200)}, for {_quote(text)}."
            ) from error
        chunks = [getattr(item, "text", item) for item in items]
        invalid = [chunk for chunk in chunks if not isinstance(chunk, str)]
        if invalid or not is_list:
            kind = type(invalid[0] if is_list else output).__name__
            raise PosirError(f"{self.name}: returned {kind}; it must return a list of texts.")
        chunks = [chunk for chunk in chunks if chunk.strip()]
        if not chunks:
            raise PosirError(
                f"{self.name}: returned no chunk for {_quote(text)}. Every text needs at least one."
            )
        return ChunkedText(tuple(chunks), tuple(locate_chunks(text, chunks)))

    def split_texts(self, texts: Iterable[str]) -> list[ChunkedText]:
        """Split texts; raise PosirError as in `split_text`, or if no chunk is in its text."""
        divided_texts = [self.split_text(text) for text in texts]
        if divided_texts and not any(any(divided.spans) for divided in divided_texts):
            raise PosirError(
                f"{self.name}: no chunk occurs in its text, for example "
                f"{_quote(divided_texts[0].chunks[0])}. Return parts of the text; white space, "
                "case and punctuation may differ."
            )
        return divided_texts


def _quote(text: str) -> str:
    return f"'{sanitize(text.strip(), 60)}'"


def load_splitter(reference: str) -> TextSplitter:
    """Load the function `module:function` of `--chunker`."""
    return TextSplitter(reference, load_function("--chunker", reference))


def name_splitters(splitters: Chunker | Iterable[Chunker] | None) -> list[TextSplitter]:
    """Wrap functions as splitters with unique names; raise PosirError for uncallable objects."""
    by_name = {}
    if not isinstance(splitters, Iterable):
        splitters = [] if splitters is None else [splitters]
    for split in splitters:
        splitter = split if isinstance(split, TextSplitter) else _wrap(split)
        name = splitter.name
        numbers = count(2)
        while name in by_name:
            name = f"{splitter.name}#{next(numbers)}"
        by_name[name] = replace(splitter, name=name)
    return [*by_name.values()]


def _wrap(split: object) -> TextSplitter:
    """Wrap a function. Methods and instances are named after their classes."""
    if not callable(split):
        raise PosirError(
            f"chunkers: {type(split).__name__} is not callable. Give functions that split text."
        )
    owner = split if inspect.isfunction(split) else type(getattr(split, "__self__", split))
    return TextSplitter(owner.__name__, split)
