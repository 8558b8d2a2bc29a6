"""The hooks that a plugin can implement. A plugin is a module or object that an entry point of the group `posir` names.

An implementation may omit arguments it does not need, so hooks can gain arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from posir_tasks.plugin_api.markers import hookspec

if TYPE_CHECKING:
    from mteb.abstasks.retrieval import AbsTaskRetrieval

    from posir_tasks.models.references import Resolver
    from posir_tasks.plugin_api.commands import Command
    from posir_tasks.scores import Score


@hookspec
def posir_scores() -> Iterable[Score]:  # type: ignore[empty-body]
    """Return scores to add to every result: what each is called, how it reads, and how it is computed.

    The host computes them for all queries, for each length bucket and, where declared, for each position bin: of every
    evaluated subset, by `posir rescore` of stored ones, and of pooled ones for reports. From the declaration follow its keys in
    the result file, its columns in reports, CSV and JSON, and its column on the leaderboard.

    Returns:
        Declarations. A key that another plugin uses is refused; a score that raises is omitted with a warning.
    """


@hookspec
def posir_task_classes() -> Iterable[type[AbsTaskRetrieval]]:  # type: ignore[empty-body]
    """Return task classes to register with mteb.

    Called once, when mteb is first asked for a task that it does not have itself. Import mteb and the classes inside the
    function, because every `posir` command loads the plugin, and mteb takes seconds to import.

    Returns:
        Subclasses of `posir_tasks.PositionTask` with `metadata`, a `scheme` and `read_subset`. A name that mteb, posir or
        another plugin uses is refused.
    """


@hookspec
def posir_languages() -> Iterable[str]:  # type: ignore[empty-body]
    """Return codes of languages whose tasks are listed, such as `pes-Arab` for `PosIR-Persian` and `PosIR-Persian-English`.

    For data that is not on this machine yet: the languages in `POSIR_DATA` or in the dataset on the Hub are listed anyway, and
    `mteb run -t` takes the task of any language. An invalid code is refused.
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
        Objects of classes that derive from `posir_probe.probe.Probe`. A name that another probe uses is refused.
    """


@hookspec
def posir_model_resolvers() -> Iterable[Resolver]:  # type: ignore[empty-body]
    """Return resolvers of references to models, so that `-m` of every command accepts a further kind of name.

    Called once per process, when a name is looked up that is not the full name of a registered model. Import heavy packages
    inside the resolver.

    Returns:
        Functions with the protocol `posir_tasks.models.references.Resolver`. They are asked before posir's own resolvers, so
        they must return None for every name that is not of their kind.
    """
