"""`posir inspect`: a model on a user's own texts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from posir_inspect.api import BUDGET, Inspection, inspect
from posir_tasks.command.explain_option import Explain
from posir_tasks.command.format_option import TextFormat
from posir_tasks.command.functions import load_function
from posir_tasks.command.progress_option import with_progress
from posir_tasks.display.presentation import present, print_hint, write_charts
from posir_tasks.display.sections import DisplaySection
from posir_tasks.display.tables import OutputFormat
from posir_tasks.errors import PosirError
from posir_tasks.text.splitters import TextSplitter


@with_progress
def inspect_command(
    model: Annotated[str, typer.Argument(help="A name known to mteb or the Hub, a folder, or an endpoint (MODEL@ADDRESS).")],
    texts: Annotated[
        str,
        typer.Argument(
            help="File or folder of plain text, Markdown, JSON Lines or Parquet; any data with questions; or a task."
        ),
    ],
    revision: Annotated[str | None, typer.Option(help="Revision of the model.")] = None,
    column: Annotated[str | None, typer.Option(help="Column or field with the text.")] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="Tokenizer of a model behind an endpoint: a name on the Hub, or a folder.")
    ] = None,
    budget: Annotated[
        str, typer.Option(help="Most tokens to encode, such as 500k or 2M; texts and questions are drawn at random.")
    ] = f"{BUDGET // 1000}k",
    every: Annotated[bool, typer.Option("--all", help="Inspect all texts, with all questions and chunk sizes.")] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Number of texts encoded at a time.")] = 32,
    chunker: Annotated[
        list[str] | None,
        typer.Option(help="A function that divides a text, `module:function`, to compare with others and whole texts."),
    ] = None,
    question_writer: Annotated[
        str | None,
        typer.Option(help="An embedder, other than MODEL, that writes questions in other words, from words of your texts."),
    ] = None,
    llm: Annotated[
        str | None,
        typer.Option(help="A language model that writes them instead: MODEL, or MODEL@ADDRESS of a chat API; costs its calls."),
    ] = None,
    format_: TextFormat = OutputFormat.TEXT,
    html: Annotated[Path | None, typer.Option(help="File for verdicts and charts as one page that needs no network.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder for the results of the pseudo-questions, for `posir report`.")
    ] = None,
    explain: Explain = False,
) -> None:
    """Show how far a model reads, where evidence fades, and which chunk size serves your texts; no questions needed."""
    console, shown = Console(highlight=False), list[DisplaySection]()
    inspection = inspect(
        model,
        texts,
        revision=revision,
        column=column,
        tokenizer=tokenizer,
        budget=None if every else parse_budget(budget),
        batch_size=batch_size,
        chunkers=[TextSplitter(name, load_function("--chunker", name)) for name in chunker or ()],
        question_writer=question_writer,
        llm=llm,
        output=output,
        show=lambda known: print_new(console, known, shown) if format_ is OutputFormat.TEXT else None,
    )
    write_charts(inspection, None, html)
    if format_ is OutputFormat.TEXT:
        print_new(console, inspection, shown)
        inspection.print_legend(console, explain=explain)
        print_hint(console, inspection, explain=explain)
    else:
        present(inspection, format_)


def print_new(console: Console, inspection: Inspection, shown: list[DisplaySection]) -> None:
    """Print the sections of an inspection that are not shown yet."""
    sections = inspection.sections()
    for section in sections[len(shown) :]:
        section.print_on(console)
    shown[:] = sections
    console.file.flush()


def parse_budget(text: str) -> int:
    """Return a number of tokens such as `500k`; raise PosirError if it is none."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kM]?)", text.replace(",", ""))
    tokens = round(float(match[1]) * {"": 1, "k": 1_000, "M": 1_000_000}[match[2]]) if match else 0
    if tokens < 1:
        raise PosirError(f"--budget {text}: not a number of tokens. Write a number such as 200000, 200k or 2M.")
    return tokens
