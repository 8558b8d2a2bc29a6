"""The leaderboard's subcommands of `posir`."""
