"""The public function of this package: `posir.stats`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from posir_stats.tables import (
    DatasetStatistics,
    build_document,
    build_records,
    build_tables,
    describe_data,
    describe_source,
    describe_tables,
)
from posir_tasks.display.presentation import TableResult
from posir_tasks.display.progress import progress
from posir_tasks.public import public
from posir_tasks.sources.opening import open_data
from posir_tasks.sources.repository import combine_revisions
from posir_tasks.sources.statistics import Statistics
from posir_tasks.text.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from posir_tasks.display.figures import Figure


@public(charts=True)
def stats(data: str | Path, *, tokenizer: str | Path | None = None, repair: bool = True) -> TableResult:
    """Describe a dataset: its size, lengths of documents and queries, types of queries and positions of the evidence.

    Args:
        data: A task, such as PosIR-English; a folder in the PosIR layout or of BEIR; a file or folder of questions with their
            evidence; or a dataset on the Hub.
        tokenizer: Also count the tokens of all texts with this tokenizer: a name on the Hub or a folder.
        repair: Whether an answer that is not where its file says is moved to its only match nearby; without, its question is
            left out.

    Returns:
        A row for each language and domain and for their totals; lengths in words, characters and tokens, shares in [0, 1].

    Raises:
        PosirError: There is no such data with evidence, or no such tokenizer.

    Examples:
        >>> import posir
        >>> posir.stats("PosIR-Mini").to_polars()["queries"].max()
        720
    """
    statistics = compute_statistics(str(data), str(tokenizer) if tokenizer else None, repair=repair)
    return TableResult(
        title=f"Position of the evidence: {statistics.name}",
        rows=build_records(statistics),
        tables=build_tables(statistics),
        values=build_document(statistics),
        sentences=[describe_data(statistics)],
        notes=[describe_source(statistics)],
        further=[describe_tables(statistics)],
        draw=partial(draw_positions, statistics),
    )


def draw_positions(statistics: DatasetStatistics) -> Sequence[Figure]:
    """Return the histograms of positions."""
    # Altair takes a second to import.
    from posir_stats.charts import build_figures

    return build_figures(statistics)


def compute_statistics(name: str, tokenizer: str | None = None, *, repair: bool = True) -> DatasetStatistics:
    """Compute a dataset's statistics, one subset at a time; raise PosirError if there is no such valid dataset or tokenizer."""
    counter = load_tokenizer(tokenizer) if tokenizer else None
    dataset = open_data(name, repair=repair).with_questions("posir stats")
    revisions, subsets = set(), []
    for subset in progress(dataset.subsets, "Reading"):
        data = subset.read()
        revisions.add(data.revision)
        subsets.append(Statistics.from_data(data, subset, dataset.scheme, counter))
    source = f"{dataset.location}, revision {combine_revisions(revisions)}"
    return DatasetStatistics(dataset.name, source, subsets)
