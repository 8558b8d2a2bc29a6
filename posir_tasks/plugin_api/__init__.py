"""The plugin API: markers for plugins, the hook specifications, and the manager that calls them."""

from posir_tasks.plugin_api.commands import Command
from posir_tasks.plugin_api.markers import hookimpl, hookspec

__all__ = ["Command", "hookimpl", "hookspec"]
