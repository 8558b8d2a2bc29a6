"""The command `posir published`."""

from posir_tasks.plugin_api import PROBE, Command, declare

posir_commands = declare(
    Command(
        "published",
        "posir_published.api:published",
        "Show the results that the papers report.",
        PROBE,
    )
)
