"""The layout of `--help` of all commands: headings without boxes, and long names above their texts."""

from __future__ import annotations

import re
from typing import Any

import typer

from posir_tasks.plugin_api import PANELS, PROBE

#: Longest name of an option that has its text beside it.
BESIDE = 22
#: Settings of the context of all commands.
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
#: The type of a value, or its choices, where Typer shows it: `<str>`, `<list[str]>`, `<text|json>`.
SHOWN_TYPE = re.compile(r"<([^>]*)>(\.\.\.)?$")
#: What stands for the value of an option whose name does not say it.
VALUES = {"html": "FILE", "card": "FILE", "junit": "FILE", "figures": "FOLDER", "output": "FOLDER", "font": "NAME"}
#: Panels of commands that are one in `posir --help`.
FOLDED = PANELS[PANELS.index(PROBE) :]


class HelpLayout:
    """Mixin of the classes of Click's commands and groups that prints their help."""

    def collect_usage_pieces(self: Any, ctx: Any) -> list[str]:
        """Return the words after the name of the command; Typer has what is required in braces."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]  # type: ignore[misc]

    def format_help(self: Any, ctx: Any, formatter: Any) -> None:
        """Write usage, text, and a section for each panel of commands, arguments and options."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, command in getattr(self, "commands", {}).items():
            panel = "Commands" if ctx.parent else "More" if command.rich_help_panel in FOLDED else command.rich_help_panel
            sections.setdefault(panel, []).append((name, command.get_short_help_str(200)))
        for parameter in self.get_params(ctx):
            panel = "Output" if parameter.name == "help" and "Output" in sections else "Options"
            panel = "Arguments" if parameter.param_type_name == "argument" else panel
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
    text = re.sub(r"([\d.]+)<=x<=([\d.]+)", r"\1 to \2", text).replace("x>=", "at least ")
    shown = SHOWN_TYPE.search(name)
    if not shown:
        return name, text
    described, gap, facts = text.partition("  [")
    choices = f" One of {', '.join(shown[1].split('|'))}." if "|" in shown[1] else ""
    word = VALUES.get(parameter.name) or parameter.name.rpartition("_")[2].upper()
    value = "N" if shown[1].startswith(("int", "float")) else word
    is_argument = parameter.param_type_name == "argument"
    return name[: shown.start()].rstrip() if is_argument else name[: shown.start()] + value, f"{described}{choices}{gap}{facts}"
