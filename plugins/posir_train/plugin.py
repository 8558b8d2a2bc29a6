"""The hook implementation: `posir compose` and `posir train`."""

from posir_tasks.plugin_api import Command, hookimpl
from posir_tasks.plugin_api.panels import DATA, REMEDY


@hookimpl
def posir_commands() -> list[Command]:
    """Return the declarations."""
    return [
        Command(
            "compose",
            "posir_train.commands:compose_command",
            "Compose documents with the evidence at a chosen place.",
            DATA,
        ),
        Command("train", "posir_train.commands:train_command", "Train a model on evidence at chosen positions.", REMEDY),
    ]
