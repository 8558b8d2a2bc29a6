"""The hook implementation: `posir score`."""

from __future__ import annotations

from posir_tasks.plugin_api import BIAS, Command, hookimpl


@hookimpl
def posir_commands() -> list[Command]:
    """Return the declarations."""
    return [Command("score", "posir_score.api:score", "Score a run of any system, any retriever, or text splitters.", BIAS)]
