"""`posir rescore`: recompute the plugins' scores in saved results."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from posir_tasks.command.progress_option import with_progress
from posir_tasks.display.progress import progress
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import PosirError
from posir_tasks.results import ForeignFileError, rescore, result_files

logger = logging.getLogger(__name__)


@with_progress
def rescore_command(results: Annotated[Path, typer.Argument(help="The --output-folder of `mteb run`.")]) -> None:
    """Recompute the plugins' scores in saved results, from their position profiles; no model is needed."""
    counts = [rescore_or_skip(file) for file in progress(list(result_files(results)), "Rescoring")]
    if not any(counts):
        raise PosirError(f"{results}: no result with a position profile below it; nothing was written.")
    typer.echo(f"{results}: rescored {pluralize(sum(counts), 'profile')} in {pluralize(sum(map(bool, counts)), 'file')}")


def rescore_or_skip(file: Path) -> int:
    """Rescore a file and return the number of its profiles; skip it with a warning if it is not a result."""
    try:
        return rescore(file)
    except ForeignFileError as error:
        logger.warning("skipped: %s", error)
        return 0
