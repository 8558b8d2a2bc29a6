"""The hook implementations: references such as `all-MiniLM-L6-v2+chunks(128)`, and `posir mitigate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from posir_mitigate import mitigate_command
from posir_mitigate.references import resolve_mitigated
from posir_tasks.plugin_api import hookimpl

if TYPE_CHECKING:
    from posir_tasks.models.references import Resolver


@hookimpl
def posir_model_resolvers() -> list[Resolver]:
    """Return the resolver of models with a method."""
    return [resolve_mitigated]


@hookimpl
def posir_commands(app: typer.Typer) -> None:
    """Add `posir mitigate`."""
    mitigate_command.add_commands(app)
