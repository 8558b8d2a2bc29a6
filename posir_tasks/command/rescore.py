"""`posir.rescore`: recompute the plugins' scores in saved results."""

from __future__ import annotations

import logging
from pathlib import Path

from posir_tasks.display.presentation import TableResult
from posir_tasks.display.progress import progress
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import PosirError
from posir_tasks.public import public
from posir_tasks.results import ForeignFileError, rescore_file, result_files

logger = logging.getLogger(__name__)


@public()
def rescore(results: str | Path) -> TableResult:
    """Recompute the plugins' scores in saved results, from their position profiles; no model is needed.

    Args:
        results: The --output-folder of mteb run.

    Returns:
        A row for each file: its path, and the number of its profiles that were rescored.

    Raises:
        PosirError: There is no result with a position profile, or a file cannot be read or written.

    Examples:
        >>> import posir
        >>> posir.rescore("results").to_polars()["profiles"].to_list()
        [1, 1]
    """
    counts = {file: rescore_or_skip(file) for file in progress(list(result_files(Path(results))), "Rescoring")}
    rows = [{"file": str(file), "profiles": count} for file, count in counts.items() if count]
    if not rows:
        raise PosirError(f"{results}: no result with a position profile below it; nothing was written.")
    rescored = f"{pluralize(sum(counts.values()), 'profile')} in {pluralize(len(rows), 'file')}"
    return TableResult(title="Rescored results", rows=rows, tables=[], sentences=[f"{results}: rescored {rescored}"])


def rescore_or_skip(file: Path) -> int:
    """Rescore a file and return the number of its profiles; skip it with a warning if it is not a result."""
    try:
        return rescore_file(file)
    except ForeignFileError as error:
        logger.warning("skipped: %s", error)
        return 0
