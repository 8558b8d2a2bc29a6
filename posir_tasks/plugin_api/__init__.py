"""The plugin API: hook specifications, plugin loading and hook calls.

A plugin is a module or object in the entry-point group `posir`. Hook implementations may omit
arguments, so that hooks can get additional ones. A failing plugin does not affect other plugins.
Every `posir` command imports this module, so imports must be fast.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from itertools import chain
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pluggy

from posir_tasks.base.errors import summarize_error
from posir_tasks.base.logs import warn_once

if TYPE_CHECKING:
    from pathlib import Path

    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.models import ModelMeta

    from posir_tasks.values.scores import ResultScores, ResultValues, Score

logger = logging.getLogger(__name__)
Item = TypeVar("Item")

PROJECT = "posir"

hookspec = pluggy.HookspecMarker(PROJECT)
#: Decorator for hook implementations: `from posir_tasks.plugin_api import hookimpl`.
hookimpl = pluggy.HookimplMarker(PROJECT)

#: Panels of `posir --help` in order: four questions, then other purposes.
PANELS = READING, BIAS, CHOICE, REMEDY, PROBE, DATA, EXTEND = (
    "Does it read to the end?",
    "How biased is it?",
    "Which is better?",
    "What can I do?",
    "Study models and papers",
    "Your own data",
    "Share and maintain",
)
LEADERBOARD = EXTEND
#: Resolves a model name to metadata, or returns None for other kinds of names; raises PosirError if
#: the model does not exist. The second argument is mteb's registry, which resolves all other kinds
#: of names. Results are saved under `name`. Worker processes load the model by the `reference` of
#: the metadata's loader, or else by `name`.
Resolver: TypeAlias = "Callable[[str, Mapping[str, ModelMeta]], ModelMeta | None]"


@dataclass(frozen=True)
class Command:
    """A command of `posir`."""

    name: str
    """The word after `posir`."""
    target: str
    """`module:name` of a public function, a function annotated for cyclopts, or a `cyclopts.App`,
    which is imported when the command is called.
    """
    summary: str
    """One sentence for `posir --help`. The help text of the command is the function's docstring."""
    panel: str = EXTEND
    """Panel of `posir --help`, such as `DATA`."""


def declare(*items: object) -> Callable[[], list[object]]:
    """Build a hook implementation that returns items: `posir_commands = declare(Command(...))`.

    A string `module:name` is replaced with the object, or with the items of a tuple, which is
    imported when the hook is called.
    """

    @hookimpl
    def implementation() -> list[object]:
        values = list[object]()
        for item in items:
            value = resolve_name(item) if isinstance(item, str) else item
            values += value if isinstance(value, tuple) else [value]
        return values

    return implementation


@hookspec
def posir_scores() -> Iterable[Score]:  # type: ignore[empty-body]
    """Return scores to add to every result.

    Scores are computed for all queries, for each length bucket and, if declared, for each position
    bin: after an evaluation, in `posir rescore`, and for pooled results in reports. A declaration
    also defines the key in result files, the columns in reports, CSV and JSON, and the column on
    the leaderboard.

    Returns:
        Declarations. A key of another plugin is rejected. If a score raises an exception, it is
        missing for these queries, with a warning.
    """


@hookspec
def posir_task_classes() -> Iterable[type[AbsTaskRetrieval]]:  # type: ignore[empty-body]
    """Return task classes to register with mteb.

    Called once, when mteb looks up an unknown task name. Import mteb and the classes inside the
    function: every `posir` command loads the plugin, and importing mteb takes seconds.

    Returns:
        Subclasses of `posir_tasks.PositionTask` with `metadata`, `scheme` and `read_subset`. A name
        from mteb, posir or another plugin is rejected.
    """


@hookspec
def posir_languages() -> Iterable[str]:  # type: ignore[empty-body]
    """Return the language codes of additional tasks to list, such as `pes-Arab` for `PosIR-Persian`
    and `PosIR-Persian-English`.

    Languages in `POSIR_DATA` and in the dataset on the Hub are always listed, and `mteb run -t`
    accepts any language. Invalid codes are rejected.
    """


@hookspec
def posir_commands() -> Iterable[Command]:  # type: ignore[empty-body]
    """Return commands to add to `posir`.

    Called by every `posir` command. A command is imported only when it is called.

    Returns:
        Declarations. A name from posir or another plugin is rejected.
    """


@hookspec
def posir_probes() -> Iterable[object]:  # type: ignore[empty-body]
    """Return probes for `posir probe`: diagnostic measurements of a model on texts.

    Called by `posir probe`. Import heavy packages inside the function or the probe.

    Returns:
        Instances of subclasses of `posir_probe.probe.Probe`. A name of another probe is rejected.
    """


@hookspec
def posir_model_resolvers() -> Iterable[Resolver]:  # type: ignore[empty-body]
    """Return model resolvers, which add kinds of model names for all commands.

    Called once per process, at the first name that is not the full name of a registered model.
    Import heavy packages inside the resolver.

    Returns:
        Functions of the type `Resolver`. They are called before posir's resolvers, and must return
        None for other kinds of names.
    """


@hookspec
def posir_answers(file: Path) -> Iterable[str]:  # type: ignore[empty-body]
    """Return findings about a result, which `mteb run` prints at the end. Each string contains a
    title line and a paragraph.

    Args:
        file: mteb's result file of a position-aware task.
    """


HOOKS = tuple(sorted(name for name in globals() if name.startswith("posir_")))


@dataclass(frozen=True)
class Plugin:
    """An entry point in the group `posir`."""

    name: str
    origin: str
    """Distribution and module."""
    problem: str | None = None
    """Reason for ignoring the plugin, or None."""

    @property
    def warning(self) -> str:
        """Warning that the plugin is not used."""
        return f"posir plugin '{self.name}' ({self.origin}) is not used: {self.problem}"


@dataclass(frozen=True)
class Plugins:
    """The loaded plugins."""

    manager: pluggy.PluginManager
    plugins: tuple[Plugin, ...]

    def iterate_callers(self, hook: str) -> Iterator[tuple[str, pluggy.HookCaller]]:
        """Yield the name of each plugin, and a function that calls only its hook implementation."""
        plugins = self.manager.list_name_plugin()
        for implementation in getattr(self.manager.hook, hook).get_hookimpls():
            name = implementation.plugin_name
            other_plugins = [plugin for other_name, plugin in plugins if other_name != name]
            yield name, self.manager.subset_hook_caller(hook, other_plugins)


@cache
def get_plugins() -> Plugins:
    """Load the plugins in the entry-point group `posir` once per process; warn about failures."""
    plugins = load_plugins(entry_points(group=PROJECT))
    for plugin in plugins.plugins:
        if plugin.problem:
            logger.warning("%s", plugin.warning)
    return plugins


def load_plugins(points: Collection[EntryPoint]) -> Plugins:
    """Load plugins from entry points in the order of their names."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(sys.modules[__name__])
    plugins = []
    for point in sorted(points, key=lambda point: point.name):
        origin = point.value
        if point.dist:
            origin = f"{point.dist.name} {point.dist.version}: {origin}"
        plugins.append(Plugin(point.name, origin, _register(manager, point)))
    return Plugins(manager, tuple(plugins))


def _register(manager: pluggy.PluginManager, point: EntryPoint) -> str | None:
    """Load and register a plugin. Return the problem, or None."""
    if manager.has_plugin(point.name):
        return "another plugin of the same name was loaded first; rename one of the entry points"
    try:
        plugin = point.load()
        manager.register(plugin, name=point.name)
        manager.check_pending()
        if not manager.get_hookcallers(plugin):
            raise pluggy.PluginValidationError(
                plugin, "it implements no hook; decorate its functions with `@hookimpl`"
            )
    except (Exception, SystemExit) as error:
        if manager.has_plugin(point.name):
            manager.unregister(name=point.name)
        if isinstance(error, pluggy.PluginValidationError):
            return f"{error}. The hooks are: {', '.join(HOOKS)}"
        return f"loading it raised {type(error).__name__}: {error}"
    return None


def collect_items(hook: str, noun: str, **arguments: Any) -> Iterator[tuple[str, Any]]:
    """Yield the plugin name and the item for all items of a hook; warn about failing plugins.

    `noun` names the items in messages.
    """
    for name, caller in get_plugins().iterate_callers(hook):
        try:
            values = list(chain.from_iterable(caller(**arguments)))
        except Exception as error:
            problem = summarize_error(error)
            warn_once(logger, f"posir plugin '{name}' could not add its {noun}: {problem}")
            continue
        for value in values:
            yield name, value


def collect_unique(
    hook: str, item_type: type[Item], key: str = "name", builtin: Iterable[Item] = ()
) -> dict[str, tuple[str, Item]]:
    """Map keys to plugin name and item for all items of a hook, starting with `builtin` items. Warn
    about items of wrong types and repeated keys.
    """
    noun = item_type.__name__.lower()
    items = {getattr(item, key): (PROJECT, item) for item in builtin}
    for name, item in collect_items(hook, f"{noun}s"):
        item_key = getattr(item, key, None)
        problem = ""
        if not isinstance(item, item_type):
            problem = f"{item!r}, which is not a {item_type.__module__}.{item_type.__name__}"
        elif item_key in items:
            problem = f"a {noun} '{item_key}', a {key} of plugin '{items[item_key][0]}'"
        if problem:
            warn_once(logger, f"posir plugin '{name}' declared {problem}; it is omitted")
        else:
            items[item_key] = (name, item)
    return items


def list_plugin_scores() -> dict[str, tuple[str, Score]]:
    """Map keys to plugin name and score for all valid scores; warn about invalid scores."""
    from posir_tasks.values.scores import Score

    return collect_unique("posir_scores", Score, "key")


def score_result(values: ResultValues) -> ResultScores:
    """Compute all declared scores for each group and position bin on demand."""
    from posir_tasks.values.scores import ComputedScores, ResultScores

    declared_scores = list_plugin_scores()
    bin_scores = {key: item for key, item in declared_scores.items() if item[1].by_position}
    return ResultScores(
        tuple(score for _, score in declared_scores.values()),
        {group.name: ComputedScores(declared_scores, group) for group in values.iterate_groups()},
        tuple(ComputedScores(bin_scores, group) for group in values.iterate_bins()),
    )
