"""The host side of the plugin API: loads plugins and calls their hooks; the failure of one does not affect the others."""

import json
import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pluggy

from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.plugin_api import specs
from posir_tasks.plugin_api.markers import PROJECT
from posir_tasks.profile import PositionProfile
from posir_tasks.window_coverage import WindowCoverage

logger = logging.getLogger(__name__)

HOOKS = tuple(sorted(name for name in vars(specs) if name.startswith("posir_")))


@dataclass(frozen=True)
class Plugin:
    """An entry point of the group `posir`, and whether it could be loaded."""

    name: str
    origin: str
    """Distribution and module."""
    problem: str | None = None
    """Why it is not used; None if it is."""

    @property
    def warning(self) -> str:
        """What is logged about a plugin that is not used."""
        return f"posir plugin '{self.name}' ({self.origin}) is not used: {self.problem}"


@dataclass(frozen=True)
class Plugins:
    """The loaded plugins."""

    manager: pluggy.PluginManager
    found: tuple[Plugin, ...]

    def callers(self, hook: str) -> Iterator[tuple[str, pluggy.HookCaller]]:
        """Yield each plugin that implements a hook: its name, and a caller that only calls this plugin."""
        plugins = dict(self.manager.list_name_plugin())
        for implementation in getattr(self.manager.hook, hook).get_hookimpls():
            others = [plugin for name, plugin in plugins.items() if name != implementation.plugin_name]
            yield implementation.plugin_name, self.manager.subset_hook_caller(hook, others)


@cache
def loaded_plugins() -> Plugins:
    """Load the plugins of the entry-point group `posir`, once per process; warn about each one that fails."""
    plugins = load_plugins(entry_points(group=PROJECT))
    for plugin in plugins.found:
        if plugin.problem:
            logger.warning("%s", plugin.warning)
    return plugins


def load_plugins(points: Collection[EntryPoint]) -> Plugins:
    """Load plugins from entry points, in order of their names."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(specs)
    found = tuple(
        Plugin(point.name, _origin(point), _register(manager, point)) for point in sorted(points, key=lambda p: p.name)
    )
    return Plugins(manager, found)


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


def plugin_scores(
    profile: PositionProfile,
    coverage: WindowCoverage | None = None,
    ranks: DocumentRanks | None = None,
    *,
    taken: Collection[str] = (),
) -> dict[str, Any]:
    """Return the scores of all plugins for a profile; warn about each plugin that fails, and omit its scores.

    Coverage and ranks by document are None if unknown; `taken` are names of scores that are in use.
    """
    scores: dict[str, Any] = {}
    for name, caller in loaded_plugins().callers("posir_scores"):
        try:
            added = merge_scores(caller(profile=profile, coverage=coverage, ranks=ranks))
        except Exception as error:
            logger.warning("posir plugin '%s' raised %s: %s; its scores are missing", name, type(error).__name__, error)
            continue
        for key in sorted(added.keys() & {*taken, *scores}):
            logger.warning("posir plugin '%s' returned a score '%s', a name already in use; it is omitted", name, key)
            del added[key]
        scores |= added
    return scores


def merge_scores(answers: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the scores that one plugin's hooks returned, as plain JSON.

    Raises:
        ValueError: A score is NaN or infinite.
        TypeError: A score is not a JSON value.
    """
    merged: dict[str, Any] = json.loads(json.dumps([dict(answer) for answer in answers], allow_nan=False))
    return {key: value for answer in merged for key, value in answer.items()}  # type: ignore[attr-defined]
