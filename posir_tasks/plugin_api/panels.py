"""The panels of `posir --help`, in the order shown. A command names its own: `app.command(rich_help_panel=READ)`."""

RUN = "Run"
READ = "Read results"
DATA = "Data"
LEADERBOARD = "Leaderboard"
EXTEND = "Extend"

PANELS = (RUN, READ, DATA, LEADERBOARD, EXTEND)
