"""`posir stats`."""

from posir_tasks.plugin_api import DATA, Command, declare

posir_commands = declare(
    Command(
        "stats",
        "posir_stats.api:stats",
        "Show a dataset's size, lengths and evidence positions.",
        DATA,
    )
)
