"""The plugin API: hook specifications, and the loading and calling of plugins.

A plugin is a module or object in the entry-point group `posir`. Hook implementations may omit
arguments, so hooks can gain arguments. A failing plugin does not affect other plugins. Every
`posir` command imports this module, so it must have no slow imports.
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
#: Decorator of hook implementations: `from posir_tasks.plugin_api import hookimpl`.
hookimpl = pluggy.HookimplMarker(PROJECT)

#: Panels of `posir --help` in order: four questions, then other commands by purpose.
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
#: Resolves a name to a model's metadata, or None for another kind of name; raises PosirError if the
#: model does not exist. The second argument is mteb's registry, which also resolves all other kinds
#: of names. Results are saved under the metadata's `name`. Worker processes load the model by the
#: attribute `reference` of the metadata's loader, or else by `name`.
Resolver: TypeAlias = "Callable[[str, Mapping[str, ModelMeta]], ModelMeta | None]"


@dataclass(frozen=True)
class Command:
    """A command of `posir`."""

    name: str
    """The word after `posir`."""
    target: str
    """`module:name` of a public function, a function annotated for cyclopts, or a `cyclopts.App`;
    imported on call.
    """
    summary: str
    """One sentence for `posir --help`. The help of the command is the function's docstring."""
    panel: str = EXTEND
    """Panel of `posir --help`, such as `DATA`."""


def declare(*items: object) -> Callable[[], list[object]]:
    """Build a hook implementation that returns the items: `posir_commands = declare(Command(...),
    ...)`.

    An item `module:name` stands for an object, or for the items of a tuple, imported when the hook
    is called.
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

    The host computes scores for all queries, for each length bucket and, if declared, for each
    position bin: after an evaluation, in `posir rescore`, and for pooled results in reports. The
    declaration also defines the keys in result files, the columns in reports, CSV and JSON, and the
    column on the leaderboard.

    Returns:
        Declarations. A key that another plugin uses is refused. A score that raises is omitted with
        a warning.
    """


@hookspec
def posir_task_classes() -> Iterable[type[AbsTaskRetrieval]]:  # type: ignore[empty-body]
    """Return task classes to register with mteb.

    Called once, at the first task name that mteb lacks. Import mteb and the classes inside the
    function: every `posir` command loads the plugin, and importing mteb takes seconds.

    Returns:
        Subclasses of `posir_tasks.PositionTask` with `metadata`, a `scheme` and `read_subset`. A
        name that mteb, posir or another plugin uses is refused.
    """


@hookspec
def posir_languages() -> Iterable[str]:  # type: ignore[empty-body]
    """Return the language codes of additional tasks to list, such as `pes-Arab` for `PosIR-Persian`
    and `PosIR-Persian-English`.

    Languages in `POSIR_DATA` and in the dataset on the Hub are always listed, and `mteb run -t`
    accepts any language. Invalid codes are refused.
    """


@hookspec
def posir_commands() -> Iterable[Command]:  # type: ignore[empty-body]
    """Return commands to add to `posir`.

    Called by every `posir` command. A command is imported only when it is called.

    Returns:
        Declarations. A name that posir or another plugin uses is refused.
    """


@hookspec
def posir_probes() -> Iterable[object]:  # type: ignore[empty-body]
    """Return probes for `posir probe`: diagnostic measurements of a model on texts.

    Called by `posir probe`. Import heavy packages inside the function or the probe.

    Returns:
        Instances of subclasses of `posir_probe.probe.Probe`. A name that another probe uses is
        refused.
    """


@hookspec
def posir_model_resolvers() -> Iterable[Resolver]:  # type: ignore[empty-body]
    """Return resolvers of model names, which add kinds of names to `-m` of every command.

    Called once per process, at the first name that is not the full name of a registered model.
    Import heavy packages inside the resolver.

    Returns:
        Functions with the protocol `Resolver`. They precede posir's resolvers and must return None
        for all other kinds of names.
    """


@hookspec
def posir_answers(file: Path) -> Iterable[tuple[str, str]]:  # type: ignore[empty-body]
    """Return findings on a result, which `mteb run` prints at its end: pairs of a title and a
    paragraph.

    Args:
        file: mteb's result file of a position-aware task.
    """


HOOKS = tuple(sorted(name for name in globals() if name.startswith("posir_")))


@dataclass(frozen=True)
class Plugin:
    """An entry point of the group `posir`."""

    name: str
    origin: str
    """Distribution and module."""
    problem: str | None = None
    """The reason why the plugin is not used, or None."""

    @property
    def warning(self) -> str:
        """The warning about an unused plugin."""
        return f"posir plugin '{self.name}' ({self.origin}) is not used: {self.problem}"


@dataclass(frozen=True)
class Plugins:
    """The loaded plugins."""

    manager: pluggy.PluginManager
    plugins: tuple[Plugin, ...]

    def callers(self, hook: str) -> Iterator[tuple[str, pluggy.HookCaller]]:
        """Yield each plugin's name with a caller of its hook implementation only."""
        plugins = self.manager.list_name_plugin()
        for implementation in getattr(self.manager.hook, hook).get_hookimpls():
            name = implementation.plugin_name
            excluded = [plugin for other_name, plugin in plugins if other_name != name]
            yield name, self.manager.subset_hook_caller(hook, excluded)


@cache
def get_plugins() -> Plugins:
    """Load the plugins of the entry-point group `posir` once per process; warn about failures."""
    plugins = load_plugins(entry_points(group=PROJECT))
    for plugin in plugins.plugins:
        if plugin.problem:
            logger.warning("%s", plugin.warning)
    return plugins


def load_plugins(points: Collection[EntryPoint]) -> Plugins:
    """Load plugins from entry points, sorted by name."""
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
    """Load and register a plugin; return the problem, or None."""
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


def collect_items(hook: str, items: str, **arguments: Any) -> Iterator[tuple[str, Any]]:
    """Yield a plugin's name and an item for all items of a hook; warn about failing plugins.

    `items` is the plural noun of the items for messages.
    """
    for name, caller in get_plugins().callers(hook):
        try:
            values = list(chain.from_iterable(caller(**arguments)))
        except Exception as error:
            problem = summarize_error(error)
            warn_once(logger, f"posir plugin '{name}' could not add its {items}: {problem}")
            continue
        for value in values:
            yield name, value


def collect_unique(
    hook: str, kind: type[Item], key: str = "name", own: Iterable[Item] = ()
) -> dict[str, tuple[str, Item]]:
    """Collect the items of a hook by key, each with its plugin's name, after `own` items; warn
    about items of other types and repeated keys.
    """
    noun = kind.__name__.lower()
    items = {getattr(item, key): (PROJECT, item) for item in own}
    for name, item in collect_items(hook, f"{noun}s"):
        item_key = getattr(item, key, None)
        problem = ""
        if not isinstance(item, kind):
            problem = f"{item!r}, which is not a {kind.__module__}.{kind.__name__}"
        elif item_key in items:
            problem = f"a {noun} '{item_key}', a {key} of plugin '{items[item_key][0]}'"
        if problem:
            warn_once(logger, f"posir plugin '{name}' declared {problem}; it is omitted")
        else:
            items[item_key] = (name, item)
    return items


def declared_scores() -> dict[str, tuple[str, Score]]:
    """Return each valid score by key, with its plugin's name; warn about invalid scores."""
    from posir_tasks.values.scores import Score

    return collect_unique("posir_scores", Score, "key")


def score_result(values: ResultValues) -> ResultScores:
    """Compute all declared scores of each group and each position bin, lazily."""
    from posir_tasks.values.scores import ComputedScores, ResultScores

    declared = declared_scores()
    bin_scores = {key: item for key, item in declared.items() if item[1].by_position}
    return ResultScores(
        tuple(score for _, score in declared.values()),
        {group.name: ComputedScores(declared, group) for group in values.iterate_groups()},
        tuple(ComputedScores(bin_scores, group) for group in values.iterate_bins()),
    )
