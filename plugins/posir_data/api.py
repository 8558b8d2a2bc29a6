"""The public function of this package: `posir.open_data`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any

from posir_tasks.display.numbers import format_count
from posir_tasks.display.presentation import Presentable
from posir_tasks.display.sections import DisplaySection
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.display.wording import pluralize
from posir_tasks.sources import opening
from posir_tasks.sources.formats.options import ReadOptions
from posir_tasks.sources.formats.passages import Passage, SkippedText, describe_skipped
from posir_tasks.sources.opening import DataReference, Dataset


@dataclass(frozen=True, repr=False)
class OpenedData(Presentable):
    """Documents, and questions with their evidence if there are any; they are read when they are first needed."""

    dataset: Dataset
    """Subsets that are read one at a time: `dataset.subsets[0].read()` has corpus, queries and evidence."""

    @property
    def title(self) -> str:
        """Its name and size."""
        noun = "question" if self.dataset.has_questions else "text"
        return f"{self.dataset.name}: {pluralize(len(self.rows), noun)}"

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each question with the characters of its evidence, or for each text if there are no questions."""
        return list(self._read_questions() if self.dataset.has_questions else self._read_texts())

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return how many rows each subset has, and what in it cannot be used."""
        counts: dict[str, int] = {}
        for row in self.rows:
            counts[row["subset"]] = counts.get(row["subset"], 0) + 1
        headings = ("Subset", "Questions" if self.dataset.has_questions else "Texts")
        table = Table(
            build_columns(headings, headings[1:]),
            tuple((name, format_count(count)) for name, count in counts.items()),
            notes=tuple(filter(None, [describe_skipped(self.skipped)])),
        )
        return (DisplaySection(tables=(table,)),)

    @cached_property
    def skipped(self) -> list[SkippedText]:
        """Texts, rows and questions that cannot be used, each with the reason."""
        if self.dataset.has_questions:
            return [item for subset in self.dataset.subsets for item in subset.read().skipped]
        return [item for item in self.dataset.read_texts() if isinstance(item, SkippedText)]

    def records(self) -> list[dict[str, Any]]:
        """Return the rows."""
        return self.rows

    def _read_questions(self) -> Iterator[dict[str, Any]]:
        for subset in self.dataset.subsets:
            data = subset.read()
            lengths = dict(zip(data.corpus["id"][:], map(len, data.corpus["text"][:]), strict=True))
            spans = data.place_spans() or repeat(None)
            for query, text, document, span in zip(
                data.evidence.query_ids, data.queries["text"][:], data.evidence.document_ids, spans, strict=data.has_spans
            ):
                length = lengths[document]
                yield {
                    "subset": subset.name,
                    "query_id": query,
                    "query": text,
                    "document_id": document,
                    "characters": length,
                    "start": span[0] if span else None,
                    "end": span[1] if span else None,
                    "position": sum(span) / 2 / length if span and length else None,
                }

    def _read_texts(self) -> Iterator[dict[str, Any]]:
        for subset in self.dataset.subsets:
            for item in subset.read_texts():
                if isinstance(item, Passage):
                    yield {"subset": subset.name, "document_id": item.name, "text": item.text}


def open_data(data: DataReference, *, column: str | None = None, language: str | None = None) -> OpenedData:
    """Open data in any format that the commands take.

    Args:
        data: A task; a file or folder of questions with their evidence, or of texts; a dataset on the Hub; a list of texts or a
            column of a DataFrame.
        column: Column or field with the text.
        language: Code of the language, such as `eng-Latn`; detected if None.

    Returns:
        A row for each question: characters `start` to `end` (half-open) of its evidence in the document, and the `position`
        of their middle in [0, 1]; or for each text if there are no questions.

    Raises:
        PosirError: There is no such data, or it is in no known format or cannot be read.

    Examples:
        >>> import posir
        >>> questions = posir.open_data("PosIR-Mini").to_polars()
        >>> questions.height, questions.columns[-3:]
        (720, ['start', 'end', 'position'])
        >>> posir.open_data(["A text.", "Another one."]).to_polars()["text"].to_list()
        ['A text.', 'Another one.']
    """
    return OpenedData(opening.open_data(data, ReadOptions(column=column, language=language, repair=True)))
