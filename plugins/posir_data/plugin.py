"""`posir import` and `posir validate`."""

from posir_tasks.plugin_api import DATA, Command, declare

posir_commands = declare(
    Command("import", "posir_data.commands:import_command", "Import questions with their evidence, in any format.", DATA),
    Command("validate", "posir_data.commands:validate", "Check data in the PosIR layout before a run.", DATA),
)
