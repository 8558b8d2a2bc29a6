"""The hook implementations: the builtin probes, `posir probe` and `posir inspect`."""

from collections.abc import Iterable

import typer

from posir_probes import inspect_commands, probe_commands
from posir_tasks.plugin_api import hookimpl


@hookimpl
def posir_probes() -> Iterable[object]:
    """Return the builtin probes."""
    from posir_probes.catalogue import builtin_probes

    return builtin_probes()


@hookimpl
def posir_commands(app: typer.Typer) -> None:
    """Add the package's commands."""
    probe_commands.add_commands(app)
    inspect_commands.add_commands(app)
