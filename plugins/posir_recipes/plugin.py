"""The command `posir recipe`."""

from posir_tasks.plugin_api import PROBE, Command, declare

posir_commands = declare(
    Command(
        "recipe", "posir_recipes.api:recipe", "Show the commands that reproduce a paper.", PROBE
    )
)
