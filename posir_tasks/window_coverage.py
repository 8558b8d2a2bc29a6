"""WindowCoverage: which evidence a model could see at all. Evidence beyond its input window is truncated, which is not bias."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from posir_tasks.errors import ProfileError
from posir_tasks.evidence import Evidence, Integers
from posir_tasks.profile import PositionProfile
from posir_tasks.schemes import PositionScheme


@dataclass(frozen=True, eq=False)
class WindowCoverage:
    """What a model's input window leaves of the evidence. Reaches of one window add, as profiles do."""

    window: int
    """Tokens of a text that the model reads; what follows it never sees."""
    starts_beyond: Integers
    """Queries whose evidence starts beyond the window, by length bucket, shape (L,)."""
    ends_beyond: Integers
    """Queries whose evidence ends beyond the window, by length bucket, shape (L,)."""
    seen: PositionProfile
    """Of the queries whose evidence lies within the window as a whole."""

    @classmethod
    def from_ranks(cls, window: int, scheme: PositionScheme, evidence: Evidence, ranks: Integers) -> WindowCoverage | None:
        """Measure what of the evidence lies within a window; None where the data does not tell the documents' lengths.

        A character's place in tokens is its share of the document's characters times the document's tokens, as the data
        counts them; a model's own tokenizer may count somewhat differently.

        Args:
            window: Tokens that the model reads.
            scheme: Says in which cells each query lies.
            evidence: Of n queries.
            ranks: Rank of each relevant document, shape (n,); 0 where it was not found.
        """
        if not (len(evidence.tokens) and len(evidence.characters)):
            return None
        starts, ends = (column / evidence.characters * evidence.tokens for column in (evidence.starts, evidence.ends))
        buckets, lengths = scheme.length_of(evidence), len(scheme.lengths)
        rows = np.flatnonzero(ends <= window)
        return cls(
            window,
            np.bincount(buckets[starts >= window], minlength=lengths),
            np.bincount(buckets[ends > window], minlength=lengths),
            PositionProfile.from_ranks(scheme, evidence.select(rows.tolist()), ranks[rows]),
        )

    def __add__(self, other: WindowCoverage) -> WindowCoverage:
        """Pool two reaches.

        Raises:
            ProfileError: They are of different windows or schemes.
        """
        if not isinstance(other, WindowCoverage):
            return NotImplemented
        if self.window != other.window:
            raise ProfileError(f"Reaches of windows of {self.window} and {other.window} tokens do not add.")
        return WindowCoverage(
            self.window,
            self.starts_beyond + other.starts_beyond,
            self.ends_beyond + other.ends_beyond,
            self.seen + other.seen,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the reach as plain JSON."""
        return {
            "window": self.window,
            "starts_beyond": self.starts_beyond.tolist(),
            "ends_beyond": self.ends_beyond.tolist(),
            "seen": self.seen.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WindowCoverage | None:
        """Read a reach back; None where the window was unknown.

        Raises:
            ProfileError: It is damaged.
        """
        if not isinstance(data, Mapping):
            raise ProfileError("A reach is a JSON object.")
        if data.get("window") is None:
            return None
        try:
            starts, ends = (np.array(data[name], np.int64) for name in ("starts_beyond", "ends_beyond"))
            reach = cls(int(data["window"]), starts, ends, PositionProfile.from_json(data["seen"]))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ProfileError(f"The reach is damaged: {type(error).__name__}: {error}") from error
        if starts.shape != (len(reach.seen.lengths),) or ends.shape != starts.shape:
            raise ProfileError("The reach is damaged: it has not one number for each length bucket.")
        return reach


def pool_coverages(reaches: Iterable[WindowCoverage | None]) -> WindowCoverage | None:
    """Add reaches; None where one of them is unknown."""
    known = list(reaches)
    return reduce(add, known) if known and all(known) else None
