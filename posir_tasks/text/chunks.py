"""Division of texts into overlapping chunks of consecutive tokens or sentences, or by any text
splitter.

Chunks are slices of the text, not decoded tokens. By default they overlap by half: consecutive
chunks divide evidence at their edges, which is a position effect of its own. Chunks of a text
splitter, such as those of LangChain, LlamaIndex and Chonkie, are located in the text that they are
of.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeAlias

from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.public import load_function
from posir_tasks.base.wording import sanitize
from posir_tasks.text.locating import locate_chunks
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import TokenSpans

#: Divides a text into a list of texts, such as `splitter.split_text` of LangChain.
Chunker: TypeAlias = Callable[[str], Any]


class ChunkUnit(StrEnum):
    """The unit in which the size of a chunk is counted."""

    TOKENS = "tokens"
    SENTENCES = "sentences"


@dataclass(frozen=True)
class Chunking:
    """Size and overlap of chunks."""

    size: int
    stride: int = 0
    """Units from the start of a chunk to that of the next; 0 for half the size."""
    unit: ChunkUnit = ChunkUnit.TOKENS

    @property
    def step(self) -> int:
        """Units from the start of a chunk to that of the next, at most its size: no unit is left
        out.
        """
        return min(self.stride or max(1, self.size // 2), self.size)

    def group(self, units: int) -> list[tuple[int, int]]:
        """Return the first unit of every chunk and the one after its last; at least one chunk, even
        of no unit.
        """
        chunks = [(0, min(self.size, units))]
        while chunks[-1][1] < units:
            start = chunks[-1][0] + self.step
            chunks.append((start, min(start + self.size, units)))
        return chunks

    def divide(self, text: str, units: Sequence[tuple[int, int]] | TokenSpans) -> list[str]:
        """Return the chunks of a text, given the characters of its units; a text of one chunk is
        returned as it is.
        """
        chunks = self.group(len(units))
        if len(chunks) == 1:
            return [text]
        return [text[units[first][0] : units[after - 1][1]] for first, after in chunks]


@dataclass(frozen=True)
class DividedText:
    """The chunks of a text, in the order in which they were returned; blank ones are left out."""

    chunks: tuple[str, ...]
    """At least one."""
    spans: tuple[Span | None, ...]
    """Place of each in the text; None for a chunk that is not in it."""


@dataclass(frozen=True)
class TextSplitter:
    """A function that divides a text, with the name that it is shown by."""

    name: str
    split: Callable[[str], Any]
    """Returns a list of texts, or of objects with a text in their attribute `text`."""

    def __call__(self, text: str) -> Any:
        """Return what the function returns."""
        return self.split(text)

    def divide(self, text: str) -> DividedText:
        """Return the chunks of a text; raise PosirError if the function raises or does not return a
        list of texts.
        """
        try:
            returned = self.split(text)
            is_list = isinstance(returned, Iterable) and not isinstance(
                returned, str | bytes | Mapping
            )
            items = [*returned] if is_list else [returned]
        except (Exception, SystemExit) as error:  # it is the user's own code
            raise PosirError(
                f"{self.name}: raised {sanitize(summarize_error(error), 200)}, for {_quote(text)}."
            ) from error
        chunks = [getattr(item, "text", item) for item in items]
        wrong = [chunk for chunk in chunks if not isinstance(chunk, str)]
        if wrong or not is_list:
            kind = type(wrong[0] if is_list else returned).__name__
            raise PosirError(f"{self.name}: returned {kind}; it must return a list of texts.")
        chunks = [chunk for chunk in chunks if chunk.strip()]
        if not chunks:
            raise PosirError(
                f"{self.name}: returned no chunk, for {_quote(text)}; every text needs at least "
                "one."
            )
        return DividedText(tuple(chunks), tuple(locate_chunks(text, chunks)))

    def divide_all(self, texts: Iterable[str]) -> list[DividedText]:
        """Return the chunks of several texts; raise PosirError as `divide`, or if none of all
        chunks is in its text.
        """
        divided = [self.divide(text) for text in texts]
        if divided and not any(span for text in divided for span in text.spans):
            raise PosirError(
                f"{self.name}: none of its chunks is in the text that it was given, such as "
                f"{_quote(divided[0].chunks[0])}. It "
                "must return parts of the text; white space, case and punctuation may differ."
            )
        return divided


def _quote(text: str) -> str:
    return f"'{sanitize(text.strip(), 60)}'"


def load_splitter(reference: str) -> TextSplitter:
    """Load `module:function` of the option `--chunker`."""
    return TextSplitter(reference, load_function("--chunker", reference))


def name_splitters(splitters: Chunker | Iterable[Chunker] | None) -> list[TextSplitter]:
    """Return functions by their names, numbered if they are the same; raise PosirError if one
    cannot be called.
    """
    named: dict[str, TextSplitter] = {}
    if not isinstance(splitters, Iterable):
        splitters = [] if splitters is None else [splitters]
    for split in splitters:
        if not callable(split):
            raise PosirError(
                f"chunkers: {type(split).__name__} cannot be called; give functions that divide a "
                "text."
            )
        # A method or an instance has the name of its class.
        owner = split if inspect.isfunction(split) else type(getattr(split, "__self__", split))
        splitter = TextSplitter(owner.__name__, split)
        if isinstance(split, TextSplitter):
            splitter = split
        name = splitter.name
        number = 1
        while name in named:
            number += 1
            name = f"{splitter.name}#{number}"
        named[name] = replace(splitter, name=name)
    return [*named.values()]
