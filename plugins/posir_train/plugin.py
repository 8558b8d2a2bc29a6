"""Hook implementation: `posir compose` and `posir train`."""

import typer

from posir_tasks.plugin_api import hookimpl
from posir_train import compose_command, train_command


@hookimpl
def posir_commands(app: typer.Typer) -> None:
    """Add the commands."""
    compose_command.add_commands(app)
    train_command.add_commands(app)
