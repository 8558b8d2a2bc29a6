"""The hook implementation: `posir submit` and `leaderboard`."""

from posir_tasks.plugin_api import LEADERBOARD, Command, hookimpl


@hookimpl
def posir_commands() -> list[Command]:
    """Return the declarations."""
    return [
        Command(
            "submit",
            "posir_leaderboard.commands:submit",
            "Check results, and send them to a leaderboard.",
            LEADERBOARD,
        ),
        Command("leaderboard", "posir_leaderboard.commands:app", "Build, serve and publish a leaderboard.", LEADERBOARD),
    ]
