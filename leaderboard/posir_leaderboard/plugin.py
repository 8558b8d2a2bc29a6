"""`posir submit` and `leaderboard`."""

from posir_tasks.plugin_api import LEADERBOARD, Command, declare

posir_commands = declare(
    Command("submit", "posir_leaderboard.commands:submit", "Check results, and send them to a leaderboard.", LEADERBOARD),
    Command("leaderboard", "posir_leaderboard.commands:app", "Build, serve and publish a leaderboard.", LEADERBOARD),
)
