"""The plugin hook: markers for plugins, the specifications, and the host's manager."""

from posir_tasks.plugin_api.markers import hookimpl, hookspec

__all__ = ["hookimpl", "hookspec"]
