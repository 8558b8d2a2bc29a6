"""Scores with intervals, position effects and states; `posir power`."""

from posir_tasks.plugin_api import PROBE, Command, declare

posir_scores = declare("posir_significance.scores:SCORES")
posir_commands = declare(
    Command(
        "power",
        "posir_significance.api:power",
        "Plan how many questions a position effect needs.",
        PROBE,
    )
)
