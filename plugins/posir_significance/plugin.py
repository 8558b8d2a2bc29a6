"""Intervals, the test of the position effect, the state of the bias; `posir power`."""

from posir_tasks.plugin_api import PROBE, Command, declare

posir_scores = declare("posir_significance.scores:SCORES")
posir_commands = declare(
    Command(
        "power",
        "posir_significance.api:power",
        "Show how many questions an effect of position needs.",
        PROBE,
    )
)
