"""`posir report`."""

from collections.abc import Iterable
from pathlib import Path

from posir_tasks.plugin_api import BIAS, Command, declare, hookimpl


@hookimpl
def posir_answers(file: Path) -> Iterable[tuple[str, str]]:
    """Return the short answer for each model of a result."""
    from posir_report.page import describe_result_file

    return describe_result_file(file)


posir_commands = declare(
    Command(
        "report",
        "posir_report.api:report",
        "Show how biased models are, and what they truncate.",
        BIAS,
    )
)
