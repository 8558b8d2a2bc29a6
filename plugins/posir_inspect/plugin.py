"""`posir window` and `posir inspect`."""

from posir_tasks.plugin_api import READING, Command, declare

posir_commands = declare(
    Command(
        "window", "posir_inspect.api:window", "Show which part of a text a model reads.", READING
    ),
    Command(
        "inspect",
        "posir_inspect.api:inspect",
        "Show how far a model reads in your own texts.",
        READING,
    ),
)
