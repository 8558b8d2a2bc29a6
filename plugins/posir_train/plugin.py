"""The commands `posir compose` and `posir train`."""

from posir_tasks.plugin_api import DATA, REMEDY, Command, declare

posir_commands = declare(
    Command(
        "compose",
        "posir_train.api:compose",
        "Compose documents with the evidence at a chosen position.",
        DATA,
    ),
    Command(
        "train", "posir_train.api:train", "Train a model on evidence at chosen positions.", REMEDY
    ),
)
