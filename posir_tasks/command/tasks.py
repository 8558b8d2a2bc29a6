"""`posir tasks`: list the tasks."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.table import Table

from posir_tasks.plugin_api.panels import RUN
from posir_tasks.tasks.catalogue import builtin_task_classes, plugin_tasks


def add_commands(app: typer.Typer) -> None:
    """Add `posir tasks`."""

    @app.command(rich_help_panel=RUN)
    def tasks() -> None:
        """List the position-aware tasks that `mteb run -t` accepts."""
        console = Console()
        with console.status("Loading mteb"):
            known = (*builtin_task_classes(), *plugin_tasks().values())
        table = Table("Task", "Queries in", "Documents in", "Subsets", "Data", box=None, header_style="bold")
        for task in known:
            languages = next(iter(task.metadata.hf_subsets_to_langscripts.values()))
            dataset = task.metadata.dataset
            table.add_row(
                task.metadata.name,
                languages[0],
                languages[-1],
                str(len(task.metadata.hf_subsets)),
                f"{dataset['path']}@{dataset['revision'][:12]}",
            )
        console.print(table)
        console.print(
            "\nRun one with [bold]mteb run -t TASK -m MODEL[/]. Benchmarks: -b PosIR, -b 'PosIR(cross-lingual)', -b PosQ."
        )
