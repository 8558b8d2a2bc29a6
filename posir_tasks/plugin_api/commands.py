"""The declaration of a command of `posir`: what help shows of it, and where it is imported from when it is called."""

from __future__ import annotations

from dataclasses import dataclass

from posir_tasks.plugin_api.panels import EXTEND


@dataclass(frozen=True)
class Command:
    """A command that a plugin adds to `posir`."""

    name: str
    """Typed after `posir`."""
    target: str
    """`module:name` of a function with Typer's annotations, or of a `typer.Typer` with subcommands; imported when called."""
    summary: str
    """One sentence for `posir --help`. The command's own help is the docstring of its function."""
    panel: str = EXTEND
    """Panel of `posir --help`, such as those in `posir_tasks.plugin_api.panels`."""
