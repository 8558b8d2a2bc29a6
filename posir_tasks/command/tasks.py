"""`posir.tasks`: the position-aware tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posir_tasks.display.presentation import TableResult
from posir_tasks.display.progress import track
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.public import public

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata

COLUMNS = build_columns(("Task", "Queries in", "Documents in", "Subsets", "Data"), ["Subsets"])
LEGEND = "Evaluate a model with `mteb run -t TASK -m MODEL`. Benchmarks: -b PosIR, -b 'PosIR(cross-lingual)', -b PosQ."


@public()
def tasks() -> TableResult:
    """List the position-aware tasks that `mteb run -t` accepts.

    Returns:
        A row for each task: its name, languages of queries and documents, number of subsets and data.

    Raises:
        PosirError: Never.

    Examples:
        >>> import posir
        >>> "PosIR-Mini" in posir.tasks().to_polars()["task"]
        True
    """
    with track("Loading mteb"):
        from posir_tasks.tasks.catalog import builtin_task_classes, language_tasks, plugin_tasks

        classes = (*builtin_task_classes(), *language_tasks().values(), *plugin_tasks().values())
    rows = [describe_task(task.metadata) for task in classes]
    cells = tuple(tuple(map(str, row.values())) for row in rows)
    return TableResult(title="Tasks", rows=rows, tables=[Table(COLUMNS, cells, split_by="{Data}")], notes=[LEGEND])


def describe_task(metadata: TaskMetadata) -> dict[str, str | int]:
    """Return a task's row."""
    languages = next(iter(metadata.hf_subsets_to_langscripts.values()))
    return {
        "task": metadata.name,
        "query_language": languages[0],
        "document_language": languages[-1],
        "subsets": len(metadata.hf_subsets),
        "data": f"{metadata.dataset['path']}@{metadata.dataset['revision'][:12]}",
    }
