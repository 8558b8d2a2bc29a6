"""The hook implementations: intervals, the test of the position effect, the state of the bias; `posir power`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posir_tasks.plugin_api import CHOICE, Command, hookimpl

if TYPE_CHECKING:
    from posir_tasks.scores import Score


@hookimpl
def posir_scores() -> tuple[Score, ...]:
    """Return the declarations."""
    from posir_significance.scores import SCORES

    return SCORES


@hookimpl
def posir_commands() -> list[Command]:
    """Return the declarations."""
    return [Command("power", "posir_significance.api:power", "Show how many questions an effect of position needs.", CHOICE)]
