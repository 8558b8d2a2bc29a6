"""The host side of the hook: loads plugins, calls them, and keeps one plugin's failure from the others."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pluggy

from posir_tasks.plugin_api import specs
from posir_tasks.plugin_api.markers import PROJECT
from posir_tasks.profile import PositionProfile
from posir_tasks.window_coverage import WindowCoverage

logger = logging.getLogger(__name__)

HOOKS = tuple(sorted(name for name in vars(specs) if name.startswith("posir_")))


@dataclass(frozen=True)
class Plugin:
    """An entry point of the group `posir` and what became of it."""

    name: str
    origin: str
    """Distribution and module it comes from."""
    problem: str | None = None
    """Why it is not in use; None where it is."""


@dataclass(frozen=True)
class Plugins:
    """The loaded plugins."""

    manager: pluggy.PluginManager
    found: tuple[Plugin, ...]

    def callers(self, hook: str) -> Iterator[tuple[str, pluggy.HookCaller]]:
        """Yield for each plugin that implements a hook its name and a caller of it alone."""
        everyone = dict(self.manager.list_name_plugin())
        for implementation in getattr(self.manager.hook, hook).get_hookimpls():
            others = [plugin for name, plugin in everyone.items() if name != implementation.plugin_name]
            yield implementation.plugin_name, self.manager.subset_hook_caller(hook, others)


@cache
def loaded_plugins() -> Plugins:
    """Load every plugin of the entry-point group `posir`, once; each one that fails is named in a warning."""
    plugins = load_plugins(entry_points(group=PROJECT))
    for plugin in plugins.found:
        if plugin.problem:
            logger.warning("posir plugin '%s' (%s) is not in use: %s", plugin.name, plugin.origin, plugin.problem)
    return plugins


def load_plugins(points: Collection[EntryPoint]) -> Plugins:
    """Load plugins from entry points, in order of name."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(specs)
    found = tuple(
        Plugin(point.name, _origin(point), _register(manager, point)) for point in sorted(points, key=lambda p: p.name)
    )
    return Plugins(manager, found)


def _origin(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}: {point.value}" if point.dist else point.value


def _register(manager: pluggy.PluginManager, point: EntryPoint) -> str | None:
    """Register one entry point's plugin; return what is wrong with it, if anything."""
    if manager.has_plugin(point.name):
        return "another plugin of the same name was loaded before it; rename one of the two entry points"
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
    profile: PositionProfile, coverage: WindowCoverage | None = None, *, taken: Collection[str] = ()
) -> dict[str, Any]:
    """Return the scores of all plugins for a profile; a plugin that fails is named in a warning and left out.

    Args:
        profile: The profile to score.
        coverage: How much of the evidence the model's window covers; None if unknown.
        taken: Names that a plugin may not use.
    """
    scores: dict[str, Any] = {}
    for name, caller in loaded_plugins().callers("posir_scores"):
        try:
            given = merge_scores(caller(profile=profile, coverage=coverage))
        except Exception as error:
            logger.warning("posir plugin '%s' raised %s: %s; its scores are missing", name, type(error).__name__, error)
            continue
        for key in sorted(given.keys() & {*taken, *scores}):
            logger.warning("posir plugin '%s' gives a score '%s', a name already in use; that one is left out", name, key)
            del given[key]
        scores |= given
    return scores


def merge_scores(answers: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge one plugin's answers, as plain JSON.

    Raises:
        ValueError: A score is NaN or infinite.
        TypeError: A score is no JSON value.
    """
    merged: dict[str, Any] = json.loads(json.dumps([dict(answer) for answer in answers], allow_nan=False))
    return {key: value for answer in merged for key, value in answer.items()}  # type: ignore[attr-defined]
