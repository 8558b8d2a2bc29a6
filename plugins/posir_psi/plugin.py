"""Scores: number of queries and published PSI."""

from posir_tasks.plugin_api import declare

posir_scores = declare("posir_psi.scores:SCORES")
