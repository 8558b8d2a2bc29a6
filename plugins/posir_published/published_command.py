"""`posir published`: the results of the papers."""

from typing import Annotated

import typer

from posir_published import api
from posir_tasks.command.explain_option import Explain
from posir_tasks.command.format_option import TableFormat
from posir_tasks.display.presentation import present
from posir_tasks.display.tables import OutputFormat
from posir_tasks.errors import PosirError


def published(
    task: Annotated[list[str] | None, typer.Option("--task", "-t", help="Show this task alone; may be repeated.")] = None,
    lengths: Annotated[bool, typer.Option("--lengths", help="Show the length buckets Q1 to Q4 of PosIR.")] = False,
    bins: Annotated[bool, typer.Option("--bins", help="Show nDCG@10 over position, of PosIR by length.")] = False,
    mmteb: Annotated[bool, typer.Option("--mmteb", help="Show how PosIR and MMTEB order the models.")] = False,
    training: Annotated[
        bool, typer.Option("--training", help="Show models after training on evidence at chosen positions.")
    ] = False,
    format_: TableFormat = OutputFormat.TEXT,
    explain: Explain = False,
) -> None:
    """Show nDCG@10 and PSI of the models and tasks in the papers, with their source."""
    check_views(task=bool(task), lengths=lengths, bins=bins, mmteb=mmteb, training=training)
    if training:
        present(api.published_training(), format_, explain=explain)
    elif mmteb:
        present(api.published_mmteb(), format_, explain=explain)
    else:
        present(api.published(task or None, lengths=lengths, bins=bins), format_, explain=explain)


def check_views(*, task: bool, lengths: bool, bins: bool, mmteb: bool, training: bool) -> None:
    """Raise PosirError if options cannot be combined."""
    if training and (task or lengths or bins or mmteb):
        raise PosirError("--training shows trained models, whose data are no tasks; use it without other options of content.")
    if mmteb and (task or lengths or bins):
        raise PosirError(
            "--mmteb shows PosIR's average over tasks, at every length; use it without --task, --lengths and --bins."
        )
    if lengths and bins:
        raise PosirError("--bins shows PosIR by length already; omit --lengths.")
