"""`posir run`: many tasks and models, on this machine or spread over a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from posir_run.cli_options import BATCH_SIZE, BatchSize, Benchmarks, Models, MultiValueCommand, Revision, Tasks
from posir_run.dispatch import Engine
from posir_run.jobs import Failed, RunRequest, find
from posir_run.local_engine import LocalEngine
from posir_run.progress_report import tell
from posir_run.ray_engine import RayEngine
from posir_run.runner import missing_units, run_and_save
from posir_run.worker import Settings
from posir_tasks.display.wording import counted
from posir_tasks.errors import PosirError
from posir_tasks.plugin_api.panels import RUN

#: Exit status after Ctrl-C, by convention of the shell.
STOPPED = 130


class EngineName(StrEnum):
    """Where the work is done."""

    LOCAL = "local"
    RAY = "ray"


def add_commands(app: typer.Typer) -> None:
    """Add `posir run`."""

    @app.command("run", cls=MultiValueCommand, rich_help_panel=RUN)
    def run_command(
        models: Models,
        tasks: Tasks = None,
        benchmarks: Benchmarks = None,
        revision: Revision = None,
        output_folder: Annotated[Path, typer.Option(help="Folder of results, as in `mteb run`.")] = Path("results"),
        batch_size: BatchSize = BATCH_SIZE,
        engine: Annotated[EngineName, typer.Option(help="This machine alone, or a Ray cluster.")] = EngineName.LOCAL,
        address: Annotated[
            str | None, typer.Option(help="Of the Ray cluster, or `auto`; by default Ray is started on this machine.")
        ] = None,
        verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show what the workers log.")] = False,
    ) -> None:
        """Evaluate models on tasks and save the same results as `mteb run`; run again to resume.

        Subsets that already have a result are skipped. Failures are listed at the end and do not stop the other subsets.
        """
        if address and engine is EngineName.LOCAL:
            raise PosirError(f"--address {address}: only a Ray cluster has one. Add --engine ray, or leave --address out.")
        settings = Settings({"batch_size": batch_size}, verbose=verbose)
        try:
            run(RunRequest(tasks or (), benchmarks or (), models, revision), output_folder, settings, engine, address)
        except KeyboardInterrupt:
            typer.echo(f"stopped. What was finished is in {output_folder}; run the same command again to go on.", err=True)
            raise typer.Exit(STOPPED) from None


def run(asked: RunRequest, output_folder: Path, settings: Settings, engine: EngineName, address: str | None) -> None:
    """Evaluate what is missing in a folder of results.

    Raises:
        PosirError: Something that was asked for does not exist, or a unit failed.
    """
    from mteb.cache import ResultCache

    with Console(stderr=True).status("Loading mteb"):
        work, cache = find(asked), ResultCache(output_folder)
        units = missing_units(work, cache)
    finished = len(work.units()) - len(units)
    if finished:
        typer.echo(f"{finished:,} of {counted(finished + len(units), 'unit')} have a result in {output_folder}", err=True)
    if units:
        workers: Engine = LocalEngine(settings) if engine is EngineName.LOCAL else RayEngine(address, settings)
        # Closed at once after Ctrl-C: a worker would otherwise end its unit first.
        with closing(run_and_save(units, workers, work, cache, settings)) as outcomes:
            failed = tell(outcomes, len(units))
        refuse(failed, len(units), output_folder)
    typer.echo(f"{counted(len(units), 'unit')} evaluated; results are in {output_folder}", err=True)


def refuse(failed: Sequence[Failed], total: int, output_folder: Path) -> None:
    """Raise an error that names the units that failed, if any did.

    Raises:
        PosirError: One did.
    """
    if failed:
        named = "\n".join(f"{one.unit}: {one.why}" for one in failed)
        raise PosirError(
            f"{len(failed):,} of {counted(total, 'unit')} failed; the results of the others are in {output_folder}. The "
            f"same command tries these again:\n{named}"
        )
