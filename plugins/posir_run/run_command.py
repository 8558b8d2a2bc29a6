"""`posir run`: many tasks and models, on this machine or on a cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import closing
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from posir_run.jobs import Dispatcher, Engine, EvaluationJob, JobOutcome, Workload, find_missing_jobs, find_workload
from posir_run.worker import LocalEngine, RayEngine, Settings, show_warnings
from posir_tasks.command.app import INTERRUPTED
from posir_tasks.command.options import Explain, with_progress
from posir_tasks.display.presentation import present
from posir_tasks.display.progress import note_progress, track
from posir_tasks.display.tables import OutputFormat
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import PosirError
from posir_tasks.files import check_writable, explain_unwritable
from posir_tasks.host.result_saving import process_saver

if TYPE_CHECKING:
    from mteb.cache import ResultCache


logger = logging.getLogger(__name__)


class EngineName(StrEnum):
    """The engine that runs jobs."""

    LOCAL = "local"
    RAY = "ray"


def choose_engine(engine: EngineName, address: str | None, settings: Settings) -> Callable[[], Engine]:
    """Return what starts the engine; raise PosirError for an address of this machine."""
    if engine is EngineName.RAY:
        return partial(RayEngine, address, settings)
    if address:
        raise PosirError(f"--address {address}: applies to a Ray cluster only. Add --engine ray, or omit --address.")
    return partial(LocalEngine, settings)


class MultiValueCommand(TyperCommand):
    """A command without positional arguments that accepts `-t A B` as well as `-t A -t B`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments."""
        names = {name for option in self.params if getattr(option, "multiple", False) for name in option.opts}
        return super().parse_args(ctx, expand_values(args, names))


def expand_values(args: Sequence[str], options: Collection[str]) -> list[str]:
    """Repeat the name of an option that accepts several values before each of them: `-t A B` becomes `-t A -t B`."""
    expanded: list[str] = []
    option = None
    for arg in args:
        if arg.startswith("-"):
            option = arg if arg in options else None
        elif option and expanded[-1] != option:
            expanded.append(option)
        expanded.append(arg)
    return expanded


app = typer.Typer(add_completion=False)


@app.command(cls=MultiValueCommand)
@with_progress
def run_command(
    models: Annotated[
        list[str],
        typer.Option(
            "-m", "--model", help="One or more models: names known to mteb or the Hub, folders, endpoints (MODEL@ADDRESS)."
        ),
    ],
    tasks: Annotated[list[str] | None, typer.Option("-t", "--task", help="One or more tasks.")] = None,
    benchmarks: Annotated[list[str] | None, typer.Option("-b", "--benchmark", help="One or more benchmarks.")] = None,
    revision: Annotated[str | None, typer.Option("--revision", help="Revision of the model; for a single model only.")] = None,
    output_folder: Annotated[Path, typer.Option("--output", help="Folder for results, as in `mteb run`.")] = Path("results"),
    batch_size: Annotated[int, typer.Option(min=1, help="Number of texts encoded at a time.")] = 32,
    engine: Annotated[EngineName, typer.Option("--engine", help="This machine, or a Ray cluster.")] = EngineName.LOCAL,
    address: Annotated[
        str | None, typer.Option(help="Address of the Ray cluster, or `auto`; by default Ray starts on this machine.")
    ] = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show the workers' logs.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Evaluate nothing: estimate texts, embeddings and time, from a short benchmark.")
    ] = False,
    format_: Annotated[OutputFormat | None, typer.Option("--format", help="Format of the plan.")] = None,
    explain: Explain = False,
) -> None:
    """Evaluate models on tasks and save the same results as `mteb run`; run again to resume.

    Subsets that already have a result are skipped. Failures are listed at the end and do not stop the other subsets.
    """
    settings = Settings({"batch_size": batch_size}, verbose=verbose)
    start_engine = choose_engine(engine, address, settings)
    find = partial(find_workload, tasks or (), benchmarks or (), models, revision)
    if plan:
        if format_ is OutputFormat.LATEX:
            raise PosirError("--format latex: a plan has text, markdown, csv and json.")
        from posir_run.plan import plan_run

        present(plan_run(find(), batch_size), format_ or OutputFormat.TEXT, explain=explain)
        return
    if format_ or explain:
        raise PosirError("--format and --explain are of the plan. Add --plan, or print results with `posir report`.")
    try:
        with show_warnings(partial(typer.echo, err=True)):
            run(find, output_folder, settings, start_engine)
    except KeyboardInterrupt:
        typer.echo(f"interrupted. Finished results are in {output_folder}; run the same command again to resume.", err=True)
        raise typer.Exit(INTERRUPTED) from None


def run(find: Callable[[], Workload], output_folder: Path, settings: Settings, start_engine: Callable[[], Engine]) -> None:
    """Evaluate what has no result in a folder yet; raise PosirError for an unknown name or a failed job."""
    from mteb.cache import ResultCache

    with track("Loading mteb"):
        workload = find()
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
            failures = report_outcomes(outcomes, len(jobs))
        if failures:
            raise PosirError(
                f"{len(failures):,} of {pluralize(len(jobs), 'job')} failed; the other results are in {output_folder}. Run "
                "the same command again to retry:\n" + "\n".join(failures)
            )
    typer.echo(f"{pluralize(len(jobs), 'job')} evaluated; results are in {output_folder}", err=True)


def run_and_save(
    jobs: Sequence[EvaluationJob], engine: Engine, workload: Workload, cache: ResultCache, settings: Settings
) -> Generator[tuple[EvaluationJob, JobOutcome], None, None]:
    """Yield each job with its outcome as it comes, with its result saved before. Closing the generator stops the workers."""
    order = {task.metadata.name: task.hf_subsets for task in workload.tasks}
    with closing(Dispatcher(jobs, engine).outcomes()) as outcomes:
        for job, outcome in outcomes:
            assert isinstance(job, EvaluationJob)
            if not outcome.failure:
                result, known = outcome.value
                meta = workload.models[job.model].model_copy(update=known)
                process_saver().add(cache, result, meta, order=order[job.task], encode_kwargs=settings.encode_kwargs)
            yield job, outcome


def report_outcomes(outcomes: Iterable[tuple[EvaluationJob, JobOutcome]], total: int) -> list[str]:
    """Consume the outcomes of a run and report each and its warnings; return the failed jobs, each with its reason."""
    failures = []
    with track("Evaluating", total) as advance:
        for count, (job, outcome) in enumerate(outcomes, start=1):
            for warning in outcome.warnings:
                logger.warning("%s", warning)
            if outcome.failure:
                failures.append(f"{job}: {outcome.failure}")
                logger.warning(f"{count}/{total} failed: {job}")
            else:
                note_progress(f"{count}/{total} done: {job}")
            advance()
    return failures
