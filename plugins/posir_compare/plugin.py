"""The hook implementation: `posir compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posir_compare.comparison import compare as compare_pairs
from posir_compare.model_runs import Contestant, contestants_of, named, pairs_of
from posir_compare.tables import comparison_table
from posir_tasks.display.tables import TableFormat, print_as
from posir_tasks.errors import PosirError
from posir_tasks.plugin_api import hookimpl
from posir_tasks.plugin_api.panels import READ

#: Columns of a table where the output is not a terminal.
WIDTH = 140
NOTE = (
    "nDCG@10 x 100 and PSI with 95 % intervals; B - A as observed, with the interval of the true difference. Observed PSI is "
    "partly chance, more so for weaker models: the interval of its difference allows for that, and may not contain the "
    "observed difference. p corrected: by Holm's method, for all comparisons of the same metric shown here."
)


@hookimpl
def posir_commands(app: typer.Typer) -> None:
    """Add `posir compare`."""

    @app.command(rich_help_panel=READ)
    def compare(
        given: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="A B",
                help="Result folders, whose models are compared; with --results, names of models.",
                show_default=False,
            ),
        ] = None,
        results: Annotated[
            Path | None, typer.Option("--results", help="Result folder in which the named models are; all of them by default.")
        ] = None,
        ranks: Annotated[
            Path | None, typer.Option("--ranks", help="The --prediction-folder of `mteb run`: pairs queries by its kept ranks.")
        ] = None,
        format_: Annotated[TableFormat, typer.Option("--format", help="Output format.")] = TableFormat.TABLE,
    ) -> None:
        """Compare models in nDCG@10 and PSI, by task and length, with intervals and corrected p-values."""
        if ranks and not ranks.is_dir():
            raise PosirError(f"{ranks}: no such folder. Give the --prediction-folder of `mteb run`, or leave --ranks out.")
        comparison = compare_pairs(pairs_of(_contestants(given or [], results)), ranks)
        for note in comparison.notes:
            typer.echo(f"note: {note}", err=True)
        document = {"comparisons": comparison.rows, "notes": comparison.notes}
        print_as(format_, [comparison_table(comparison.rows)], comparison.rows, document, legend=[NOTE], width=WIDTH)


def _contestants(given: list[str], results: Path | None) -> list[Contestant]:
    """Return who is compared.

    Raises:
        PosirError: Fewer than two models were given or found.
    """
    if results:
        everyone = contestants_of([results])
        found = named(everyone, given) if given else everyone
    elif given:
        missing = [name for name in given if not Path(name).is_dir()]
        if missing:
            raise PosirError(
                f"{missing[0]}: no such folder. Give result folders, or names of models and their folder: "
                "`posir compare --results FOLDER MODEL MODEL`."
            )
        found = contestants_of([Path(name) for name in given])
    else:
        raise PosirError(
            "Nothing to compare was given: `posir compare FOLDER ...` or `posir compare --results FOLDER MODEL ...`."
        )
    if len(found) < 2:
        names = ", ".join(one.label for one in found)
        raise PosirError(f"A comparison needs two models; found: {names}. Name another one or give another folder.")
    return found
