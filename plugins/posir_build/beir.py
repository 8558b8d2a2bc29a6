"""Reader of BEIR folders: `corpus.jsonl`, `queries.jsonl` and `qrels/<split>.tsv`, with a span for each relevant pair.

The format: Thakur et al. 2021 (arXiv 2104.08663). It has no place for spans: they are read from columns `start` and `end` of
the qrels, or from `pos_char_span` in `queries.jsonl`, beside `text` or in `metadata`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import polars as pl

from posir_build.importing import Passage, Question, SkippedQuestion
from posir_build.records import Record, as_kind, identity, json_lines, member, naming, optional
from posir_build.spans import StatedAnswer
from posir_tasks.errors import DataError, summarize_error
from posir_tasks.sources.checks import refuse, rows_where

WANTED_DOCUMENT = "a JSON object a line with '_id' and 'text', and perhaps 'title'"
WANTED_QUERY = "a JSON object a line with '_id' and 'text', and perhaps 'pos_char_span', [start, end], and 'answer'"
QRELS = ("query-id", "corpus-id", "score")
SPAN = ("start", "end")

#: Document, start and end.
Pair: TypeAlias = tuple[str, int | None, int | None]


def beir_passages(folder: Path, split: str) -> Iterator[Passage | SkippedQuestion]:
    """Yield every document of a BEIR folder with the questions of a split; ids are kept.

    Raises:
        DataError: A file cannot be read, or is not what is wanted.
    """
    relevant = _relevant(folder, split)
    asked: dict[str, list[Question]] = defaultdict(list)
    file, qrels = folder / "queries.jsonl", folder / "qrels" / f"{split}.tsv"
    unknown = dict.fromkeys(relevant)
    for place, record in json_lines(file, WANTED_QUERY):
        with naming(file, place, WANTED_QUERY):
            name, text = _id(record), member(record, "text", str)
        unknown.pop(name, None)
        try:
            document, start, end = _only(relevant.get(name, []), qrels)
            asked[document].append(Question(str(file), name, text, _claim(record, start, end), name))
        except ValueError as why:
            yield SkippedQuestion(str(file), name, str(why))
    for name in unknown:
        yield SkippedQuestion(str(qrels), name, f"its text is not in {file.name}")
    yield from _documents(folder / "corpus.jsonl", asked)


def _documents(file: Path, asked: dict[str, list[Question]]) -> Iterator[Passage | SkippedQuestion]:
    for place, record in json_lines(file, WANTED_DOCUMENT):
        with naming(file, place, WANTED_DOCUMENT):
            name, text, title = _id(record), member(record, "text", str), optional(record, "title", str)
        yield Passage(str(file), place, text, asked.pop(name, ()), name, title or "")
    for document, questions in asked.items():
        for question in questions:
            yield SkippedQuestion(question.file, question.name, f"its relevant document {document!r} is not in {file.name}")


def _only(pairs: list[Pair], qrels: Path) -> Pair:
    if len(pairs) != 1:
        count = f"{len(pairs)} relevant documents" if pairs else "no relevant document"
        raise ValueError(f"has {count} in {qrels}; every query needs exactly one")
    return pairs[0]


def _relevant(folder: Path, split: str) -> dict[str, list[Pair]]:
    """Return document and span of each relevant pair of a split, by query."""
    file = folder / "qrels" / f"{split}.tsv"
    if not file.is_file():
        there = ", ".join(sorted(path.stem for path in file.parent.glob("*.tsv"))) or "none"
        raise DataError(f"{file}: missing. Splits that are there: {there}; --split chooses one.")
    relevant = _qrels(file).filter(pl.col("score") > 0).select("query-id", "corpus-id", *SPAN)
    pairs = defaultdict(list)
    for query, document, start, end in relevant.unique(maintain_order=True).iter_rows():
        pairs[query].append((document, start, end))
    return pairs


def _qrels(file: Path) -> pl.DataFrame:
    """Read a file of qrels; where it has no spans, they are null."""
    try:
        frame = pl.read_csv(file, separator="\t", infer_schema_length=0)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"{file}: not a readable file of tab-separated values ({summarize_error(error)}).") from error
    missing = [name for name in QRELS if name not in frame.columns]
    if missing:
        raise DataError(f"{file}: missing column(s) {', '.join(missing)}; the file has {', '.join(frame.columns)}.")
    frame = frame.with_columns(pl.lit(None, pl.String).alias(name) for name in SPAN if name not in frame.columns)
    is_number = pl.col("score").cast(pl.Float64, strict=False).is_finite().fill_null(False)
    wrong = [
        *((name, pl.col(name).is_null(), "is missing") for name in QRELS),
        ("score", pl.col("score").is_not_null() & ~is_number, "must be a number"),
        *(
            (name, pl.col(name).is_not_null() & pl.col(name).cast(pl.Int64, strict=False).is_null(), "must be an integer")
            for name in SPAN
        ),
    ]
    refuse(problem for name, bad, what in wrong for problem in rows_where(frame, bad, file=str(file), field=name, what=what))
    return frame.cast({"score": pl.Float64, **dict.fromkeys(SPAN, pl.Int64)})


def _id(record: Record) -> str:
    name = identity(record, "_id")
    if not name:
        raise ValueError("lacks '_id'")
    return name


def _claim(query: Record, start: int | None, end: int | None) -> StatedAnswer:
    """Return what a query and its qrel say of its answer.

    Raises:
        ValueError: They differ, or a field is of another kind.
    """
    metadata = query.get("metadata")
    places = [query, metadata] if isinstance(metadata, dict) else [query]
    answers = {answer for place in places if (answer := optional(place, "answer", str)) is not None}
    spans = {span for place in places if (span := _span(place))} | ({(start, end)} - {(None, None)})
    if len(answers) > 1 or len(spans) > 1:
        raise ValueError("states several answers or spans, which differ")
    return StatedAnswer(answers.pop() if answers else None, *(spans.pop() if spans else (None, None)))


def _span(place: Record) -> tuple[int | None, int | None] | None:
    span = optional(place, "pos_char_span", list)
    if span is None:
        return None
    if len(span) != 2:
        raise ValueError("'pos_char_span' must be two integers, start and end")
    return as_kind(span[0], int), as_kind(span[1], int)
