"""The hook implementation: the number of queries, and PSI as papers print it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posir_tasks.plugin_api import hookimpl

if TYPE_CHECKING:
    from posir_tasks.scores import Score


@hookimpl
def posir_scores() -> tuple[Score, ...]:
    """Return the declarations."""
    from posir_psi.declarations import SCORES

    return SCORES
