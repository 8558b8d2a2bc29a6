"""The exit status of a check that cannot be decided, so that it is not taken for one that fails."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from posir_tasks.command.app import report_errors

#: Exit status if a check cannot be decided; typer has the same one for wrong options.
UNDECIDED = 2

logger = logging.getLogger(__name__)


@contextmanager
def undecided_on_error() -> Iterator[None]:
    """Exit with the status of what cannot be said if anything fails: status 1 says that the check fails."""
    try:
        with report_errors(UNDECIDED):
            yield
    except typer.BadParameter:
        raise
    except Exception:
        logger.exception("an unexpected error, which is no verdict")
        raise typer.Exit(UNDECIDED) from None
