"""The hook implementation: `posir import` and `posir validate`."""

from posir_tasks.plugin_api import DATA, Command, hookimpl


@hookimpl
def posir_commands() -> list[Command]:
    """Return the declarations."""
    return [
        Command("import", "posir_data.commands:import_command", "Import questions with their evidence, in any format.", DATA),
        Command("validate", "posir_data.commands:validate", "Check data in the PosIR layout before a run.", DATA),
    ]
