"""The hook implementation: `posir published`."""

from posir_tasks.plugin_api import CHOICE, Command, hookimpl


@hookimpl
def posir_commands() -> list[Command]:
    """Return the declarations."""
    return [
        Command("published", "posir_published.api:published", "Show the results that the papers report.", CHOICE),
    ]
