"""What a plugin may implement. A plugin is a module or object behind an entry point of the group `posir`.

An implementation names the arguments it wants and may leave out the others, so hooks can gain arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from posir_tasks.hooks.markers import hookspec

if TYPE_CHECKING:
    import typer

    from posir_tasks.profile import PositionProfile


@hookspec
def posir_scores(profile: PositionProfile) -> Mapping[str, Any]:  # type: ignore[empty-body]
    """Return scores of one profile, to stand beside mteb's own in the result.

    Called for every evaluated subset, by `posir rescore` for stored ones, and by reports for pooled ones; so it must
    depend on nothing but the profile, and not change it.

    Args:
        profile: Ranks of the relevant documents, counted by length and position.

    Returns:
        Names and JSON values (`None` where a score is undefined; NaN is refused). A name that mteb or another plugin
        uses is refused.
    """


@hookspec
def posir_commands(app: typer.Typer) -> None:
    """Add commands to the `posir` command.

    Args:
        app: The Typer application; decorate functions with `app.command()`.
    """
