"""The leaderboard: results validated, submitted to the Hub, and shown on a static page."""
