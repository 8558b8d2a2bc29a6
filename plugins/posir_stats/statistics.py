"""The figures of one subset of a dataset; those of several are pooled by adding them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import polars as pl

from posir_stats.dataset import Subset
from posir_stats.texts import TextTotals, count_types
from posir_tasks.cells import CellCounts, pool
from posir_tasks.evidence import Evidence, Integers
from posir_tasks.schemes import PositionScheme
from posir_tasks.sources.data import PositionData

#: Name of what is pooled over all languages or domains.
ALL = "all"
#: Shares of the relevant documents that are at most as long as each quartile.
QUARTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True, eq=False)
class Statistics:
    """What one language and domain of a dataset holds, or several pooled."""

    language: str
    """Of the queries, such as `eng-Latn`; with that of the corpus where the two differ; `all` of several."""
    domain: str
    documents: TextTotals
    """The whole corpus."""
    queries: TextTotals
    types: Integers
    """Queries of each `QueryType`, shape (3,)."""
    lengths: Integers
    """Length of each relevant document, every one once, shape (m,)."""
    length_unit: str
    """`tokens` as the data states them, or `characters` where it states none."""
    positions: CellCounts
    """The queries by length and position."""

    @classmethod
    def of(cls, data: PositionData, subset: Subset, scheme: PositionScheme) -> Statistics:
        """Take the figures of one subset."""
        corpus, queries = data.corpus.to_polars(), data.queries.to_polars()["text"]
        lengths, unit = relevant_lengths(data.evidence, corpus)
        return cls(
            language=subset.language,
            domain=subset.domain,
            documents=TextTotals.of(corpus["text"], subset.corpus_language),
            queries=TextTotals.of(queries, subset.query_language),
            types=count_types(queries, subset.query_language),
            lengths=lengths,
            length_unit=unit,
            positions=CellCounts.from_evidence(scheme, data.evidence),
        )

    def __add__(self, other: Statistics) -> Statistics:
        """Pool two subsets; what names them is kept where they agree on it."""
        return replace(
            self,
            language=self.language if self.language == other.language else ALL,
            domain=self.domain if self.domain == other.domain else ALL,
            documents=self.documents + other.documents,
            queries=self.queries + other.queries,
            types=self.types + other.types,
            lengths=np.concatenate([self.lengths, other.lengths]),
            positions=self.positions + other.positions,
        )

    def quartiles(self) -> list[float | None]:
        """Return the 25, 50 and 75 % quantiles of the lengths, interpolated linearly; None without a document."""
        return [float(np.quantile(self.lengths, share)) if len(self.lengths) else None for share in QUARTILES]

    def longest(self) -> int | None:
        """Return the longest length; None without a document."""
        return int(self.lengths.max()) if len(self.lengths) else None

    def of_lengths(self) -> dict[str, int]:
        """Return the number of distinct queries of each length bucket; nothing where all lengths are one bucket."""
        lengths = self.positions.axes.lengths
        return dict(zip(lengths, self.positions.totals.tolist(), strict=True)) if len(lengths) > 1 else {}

    def histogram(self) -> dict[str, list[int]]:
        """Return the queries of each position bin: of `all`, then of each length bucket."""
        cells = self.positions.counts
        by_length = {name: cells[index].tolist() for index, name in enumerate(self.of_lengths())}
        return {ALL: cells.sum(axis=0).tolist(), **by_length}


def relevant_lengths(evidence: Evidence, corpus: pl.DataFrame) -> tuple[Integers, str]:
    """Return the length of each relevant document, every one once, and its unit."""
    documents = pl.Series("id", evidence.document_ids, pl.String)
    if len(evidence.tokens) or not len(evidence):
        stated = pl.DataFrame({"id": documents, "length": evidence.tokens}).unique("id", maintain_order=True)
        return stated["length"].to_numpy(), "tokens"
    relevant = corpus.filter(pl.col("id").is_in(documents.implode()))
    return relevant["text"].str.len_chars().cast(pl.Int64).to_numpy(), "characters"


def by_language(subsets: Iterable[Statistics]) -> list[list[Statistics]]:
    """Group the figures for display: each language's domains and their total, at the end the total of all languages.

    Args:
        subsets: Ordered by language. A total of one thing is left out.
    """
    groups = [list(group) for _, group in groupby(subsets, key=lambda one: one.language)]
    totals = [pool(group) for group in groups]
    shown = [[*group, total] if len(group) > 1 else group for group, total in zip(groups, totals, strict=True)]
    return [*shown, [replace(pool(totals), domain=ALL)]] if len(groups) > 1 else shown
