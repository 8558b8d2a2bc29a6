"""`posir import` and `posir validate`."""

from posir_tasks.plugin_api import DATA, Command, declare

posir_commands = declare(
    Command(
        "import",
        "posir_data.api:import_data",
        "Import questions with their evidence, in any format.",
        DATA,
    ),
    Command(
        "validate",
        "posir_data.api:validate",
        "Audit the judgments and the layout of data before a run.",
        DATA,
    ),
)
