"""pluggy's markers for the hooks of this project."""

import pluggy

PROJECT = "posir"

hookspec = pluggy.HookspecMarker(PROJECT)
#: Decorator for implementations of hooks: `from posir_tasks.plugin_api import hookimpl`.
hookimpl = pluggy.HookimplMarker(PROJECT)
