"""The help of commands: headings without boxes, and long names above their texts; `-h` has the
usual part.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import textwrap
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rich.console import Console
from rich.text import Text

from posir_tasks.base.public import DECLARATION, Declaration, Parameter, describe_function
from posir_tasks.plugin_api import Command

#: Summaries of the groups of commands.
GROUPS = {
    "build": "Build questions about documents, with known places of evidence.",
    "study": "Study probes over models, samples, domains and translations.",
    "leaderboard": "Build, serve and publish a leaderboard: one static page.",
}
#: Columns of a terminal that help uses at most.
MAX_WIDTH = 100
#: Longest name that has its text on the same line.
MAX_NAME = 22
#: Placeholders for the values of options whose names do not say what they take.
PLACEHOLDERS = {
    "window": "TOKENS",
    "budget": "TOKENS",
    "tokenizer": "MODEL",
    "embedder": "MODEL",
    "llm": "MODEL",
    "question_writer": "MODEL",
    "write_questions": "FOLDER",
    "figures": "FOLDER",
    "output": "FOLDER",
    "column": "NAME",
    "revision": "NAME",
    "font": "NAME",
    "chunk_separator": "TEXT",
    "html": "FILE",
    "card": "FILE",
    "junit": "FILE",
}
#: Options that the text of another one names, or that are short for it.
FOLDED = frozenset(
    {"figure_format", "bare", "figure_width", "font_size", "font", "markdown", "csv", "latex"}
)
#: The end of a parameter's text that states its default.
DEFAULT = re.compile(r"[;,.] [Bb]y default,? ((?:[^;:.]|\.\d)*)\.$")
#: A line of an example: a command, and perhaps a comment.
EXAMPLE = re.compile(r"^ *((?:posir|mteb) .*?)(  # .*)?$")
OVERVIEW = """Does an embedding model read to the end, and does it prefer the beginning?

posir window all-MiniLM-L6-v2               # what it reads of a text
posir inspect all-MiniLM-L6-v2 FOLDER       # what your texts lose
mteb run -m all-MiniLM-L6-v2 -t PosIR-Mini  # scores a model (mteb)
posir report results                        # is it biased?
posir COMMAND -h                            # its usual options"""


@dataclass(frozen=True)
class HelpEntry:
    """A row of the help: a command, an argument or an option."""

    name: str
    text: str
    facts: str = ""
    """Default, range and whether it is required, in brackets below or after the text."""


def render_overview(commands: Iterable[Command]) -> str:
    """Render the help of `posir`: every command in the panel of its purpose."""
    sections: dict[str, list[HelpEntry]] = {}
    names = set[str]()
    for command in commands:
        name, _, member = command.name.partition(" ")
        if name in names:
            continue
        names.add(name)
        text = GROUPS.get(name, command.summary) if member else command.summary
        sections.setdefault(command.panel, []).append(HelpEntry(name, text))
    return _render("Usage: posir [--version] COMMAND [ARGS]...", OVERVIEW, sections)


def render_group(group: str, commands: Iterable[Command]) -> str:
    """Render the help of a group of commands."""
    members = [command for command in commands if command.name.startswith(f"{group} ")]
    entries = [HelpEntry(command.name.split(" ")[1], command.summary) for command in members]
    usage = f"Usage: posir {group} COMMAND [ARGS]..."
    return _render(usage, GROUPS.get(group, ""), {"Commands": entries})


def render_command(name: str, function: Callable[..., Any], *, is_short: bool = False) -> str:
    """Render the help of the command of a public function; the usual part if it is to be short."""
    from posir_tasks.command.options import OUTPUT, list_own, list_shared

    declaration: Declaration = getattr(function, DECLARATION)
    titles = {
        option: title for title, names in declaration.groups.items() for option in names.split()
    }
    own = list_own(function)
    sections: dict[str, list[HelpEntry]] = {"Arguments": [], "Options": []}
    for parameter in own:
        title = "Arguments" if parameter.is_argument else titles.get(parameter.name, "Options")
        sections.setdefault(title, []).append(describe_parameter(parameter))
    shared = [item for item in list_shared(declaration) if item.name not in FOLDED]
    sections[OUTPUT] = [describe_parameter(parameter) for parameter in shared]
    sections[OUTPUT].append(HelpEntry("-h, --help", "Show the usual options, or all."))
    number = sum(len(entries) for title, entries in sections.items() if title != "Arguments")
    text = describe_function(function)
    if is_short:
        sections = {title: sections[title] for title in ("Arguments", "Options")}
        first, *others = text.split("\n\n")
        examples = [part for part in others if EXAMPLE.match(part.split("\n")[0])]
        text = "\n\n".join([first, *examples])
    rendered = _render(_write_usage(name, own), text, sections)
    return f"{rendered}\n\n--help: all {number} options" if is_short else rendered


def find_example(function: Callable[..., Any], name: str) -> str:
    """Return the first example of a command in the docstring of its function; empty if none."""
    for line in describe_function(function).split("\n"):
        match = EXAMPLE.match(line)
        if match and match[1].startswith(f"posir {name}"):
            return match[1]
    return ""


def describe_parameter(parameter: Parameter) -> HelpEntry:
    """Describe an argument or option: name and placeholder, text, default and range."""
    text = parameter.help
    facts = []
    stated = DEFAULT.search(text)
    if stated:
        text = f"{text[: stated.start()]}."
        facts.append(f"default: {stated[1]}")
    elif _has_default(parameter):
        facts.append(f"default: {_write_value(parameter.default)}")
    low, high = parameter.option.min, parameter.option.max
    if low is not None and high is not None:
        facts.append(f"{_write_value(low)} to {_write_value(high)}")
    elif low is not None:
        facts.append(f"at least {_write_value(low)}")
    if parameter.default is inspect.Parameter.empty and not parameter.is_argument:
        facts.append("required")
    several = "..." if parameter.repeats else ""
    name = f"{_name_parameter(parameter)}{several}"
    return HelpEntry(name, text, "; ".join(facts))


def _has_default(parameter: Parameter) -> bool:
    default = parameter.default
    is_text = isinstance(default, str) and bool(default)
    is_number = isinstance(default, int | float) and not isinstance(default, bool)
    return is_text or is_number


def _write_value(value: Any) -> str:
    is_whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if is_whole else str(getattr(value, "value", value))


def _name_parameter(parameter: Parameter) -> str:
    if parameter.is_argument:
        return parameter.option.metavar or parameter.name.upper()
    name = f"--{parameter.name.replace('_', '-')}"
    if parameter.default is True:
        name = f"{name}, --no-{parameter.name.replace('_', '-')}"
    if parameter.option.short:
        name = f"{parameter.option.short}, {name}"
    placeholder = _choose_placeholder(parameter)
    return f"{name} {placeholder}".rstrip()


def _choose_placeholder(parameter: Parameter) -> str:
    kind = parameter.type
    if parameter.option.metavar:
        return parameter.option.metavar
    if kind is bool:
        return ""
    if kind in (int, float):
        return "N"
    if typing.get_origin(kind) is typing.Literal:
        return f"[{'|'.join(map(str, typing.get_args(kind)))}]"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"[{'|'.join(choice.value for choice in kind)}]"
    return PLACEHOLDERS.get(parameter.name, parameter.name.rpartition("_")[2].upper())


def _write_usage(name: str, parameters: Iterable[Parameter]) -> str:
    arguments = [parameter for parameter in parameters if parameter.is_argument]
    pieces = [f"Usage: posir {name} [OPTIONS]"]
    for parameter in arguments:
        label = _name_parameter(parameter)
        # Several arguments that an option can replace are needed all the same.
        is_optional = parameter.default is not inspect.Parameter.empty and len(arguments) == 1
        label = f"[{label}]" if is_optional else label
        pieces.append(f"{label}..." if parameter.repeats else label)
    return " ".join(pieces)


def _render(usage: str, text: str, sections: dict[str, list[HelpEntry]]) -> str:
    width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
    lines = [Text(usage), Text(), *_render_text(text, width)]
    shown = {title: entries for title, entries in sections.items() if entries}
    names = [len(entry.name) for entries in shown.values() for entry in entries]
    column = max((length for length in names if length <= MAX_NAME), default=0) + 4
    for title, entries in shown.items():
        lines += [Text(), Text(title, style="bold")]
        for entry in entries:
            lines += _render_entry(entry, column, width)
    return _export(lines)


def _render_text(text: str, width: int) -> Iterator[Text]:
    for number, part in enumerate(text.split("\n\n")):
        if number:
            yield Text()
        if not _is_literal(part):
            for line in textwrap.wrap(" ".join(part.split()), width - 2):
                yield Text(f"  {line}")
            continue
        for line in part.split("\n"):
            yield _color_example(f"  {line}")


def _is_literal(part: str) -> bool:
    return part.startswith(" ") or "  # " in part


def _color_example(line: str) -> Text:
    rendered = Text(line)
    match = EXAMPLE.match(line)
    if match:
        rendered.stylize("cyan", match.start(1), match.end(1))
        rendered.stylize("dim", match.end(1))
    return rendered


def _render_entry(entry: HelpEntry, column: int, width: int) -> Iterator[Text]:
    parts = textwrap.wrap(entry.text, width - column)
    if entry.facts:
        facts = textwrap.wrap(f"[{entry.facts}]", width - column)
        fits = parts and len(parts[-1]) + len(facts[0]) + 2 <= width - column
        if fits:
            parts[-1] = f"{parts[-1]}  {facts.pop(0)}"
        parts += facts
    first = Text(f"  {entry.name}", style="bold")
    if len(entry.name) + 4 <= column and parts:
        first = Text.assemble(first, f"{'':{column - 2 - len(entry.name)}}{parts.pop(0)}")
    yield first
    for part in parts:
        yield Text(f"{'':{column}}{part}")


def _export(lines: Iterable[Text]) -> str:
    """Return lines with the colors that the terminal has; none where output is piped."""
    console = Console(
        width=10_000, highlight=False, no_color=True if os.environ.get("NO_COLOR") else None
    )
    with console.capture() as capture:
        for line in lines:
            console.print(line, soft_wrap=True)
    return capture.get().rstrip("\n")
