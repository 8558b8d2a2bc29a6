"""The hook implementation: `posir stats`."""

from posir_tasks.plugin_api import DATA, Command, hookimpl


@hookimpl
def posir_commands() -> list[Command]:
    """Return the declarations."""
    return [
        Command("stats", "posir_stats.api:stats", "Show a dataset's size, lengths and evidence positions.", DATA),
    ]
