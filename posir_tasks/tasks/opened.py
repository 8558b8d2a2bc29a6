"""Tasks on data in any format that has questions with the span of their evidence."""

from posir_tasks.errors import PosirError
from posir_tasks.languages import UNKNOWN
from posir_tasks.sources.opening import Dataset
from posir_tasks.tasks.base import LayoutTask, build_task, register_task


def open_data_task(data: Dataset, base: type[LayoutTask] = LayoutTask) -> LayoutTask:
    """Return a task of a class `base` on data, which mteb finds by its name; raise PosirError if its language is unknown."""
    is_single = len({subset.language for subset in data.subsets}) == 1
    languages = {}
    for subset in data.subsets:
        if not data.has_questions or data.in_memory:
            # Before a model is loaded.
            subset.read()
        if subset.query_language == UNKNOWN:
            raise PosirError(f"{data.location}: its language is not recognized. Import it with `posir import --language CODE`.")
        name = subset.domain if is_single else subset.name.replace("/", "-")
        languages[name] = [subset.query_language, subset.corpus_language]
    return register_task(
        build_task(
            data.name,
            location=data.location,
            revision=data.find_revision(),
            languages=languages,
            readers=[subset.read for subset in data.subsets],
            scheme=data.scheme,
            base=base,
        )
    )
