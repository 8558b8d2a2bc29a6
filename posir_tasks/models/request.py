"""Search request: texts, settings and timer. This module imports neither models nor torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from datasets import Dataset
from mteb.timing import TimingStack

from posir_tasks.data.data import list_texts
from posir_tasks.models.embeddings.context import EncodingContext


@dataclass(frozen=True)
class SearchRequest:
    """Queries, corpus and settings of a search. Both datasets have the columns `id` and `text`."""

    corpus: Dataset
    queries: Dataset
    positives: Mapping[str, str]
    """Document ids by query id, for queries with a single evidence span, in query order."""
    top_ranked: Mapping[str, list[str]] | None
    """Documents to rerank for each query; None to search the whole corpus."""
    top_k: int
    context: EncodingContext
    timer: TimingStack

    @cached_property
    def query_texts(self) -> dict[str, str]:
        """Query texts by id."""
        return list_texts(self.queries)
