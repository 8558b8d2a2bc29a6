"""The hook implementation: `posir window`, `posir inspect` and `posir score-chunks`."""

from posir_tasks.plugin_api import Command, hookimpl
from posir_tasks.plugin_api.panels import CHOICE, READING


@hookimpl
def posir_commands() -> list[Command]:
    """Return the declarations."""
    return [
        Command(
            "window", "posir_inspect.window_command:window_command", "Show how many tokens of a text a model reads.", READING
        ),
        Command(
            "inspect",
            "posir_inspect.commands:inspect_command",
            "Show how far a model reads in your own texts.",
            READING,
        ),
        Command(
            "score-chunks",
            "posir_inspect.score_chunks_command:score_chunks_command",
            "Score text splitters by what is retrieved of the evidence.",
            CHOICE,
        ),
    ]
