"""Render the help of commands. `-h` shows only common options."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import textwrap
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from rich.console import Console
from rich.text import Text

from posir_tasks.base.public import (
    DECLARATION,
    Declaration,
    Function,
    Parameter,
    describe_function,
    is_literal,
)
from posir_tasks.plugin_api import Command

#: Summary of each group of commands.
GROUPS = {
    "build": "Build questions about documents, with known positions of the evidence.",
    "study": "Study probes over models, samples, domains and translations.",
    "leaderboard": "Build, serve and publish a leaderboard: one static page.",
}
#: Maximum width of the help.
MAX_WIDTH = 100
#: Maximum width of a name with its text on the same line.
MAX_NAME = 22
#: Output options that `-h` shows.
COMMON_OUTPUT = ("--format ", "--html ", "--figures ")
#: Example: a command with an optional comment.
EXAMPLE = re.compile(r"^ *((?:posir|mteb) .*?)(  # .*)?$")
OVERVIEW = """Does an embedding model read to the end, and does it prefer the beginning?

posir window all-MiniLM-L6-v2               # how many tokens does it read?
posir inspect all-MiniLM-L6-v2 FOLDER       # what does it miss in your texts?
mteb run -m all-MiniLM-L6-v2 -t PosIR-Mini  # evaluate a model (mteb)
posir report results                        # is it biased?
posir COMMAND -h                            # common options of a command"""


@dataclass(frozen=True)
class HelpEntry:
    """A row of the help: a command, an argument or an option."""

    name: str
    text: str
    default: str = ""
    limits: tuple[str, ...] = ()
    """Minimum, maximum and `required`, if applicable."""


#: Rows of the help by heading.
Sections: TypeAlias = dict[str, list[HelpEntry]]


def render_overview(commands: Iterable[Command]) -> str:
    """Render the help of `posir`: single commands and groups by panel."""
    sections: Sections = {}
    names: set[str] = set()
    for command in commands:
        name, _, member = command.name.partition(" ")
        if name not in names:
            text = GROUPS.get(name, command.summary) if member else command.summary
            sections.setdefault(command.panel, []).append(HelpEntry(name, text))
            names.add(name)
    return _render("Usage: posir [--version] COMMAND [ARGS]...", OVERVIEW, sections)


def render_group(group: str, commands: Iterable[Command]) -> str:
    """Render the help of a group of commands."""
    prefix = f"{group} "
    entries = [
        HelpEntry(command.name.removeprefix(prefix), command.summary)
        for command in commands
        if command.name.startswith(prefix)
    ]
    usage = f"Usage: posir {group} COMMAND [ARGS]..."
    return _render(usage, GROUPS.get(group, ""), {"Commands": entries})


def render_command(name: str, function: Function, *, is_short: bool = False) -> str:
    """Render the help of a public function's command. If `is_short`, list only common options."""
    from posir_tasks.command.options import OUTPUT, list_function_options, list_shared_options

    declaration: Declaration = getattr(function, DECLARATION)
    titles: dict[str, str] = {}
    for title, names in declaration.groups.items():
        titles |= dict.fromkeys(names.split(), title)
    usage = f"Usage: posir {name} [OPTIONS]"
    sections: Sections = {"Arguments": [], "Options": []}
    for parameter in list_function_options(function):
        entry = describe_parameter(parameter)
        title = titles.get(parameter.name, "Options")
        if parameter.is_argument:
            title = "Arguments"
            usage += f" {entry.name}"
        sections.setdefault(title, []).append(entry)
    sections[OUTPUT] = list(map(describe_parameter, list_shared_options(declaration)))
    sections[OUTPUT].append(HelpEntry("-h, --help", "Show the common options, or all."))
    text = describe_function(function)
    if not is_short:
        return _render(usage, text, sections)
    option_count = sum(map(len, sections.values())) - len(sections["Arguments"])
    common = {title: sections[title] for title in ("Arguments", "Options")}
    common[OUTPUT] = [entry for entry in sections[OUTPUT] if entry.name.startswith(COMMON_OUTPUT)]
    summary, *paragraphs = text.split("\n\n")
    short_text = "\n\n".join([summary, *filter(is_literal, paragraphs)])
    return f"{_render(usage, short_text, common)}\n\n--help: all {option_count} options"


def find_example(function: Function, name: str) -> str:
    """Return the first example in the docstring of a command's function, or ""."""
    for line in describe_function(function).split("\n"):
        match = EXAMPLE.match(line)
        if match and match[1].startswith(f"posir {name}"):
            return match[1]
    return ""


def describe_parameter(parameter: Parameter) -> HelpEntry:
    """Describe an argument or option: name and placeholder, text, default and range."""
    option = parameter.option
    value = getattr(parameter.default, "value", parameter.default)
    has_default = value and isinstance(value, str | int | float) and value is not True
    limits = option.limits
    if parameter.is_argument:
        name = option.metavar or parameter.name.upper()
        if parameter.default is not inspect.Parameter.empty:
            name = f"[{name}]"
    else:
        if parameter.default is inspect.Parameter.empty:
            limits.append("required")
        flag = parameter.name.replace("_", "-")
        name = f"--{flag}"
        if parameter.default is True:
            name += f", --no-{flag}"
        if option.short:
            name = f"{option.short}, {name}"
        name = f"{name} {_choose_placeholder(parameter)}".rstrip()
    if parameter.repeats:
        name += "..."
    default = str(value) if has_default else ""
    return HelpEntry(name, parameter.help, default, tuple(limits))


def _choose_placeholder(parameter: Parameter) -> str:
    kind = parameter.type
    choices: Iterable[object] = ()
    if typing.get_origin(kind) is typing.Literal:
        choices = typing.get_args(kind)
    elif isinstance(kind, type) and issubclass(kind, Enum):
        choices = kind
    if choices:
        return f"[{'|'.join(map(str, choices))}]"
    names = {bool: "", int: "N", float: "N", Path: "FILE"}
    name = parameter.name.rpartition("_")[2].upper()
    return parameter.option.metavar or names.get(kind, name)


def _render(usage: str, text: str, sections: Sections) -> str:
    """Render help for the terminal, or without colors if output is piped."""
    width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
    lines = [Text(usage), Text(), *_render_text(text, width)]
    name_lengths = [len(entry.name) for entries in sections.values() for entry in entries]
    column = max((length for length in name_lengths if length <= MAX_NAME), default=0) + 4
    for title, entries in sections.items():
        if entries:
            lines += [Text(), Text(title, style="bold")]
        for entry in entries:
            lines += _render_entry(entry, column, width)
    console = Console(
        width=10_000, highlight=False, no_color=True if os.environ.get("NO_COLOR") else None
    )
    with console.capture() as capture:
        for line in lines:
            console.print(line, soft_wrap=True)
    return capture.get().rstrip("\n")


def _render_text(text: str, width: int) -> Iterator[Text]:
    for index, block in enumerate(text.split("\n\n")):
        if index:
            yield Text()
        style = "cyan" if is_literal(block) else ""
        for line in block.split("\n") if style else textwrap.wrap(block, width - 2):
            styled_line = Text(f"  {line}", style)
            if style:
                styled_line.highlight_regex("  # .*", "dim default")
            yield styled_line


def _render_entry(entry: HelpEntry, column: int, width: int) -> Iterator[Text]:
    default = [f"default: {entry.default}"] if entry.default else []
    limits = "; ".join([*default, *entry.limits])
    text = f"{entry.text}  [{limits}]" if limits else entry.text
    lines = textwrap.wrap(text, width - column, break_on_hyphens=False)
    first = Text(f"  {entry.name}", style="bold")
    if len(entry.name) + 4 <= column and lines:
        first.pad_right(column - len(first))
        first.append(lines.pop(0), "not bold")
    yield first
    for line in lines:
        yield Text(f"{'':{column}}{line}")
