"""Markers that tie hook implementations to this project."""

import pluggy

PROJECT = "posir"

hookspec = pluggy.HookspecMarker(PROJECT)
#: Decorates a plugin's implementation of a hook: `from posir_tasks.plugin_api import hookimpl`.
hookimpl = pluggy.HookimplMarker(PROJECT)
