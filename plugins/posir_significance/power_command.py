"""`posir power`: the size of a dataset that shows an effect of position."""

from __future__ import annotations

from typing import Annotated

import typer

from posir_significance import api
from posir_significance.power import POWER
from posir_tasks.command.format_option import TableFormat
from posir_tasks.display.presentation import present
from posir_tasks.display.tables import OutputFormat


def power(
    difference: Annotated[
        list[float] | None,
        typer.Option(min=0.01, max=100, help="Difference between first and last third in points; may be repeated."),
    ] = None,
    psi: Annotated[list[float] | None, typer.Option(min=0.001, max=1, help="True PSI; may be repeated.")] = None,
    ndcg: Annotated[float, typer.Option(min=1, max=99, help="Expected nDCG@10 in points.")] = 70,
    bins: Annotated[int, typer.Option(min=2, max=100, help="Number of position bins.")] = 20,
    questions_per_document: Annotated[float, typer.Option(min=1, help="Mean number of questions per document.")] = 1,
    icc: Annotated[float, typer.Option(min=0, max=0.99, help="Intraclass correlation of nDCG@10 within documents.")] = 0.2,
    bin_icc: Annotated[
        float, typer.Option(min=0, max=0.99, help="Correlation beyond that of questions in the same bin of a document.")
    ] = 0.0,
    power: Annotated[float, typer.Option(min=0.5, max=0.999, help="Probability of a significant result.")] = POWER,
    format_: TableFormat = OutputFormat.TEXT,
) -> None:
    """Show how many questions and documents a dataset needs to show an effect of position."""
    analysis = api.power(
        psi=psi,
        start_to_end=[percent / 100 for percent in difference or ()],
        ndcg_at_10=ndcg / 100,
        bins=bins,
        questions_per_document=questions_per_document,
        icc=icc,
        bin_icc=bin_icc,
        power=power,
    )
    present(analysis, format_)
