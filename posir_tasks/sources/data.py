"""The return value of every reader."""

from __future__ import annotations

from dataclasses import dataclass, replace

from datasets import Dataset

from posir_tasks.evidence import Evidence


@dataclass(frozen=True)
class PositionData:
    """One subset of a task: corpus, queries, and the evidence of each query."""

    corpus: Dataset
    """Columns `id` and `text`."""
    queries: Dataset
    """Columns `id` and `text`, in the order of the evidence."""
    evidence: Evidence
    revision: str
    """The revision of the data: a commit of the Hub, or `local-` and a digest."""
    dropped: int = 0
    """Queries that the qrels name but the data lacks."""
    warnings: tuple[str, ...] = ()
    """What is valid and perhaps a mistake."""

    def select(self, rows: list[int]) -> PositionData:
        """Return the data with these queries only, and the complete corpus."""
        return replace(self, queries=self.queries.select(rows), evidence=self.evidence.select(rows))
