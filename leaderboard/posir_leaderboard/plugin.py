"""`posir submit` and `leaderboard`."""

from posir_tasks.plugin_api import LEADERBOARD, Command, declare

posir_commands = declare(
    Command(
        "submit",
        "posir_leaderboard.api:submit",
        "Check results, and send them to a leaderboard.",
        LEADERBOARD,
    ),
    Command(
        "leaderboard build",
        "posir_leaderboard.api:leaderboard_build",
        "Build the site.",
        LEADERBOARD,
    ),
    Command(
        "leaderboard serve",
        "posir_leaderboard.api:leaderboard_serve",
        "Serve a site on this machine.",
        LEADERBOARD,
    ),
    Command(
        "leaderboard push",
        "posir_leaderboard.api:leaderboard_push",
        "Upload a site to a Space of the Hub.",
        LEADERBOARD,
    ),
    Command(
        "leaderboard pin",
        "posir_leaderboard.api:leaderboard_pin",
        "Pin the data of a task.",
        LEADERBOARD,
    ),
)
