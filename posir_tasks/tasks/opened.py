"""Tasks on data in any format that has questions with the span of their evidence."""

from posir_tasks.sources.dataset import Dataset
from posir_tasks.tasks.base import LayoutTask, build_task, register_task


def open_data_task(data: Dataset) -> LayoutTask:
    """Return a task on data, which mteb finds by its name; raise PosirError if its language is unknown."""
    if not data.has_questions or data.in_memory:
        for subset in data.subsets:
            # Before a model is loaded.
            subset.read()
    return register_task(
        build_task(
            data.name,
            location=data.location,
            revision=data.find_revision(),
            languages=data.find_languages(),
            readers=[subset.read for subset in data.subsets],
            scheme=data.scheme,
        )
    )
