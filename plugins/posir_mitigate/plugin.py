"""The hook implementations: references such as `all-MiniLM-L6-v2+chunks(128)`, and `posir mitigate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posir_tasks.plugin_api import REMEDY, Command, hookimpl

if TYPE_CHECKING:
    from posir_tasks.models.references import Resolver


@hookimpl
def posir_model_resolvers() -> list[Resolver]:
    """Return the resolver of models with a method."""
    from posir_mitigate.references import resolve_mitigated

    return [resolve_mitigated]


@hookimpl
def posir_commands() -> list[Command]:
    """Return the declarations."""
    return [Command("mitigate", "posir_mitigate.api:mitigate", "Try every mitigation that needs no training.", REMEDY)]
