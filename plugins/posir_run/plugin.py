"""The commands `posir run` and `posir study nano`."""

from posir_tasks.plugin_api import BIAS, DATA, Command, declare

posir_commands = declare(
    Command(
        "run", "posir_run.api:run", "Evaluate many models and tasks; run again to resume.", BIAS
    ),
    Command(
        "study nano",
        "posir_run.api:nano",
        "Select the sample of a task that runs in minutes.",
        DATA,
    ),
)
