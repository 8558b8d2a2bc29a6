"""`posir report`."""

from posir_tasks.plugin_api import BIAS, Command, declare

posir_commands = declare(Command("report", "posir_report.api:report", "Show nDCG@10 and PSI of every model and task.", BIAS))
