"""What the package adds: scores, a command and a task."""

from posir_tasks.plugin_api import Command, hookimpl


@hookimpl
def posir_scores():
    """MRR@10 of the first and of the last position."""
    from posir_letters.scores import SCORES

    return SCORES


@hookimpl
def posir_commands():
    """The command `posir edges`."""
    return [
        Command(
            "edges",
            "posir_letters.edges:edges",
            "Print the MRR@10 of the first and of the last position.",
        )
    ]


@hookimpl
def posir_task_classes():
    """The package's tasks."""
    from posir_letters.task import HarbourLetters

    return [HarbourLetters]
