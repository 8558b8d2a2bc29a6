"""The leaderboard: results scored, compared, and written as a static page."""
