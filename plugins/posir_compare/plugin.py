"""The hook implementation: `posir compare`."""

from posir_tasks.plugin_api import CHOICE, Command, hookimpl


@hookimpl
def posir_commands() -> list[Command]:
    """Return the declarations."""
    return [
        Command(
            "compare",
            "posir_compare.compare_command:compare",
            "Compare models with a baseline, with intervals and p-values.",
            CHOICE,
        ),
    ]
