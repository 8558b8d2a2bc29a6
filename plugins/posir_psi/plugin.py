"""The number of queries, and PSI as papers print it."""

from posir_tasks.plugin_api import declare

posir_scores = declare("posir_psi.scores:SCORES")
