"""The hook implementation: `posir submit`, `check-results` and `leaderboard`."""

from posir_tasks.plugin_api import Command, hookimpl
from posir_tasks.plugin_api.panels import LEADERBOARD


@hookimpl
def posir_commands() -> list[Command]:
    """Return the declarations."""
    return [
        Command(
            "submit",
            "posir_leaderboard.command.submission:submit",
            "Check results, and send them to a leaderboard.",
            LEADERBOARD,
        ),
        Command(
            "check-results",
            "posir_leaderboard.command.submission:check_results",
            "Check results as `posir submit` does; send nothing.",
            LEADERBOARD,
        ),
        Command("leaderboard", "posir_leaderboard.command.board:app", "Build, serve and publish a leaderboard.", LEADERBOARD),
    ]
