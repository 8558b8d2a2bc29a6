"""`posir mitigate`: every mitigation of a model on a user's own data, with what each gains and costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posir_mitigate import api
from posir_tasks.command.explain_option import Explain
from posir_tasks.command.format_option import TableFormat
from posir_tasks.command.progress_option import with_progress
from posir_tasks.display.presentation import present
from posir_tasks.display.tables import OutputFormat


@with_progress
def mitigate(
    model: Annotated[str, typer.Argument(help="A registered model, a local folder, or an endpoint.")],
    data: Annotated[str, typer.Argument(help="A task, or any other data with the spans of evidence.")],
    method: Annotated[
        list[str] | None,
        typer.Option(help="A method with arguments, such as 'chunks(64,mean)'; repeatable.  [default: all]"),
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Revision of the model.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts encoded at a time.")] = 32,
    output_folder: Annotated[Path, typer.Option("--output", help="Folder for results, as in `mteb run`.")] = Path("results"),
    format_: TableFormat = OutputFormat.TEXT,
    explain: Explain = False,
) -> None:
    """Try every mitigation of position bias that needs no training; run again to resume.

    What works for the model is evaluated on the data and compared with the plain model, query by query.
    """
    mitigations = api.mitigate(
        model,
        data,
        methods=method or api.DEFAULT_METHODS,
        revision=revision,
        batch_size=batch_size,
        output_folder=output_folder,
    )
    for reason in mitigations.not_tried:
        typer.echo(f"not tried: {reason}", err=True)
    present(mitigations, format_, explain=explain)
