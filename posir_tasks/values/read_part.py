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
    """The extent of a window. If it is unknown, evidence may be truncated."""

    ALL = "all"
    PART = "part"
    UNKNOWN = "unknown"


class Part(StrEnum):
    """The location of the window in a long text."""

    FIRST = "first"
    LAST = "last"
    ENDS = "ends"
    SAMPLES = "samples"
    """Pieces from the whole text, for example evenly spaced ones."""
    CHUNKS = "chunks"
    """The first tokens of each chunk of the text."""


class WindowSource(StrEnum):
    """Sources of a window, most reliable first."""

    CLASS = "class"
    """The retriever's class: BM25 reads everything, other classes truncate at a fixed limit."""
    CHUNKS = "chunks"
    """The retriever, which splits texts into chunks that fit into its model's window."""
    MEASURED = "measured"
    """A measurement of the loaded model by `posir window`, saved for later runs."""
    GIVEN = "given"
    """The user: `posir score --window`."""
    CLAIMED = "claimed"
    """The model's configuration or metadata."""


@dataclass(frozen=True)
class ReadPart:
    """The window of a retriever. The windows of several results of one model can be added."""

    kind: ReadKind
    part: Part | None = None
    """The location; None unless the kind is `part`."""
    tokens: Annotated[int | None, Field(strict=True)] = None
    """Size in tokens with special tokens and prompt; None unless the kind is `part`."""
    tokens_at_start: Annotated[int | None, Field(strict=True)] = None
    """Number of tokens at the start of a text; None unless the part is `ends`."""
    known_by: WindowSource | None = None
    """The source; None if the kind is `unknown`."""
    least_tokens: Annotated[int | None, Field(strict=True)] = None
    """Minimum size in text tokens if a measurement found no truncation; None unless the kind is
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
    def all(cls, known_by: WindowSource) -> ReadPart:
        """Build the window of a model that reads everything."""
        return cls(ReadKind.ALL, known_by=known_by)

    @classmethod
    def first(cls, tokens: int, known_by: WindowSource) -> ReadPart:
        """Build a window of the first tokens."""
        return cls(ReadKind.PART, Part.FIRST, tokens, known_by=known_by)

    @classmethod
    def at_least(cls, tokens: int) -> ReadPart:
        """Build an unknown window that contains at least the first tokens."""
        return cls(ReadKind.UNKNOWN, least_tokens=tokens)

    def resolve(self, longest: int) -> ReadPart:
        """Return a window of whole texts if `longest` tokens fit into `least_tokens`, else self."""
        is_whole = self.least_tokens is not None and longest <= self.least_tokens
        return ReadPart.all(WindowSource.MEASURED) if is_whole else self

    @property
    def phrase(self) -> str:
        """Noun phrase for messages: `the first 256 tokens`."""
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
        """Pool the windows of two results of a model.

        The sum has the less reliable source. If either window is unknown, so is the sum, with the
        smaller minimum if `least_tokens` is known.

        Raises:
            ProfileError: The windows differ.
        """
        minimums = [part.least_tokens for part in (self, other) if part.kind is not ReadKind.ALL]
        known_minimums = [tokens for tokens in minimums if tokens is not None]
        if known_minimums and len(known_minimums) == len(minimums):
            return ReadPart.at_least(min(known_minimums))
        if self.known_by is None or other.known_by is None:
            return UNKNOWN
        if replace(self, known_by=other.known_by) != other:
            raise ProfileError(
                f"Results with different windows cannot be pooled: the model reads {self.phrase} "
                f"in one result and {other.phrase} in the other. Use the same window for both, "
                "or report them separately."
            )
        return replace(
            self, known_by=max(self.known_by, other.known_by, key=list(WindowSource).index)
        )

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
    """Parse `--window`, a number of tokens, or `none` if the model reads everything. Raise
    PosirError if it is malformed.
    """
    if window is None:
        return UNKNOWN
    if str(window).lower() == "none":
        return ReadPart.all(WindowSource.GIVEN)
    try:
        return ReadPart.first(int(window), WindowSource.GIVEN)
    except ValueError:
        raise PosirError(
            f"--window {sanitize(str(window))}: must be a number of tokens, at least 1, or none."
        ) from None


#: ISO 639-3 code of English.
ENGLISH = "eng"


class TokenCountMethod(StrEnum):
    """Methods of counting tokens, most accurate first."""

    TOKENIZER = "tokenizer"
    """The model's tokenizer, with special tokens and prompt."""
    ESTIMATE = "estimate"
    """The token counts in the data, for English texts."""
    ROUGH_ESTIMATE = "rough_estimate"
    """The token counts in the data, for other languages. They are estimated from bytes or copied
    from an English original, so a tokenizer may produce several times as many.
    """

    @classmethod
    def from_languages(cls, languages: Iterable[str]) -> TokenCountMethod:
        """Return the method for estimates in these languages, with codes such as `eng-Latn`."""
        if {code.partition("-")[0] for code in languages} == {ENGLISH}:
            return cls.ESTIMATE
        return cls.ROUGH_ESTIMATE
