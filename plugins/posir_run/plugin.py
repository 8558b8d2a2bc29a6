"""`posir run`."""

from posir_tasks.plugin_api import RUN, Command, declare

posir_commands = declare(Command("run", "posir_run.api:run", "Evaluate many models and tasks; run again to resume.", RUN))
