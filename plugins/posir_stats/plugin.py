"""The hook implementation: `posir stats`."""

from posir_tasks.plugin_api import Command, hookimpl
from posir_tasks.plugin_api.panels import DATA


@hookimpl
def posir_commands() -> list[Command]:
    """Return the declarations."""
    return [
        Command("stats", "posir_stats.api:stats", "Show a dataset's size, lengths and evidence positions.", DATA),
    ]
