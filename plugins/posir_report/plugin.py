"""The hook implementation: `posir report`."""

from posir_tasks.plugin_api import BIAS, Command, hookimpl


@hookimpl
def posir_commands() -> list[Command]:
    """Return the declarations."""
    return [
        Command("report", "posir_report.report_command:report", "Show nDCG@10 and PSI of every model and task.", BIAS),
    ]
