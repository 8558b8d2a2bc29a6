"""Generates the reference pages of the documentation site from the code: commands, scores, and the
Python package.

Usage, in the folder that has docs: python docs_site/reference.py
"""

import inspect
from pathlib import Path
from typing import Any

import typer
from typer.cli import get_docs_for_click

import posir
from posir_report.columns import known_columns
from posir_tasks.command.app import build_app
from posir_tasks.command.lazy import LazyCommand

FOLDER = Path("docs") / "reference"


def render_commands() -> str:
    """Return Markdown of every command with its arguments and options."""
    command: Any = typer.main.get_command(build_app())
    _load_commands(command)
    return get_docs_for_click(
        obj=command, ctx=typer.Context(command), name="posir", title="Commands"
    )


def _load_commands(group: Any) -> None:
    """Replace the declarations of a group's commands, and of the groups in it, by the commands."""
    for name, declared in group.commands.items():
        loaded = declared.load() if isinstance(declared, LazyCommand) else declared
        loaded.name = name
        loaded.short_help = declared.get_short_help_str(limit=200)
        group.commands[name] = loaded
        if hasattr(loaded, "commands"):
            _load_commands(loaded)


def render_scores() -> str:
    """Return Markdown of every declared score."""
    head = (
        "# Scores\n\nKeys of `posir report --columns`.\n\n| key | title | description | source |\n"
        + "| --- " * 4
        + "|\n"
    )
    rows = (
        f"| `{score.key}` | {score.title} | {score.description} | {score.citation} |\n"
        for score in known_columns()
    )
    return head + "".join(rows)


def render_python() -> str:
    """Return Markdown that mkdocstrings fills with the signature and docstring of every public
    name.
    """
    names = (f"::: {getattr(posir, name).__module__}.{name}\n" for name in posir.__all__)
    return f"# Python\n\n{inspect.getdoc(posir)}\n\n" + "\n".join(names)


def main() -> None:
    """Write the pages."""
    FOLDER.mkdir(exist_ok=True)
    pages = {"commands": render_commands(), "python": render_python(), "scores": render_scores()}
    for name, text in pages.items():
        (FOLDER / f"{name}.md").write_text(text)


if __name__ == "__main__":
    main()
