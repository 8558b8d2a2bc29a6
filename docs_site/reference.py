"""Generates the reference pages of the documentation site from the code: commands, scores, and the
Python package.

Usage, in the folder that has docs: python docs_site/reference.py
"""

import inspect
import textwrap
from pathlib import Path
from typing import Any

import posir
from posir_report.columns import known_columns
from posir_tasks.base.public import DECLARATION, describe_function
from posir_tasks.command.commands import declared_commands, load_command
from posir_tasks.command.help import describe_parameter
from posir_tasks.command.options import list_own, list_shared

FOLDER = Path("docs") / "reference"


def render_commands() -> str:
    """Render every command with its arguments and options as Markdown."""
    parts = ["# Commands\n"]
    for command in declared_commands():
        target = load_command(command)
        if hasattr(target, DECLARATION):
            parts.append(render_command(command.name, target))
    return "\n".join(parts)


def render_command(name: str, function: Any) -> str:
    """Render a command: its text, and a table of its arguments and options."""
    lines = [f"## `posir {name}`", ""]
    for part in describe_function(function).split("\n\n"):
        lines += ["```bash", textwrap.dedent(part), "```", ""] if part[0] == " " else [part, ""]
    lines += ["| argument or option | meaning | value |", "| --- | --- | --- |"]
    for parameter in [*list_own(function), *list_shared(getattr(function, DECLARATION))]:
        entry = describe_parameter(parameter)
        name = entry.name.replace("|", "\\|")
        lines.append(f"| `{name}` | {entry.text} | {entry.facts} |")
    return "\n".join([*lines, ""])


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
