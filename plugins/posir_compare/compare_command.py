"""`posir compare`: models against a baseline."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from posir_compare import api
from posir_compare.api import Comparison
from posir_compare.gate import gate_table, parse_limit, refuse, write_junit
from posir_tasks.command.options import Explain, TableFormat, with_progress
from posir_tasks.command.undecided import undecided_on_error
from posir_tasks.display.presentation import present
from posir_tasks.display.tables import OutputFormat, print_as
from posir_tasks.errors import PosirError, summarize_error
from posir_tasks.scores import ALL

logger = logging.getLogger(__name__)


@with_progress
def compare(
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="A B",
            help="Result folders whose models are compared; with --results, names of models.",
            show_default=False,
        ),
    ] = None,
    results: Annotated[
        Path | None, typer.Option("--results", help="Result folder of the named models; without names, of all its models.")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="Model that all others are compared with.  [default: the first; of one folder, by name]"),
    ] = None,
    lengths: Annotated[
        list[str] | None,
        typer.Option(
            help="Length to compare: all or a length bucket; repeatable. Intervals of fewer are narrower. With --fail-if, all."
        ),
    ] = None,
    task: Annotated[list[str] | None, typer.Option(help="Task to compare; repeatable. By default, all.")] = None,
    margin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POINTS",
            help="Smallest difference that matters: of start to end, such as 5, or KEY=POINTS for ndcg_at_10 or psi.",
        ),
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIMIT",
            help="Test instead of comparing: fail if the change of a metric is beyond a limit, such as 'ndcg_at_10 < -1'; "
            "repeatable. Exit status: 0 passes, 1 fails, 2 cannot be said.",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="With --fail-if: fail unless the interval is wholly within the limit.")
    ] = False,
    junit: Annotated[Path | None, typer.Option(help="With --fail-if: write JUnit XML to this file.")] = None,
    format_: TableFormat = OutputFormat.TEXT,
    explain: Explain = False,
) -> None:
    """Say whether models are better, worse or equivalent to a baseline in nDCG@10, start to end and PSI, by task and length."""

    def find_comparison(lengths: Sequence[str]) -> Comparison:
        sources, models = choose_sources(given or [], results)
        comparison = api.compare(sources, *models, baseline=baseline, lengths=lengths, tasks=task or (), margins=margin or ())
        if fail_if and len(comparison.models) > 2:
            names = ", ".join(comparison.models)
            raise PosirError(f"A gate tests one model against one baseline; found: {names}. Name two with --results.")
        if baseline is None and len(comparison.models) > 2:
            typer.echo(
                f"note: the baseline is {comparison.baseline}, the first model; choose another with --baseline.", err=True
            )
        for note in comparison.notes:
            typer.echo(f"note: {note}", err=True)
        return comparison

    if fail_if:
        with undecided_on_error():
            status = _run_gate(find_comparison, fail_if, lengths or [ALL], format_, junit, strict=strict)
        raise typer.Exit(status)
    if strict or junit:
        raise typer.BadParameter("--strict and --junit are options of a gate: give --fail-if, too.")
    present(find_comparison(lengths or ()), format_, explain=explain)


def _run_gate(
    find_comparison: Callable[[Sequence[str]], Comparison],
    fail_if: Sequence[str],
    lengths: Sequence[str],
    format_: OutputFormat,
    junit: Path | None,
    *,
    strict: bool,
) -> int:
    """Test limits, print and write the gate, and return the exit status; where results are missing it cannot be said."""
    try:
        limits = [parse_limit(text) for text in fail_if]
    except PosirError as error:
        raise typer.BadParameter(f"--fail-if {error}") from error
    try:
        gate = find_comparison(lengths).check(fail_if, lengths=lengths, strict=strict)
    except PosirError as error:
        gate = refuse(limits, str(error))
    except Exception as error:
        logger.exception("an unexpected error, which is no verdict")
        gate = refuse(limits, summarize_error(error))
    if junit:
        try:
            write_junit(gate, junit)
        except PosirError as error:
            raise typer.BadParameter(f"--junit {error}") from error
    document = {"verdict": gate.verdict, "strict": strict, "level": gate.level, "limits": gate.limits}
    print_as(format_, [gate_table(gate)], gate.limits, document)
    return gate.verdict.exit_status


def choose_sources(given: Sequence[str], results: Path | None) -> tuple[list[Path], Sequence[str]]:
    """Return the folders and the names of models; raise PosirError if there is no folder, or a name in its place."""
    if results:
        return [results], given
    if not given:
        raise PosirError("Nothing to compare. Use `posir compare FOLDER ...` or `posir compare --results FOLDER MODEL ...`.")
    missing = [name for name in given if not Path(name).is_dir()]
    if missing:
        raise PosirError(
            f"{missing[0]}: no such folder. Give result folders, or names of models and their folder: "
            "`posir compare --results FOLDER MODEL MODEL`."
        )
    return [Path(name) for name in given], ()
