"""Tasks on data in any format that has questions with the span of their evidence."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from posir_tasks.errors import PosirError
from posir_tasks.languages import UNKNOWN
from posir_tasks.sources.data import PositionData
from posir_tasks.sources.opening import Dataset, Subset
from posir_tasks.sources.repository import LOCAL
from posir_tasks.tasks.base import REVISION_DIGITS, PositionTask, register_task
from posir_tasks.tasks.metadata import build_metadata


class OpenedTask(PositionTask):
    """A task on opened data; the names of its subsets end with the revision, as those of `LayoutTask`."""

    subsets: ClassVar[dict[str, Subset]]
    replaceable: ClassVar[bool] = True

    def read_subset(self, subset: str) -> PositionData:
        """Read one subset; raise DataError if it is missing or invalid."""
        return replace(self.subsets[subset].read(), revision=self.metadata.revision)


def open_data_task(data: Dataset, base: type[OpenedTask] = OpenedTask) -> PositionTask:
    """Return a task of a class `base` on data, which mteb finds by its name; raise PosirError if its language is unknown."""
    revision = data.find_revision()
    suffix = revision.removeprefix(f"{LOCAL}-")[:REVISION_DIGITS]
    is_single = len({subset.language for subset in data.subsets}) == 1
    subsets = {f"{subset.domain if is_single else subset.name.replace('/', '-')}@{suffix}": subset for subset in data.subsets}
    for subset in data.subsets:
        if not data.has_questions or data.in_memory:
            # Before a model is loaded.
            subset.read()
        if subset.query_language == UNKNOWN:
            raise PosirError(f"{data.location}: its language is not recognized. Import it with `posir import --language CODE`.")
    metadata = build_metadata(
        data.name,
        dataset=data.location,
        revision=revision,
        languages={name: [subset.query_language, subset.corpus_language] for name, subset in subsets.items()},
    )
    attributes = {"metadata": metadata, "scheme": data.scheme, "subsets": subsets, "__module__": __name__}
    return register_task(type(data.name, (base,), attributes | {"__doc__": metadata.description}))
