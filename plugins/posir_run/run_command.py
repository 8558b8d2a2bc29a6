"""`posir run`: many tasks and models, on this machine or on a cluster."""

from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from posir_run.cli_options import DEFAULT_BATCH_SIZE, BatchSize, Benchmarks, Models, MultiValueCommand, Revision, Tasks
from posir_run.dispatch import Engine
from posir_run.engine_options import Address, EngineName, EngineOption, choose_engine
from posir_run.jobs import Failed, JobOutcome, RunRequest, resolve_request
from posir_run.runner import find_missing_jobs, run_and_save
from posir_run.warning_log import WarningLog, show_warnings
from posir_run.worker import Settings
from posir_tasks.command.app import INTERRUPTED
from posir_tasks.command.progress_option import with_progress
from posir_tasks.display.progress import note_progress, track
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import PosirError
from posir_tasks.files import check_writable, explain_unwritable

app = typer.Typer(add_completion=False)


@app.command(cls=MultiValueCommand)
@with_progress
def run_command(
    models: Models,
    tasks: Tasks = None,
    benchmarks: Benchmarks = None,
    revision: Revision = None,
    output_folder: Annotated[Path, typer.Option("--output", help="Folder for results, as in `mteb run`.")] = Path("results"),
    batch_size: BatchSize = DEFAULT_BATCH_SIZE,
    engine: EngineOption = EngineName.LOCAL,
    address: Address = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show the workers' logs.")] = False,
) -> None:
    """Evaluate models on tasks and save the same results as `mteb run`; run again to resume.

    Subsets that already have a result are skipped. Failures are listed at the end and do not stop the other subsets.
    """
    settings = Settings({"batch_size": batch_size}, verbose=verbose)
    start_engine = choose_engine(engine, address, settings)
    request = RunRequest(tasks or (), benchmarks or (), models, revision)
    try:
        with show_warnings(partial(typer.echo, err=True)) as log:
            run(request, output_folder, settings, start_engine, log)
    except KeyboardInterrupt:
        typer.echo(f"interrupted. Finished results are in {output_folder}; run the same command again to resume.", err=True)
        raise typer.Exit(INTERRUPTED) from None


def run(
    request: RunRequest, output_folder: Path, settings: Settings, start_engine: Callable[[], Engine], log: WarningLog
) -> None:
    """Evaluate what has no result in a folder yet; raise PosirError for an unknown name or a failed job."""
    from mteb.cache import ResultCache

    with track("Loading mteb"):
        workload = resolve_request(request)
        with explain_unwritable(output_folder):
            cache = ResultCache(output_folder)
        jobs = find_missing_jobs(workload, cache)
    total = len(workload.jobs())
    if len(jobs) < total:
        typer.echo(f"{total - len(jobs):,} of {pluralize(total, 'job')} already have a result in {output_folder}", err=True)
    if jobs:
        # Before hours of evaluation.
        check_writable(output_folder)
        # Closed at once after Ctrl-C; a worker would otherwise finish its job first.
        with closing(run_and_save(jobs, start_engine(), workload, cache, settings)) as outcomes:
            failures = report_outcomes(outcomes, len(jobs), log.show)
        if failures:
            raise PosirError(
                f"{len(failures):,} of {pluralize(len(jobs), 'job')} failed; the other results are in {output_folder}. Run "
                "the same command again to retry:\n" + "\n".join(f"{failure.job}: {failure.reason}" for failure in failures)
            )
    typer.echo(f"{pluralize(len(jobs), 'job')} evaluated; results are in {output_folder}", err=True)


def report_outcomes(outcomes: Iterable[JobOutcome], total: int, warn: Callable[[str], object]) -> list[Failed]:
    """Consume the outcomes of a run and report each and its warnings; return the failures."""
    failures = []
    with track("Evaluating", total) as advance:
        for count, outcome in enumerate(outcomes, start=1):
            for warning in outcome.warnings:
                warn(warning)
            if isinstance(outcome, Failed):
                failures.append(outcome)
                warn(f"{count}/{total} failed: {outcome.job}")
            else:
                note_progress(f"{count}/{total} done: {outcome.job}")
            advance()
    return failures
