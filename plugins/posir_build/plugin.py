"""Hook implementation: `posir import`, `posir import-squad`, `posir validate` and `posir build`."""

import typer

from posir_build import build_commands, import_commands, validate_command
from posir_tasks.plugin_api import hookimpl


@hookimpl
def posir_commands(app: typer.Typer) -> None:
    """Add the commands."""
    import_commands.add_commands(app)
    validate_command.add_commands(app)
    build_commands.add_commands(app)
