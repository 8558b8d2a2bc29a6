"""The hook implementation: `posir plan` and `posir run`."""

from posir_tasks.plugin_api import Command, hookimpl
from posir_tasks.plugin_api.panels import RUN


@hookimpl
def posir_commands() -> list[Command]:
    """Return the declarations."""
    return [
        Command("plan", "posir_run.plan_command:app", "Estimate the texts, embeddings and time of a run.", RUN),
        Command("run", "posir_run.run_command:app", "Evaluate many models and tasks; run again to resume.", RUN),
    ]
