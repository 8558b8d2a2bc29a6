"""`posir compare`."""

from posir_tasks.plugin_api import CHOICE, Command, declare

posir_commands = declare(
    Command(
        "compare",
        "posir_compare.api:compare",
        "Compare models with a baseline, with intervals.",
        CHOICE,
    )
)
