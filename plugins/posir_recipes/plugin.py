"""The hook implementation: `posir recipe`."""

from posir_tasks.plugin_api import RUN, Command, hookimpl


@hookimpl
def posir_commands() -> list[Command]:
    """Return the declarations."""
    return [
        Command("recipe", "posir_recipes.recipe:recipe", "Show the commands that repeat a paper.", RUN),
    ]
