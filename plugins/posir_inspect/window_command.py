"""`posir window`: how many tokens of a text a model reads."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

import typer

from posir_inspect.api import window
from posir_tasks.command.format_option import TextFormat
from posir_tasks.command.progress_option import with_progress
from posir_tasks.command.undecided import undecided_on_error
from posir_tasks.display.presentation import present
from posir_tasks.display.tables import OutputFormat


@with_progress
def window_command(
    model: Annotated[str, typer.Argument(help="A name known to mteb or the Hub, a folder, or an endpoint (MODEL@ADDRESS).")],
    require: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens that it should read; exit status 1 if it reads fewer, 2 if that cannot be said."),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Longest text that is tried, in tokens; by default a quarter more than it claims.")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="Tokenizer of a model behind an endpoint: a name on the Hub, or a folder.")
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Revision of the model.")] = None,
    format_: TextFormat = OutputFormat.TEXT,
) -> None:
    """Show how many tokens of a text a model reads, measured from its embeddings alone; no texts are needed."""
    with nullcontext() if require is None else undecided_on_error():
        reading = window(model, require=require, max_tokens=max_tokens, tokenizer=tokenizer, revision=revision)
        present(reading, format_)
    raise typer.Exit(int(reading.enough is False))
