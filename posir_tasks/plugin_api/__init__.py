"""The plugin API: what a plugin declares with `hookimpl`, and the host side, which loads plugins
and calls their hooks.

A plugin is a module or object that an entry point of the group `posir` names; it may omit arguments
of a hook that it does not need, so hooks can gain arguments. The failure of one plugin does not
affect the others. Every `posir` command imports this module, so it imports nothing slow.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TypeAlias

import pluggy

from posir_tasks.base.errors import summarize_error

if TYPE_CHECKING:
    from pathlib import Path

    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.models import ModelMeta

    from posir_tasks.values.scores import ResultScores, ResultValues, Score

logger = logging.getLogger(__name__)

PROJECT = "posir"

hookspec = pluggy.HookspecMarker(PROJECT)
#: Decorator for implementations of hooks: `from posir_tasks.plugin_api import hookimpl`.
hookimpl = pluggy.HookimplMarker(PROJECT)

#: The panels of `posir --help`, in the order shown: four questions, then the other commands by
#: purpose.
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
#: Returns the metadata of the model that a name refers to, None if the name is not of this kind;
#: raises PosirError if it is, but there is no such model. Its other argument is mteb's registry:
#: looking a name up in it resolves the other kinds, too. Results are filed under the `name` in the
#: metadata. If it does not refer to the model itself, the metadata's loader has an attribute
#: `reference` that does, in every process: worker processes load models by it.
Resolver: TypeAlias = "Callable[[str, Mapping[str, ModelMeta]], ModelMeta | None]"


@dataclass(frozen=True)
class Command:
    """A command that a plugin adds to `posir`."""

    name: str
    """Typed after `posir`."""
    target: str
    """`module:name` of a public function, a function with the annotations of cyclopts, or a
    `cyclopts.App`; imported when called.
    """
    summary: str
    """One sentence for `posir --help`. The command's own help is the docstring of its function."""
    panel: str = EXTEND
    """Panel of `posir --help`, such as `DATA` here."""


def declare(*items: object) -> Callable[[], list[object]]:
    """Return the implementation of a hook for a table of what it returns: `posir_commands =
    declare(Command(...), ...)`.

    In place of a text `module:name` it returns what has that name, or, of a tuple, what is in it;
    it is imported when the hook is called.
    """

    def implementation() -> list[object]:
        return [
            value
            for item in items
            for known in [resolve_name(item) if isinstance(item, str) else item]
            for value in (known if isinstance(known, tuple) else (known,))
        ]

    marked: Callable[[], list[object]] = hookimpl(implementation)
    return marked


@hookspec
def posir_scores() -> Iterable[Score]:  # type: ignore[empty-body]
    """Return scores to add to every result: what each is called, how it reads, and how it is
    computed.

    The host computes them for all queries, for each length bucket and, where declared, for each
    position bin: of every evaluated subset, by `posir rescore` of stored ones, and of pooled ones
    for reports. From the declaration follow its keys in the result file, its columns in reports,
    CSV and JSON, and its column on the leaderboard.

    Returns:
        Declarations. A key that another plugin uses is refused; a score that raises is omitted with
        a warning.
    """


@hookspec
def posir_task_classes() -> Iterable[type[AbsTaskRetrieval]]:  # type: ignore[empty-body]
    """Return task classes to register with mteb.

    Called once, when mteb is first asked for a task that it does not have itself. Import mteb and
    the classes inside the function, because every `posir` command loads the plugin, and mteb takes
    seconds to import.

    Returns:
        Subclasses of `posir_tasks.PositionTask` with `metadata`, a `scheme` and `read_subset`. A
        name that mteb, posir or another plugin uses is refused.
    """


@hookspec
def posir_languages() -> Iterable[str]:  # type: ignore[empty-body]
    """Return codes of languages whose tasks are listed, such as `pes-Arab` for `PosIR-Persian` and
    `PosIR-Persian-English`.

    For data that is not on this machine yet: the languages in `POSIR_DATA` or in the dataset on the
    Hub are listed anyway, and `mteb run -t` takes the task of any language. An invalid code is
    refused.
    """


@hookspec
def posir_commands() -> Iterable[Command]:  # type: ignore[empty-body]
    """Return commands to add to `posir`: what help shows of each, and where it is imported from.

    Called by every `posir` command. A command is imported when it is called itself.

    Returns:
        Declarations. A name that posir or another plugin uses is refused.
    """


@hookspec
def posir_probes() -> Iterable[object]:  # type: ignore[empty-body]
    """Return probes for `posir probe`: diagnostic measurements of a model on texts.

    Called when `posir probe` runs. Import heavy packages inside the function or inside the probe.

    Returns:
        Objects of classes that derive from `posir_probe.probe.Probe`. A name that another probe
        uses is refused.
    """


@hookspec
def posir_model_resolvers() -> Iterable[Resolver]:  # type: ignore[empty-body]
    """Return resolvers of references to models, so that `-m` of every command accepts a further
    kind of name.

    Called once per process, when a name is looked up that is not the full name of a registered
    model. Import heavy packages inside the resolver.

    Returns:
        Functions with the protocol `Resolver`. They are asked before
        posir's own resolvers, so they must return None for every name that is not of their kind.
    """


@hookspec
def posir_answers(file: Path) -> Iterable[str]:  # type: ignore[empty-body]
    """Return what the result in a file says, a title and a paragraph in a string each, which `mteb
    run` prints at its end.

    Args:
        file: A result of a position-aware task, as mteb saves it.
    """


HOOKS = tuple(sorted(name for name in globals() if name.startswith("posir_")))


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
        """Yield each plugin that implements a hook: its name, and a caller that only calls this
        plugin.
        """
        plugins = dict(self.manager.list_name_plugin())
        for implementation in getattr(self.manager.hook, hook).get_hookimpls():
            others = [
                plugin for name, plugin in plugins.items() if name != implementation.plugin_name
            ]
            yield implementation.plugin_name, self.manager.subset_hook_caller(hook, others)


@cache
def loaded_plugins() -> Plugins:
    """Load the plugins of the entry-point group `posir`, once per process; warn about each one that
    fails.
    """
    loaded = load_plugins(entry_points(group=PROJECT))
    for plugin in loaded.plugins:
        if plugin.problem:
            logger.warning("%s", plugin.warning)
    return loaded


def load_plugins(points: Collection[EntryPoint]) -> Plugins:
    """Load plugins from entry points, in order of their names."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(sys.modules[__name__])
    plugins = []
    for point in sorted(points, key=lambda point: point.name):
        origin = (
            f"{point.dist.name} {point.dist.version}: {point.value}" if point.dist else point.value
        )
        plugins.append(Plugin(point.name, origin, _register(manager, point)))
    return Plugins(manager, tuple(plugins))


def _register(manager: pluggy.PluginManager, point: EntryPoint) -> str | None:
    """Load and register a plugin; return why it cannot be used, or None if it can."""
    if manager.has_plugin(point.name):
        return (
            "another plugin of the same name was loaded first; rename one of the two entry points"
        )
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
    """Yield each of the `items` that plugins return for a hook, with the plugin's name; warn about
    a plugin that fails.
    """
    for name, caller in loaded_plugins().callers(hook):
        try:
            answers = [item for answer in caller(**arguments) for item in answer]
        except Exception as error:
            logger.warning(
                "posir plugin '%s' could not add its %s: %s", name, items, summarize_error(error)
            )
            continue
        yield from ((name, item) for item in answers)


def declared_scores() -> list[Score]:
    """Return the scores that all plugins declare, in the order of the plugins' names; warn about
    each that cannot be used.
    """
    return [score for _, score in _declared()]


def _declared() -> Iterator[tuple[str, Score]]:
    """Yield the name of the plugin and the score for each declared score whose key is not in
    use.
    """
    from posir_tasks.values.scores import Score

    owners: dict[str, str] = {}
    for name, score in collect_items("posir_scores", "scores"):
        if not isinstance(score, Score):
            problem = f"{score!r}, which is no posir_tasks.values.scores.Score"
        elif score.key in owners:
            problem = f"a score '{score.key}', a key of plugin '{owners[score.key]}'"
        else:
            owners[score.key] = name
            yield name, score
            continue
        logger.warning("posir plugin '%s' declared %s; it is omitted", name, problem)


def score_result(values: ResultValues) -> ResultScores:
    """Return every declared score of each group, and those for bins of each position bin, computed
    when asked for.
    """
    from posir_tasks.values.scores import ComputedScores, ResultScores

    # Plugins cache by group what several of their scores need.
    declared, groups = list(_declared()), list(values.groups())
    by_group = ComputedScores.split(declared, groups)
    by_bin = ComputedScores.split(
        ((name, score) for name, score in declared if score.by_position), values.bins()
    )
    names = (group.name for group in groups)
    return ResultScores(
        tuple(score for _, score in declared),
        dict(zip(names, by_group, strict=True)),
        tuple(by_bin),
    )
