"""The commands `posir window` and `posir inspect`."""

from posir_tasks.plugin_api import READING, Command, declare

posir_commands = declare(
    Command(
        "window",
        "posir_inspect.api:window",
        "Measure how many tokens a model reads; needs no texts.",
        READING,
    ),
    Command(
        "inspect",
        "posir_inspect.api:inspect",
        "Show what a model or index misses in your own texts.",
        READING,
    ),
)
