"""The panels of `posir --help`, in the order shown: four questions, then the other commands by topic."""

READING = "Does it read to the end?"
BIAS = "How biased is it?"
CHOICE = "Which is better?"
REMEDY = "What can I do?"
RUN = "Run many evaluations"
PROBE = "Look into a model"
DATA = "Data"
LEADERBOARD = "Leaderboard"
EXTEND = "More"

PANELS = (READING, BIAS, CHOICE, REMEDY, RUN, PROBE, DATA, LEADERBOARD, EXTEND)
