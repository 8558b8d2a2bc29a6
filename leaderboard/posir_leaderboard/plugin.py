"""The plugin: the commands of `posir` for submission and leaderboard."""

import typer

from posir_leaderboard.command import board, submission
from posir_tasks.plugin_api import hookimpl


@hookimpl
def posir_commands(app: typer.Typer) -> None:
    """Add `posir submit`, `check-results` and `leaderboard`."""
    submission.add_commands(app)
    board.add_commands(app)
