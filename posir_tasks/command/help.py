"""The layout of `--help` of all commands: headings without boxes, and long names above their texts."""

from __future__ import annotations

import re
from typing import Any

import typer

#: Longest name of an option that has its text beside it.
BESIDE = 22
#: Settings of the context of all commands.
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
#: The type of a value, or its choices, where Typer shows it: `<str>`, `<list[str]>`, `<text|json>`.
SHOWN_TYPE = re.compile(r"<([^>]*)>(\.\.\.)?$")


class HelpLayout:
    """Mixin of the classes of Click's commands and groups that prints their help."""

    def format_help(self: Any, ctx: Any, formatter: Any) -> None:
        """Write usage, text, and a section for each panel of commands, arguments and options."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, command in getattr(self, "commands", {}).items():
            sections.setdefault(command.rich_help_panel or "Commands", []).append((name, command.get_short_help_str(200)))
        for parameter in self.get_params(ctx):
            panel = "Arguments" if parameter.param_type_name == "argument" else "Options"
            if record := parameter.get_help_record(ctx):
                sections.setdefault(parameter.rich_help_panel or panel, []).append(_describe(parameter, *record))
        names = [name for rows in sections.values() for name, _ in rows if len(name) <= BESIDE]
        width = max(map(len, names))
        for title, rows in sections.items():
            formatter.write_paragraph()
            formatter.write(f"{typer.style(title, bold=True)}\n")
            with formatter.indentation():
                formatter.write_dl([(typer.style(f"{name:{width}}", bold=True), text) for name, text in rows], width)


def _describe(parameter: Any, name: str, text: str) -> tuple[str, str]:
    """Return name and text of a parameter: for the value its last word or, of a number, N; choices are in the text."""
    shown = SHOWN_TYPE.search(name)
    if not shown:
        return name, text
    described, gap, facts = text.partition("  [")
    choices = f" One of {', '.join(shown[1].split('|'))}." if "|" in shown[1] else ""
    value = "N" if shown[1].startswith(("int", "float")) else parameter.name.rpartition("_")[2].upper()
    is_argument = parameter.param_type_name == "argument"
    return name[: shown.start()].rstrip() if is_argument else name[: shown.start()] + value, f"{described}{choices}{gap}{facts}"
