"""The window of a retriever: all of a text, a part such as the first 256 tokens, or unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from posir_tasks.base.errors import PosirError, ProfileError, summarize_error
from posir_tasks.base.wording import pluralize, sanitize


class ReadKind(StrEnum):
    """The extent of a window. Evidence may be truncated if it is unknown."""

    ALL = "all"
    PART = "part"
    UNKNOWN = "unknown"


class Part(StrEnum):
    """The location of the window in a long text."""

    FIRST = "first"
    LAST = "last"
    ENDS = "ends"
    SAMPLES = "samples"
    """Pieces from the whole text, such as chunks at equal distances."""
    CHUNKS = "chunks"
    """The first tokens of each chunk of the text."""


class KnownBy(StrEnum):
    """The source of a window, the most reliable first."""

    CLASS = "class"
    """The retriever's class: BM25 reads everything, other classes cut texts at a limit."""
    CHUNKS = "chunks"
    """The retriever divides texts into chunks that fit into the window of its model."""
    MEASURED = "measured"
    """A test of the loaded model by `posir window`, saved for later runs."""
    GIVEN = "given"
    """The user: `posir score --window`."""
    CLAIMED = "claimed"
    """The model's configuration or metadata."""


@dataclass(frozen=True)
class ReadPart:
    """The window of a retriever; additive for one model."""

    kind: ReadKind
    part: Part | None = None
    """The location; None unless the kind is `part`."""
    tokens: Annotated[int | None, Field(strict=True)] = None
    """Size in tokens with special tokens and prompt; None unless the kind is `part`."""
    tokens_at_start: Annotated[int | None, Field(strict=True)] = None
    """Number of tokens at the start of the text; None unless the part is `ends`."""
    known_by: KnownBy | None = None
    """The source; None if the kind is `unknown`."""
    least_tokens: Annotated[int | None, Field(strict=True)] = None
    """Minimum size in tokens of the text, from a measurement without truncation; only for the kind
    `unknown`.
    """

    def __post_init__(self) -> None:
        is_part = self.kind is ReadKind.PART
        is_unknown = self.kind is ReadKind.UNKNOWN
        has_two_ends = self.part is Part.ENDS
        for name, is_required in (
            ("part", is_part),
            ("tokens", is_part),
            ("tokens_at_start", has_two_ends),
            ("known_by", not is_unknown),
        ):
            if (getattr(self, name) is not None) != is_required:
                verb = "requires" if is_required else "cannot have"
                raise ValueError(f"a window of kind '{self.kind}', part {self.part}, {verb} {name}")
        if self.least_tokens is not None and not is_unknown:
            raise ValueError("least_tokens is only for the kind 'unknown'")
        counts = (self.tokens, self.least_tokens)
        if any(count is not None and count < 1 for count in counts):
            raise ValueError("tokens and least_tokens must be at least 1")
        if has_two_ends and not 0 < (self.tokens_at_start or 0) < (self.tokens or 0):
            raise ValueError("tokens_at_start must be at least 1 and below tokens")

    @classmethod
    def all(cls, known_by: KnownBy) -> ReadPart:
        """Build the window of a model that reads everything."""
        return cls(ReadKind.ALL, known_by=known_by)

    @classmethod
    def first(cls, tokens: int, known_by: KnownBy) -> ReadPart:
        """Build a window of the first tokens."""
        return cls(ReadKind.PART, Part.FIRST, tokens, known_by=known_by)

    @classmethod
    def at_least(cls, tokens: int) -> ReadPart:
        """Build an unknown window of at least the first tokens."""
        return cls(ReadKind.UNKNOWN, least_tokens=tokens)

    def settle(self, longest: int) -> ReadPart:
        """Return the window for texts up to `longest` tokens: all, if `least_tokens` suffices."""
        is_whole = self.least_tokens is not None and longest <= self.least_tokens
        return ReadPart.all(KnownBy.MEASURED) if is_whole else self

    @property
    def phrase(self) -> str:
        """The object of "reads": `the first 256 tokens`."""
        if self.least_tokens is not None:
            return f"at least {pluralize(self.least_tokens, 'token')} of a text"
        match self.part:
            case None:
                return "whole texts" if self.kind is ReadKind.ALL else "an unknown part of a text"
            case Part.ENDS:
                return (
                    f"the first {self.tokens_at_start:,} and the last {self.tokens_at_end:,} tokens"
                )
            case Part.SAMPLES:
                return f"samples of {pluralize(self.tokens or 0, 'token')}"
            case Part.CHUNKS:
                return f"the first {pluralize(self.tokens or 0, 'token')} of each chunk"
            case part:
                return f"the {part.value} {pluralize(self.tokens or 0, 'token')}"

    @property
    def tokens_at_end(self) -> int:
        """Number of tokens at the end of a long text."""
        tokens = self.tokens or 0
        if self.part in (Part.LAST, Part.ENDS):
            return tokens - (self.tokens_at_start or 0)
        return 0

    def __add__(self, other: ReadPart) -> ReadPart:
        """Pool two windows: unknown if either is; else with the less reliable source.

        Two minimums, or a minimum and all, give the smaller minimum. Raise ProfileError if the
        windows differ.
        """
        minimums = [part.least_tokens for part in (self, other) if part.kind is not ReadKind.ALL]
        known_minimums = [tokens for tokens in minimums if tokens is not None]
        if known_minimums and len(known_minimums) == len(minimums):
            return ReadPart.at_least(min(known_minimums))
        if self.known_by is None or other.known_by is None:
            return UNKNOWN
        if replace(self, known_by=other.known_by) != other:
            raise ProfileError(
                f"Results with different windows cannot be pooled: the model reads {self.phrase}, "
                f"and {other.phrase}. Give both the same window, or show them separately."
            )
        return replace(self, known_by=max(self.known_by, other.known_by, key=list(KnownBy).index))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON without empty fields."""
        fields: dict[str, Any] = _JSON.dump_python(self, mode="json", exclude_none=True)
        return fields

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ReadPart:
        """Read the output of `to_json`; raise ProfileError if it is damaged. Unknown fields are
        ignored.
        """
        try:
            return _JSON.validate_python(data)
        except ValidationError as error:
            raise ProfileError(
                f"The window (field 'read') is damaged: {summarize_error(error)}.", "read"
            ) from error


_JSON = TypeAdapter(ReadPart)
UNKNOWN = ReadPart(ReadKind.UNKNOWN)


def parse_window(window: int | str | None) -> ReadPart:
    """Parse `--window`: a number of tokens, or `none` for a model that reads everything; raise
    PosirError if it is malformed.
    """
    if window is None:
        return UNKNOWN
    if str(window).lower() == "none":
        return ReadPart.all(KnownBy.GIVEN)
    try:
        return ReadPart.first(int(window), KnownBy.GIVEN)
    except ValueError:
        raise PosirError(
            f"--window {sanitize(str(window))}: must be a number of tokens, at least 1, or none."
        ) from None


#: ISO 639-3 code of English.
ENGLISH = "eng"


class CountedWith(StrEnum):
    """The method of counting tokens, the most accurate first."""

    TOKENIZER = "tokenizer"
    """The model's tokenizer, with special tokens and prompt."""
    ESTIMATE = "estimate"
    """The token counts in the data, for English texts."""
    ROUGH_ESTIMATE = "rough_estimate"
    """The token counts in the data for other languages. They are estimated from bytes or belong to
    an English original; a tokenizer may produce several times as many.
    """

    @classmethod
    def from_languages(cls, languages: Iterable[str]) -> CountedWith:
        """Return the quality of estimates for texts in these languages, such as `eng-Latn`."""
        if {code.partition("-")[0] for code in languages} == {ENGLISH}:
            return cls.ESTIMATE
        return cls.ROUGH_ESTIMATE
