"""Judgments as an evaluation of runs takes them: every judged query with its text and the grades of its documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posir_tasks.sources.data import PositionData


@dataclass(frozen=True)
class Judgments:
    """The judged queries of data, whether or not the evidence of each has one position."""

    queries: Mapping[str, str]
    """Query id to text; a judged query may lack its text."""
    grades: Mapping[str, Mapping[str, int]]
    """Query id to document id to grade; a grade above 0 is relevant, and a document without a grade is not judged."""

    @classmethod
    def from_positions(cls, data: PositionData) -> Judgments:
        """Return the judgments of data in which every query has one relevant document."""
        texts = dict(zip(data.queries["id"], data.queries["text"], strict=True))
        return cls(texts, {query: {document: 1} for query, document in data.evidence.positives().items()})
