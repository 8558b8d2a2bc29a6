"""`posir tasks`: list the tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from posir_tasks.display.progress import track
from posir_tasks.display.tables import Table, build_columns, print_tables
from posir_tasks.tasks.catalog import builtin_task_classes, language_tasks, plugin_tasks

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata

COLUMNS = build_columns(("Task", "Queries in", "Documents in", "Subsets", "Data"), ["Subsets"])
LEGEND = "Evaluate a model with `mteb run -t TASK -m MODEL`. Benchmarks: -b PosIR, -b 'PosIR(cross-lingual)', -b PosQ."


def tasks() -> None:
    """List the position-aware tasks that `mteb run -t` accepts."""
    console = Console(highlight=False)
    with track("Loading mteb"):
        classes = (*builtin_task_classes(), *language_tasks().values(), *plugin_tasks().values())
    rows = tuple(format_row(task.metadata) for task in classes)
    print_tables(console, [Table(COLUMNS, rows, split_by="{Data}")], [LEGEND])


def format_row(metadata: TaskMetadata) -> tuple[str, ...]:
    """Return a task's row of the table."""
    languages = next(iter(metadata.hf_subsets_to_langscripts.values()))
    source = f"{metadata.dataset['path']}@{metadata.dataset['revision'][:12]}"
    return metadata.name, languages[0], languages[-1], str(len(metadata.hf_subsets)), source
