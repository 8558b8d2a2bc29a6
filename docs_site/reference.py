"""Generate pages of the documentation: the reference of commands, JSON schemas, scores and Python
functions, and the pages of papers and notebooks.

Usage, from the repository root: python docs_site/reference.py
"""

import inspect
import json
import textwrap
import typing
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import nbformat
from json_schema import SCHEMAS, build_schema
from notebooks import FOLDER as NOTEBOOKS
from notebooks import render_notebook

import posir
from posir_recipes.api import build_page, list_papers, read_recipe
from posir_report.columns import list_score_columns
from posir_tasks.base.public import DECLARATION, Parameter, describe_function, is_literal
from posir_tasks.base.settings_file import describe_settings
from posir_tasks.command.commands import list_commands, load_command
from posir_tasks.command.help import describe_parameter
from posir_tasks.command.options import list_function_options, list_shared_options
from posir_tasks.plugin_api import Command

FOLDER = Path("docs") / "reference"
#: Names of types in tables of options.
TYPES = {bool: "switch", int: "whole number", float: "number", Path: "file"}


def name_page(command: str) -> str:
    """Return the file name of a command's page."""
    return f"posir-{command.replace(' ', '-')}.md"


def render_index(commands: list[Command]) -> str:
    """Render the list of all commands by panel."""
    lines = ["# Commands", ""]
    panel = ""
    for command in commands:
        if command.panel != panel:
            panel = command.panel
            lines += ["", f"## {panel}", "", "| command | what it does |", "| --- | --- |"]
        link = f"[`posir {command.name}`]({name_page(command.name)})"
        lines.append(f"| {link} | {command.summary} |")
    return "\n".join([*lines, ""])


def render_command(name: str, function: Callable[..., Any]) -> str:
    """Render the page of a command: its description and tables of arguments and options."""
    declaration = getattr(function, DECLARATION)
    lines = [f"# posir {name}", ""]
    for block in describe_function(function).split("\n\n"):
        is_code = is_literal(block)
        lines += ["```bash", textwrap.dedent(block), "```", ""] if is_code else [block, ""]
    function_parameters = list_function_options(function)
    sections = {
        "Arguments": [parameter for parameter in function_parameters if parameter.is_argument],
        "Options": [parameter for parameter in function_parameters if not parameter.is_argument],
        "Output": list_shared_options(declaration),
    }
    for title, parameters in sections.items():
        if parameters:
            lines += [f"## {title}", "", *render_parameters(parameters), ""]
    if declaration.settings:
        settings = describe_settings(resolve_name(declaration.settings))
        lines += ["## Settings", "", "```yaml", settings, "```", ""]
    if name in SCHEMAS:
        lines += [f"JSON of `--format json`: [schema](json/{name}.json).", ""]
    return "\n".join(lines)


def render_parameters(parameters: list[Parameter]) -> Iterator[str]:
    """Yield the lines of a table of arguments or options."""
    yield "| name | type | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for parameter in parameters:
        entry = describe_parameter(parameter)
        name = entry.name.replace("|", "\\|")
        kind = ", ".join([describe_type(parameter), *entry.limits])
        yield f"| `{name}` | {kind} | {entry.default} | {entry.text} |"


def describe_type(parameter: Parameter) -> str:
    """Describe the type of an argument or option."""
    kind = parameter.type
    is_choice = isinstance(kind, type) and issubclass(kind, Enum)
    text = TYPES.get(kind, "text")
    if is_choice or typing.get_origin(kind) is typing.Literal:
        text = "one of these"
    return f"{text}, repeatable" if parameter.repeats else text


def render_json() -> str:
    """Render the page of the JSON schemas."""
    lines = [
        "# JSON",
        "",
        "The output of `--format json` follows a [JSON schema](https://json-schema.org), unless",
        "an option selects other rows. An estimate `x` is followed by `x_interval`, the bounds of",
        "its interval. Numbers are not rounded. Shares are in [0, 1].",
        "",
        "| command | schema |",
        "| --- | --- |",
    ]
    lines += [f"| `posir {name}` | [{name}.json](json/{name}.json) |" for name in SCHEMAS]
    return "\n".join([*lines, ""])


def render_scores() -> str:
    """Render the page of all declared scores."""
    lines = [
        "# Scores",
        "",
        "Keys of `posir report --columns`.",
        "",
        "| key | title | description | source |",
        "| --- | --- | --- | --- |",
    ]
    for score in list_score_columns():
        cells = (f"`{score.key}`", score.title, score.description, score.citation)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def render_python() -> str:
    """Render the page of the Python package. mkdocstrings inserts signatures and docstrings."""
    names = (f"::: {getattr(posir, name).__module__}.{name}\n" for name in posir.__all__)
    return f"# Python\n\n{inspect.getdoc(posir)}\n\n" + "\n".join(names)


def main() -> None:
    """Write all generated pages."""
    (FOLDER / "json").mkdir(parents=True, exist_ok=True)
    (FOLDER.parent / "papers").mkdir(exist_ok=True)
    commands = list_commands()
    pages = {
        "commands.md": render_index(commands),
        "json.md": render_json(),
        "python.md": render_python(),
        "scores.md": render_scores(),
    }
    for command in commands:
        pages[name_page(command.name)] = render_command(command.name, load_command(command))
    for paper in list_papers():
        pages[f"../papers/{paper}.md"] = build_page(paper, read_recipe(paper))
    for name in SCHEMAS:
        pages[f"json/{name}.json"] = json.dumps(build_schema(name), indent=2)
    for file in NOTEBOOKS.glob("*.ipynb"):
        notebook = nbformat.read(file, as_version=4)
        pages[f"notebook-{file.stem}.md"] = render_notebook(notebook)
    for name, text in pages.items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
