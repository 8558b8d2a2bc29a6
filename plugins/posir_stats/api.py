"""The public function `posir.stats`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from posir_stats import tables
from posir_tasks.base.progress import track_items
from posir_tasks.base.public import public
from posir_tasks.data.copies import find_copies
from posir_tasks.data.formats.passages import Scope
from posir_tasks.data.judgment_audit import JudgmentAudit
from posir_tasks.data.repository import combine_revisions
from posir_tasks.datasets.opening import open_data
from posir_tasks.datasets.statistics import Statistics
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import DisplaySection, Medium
from posir_tasks.text.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from posir_tasks.display.figures import Figure

logger = logging.getLogger(__name__)


@public(charts=True)
def stats(
    data: str | Path,
    *,
    tokenizer: str | Path | None = None,
    repair: bool = True,
    scope: Scope | None = None,
) -> Result:
    """Describe a dataset: its size, document and query lengths, query types and evidence positions.

        posir stats PosIR-Mini

    Args:
        data: A task, such as PosIR-English; a dataset on the Hub; or a file or folder of questions
            with their evidence.
        tokenizer: Tokenizer to count tokens in all texts: a name on the Hub or a folder.
        repair: Move a misplaced answer to its only match nearby.
        scope: Texts to search for an answer; by default inferred from the format and from repeated
            questions.

    Returns:
        A row per language and domain, and rows with totals. Lengths are in words, characters and
        tokens; shares are in [0, 1].

    Raises:
        PosirError: The data or the tokenizer does not exist, or the data contains no evidence.

    Examples:
        >>> import posir
        >>> posir.stats("PosIR-Mini").to_polars()["queries"].max()
        720
    """
    statistics = compute_statistics(
        str(data), str(tokenizer) if tokenizer else None, repair=repair, scope=scope
    )

    def draw() -> Sequence[Figure]:
        # Importing altair takes a second.
        from posir_stats.charts import build_figures

        return build_figures(statistics)

    positions = tables.build_position_tables(statistics)
    return Result(
        title=f"Position of the evidence: {statistics.name}",
        rows=tables.build_records(statistics),
        tables=tables.build_tables(statistics),
        values=tables.build_document(statistics),
        sentences=[tables.describe_data(statistics)],
        notes=[tables.describe_source(statistics)],
        details=[tables.describe_tables(statistics)],
        draw=draw,
        extra_sections=(
            DisplaySection(tables=positions, only=Medium.TEXT),
            DisplaySection(tables.POSITIONS_TITLE, tables=positions, folded=True, only=Medium.PAGE),
        ),
    )


def compute_statistics(
    name: str, tokenizer: str | None = None, *, repair: bool = True, scope: Scope | None = None
) -> tables.DatasetStatistics:
    """Compute a dataset's statistics, one subset at a time; raise PosirError if the dataset or the
    tokenizer is missing or invalid.
    """
    counter = load_tokenizer(tokenizer) if tokenizer else None
    dataset = open_data(name, repair=repair, scope=scope).select_questions("posir stats")
    revisions = set()
    subsets = []
    for subset in track_items(dataset.subsets, "Reading"):
        data = subset.read()
        revisions.add(data.revision)
        if copies := find_copies(data.documents, data.evidence.document_ids):
            logger.warning("%s, %s: %s", dataset.name, subset.name, copies.describe())
        documents = frozenset(data.documents["id"])
        for sentence in JudgmentAudit.from_judgments(subset.judgments, documents).describe():
            logger.warning("%s, %s: %s", dataset.name, subset.name, sentence)
        subsets.append(Statistics.from_data(data, subset, dataset.scheme, counter))
    source = f"{dataset.location}, revision {combine_revisions(revisions)}"
    return tables.DatasetStatistics(dataset.name, source, subsets)
