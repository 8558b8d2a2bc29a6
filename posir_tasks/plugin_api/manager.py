"""The host side of the plugin API: loads plugins and calls their hooks; the failure of one does not affect the others.

Every `posir` command imports this module, so it imports nothing slow.
"""

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points

import pluggy

from posir_tasks.plugin_api import specs
from posir_tasks.plugin_api.markers import PROJECT

logger = logging.getLogger(__name__)

HOOKS = tuple(sorted(name for name in vars(specs) if name.startswith("posir_")))


@dataclass(frozen=True)
class Plugin:
    """An entry point of the group `posir`, and whether it could be loaded."""

    name: str
    origin: str
    """Distribution and module."""
    problem: str | None = None
    """The reason why it is not used; None if it is."""

    @property
    def warning(self) -> str:
        """The warning that is logged about a plugin that is not used."""
        return f"posir plugin '{self.name}' ({self.origin}) is not used: {self.problem}"


@dataclass(frozen=True)
class Plugins:
    """The loaded plugins."""

    manager: pluggy.PluginManager
    plugins: tuple[Plugin, ...]

    def callers(self, hook: str) -> Iterator[tuple[str, pluggy.HookCaller]]:
        """Yield each plugin that implements a hook: its name, and a caller that only calls this plugin."""
        plugins = dict(self.manager.list_name_plugin())
        for implementation in getattr(self.manager.hook, hook).get_hookimpls():
            others = [plugin for name, plugin in plugins.items() if name != implementation.plugin_name]
            yield implementation.plugin_name, self.manager.subset_hook_caller(hook, others)


@cache
def loaded_plugins() -> Plugins:
    """Load the plugins of the entry-point group `posir`, once per process; warn about each one that fails."""
    loaded = load_plugins(entry_points(group=PROJECT))
    for plugin in loaded.plugins:
        if plugin.problem:
            logger.warning("%s", plugin.warning)
    return loaded


def load_plugins(points: Collection[EntryPoint]) -> Plugins:
    """Load plugins from entry points, in order of their names."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(specs)
    plugins = tuple(
        Plugin(point.name, _origin(point), _register(manager, point)) for point in sorted(points, key=lambda p: p.name)
    )
    return Plugins(manager, plugins)


def _origin(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}: {point.value}" if point.dist else point.value


def _register(manager: pluggy.PluginManager, point: EntryPoint) -> str | None:
    """Load and register a plugin; return why it cannot be used, or None if it can."""
    if manager.has_plugin(point.name):
        return "another plugin of the same name was loaded first; rename one of the two entry points"
    try:
        plugin = point.load()
        manager.register(plugin, name=point.name)
        manager.check_pending()
        if not manager.get_hookcallers(plugin):
            raise pluggy.PluginValidationError(plugin, "it implements no hook; decorate its functions with `@hookimpl`")
    except pluggy.PluginValidationError as error:
        manager.unregister(name=point.name)
        return f"{error}. The hooks are: {', '.join(HOOKS)}"
    except (Exception, SystemExit) as error:
        if manager.has_plugin(point.name):
            manager.unregister(name=point.name)
        return f"loading it raised {type(error).__name__}: {error}"
    return None
