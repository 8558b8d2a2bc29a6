"""`posir plan`: estimate the cost of a run before it starts."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console

from posir_run.cli_options import DEFAULT_BATCH_SIZE, BatchSize, Benchmarks, Models, MultiValueCommand, Revision, Tasks
from posir_run.jobs import RunRequest, resolve_request
from posir_tasks.plugin_api.panels import RUN

#: Characters per line if the output is not a terminal.
WIDTH = 110


class PlanFormat(StrEnum):
    """Output formats of a plan."""

    TABLE = "table"
    JSON = "json"


def add_commands(app: typer.Typer) -> None:
    """Add `posir plan`."""

    @app.command("plan", cls=MultiValueCommand, rich_help_panel=RUN)
    def plan_command(
        models: Models,
        tasks: Tasks = None,
        benchmarks: Benchmarks = None,
        revision: Revision = None,
        batch_size: BatchSize = DEFAULT_BATCH_SIZE,
        format_: Annotated[PlanFormat, typer.Option("--format", help="Output format.")] = PlanFormat.TABLE,
    ) -> None:
        """Show what a run encodes, the size of the embeddings, and the estimated time.

        The time is extrapolated from a short benchmark on this machine.
        """
        from posir_run.planning.plan import build_plans
        from posir_run.planning.tables import format_json, print_plans

        plans = build_plans(resolve_request(RunRequest(tasks or (), benchmarks or (), models, revision)), batch_size)
        if format_ is PlanFormat.JSON:
            typer.echo(format_json(plans))
            return
        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = max(console.width, WIDTH)
        print_plans(console, plans)
