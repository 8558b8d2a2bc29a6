"""`posir score-chunks`: text splitters by what a model retrieves of the excerpts that answer questions."""

from __future__ import annotations

from typing import Annotated

import typer

from posir_inspect.api import RETRIEVED, score_chunks
from posir_tasks.command.format_option import TableFormat
from posir_tasks.command.functions import load_function
from posir_tasks.command.progress_option import with_progress
from posir_tasks.display.presentation import present
from posir_tasks.display.tables import OutputFormat
from posir_tasks.text.splitters import TextSplitter


@with_progress
def score_chunks_command(
    model: Annotated[str, typer.Argument(help="A name known to mteb or the Hub, a folder, or an endpoint (MODEL@ADDRESS).")],
    data: Annotated[str, typer.Argument(help="Questions with the spans of their evidence: a task, or any other data.")],
    chunker: Annotated[
        list[str], typer.Option(help="A function that divides a text, `module:function`; several are compared.")
    ],
    retrieve: Annotated[int, typer.Option(min=1, help="Chunks to retrieve for a question.")] = RETRIEVED,
    revision: Annotated[str | None, typer.Option(help="Revision of the model.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Number of texts encoded at a time.")] = 32,
    format_: TableFormat = OutputFormat.TEXT,
) -> None:
    """Score text splitters by what a model retrieves of the excerpts that answer questions: IoU, recall, precision."""
    chunkers = [TextSplitter(name, load_function("--chunker", name)) for name in chunker]
    present(score_chunks(model, data, chunkers, retrieve=retrieve, revision=revision, batch_size=batch_size), format_)
