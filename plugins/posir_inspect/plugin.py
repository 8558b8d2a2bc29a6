"""The hook implementation: `posir window` and `posir inspect`."""

from posir_tasks.plugin_api import READING, Command, hookimpl


@hookimpl
def posir_commands() -> list[Command]:
    """Return the declarations."""
    return [
        Command("window", "posir_inspect.api:window", "Show which part of a text a model reads.", READING),
        Command(
            "inspect",
            "posir_inspect.api:inspect",
            "Show how far a model reads in your own texts.",
            READING,
        ),
    ]
