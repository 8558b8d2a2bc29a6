"""The hook implementation: `posir plan` and `posir run`."""

import typer

from posir_run import plan_command, run_command
from posir_tasks.plugin_api import hookimpl


@hookimpl
def posir_commands(app: typer.Typer) -> None:
    """Add `posir plan` and `posir run`."""
    plan_command.add_commands(app)
    run_command.add_commands(app)
