"""Text splitters side by side, as `posir.score` returns them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from posir_tasks.display.numbers import format_count, format_estimate, format_percent
from posir_tasks.display.presentation import Presentable
from posir_tasks.display.tables import DisplaySection, Table, build_columns
from posir_tasks.display.wording import pluralize
from posir_tasks.scores import Estimate

#: The scores, in the order in which they are shown, and their titles.
SCORES = {"iou": "IoU", "recall": "Recall", "precision": "Precision", "precision_omega": "Precision Omega"}
#: Texts in which an excerpt has a position: its document, and the chunk that has the most of it.
PLACES = {"document": "of the document", "chunk": "of a chunk"}
ALL_DOCUMENTS = "all"


@dataclass(frozen=True)
class ChunkerRow:
    """Mean scores of a splitter over the questions of a document, or of all, with 95 % intervals for new questions."""

    chunker: str
    document: str
    """`all`, or its id."""
    questions: int
    chunks: int
    tokens: int
    """Tokens to encode; those of a chunk beyond the model's window count too."""
    iou: Estimate
    recall: Estimate
    precision: Estimate
    precision_omega: Estimate
    for_new_documents: dict[str, Estimate] | None = None
    """The same means with intervals that hold for new documents; None unless this is the row of all."""
    in_place: dict[str, float] | None = None
    """The same means if a chunk that repeats an earlier passage counts where it is; None unless this is the row of all."""


@dataclass(frozen=True)
class PlaceRow:
    """The recall of the excerpts in a third of their document, or of the chunk that has the most of them."""

    chunker: str
    place: str
    """`document` or `chunk`."""
    part: str
    excerpts: int
    recall: Estimate


@dataclass(frozen=True, repr=False)
class ScoredChunkers(Presentable):
    """Text splitters by what a model retrieves of the excerpts that answer questions."""

    model: str
    data: str
    documents: int
    questions: int
    skipped: int
    retrieve: int
    rows: tuple[ChunkerRow, ...]
    places: tuple[PlaceRow, ...]
    changes: tuple[str, ...]
    """For recall and IoU, how each splitter changes the score of the best one, as sentences."""
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        """Model and data."""
        return f"{self.model} on {self.data}"

    def sections(self) -> Sequence[DisplaySection]:
        """Return the changes and the mean scores, those by document, and recall by position."""
        counts = f"{pluralize(self.questions, 'question')} on {pluralize(self.documents, 'document')}"
        skipped = f", {pluralize(self.skipped, 'further question')} skipped" if self.skipped else ""
        overall = [row for row in self.rows if row.document == ALL_DOCUMENTS]
        means, in_place, by_document = [], [], []
        for row in overall:
            means.append((row.chunker, format_count(row.chunks), format_count(row.tokens), *_format_scores(vars(row))))
            in_place.append((row.chunker, *map(format_percent, (row.in_place or {}).values())))
            new = (row.chunker, "(new documents)", format_count(row.questions), *_format_scores(row.for_new_documents or {}))
            own = [other for other in self.rows if other.chunker == row.chunker and other is not row]
            named = ((part.document, format_count(part.questions), *_format_scores(vars(part))) for part in own)
            by_document += [new, *((row.chunker, *cells) for cells in named)]
        places = (
            (
                row.chunker,
                f"{row.part} {PLACES[row.place]}" if row.part.endswith("third") else row.part,
                format_count(row.excerpts),
                format_estimate(row.recall, format_percent),
            )
            for row in self.places
        )
        titles = SCORES.values()
        repeated = DisplaySection(
            "If chunks count where they are", self.notes, (_build_table(1, ["Chunker", *titles], in_place),)
        )
        title = f"{self.title} · {counts}{skipped}, {pluralize(self.retrieve, 'chunk')} retrieved"
        return (
            DisplaySection(title, self.changes, (_build_table(1, ["Chunker", "Chunks", "Tokens", *titles], means),)),
            *([repeated] if self.notes else []),
            DisplaySection(
                "By document", tables=(_build_table(2, ["Chunker", "Document", "Questions", *titles], by_document),)
            ),
            DisplaySection(
                "Recall by the position of the evidence",
                tables=(_build_table(2, ["Chunker", "Excerpts in the", "Excerpts", "Recall"], places),),
            ),
        )

    def records(self) -> Sequence[Any]:
        """Return a row for each splitter and document, and for each splitter over all."""
        names = [item.name for item in fields(ChunkerRow) if item.name not in ("for_new_documents", "in_place")]
        return [{name: getattr(row, name) for name in names} for row in self.rows]

    def document(self) -> dict[str, Any]:
        """Return everything."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def legend(self) -> Sequence[str]:
        """Return what the numbers are."""
        return (
            "Scores x 100 of the chunking evaluation of Smith & Troynikov 2024, by characters as in its code, in which a chunk "
            "is where its text first is. Intervals: 95 %, for new questions about these documents; in the line of new "
            "documents for new documents. Changes: 98.33 %, for new documents (articles, where known). Divided: no chunk has "
            "all of the excerpt.",
        )


def _build_table(texts: int, headings: Sequence[str], rows: Iterable[tuple[str, ...]]) -> Table:
    return Table(build_columns(headings, headings[texts:]), tuple(rows))


def _format_scores(values: dict[str, Any]) -> list[str]:
    return [format_estimate(values[name], format_percent) for name in SCORES if name in values]
