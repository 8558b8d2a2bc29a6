"""Text splitters side by side, as `posir.score` returns them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from posir_tasks.display.numbers import format_count, format_estimate, format_percent
from posir_tasks.display.presentation import Presentable
from posir_tasks.display.progress import track
from posir_tasks.display.tables import DisplaySection, Table, build_columns
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import PosirError
from posir_tasks.text.chunks import name_splitters

if TYPE_CHECKING:
    from posir_score.chunk_scoring import ChunkerRow, ChunkScoring
    from posir_tasks.sources.opening import Dataset

HEADINGS = ("IoU", "Recall", "Precision", "Precision Omega")
PLACES = {"document": "of the document", "chunk": "of a chunk"}


@dataclass(frozen=True, repr=False)
class ScoredChunkers(Presentable):
    """Text splitters by what a model retrieves of the excerpts that answer questions."""

    scoring: ChunkScoring
    """All scores and changes."""

    @property
    def title(self) -> str:
        """Model and data."""
        return f"{self.scoring.model} on {self.scoring.data}"

    def sections(self) -> Sequence[DisplaySection]:
        """Return the changes and the mean scores, those by document, and recall by position."""
        scoring = self.scoring
        counts = f"{pluralize(scoring.questions, 'question')} on {pluralize(scoring.documents, 'document')}"
        skipped = f", {pluralize(scoring.skipped, 'further question')} skipped" if scoring.skipped else ""
        overall = [row for row in scoring.rows if row.document == "all"]
        title = f"{self.title} · {counts}{skipped}, {pluralize(scoring.retrieve, 'chunk')} retrieved"
        by_document = [row for row in scoring.rows if row.document != "all"]
        repeated = DisplaySection("If chunks count where they are", scoring.notes, (build_in_place(overall),))
        return (
            DisplaySection(title, scoring.changes, (build_scores(overall),)),
            *([repeated] if scoring.notes else []),
            DisplaySection("By document", tables=(build_document_scores(overall, by_document),)),
            DisplaySection("Recall by the position of the evidence", tables=(self._build_places(),)),
        )

    def records(self) -> Sequence[Any]:
        """Return a row for each splitter and document, and for each splitter over all."""
        return self.scoring.rows

    def document(self) -> object:
        """Return everything."""
        return self.scoring

    def legend(self) -> Sequence[str]:
        """Return what the numbers are."""
        return (
            "Scores x 100 of the chunking evaluation of Smith & Troynikov 2024, by characters as in its code, in which a chunk "
            "is where its text first is. Intervals: 95 %, for new questions about these documents; in the line of new "
            "documents for new documents. Changes: 98.33 %, for new documents (articles, where known). Divided: no chunk has "
            "all of the excerpt.",
        )

    def _build_places(self) -> Table:
        headings = ("Chunker", "Excerpts in the", "Excerpts", "Recall")
        rows = tuple(
            (
                row.chunker,
                name_part(row.place, row.part),
                format_count(row.excerpts),
                format_estimate(row.recall, format_percent),
            )
            for row in self.scoring.places
        )
        return Table(build_columns(headings, headings[2:]), rows)


def name_part(place: str, part: str) -> str:
    """Return a part of a document or chunk in words."""
    return f"{part} {PLACES[place]}" if part.endswith("third") else part


def build_scores(rows: Sequence[ChunkerRow]) -> Table:
    """Return a row for each splitter."""
    headings = ("Chunker", "Chunks", "Tokens", *HEADINGS)
    return Table(
        build_columns(headings, headings[1:]),
        tuple((row.chunker, format_count(row.chunks), format_count(row.tokens), *format_scores(row)) for row in rows),
    )


def build_in_place(rows: Sequence[ChunkerRow]) -> Table:
    """Return the scores of each splitter if a chunk counts where it is."""
    headings = ("Chunker", *HEADINGS)
    values = tuple((row.chunker, *map(format_percent, (row.in_place or {}).values())) for row in rows)
    return Table(build_columns(headings, headings[1:]), values)


def build_document_scores(overall: Sequence[ChunkerRow], rows: Sequence[ChunkerRow]) -> Table:
    """Return a row for new documents, then one for each document, of each splitter."""
    headings = ("Chunker", "Document", "Questions", *HEADINGS)
    lines = []
    for total in overall:
        new = [format_estimate(score, format_percent) for score in (total.for_new_documents or {}).values()]
        lines.append((total.chunker, "(new documents)", format_count(total.questions), *new))
        own = [row for row in rows if row.chunker == total.chunker]
        lines += [(row.chunker, row.document, format_count(row.questions), *format_scores(row)) for row in own]
    return Table(build_columns(headings, headings[2:]), tuple(lines))


def format_scores(row: ChunkerRow) -> list[str]:
    """Return the scores of a row with their intervals."""
    scores = (row.iou, row.recall, row.precision, row.precision_omega)
    return [format_estimate(score, format_percent) for score in scores]


def score_chunks(
    model: str,
    opened: Dataset,
    chunkers: Sequence[Callable[[str], Any]],
    *,
    k: int,
    revision: str | None,
    batch_size: int,
    repair: bool,
) -> ScoredChunkers:
    """Score text splitters by what a model retrieves of the excerpts that answer questions; see `posir.score`.

    Raises:
        PosirError: There is no such model or data, or a chunker does not divide a text.
    """
    splitters = name_splitters(chunkers)
    if not splitters:
        raise PosirError("--model needs at least one --chunker.")
    with track("Loading the model"):
        # mteb and PyTorch take seconds to import.
        from posir_score.chunk_scoring import read_excerpts, score_splitters
        from posir_tasks.embeddings.encoding import load_encoder
        from posir_tasks.text.tokenizer import EstimatedTokenizer, find_tokenizer

        excerpts = read_excerpts(opened, repair=repair)
        # A mistake in a chunker should not cost the time to load the model.
        for splitter in splitters:
            splitter.divide(next(iter(excerpts.documents.values())))
        encoder = load_encoder(model, revision, batch_size=batch_size)
        tokenizer = find_tokenizer(encoder.model) or EstimatedTokenizer()
    return ScoredChunkers(score_splitters(encoder, tokenizer, excerpts, splitters, k))
