"""The layout of `--help` of all commands: headings without boxes, and long names above their texts;
`-h` has the usual part.
"""

from __future__ import annotations

import os
import re
from typing import Any

import typer

from posir_tasks.base.wording import NO_BREAK

#: Longest name of an option that has its text beside it.
BESIDE = 22
#: Settings of the context of all commands.
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
#: The type of a value, or its choices, where Typer shows it: `<str>`, `<list[str]>`, `<text|json>`.
SHOWN_TYPE = re.compile(r"<([^>]*)>(\.\.\.)?$")
#: The end of a text that says what an option is by default, and of a whole number that may be
#: another.
DEFAULT, ZERO = re.compile(r"[;,.] [Bb]y default,? ((?:[^;:.]|\.\d)*)\.$"), r"(?<=\d)\.0\b"
#: What stands for the value of options whose names do not say it.
VALUES = {
    "TOKENS": "window budget",
    "MODEL": "tokenizer embedder llm question_writer",
    "FOLDER": "write_questions figures output",
    "NAME": "column revision font",
    "TEXT": "chunk_separator",
    "FILE": "html card junit",
}
#: Options that the text of another one names, or that are short for it.
FOLDED = {"figure_format", "bare", "figure_width", "font_size", "font", "markdown", "csv", "latex"}
#: A comment after a command, and the commands of examples, which are indented or have a comment.
COMMENT, EXAMPLE = (
    re.compile("  # .*"),
    re.compile(r"(?m)^( {6}|  (?=.*  # ))((?:posir|mteb) (?:.*\\\n)*.*?)(?=  # |$)"),
)
#: Whether the usual part is asked for, in the notes of a context.
SHORT = "posir.short"


class HelpLayout:
    """Mixin of the classes of Click's commands and groups that prints their help."""

    def collect_usage_pieces(self: Any, ctx: Any) -> list[str]:
        """Return the words after the name of the command; several arguments that can be replaced by
        an option are needed.
        """
        pieces = [re.sub("[{}]", "", piece) for piece in super().collect_usage_pieces(ctx)]  # type: ignore[misc]
        optional = [
            piece for piece in pieces if re.fullmatch(r"\[[A-Z]+\]", piece) and piece != "[OPTIONS]"
        ]
        pieces = (
            pieces
            if ctx.parent
            else [piece.replace("[OPTIONS]", "[--version]") for piece in pieces]
        )
        return [
            piece.strip("[]") if piece in optional and len(optional) > 1 else piece
            for piece in pieces
        ]

    def parse_args(self: Any, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, of which `-h` asks for the usual part of the help."""
        ctx.meta[SHORT] = "-h" in args
        return super().parse_args(ctx, args)  # type: ignore[misc, no-any-return]

    def format_help(self: Any, ctx: Any, formatter: Any) -> None:
        """Write usage, text, and a section for each panel of commands, arguments and options; for
        `-h`, what is usual.
        """
        is_short = ctx.meta.get(SHORT) and not hasattr(self, "commands")
        first, *others = self.help.split("\n\n")
        self.format_usage(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(
                "\n\n".join(
                    [first, *(part for part in others if not is_short or part.startswith("\b"))]
                )
            )
        # What is usual comes before the groups.
        sections: dict[str, list[tuple[str, str]]] = (
            {} if hasattr(self, "commands") else {"Arguments": [], "Options": []}
        )
        for name, command in getattr(self, "commands", {}).items():
            panel = "Commands" if ctx.parent else command.rich_help_panel
            sections.setdefault(panel, []).append((name, command.get_short_help_str(200)))
        for parameter in self.get_params(ctx) if ctx.parent else ():
            panel = "Output" if parameter.name == "help" and "Output" in sections else "Options"
            panel = "Arguments" if parameter.param_type_name == "argument" else panel
            if parameter.name not in FOLDED and (record := parameter.get_help_record(ctx)):
                sections.setdefault(parameter.rich_help_panel or panel, []).append(
                    _describe(parameter, *record)
                )
        number = sum(len(rows) for title, rows in sections.items() if title != "Arguments")
        if is_short:
            sections = {title: sections[title] for title in ("Arguments", "Options")}
        names = [name for rows in sections.values() for name, _ in rows if len(name) <= BESIDE]
        width = max(map(len, names))
        for title, rows in ((title, rows) for title, rows in sections.items() if rows):
            formatter.write_paragraph()
            formatter.write(f"{typer.style(title, bold=True)}\n")
            with formatter.indentation():
                formatter.write_dl(
                    [(typer.style(f"{name:{width}}", bold=True), text) for name, text in rows],
                    width,
                )
        if is_short:
            formatter.write(f"\n--help: all {number} options\n")
        color = None if os.environ.get("NO_COLOR") else "cyan"
        text = EXAMPLE.sub(
            lambda line: line[1] + typer.style(line[2], fg=color),
            formatter.getvalue().replace(NO_BREAK, " "),
        )
        formatter.buffer[:] = [COMMENT.sub(lambda comment: typer.style(comment[0], dim=True), text)]


def _describe(parameter: Any, name: str, text: str) -> tuple[str, str]:
    """Return name and text of a parameter: for the value its choices, its last word or, of a
    number, N; facts in brackets.
    """
    described, _, facts = text.partition("  [")
    facts = re.sub(r"([\d.]+)<=x<=([\d.]+)", r"\1 to \2", facts.removesuffix("]")).replace(
        "x>=", "at least "
    )
    if stated := DEFAULT.search(described):
        described, facts = (
            f"{described[: stated.start()]}.",
            "; ".join(filter(None, (f"default: {stated[1]}", facts))),
        )
    facts = re.sub(ZERO, "", facts)
    facts = (
        facts.replace(" ", NO_BREAK)
        if len(facts) < 40
        else facts.replace("default: ", f"default:{NO_BREAK}")
    )
    text = f"{described}  [{facts}]" if facts else described
    several = "..." if getattr(parameter, "multiple", False) or parameter.nargs == -1 else ""
    shown = SHOWN_TYPE.search(name)
    if not shown:
        return name + several, text
    words = (word for word, names in VALUES.items() if parameter.name in names.split())
    word = next(words, parameter.name.rpartition("_")[2].upper())
    value = (
        "N"
        if shown[1].startswith(("int", "float"))
        else f"[{shown[1]}]"
        if "|" in shown[1]
        else word
    )
    is_argument = parameter.param_type_name == "argument"
    return name[: shown.start()].rstrip() + several if is_argument else name[
        : shown.start()
    ] + value + several, text
