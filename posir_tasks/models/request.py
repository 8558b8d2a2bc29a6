"""A search request: texts, settings and timer. Importing this module imports no model and no
torch.
"""

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
    """Queries, corpus and settings of a search; both have the columns `id` and `text`."""

    corpus: Dataset
    queries: Dataset
    positives: Mapping[str, str]
    """Maps the id of each query with one place of evidence to that of its document, in the order of
    the queries.
    """
    top_ranked: Mapping[str, list[str]] | None
    """Documents to rerank for each query; None to search the whole corpus."""
    top_k: int
    context: EncodingContext
    timer: TimingStack

    @cached_property
    def query_texts(self) -> dict[str, str]:
        """Texts of the queries by id."""
        return list_texts(self.queries)
