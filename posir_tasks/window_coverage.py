"""Window coverage: the evidence that lies within a model's input window, derived from the places of the evidence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.evidence import Integers, Unread
from posir_tasks.profile import PositionProfile
from posir_tasks.read_part import ReadPart
from posir_tasks.tokens import CountedWith


@dataclass(frozen=True, eq=False)
class WindowCoverage:
    """The share of the evidence that a model's input window covers."""

    window: int
    """Tokens of a text that the model reads."""
    starts_beyond: Integers
    """Queries of whose evidence the model reads nothing, by length bucket, shape (L,)."""
    ends_beyond: Integers
    """Queries of whose evidence it does not read all, by length bucket, shape (L,)."""
    within_window: PositionProfile
    """Profile of the queries whose evidence it reads whole."""
    counted_with: CountedWith

    @classmethod
    def derive(cls, ranks: DocumentRanks, read: ReadPart) -> WindowCoverage | None:
        """Count the evidence beyond the part that is read; None if the model reads all, or that is unknown."""
        columns, counted_with = ranks.columns, ranks.counted_with
        if read.tokens is None or counted_with is None or len(columns.twelfths) != len(columns.ranks):
            return None
        lengths = ranks.cell_lengths[columns.cells] if len(columns.cells) else columns.cells
        starts, ends = (
            np.bincount(lengths[columns.twelfths >= least], minlength=len(ranks.axes.lengths))
            for least in (Unread.BEYOND, Unread.CUT)
        )
        return cls(read.tokens, starts, ends, ranks.within_window().profile, counted_with)
