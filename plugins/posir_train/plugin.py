"""The hook implementation: `posir compose` and `posir train`."""

from posir_tasks.plugin_api import DATA, REMEDY, Command, hookimpl

COMMANDS = "posir_train.commands"


@hookimpl
def posir_commands() -> list[Command]:
    """Return the declarations."""
    return [
        Command("compose", f"{COMMANDS}:compose_command", "Compose documents with the evidence at a chosen place.", DATA),
        Command("train", f"{COMMANDS}:train_command", "Train a model on evidence at chosen positions.", REMEDY),
    ]
