"""The part of a text that a retriever reads: all of it, a part such as the first 256 tokens, or
unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from posir_tasks.base.errors import PosirError, ProfileError, summarize_error
from posir_tasks.base.wording import pluralize, sanitize


class ReadKind(StrEnum):
    """The amount of a text that is read. `unknown` is not `all`: evidence may lie beyond an unknown
    window.
    """

    ALL = "all"
    PART = "part"
    UNKNOWN = "unknown"


class Part(StrEnum):
    """The part of a long text that is read."""

    FIRST = "first"
    LAST = "last"
    ENDS = "ends"
    SAMPLES = "samples"
    """Pieces from all over the text, such as chunks at equal distances."""
    CHUNKS = "chunks"
    """The first tokens of each chunk that a system has divided the text into."""


class KnownBy(StrEnum):
    """The source of what is known of the part, the most certain first."""

    CLASS = "class"
    """The class of the retriever: BM25 reads all, and others have a limit where they cut texts."""
    CHUNKS = "chunks"
    """The retriever divides texts into chunks that fit into the window of its model."""
    MEASURED = "measured"
    """A test of the loaded model, as `posir window` does it and keeps it for later runs."""
    GIVEN = "given"
    """The user, as in `posir score --window`."""
    CLAIMED = "claimed"
    """The model's configuration or metadata."""


@dataclass(frozen=True)
class ReadPart:
    """The part of each text that a retriever reads. Those of one model add."""

    kind: ReadKind
    part: Part | None = None
    """The part that is read; None unless the kind is `part`."""
    tokens: Annotated[int | None, Field(strict=True)] = None
    """Number of tokens that are read, special tokens and prompt included; None unless the kind is
    `part`.
    """
    tokens_at_start: Annotated[int | None, Field(strict=True)] = None
    """Number of those at the start of the text; None unless the part is `ends`."""
    known_by: KnownBy | None = None
    """None if and only if the kind is `unknown`."""
    least_tokens: Annotated[int | None, Field(strict=True)] = None
    """Tokens of the text alone that are read at least, from a measurement that found no end; only
    of the kind `unknown`.
    """

    def __post_init__(self) -> None:
        is_part = self.kind is ReadKind.PART
        if is_part != (self.part is not None) or is_part != (self.tokens is not None):
            raise ValueError(
                "which part is read, and how many tokens, must be stated of the kind 'part', and "
                "of no other"
            )
        if self.tokens is not None and self.tokens < 1:
            raise ValueError(f"tokens is {self.tokens}; must be at least 1")
        if (self.part is Part.ENDS) != (self.tokens_at_start is not None):
            raise ValueError("tokens_at_start must be stated of the part 'ends', and of no other")
        if self.tokens_at_start is not None and not 0 < self.tokens_at_start < (self.tokens or 0):
            raise ValueError(
                f"tokens_at_start is {self.tokens_at_start}; must be from 1 to "
                f"{(self.tokens or 0) - 1}, below tokens"
            )
        if (self.kind is ReadKind.UNKNOWN) != (self.known_by is None):
            raise ValueError("known_by must be stated unless the kind is 'unknown'")
        if self.least_tokens is not None and (
            self.kind is not ReadKind.UNKNOWN or self.least_tokens < 1
        ):
            raise ValueError(
                "least_tokens must be stated of the kind 'unknown' only, and be at least 1"
            )

    @classmethod
    def all(cls, known_by: KnownBy) -> ReadPart:
        """All of a text."""
        return cls(ReadKind.ALL, known_by=known_by)

    @classmethod
    def first(cls, tokens: int, known_by: KnownBy) -> ReadPart:
        """The first tokens of a text."""
        return cls(ReadKind.PART, Part.FIRST, tokens, known_by=known_by)

    @classmethod
    def at_least(cls, tokens: int) -> ReadPart:
        """The first tokens of a text, and perhaps more."""
        return cls(ReadKind.UNKNOWN, least_tokens=tokens)

    def settle(self, longest: int) -> ReadPart:
        """Return the part of texts of at most so many tokens: all, if so many are read at
        least.
        """
        is_whole = self.least_tokens is not None and longest <= self.least_tokens
        return ReadPart.all(KnownBy.MEASURED) if is_whole else self

    @property
    def phrase(self) -> str:
        """The object of 'reads': `the first 256 tokens`."""
        if self.least_tokens is not None:
            return f"at least {pluralize(self.least_tokens, 'token')} of a text"
        match self.part:
            case None:
                return "all of a text" if self.kind is ReadKind.ALL else "an unknown part of a text"
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
        """Number of tokens that are read at the end of a long text."""
        tokens = self.tokens or 0
        if self.part in (Part.LAST, Part.ENDS):
            return tokens - (self.tokens_at_start or 0)
        return 0

    def __add__(self, other: ReadPart) -> ReadPart:
        """Pool two: unknown if one is; of equal parts the less certain knowledge. Raise
        ProfileError if they differ.

        Of a part that is read at least, and another such or all of the texts of other data, the
        lesser is read at least.
        """
        minimums = [part.least_tokens for part in (self, other) if part.kind is not ReadKind.ALL]
        known_minimums = [tokens for tokens in minimums if tokens is not None]
        if known_minimums and len(known_minimums) == len(minimums):
            return ReadPart.at_least(min(known_minimums))
        if self.known_by is None or other.known_by is None:
            return UNKNOWN
        if replace(self, known_by=other.known_by) != other:
            raise ProfileError(
                f"Results of a model that reads {self.phrase} and of one that reads "
                f"{other.phrase} do not add. Give both the same window, or show them apart."
            )
        return replace(self, known_by=max(self.known_by, other.known_by, key=list(KnownBy).index))

    def to_json(self) -> dict[str, Any]:
        """Return the fields that have a value, as plain JSON."""
        fields: dict[str, Any] = _JSON.dump_python(self, mode="json", exclude_none=True)
        return fields

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ReadPart:
        """Read what `to_json` returned; raise ProfileError if it is damaged. Fields of a newer
        version are ignored.
        """
        try:
            return _JSON.validate_python(data)
        except ValidationError as error:
            raise ProfileError(
                f"What the model reads (field 'read') is damaged: {summarize_error(error)}.", "read"
            ) from error


_JSON = TypeAdapter(ReadPart)
#: Nothing is known of what a model reads.
UNKNOWN = ReadPart(ReadKind.UNKNOWN)


def parse_window(window: int | str | None) -> ReadPart:
    """Parse `--window`, the part of a document that is read; raise PosirError if it
    says nothing known.
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
    """The way in which tokens were counted, the most accurate first."""

    TOKENIZER = "tokenizer"
    """The loaded model's own tokenizer, special tokens and prompt included."""
    ESTIMATE = "estimate"
    """The token counts in the data, of English texts."""
    ROUGH_ESTIMATE = "rough_estimate"
    """The same for other languages, where a model's tokenizer may find several times as many
    tokens: the data estimates them from bytes, or has the counts of an English original.
    """

    @classmethod
    def from_languages(cls, languages: Iterable[str]) -> CountedWith:
        """Return how good an estimate for texts in these languages is; codes such as `eng-Latn`."""
        if {code.partition("-")[0] for code in languages} == {ENGLISH}:
            return cls.ESTIMATE
        return cls.ROUGH_ESTIMATE
