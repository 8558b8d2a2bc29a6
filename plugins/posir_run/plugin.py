"""The hook implementation: `posir run`."""

from posir_tasks.plugin_api import RUN, Command, hookimpl


@hookimpl
def posir_commands() -> list[Command]:
    """Return the declarations."""
    return [
        Command("run", "posir_run.run_command:app", "Evaluate many models and tasks; run again to resume.", RUN),
    ]
