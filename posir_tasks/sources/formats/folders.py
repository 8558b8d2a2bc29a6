"""Readers of folders: BEIR, and Chroma's chunking evaluation.

BEIR (Thakur et al. 2021, arXiv 2104.08663) has `corpus.jsonl`, `queries.jsonl` and `qrels/<split>.tsv`; the first two may be
compressed (`.jsonl.gz`). It has no field for evidence, which is read from columns `start` and `end` of the qrels, and from
fields of a query or of its `metadata`: `pos_char_span`; `answer` or `evidence` with a text, a list of texts, or an object with
either for each document; and, as in BEIR's own SciFact, `{"<document>": [{"sentences": [4]}]}` with the numbers of sentences
from 0.

The chunking evaluation (Smith & Troynikov 2024, Evaluating Chunking Strategies for Retrieval, and their package
`chunking_evaluation`, which names the file `questions_df.csv`) has `questions.csv` and `corpora/`. Columns: `question`;
`references`, a JSON list of `content`, `start_index` and `end_index`; `corpus_id`, the name of a file in `corpora/` without its
suffix.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias

import polars as pl
from pydantic import Field

from posir_tasks.errors import DataError, summarize_error
from posir_tasks.files import find_compressed, find_files
from posir_tasks.gate import parse_json, read_csv_rows
from posir_tasks.sources.checks import CheckedTable, raise_problems
from posir_tasks.sources.data import Judgments
from posir_tasks.sources.formats.files import Id, StrictRecord, Text, error_context, read_records, read_text_file, validate
from posir_tasks.sources.formats.passages import (
    Passage,
    PassageQuestion,
    ReadOptions,
    SkippedQuestion,
    SkippedText,
    StatedAnswer,
)
from posir_tasks.table_files import read_tsv
from posir_tasks.text.sentences import find_sentences

CORPUS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels"
COLUMNS = ("query-id", "corpus-id", "score")
SPAN = ("start", "end")
SPLIT = "test"
#: Fields with the text of the evidence.
TEXT_FIELDS = ("answer", "evidence")
#: Language of the texts whose evidence is given by the numbers of sentences.
LANGUAGE = "en"
SEVERAL_PLACES = "states several answers or spans, which differ"

#: Start and end, of which a file may state one alone.
Spans: TypeAlias = list[tuple[int | None, int | None]]


class TextRecord(StrictRecord):
    """A line of the corpus or the queries."""

    id: Annotated[Id, Field(alias="_id", min_length=1)]
    text: Text


class CorpusRow(TextRecord):
    """A line of the corpus."""

    expected: ClassVar = "one JSON object per line with '_id' and 'text', and optionally 'title'"

    title: Text | None = None


class Query(TextRecord, extra="allow"):
    """A line of the queries; its evidence is checked later, since an invalid one excludes this query only."""

    expected: ClassVar = (
        "one JSON object per line with '_id' and 'text', and optionally 'pos_char_span', [start, end], and 'answer'"
    )


class QuerySpan(StrictRecord):
    """Span of a query, in its own fields or in `metadata`."""

    pos_char_span: Annotated[list[int], Field(min_length=2, max_length=2)] | None = None


def is_beir_folder(folder: Path) -> bool:
    """Return whether a folder has a corpus and queries as BEIR has them."""
    return all(find_compressed(folder / name).is_file() for name in (CORPUS, QUERIES))


def read_beir_texts(folder: Path, options: ReadOptions) -> Iterator[Passage | SkippedText]:  # noqa: ARG001
    """Yield the documents of a BEIR folder."""
    for place, document in read_records(find_compressed(folder / CORPUS), CorpusRow):
        if isinstance(document, SkippedText):
            yield document
        else:
            yield Passage(CORPUS, place, document.text, id=document.id, title=document.title or "")


def read_beir(folder: Path, options: ReadOptions) -> Iterator[Passage | SkippedQuestion | SkippedText]:
    """Yield a BEIR folder's documents with the questions of a split; ids are preserved.

    A query has a question for each place of its evidence in each of its relevant documents. If there are several, each says
    that it is ambiguous. Titles are not part of the documents.

    Raises:
        DataError: A file is missing or invalid.
    """
    split = options.split or find_split(folder)
    relevant = read_relevant_pairs(folder, split)
    queries, skipped = read_queries(folder)
    yield from skipped
    qrels = f"{folder / QRELS / split}.tsv"
    for query in queries.values():
        if query.id not in relevant:
            reason = f"has no relevant document in {qrels}; every query needs exactly one"
            yield SkippedQuestion(str(find_compressed(folder / QUERIES)), query.id, reason)
    for name in relevant.keys() - queries.keys():
        yield SkippedQuestion(qrels, name, f"its text is not in {QUERIES}")
    yield from _read_documents(folder, qrels, queries, relevant)


def read_queries(folder: Path) -> tuple[dict[str, Query], list[SkippedText]]:
    """Return the queries by id, and the lines that cannot be decoded; raise DataError if different queries have one id."""
    file, skipped = find_compressed(folder / QUERIES), list[SkippedText]()
    queries: dict[str, Query] = {}
    for _, query in read_records(file, Query):
        if isinstance(query, SkippedText):
            skipped.append(query)
        elif queries.setdefault(query.id, query) != query:
            raise DataError(f"{file}: question {query.id}: another question has the id too; ids must be unique.")
    return queries, skipped


def _read_documents(
    folder: Path, qrels: str, queries: Mapping[str, Query], relevant: Mapping[str, Mapping[str, Spans]]
) -> Iterator[Passage | SkippedQuestion | SkippedText]:
    """Yield the documents with the questions about them."""
    asked: dict[str, list[tuple[Query, Spans, str]]] = defaultdict(list)
    for query in queries.values():
        documents = relevant.get(query.id, {})
        several = f"has {len(documents)} relevant documents in {qrels}; every query needs exactly one"
        for document, spans in documents.items():
            asked[document].append((query, spans, several if len(documents) > 1 else ""))
    corpus, file, used = str(find_compressed(folder / CORPUS)), str(find_compressed(folder / QUERIES)), Counter[str]()
    for passage in read_beir_texts(folder, ReadOptions()):
        if isinstance(passage, SkippedText):
            yield passage
            continue
        questions = []
        for query, spans, several in asked.pop(str(passage.id), ()):
            try:
                places = list_evidence(query, str(passage.id), spans, passage.text)
            except ValueError as error:
                yield SkippedQuestion(file, query.id, str(error))
                continue
            ambiguity = several or (SEVERAL_PLACES if len(places) > 1 else "")
            stated: list[StatedAnswer | None] = [*places] or [None]
            for place in stated:
                used[query.id] += 1
                name = query.id if used[query.id] == 1 else f"{query.id}#{used[query.id]}"
                questions.append(PassageQuestion(file, query.id, query.text, place, name, ambiguity))
        yield replace(passage, file=corpus, questions=questions)
    for document, unmatched in asked.items():
        for query, _, _ in unmatched:
            yield SkippedQuestion(file, query.id, f"its relevant document {document!r} is not in {CORPUS}")


def find_split(folder: Path) -> str:
    """Return `test`, or the first split in alphabetical order if there is no such one; raise DataError if there is none."""
    splits = sorted(path.stem for path in (folder / QRELS).glob("*.tsv"))
    if not splits:
        raise DataError(f"{folder / QRELS}: no qrels; expected {QRELS}/{SPLIT}.tsv.")
    return SPLIT if SPLIT in splits else splits[0]


def read_judgments(folder: Path, options: ReadOptions) -> Judgments:
    """Return the judgments of a split, those of irrelevant documents and of documents that are not in the corpus included.

    Raises:
        DataError: A file is missing or invalid.
    """
    queries, _ = read_queries(folder)
    grades: dict[str, dict[str, int]] = defaultdict(dict)
    rows = _read_split(folder, options.split or find_split(folder)).select(*COLUMNS)
    for query, document, score in rows.iter_rows():
        grades[query][document] = int(score)
    return Judgments({name: queries[name].text for name in grades if name in queries}, dict(grades))


def read_relevant_pairs(folder: Path, split: str) -> dict[str, dict[str, Spans]]:
    """Return the relevant documents of each query of a split, with the spans that the qrels state."""
    relevant = _read_split(folder, split).filter(pl.col("score") > 0).select("query-id", "corpus-id", *SPAN)
    pairs: dict[str, dict[str, Spans]] = defaultdict(lambda: defaultdict(list))
    for query, document, start, end in relevant.unique(maintain_order=True).iter_rows():
        pairs[query][document] += [] if start is None and end is None else [(start, end)]
    return pairs


def _read_split(folder: Path, split: str) -> pl.DataFrame:
    """Read the qrels of a split; spans that they lack are null."""
    file = folder / QRELS / f"{split}.tsv"
    if not file.is_file():
        available = ", ".join(sorted(path.stem for path in file.parent.glob("*.tsv"))) or "none"
        raise DataError(f"{file}: missing. Available splits: {available}; choose one with --split.")
    try:
        frame = read_tsv(file)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"{file}: not a readable file of tab-separated values ({summarize_error(error)}).") from error
    # polars renames them.
    if any("_duplicated_" in name for name in frame.columns):
        raise DataError(f"{file}: several columns have the same name; keep one of them.")
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise DataError(f"{file}: missing column(s) {', '.join(missing)}; the file has {', '.join(frame.columns)}.")
    frame = frame.with_columns(pl.lit(None, pl.String).alias(name) for name in SPAN if name not in frame.columns)
    score, integers = pl.col("score"), {name: pl.col(name).cast(pl.Int64, strict=False) for name in SPAN}
    checks = [
        *((name, pl.col(name).is_null(), "is missing") for name in COLUMNS),
        ("score", score.is_not_null() & ~score.cast(pl.Float64, strict=False).is_finite(), "must be a number"),
        *((name, pl.col(name).is_not_null() & integers[name].is_null(), "must be an integer") for name in SPAN),
    ]
    table = CheckedTable(str(file), frame)
    raise_problems(problem for field, invalid, message in checks for problem in table.check_rows(invalid, field, message))
    return frame.cast({"score": pl.Float64, **dict.fromkeys(SPAN, pl.Int64)})


def list_evidence(query: Query, name: str, spans: Spans, document: str) -> list[StatedAnswer]:
    """Return every place of a query's evidence in one of its relevant documents; none if it is not stated.

    One span and one text are the same evidence, stated twice.

    Args:
        query: The query.
        name: Id of the document.
        spans: What the qrels state.
        document: Text of the document.

    Raises:
        ValueError: A field has a wrong type, or names a sentence that the document lacks.
    """
    fields = query.model_extra or {}
    metadata = fields.get("metadata")
    stated = [fields, metadata if isinstance(metadata, Mapping) else {}]
    own = [span for row in stated if (span := validate(QuerySpan, row).pos_char_span)]
    distinct = list(dict.fromkeys([*spans, *((start, end) for start, end in own)]))
    texts = list(dict.fromkeys(text for row in stated for key in TEXT_FIELDS for text in list_texts(row.get(key), name, key)))
    sentences = list_sentences(stated[1].get(name), document)
    if len(distinct) == 1 and len(texts) == 1:
        return [StatedAnswer(texts[0], *distinct[0]), *sentences]
    return [*(StatedAnswer(None, *span) for span in distinct), *map(StatedAnswer, texts), *sentences]


def list_texts(value: Any, document: str, field: str) -> Iterator[str]:
    """Yield the texts of a field: a text, a list of texts, or an object with either for each document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from list_texts(value.get(document), document, field)
    elif isinstance(value, list):
        for item in value:
            yield from list_texts(item, document, field)
    elif value is not None:
        raise ValueError(f"'{field}' must be a text, a list of texts, or an object with either for each document")


def list_sentences(annotations: Any, document: str) -> Iterator[StatedAnswer]:
    """Return the runs of sentences that BEIR's SciFact names as evidence, `[{"sentences": [4]}]`, by their spans."""
    annotated = (
        [annotation for annotation in annotations if isinstance(annotation, Mapping)] if isinstance(annotations, list) else []
    )
    numbers = {number for annotation in annotated for number in annotation.get("sentences") or () if isinstance(number, int)}
    if not numbers:
        return
    sentences = find_sentences(document, LANGUAGE)
    if max(numbers) >= len(sentences):
        raise ValueError(f"names sentence {max(numbers)} of its document, which has {len(sentences)}")
    first = {number for number in numbers if number - 1 not in numbers}
    last = sorted(number for number in numbers if number + 1 not in numbers)
    for begin, end in zip(sorted(first), last, strict=True):
        yield StatedAnswer(None, sentences[begin].start, sentences[end].end)


CORPORA = "corpora"
QUESTIONS = ("questions.csv", "questions_df.csv")
EXCERPT_COLUMNS = ("question", "references", "corpus_id")
EXPECTED = f"a table with the columns {', '.join(EXCERPT_COLUMNS)}, as Chroma's chunking evaluation has it"
SEVERAL_REFERENCES = "has several excerpts as evidence"


class ReferenceRecord(StrictRecord):
    """An excerpt that answers a question."""

    expected: ClassVar = EXPECTED

    content: str
    start_index: int
    end_index: int


class ReferenceList(StrictRecord):
    """The excerpts of a question."""

    expected: ClassVar = EXPECTED

    references: list[ReferenceRecord]


def find_questions(folder: Path) -> Path | None:
    """Return the file with the questions of a folder; None if it has none."""
    return next((folder / name for name in QUESTIONS if (folder / name).is_file()), None)


def is_chunking_folder(folder: Path) -> bool:
    """Return whether a folder has questions and corpora as the chunking evaluation has them."""
    return find_questions(folder) is not None and (folder / CORPORA).is_dir()


def read_chunking(folder: Path, options: ReadOptions) -> Iterator[Passage | SkippedQuestion | SkippedText]:
    """Yield the corpora of a folder, each with its questions: one for each excerpt that answers it.

    Raises:
        DataError: A file cannot be read, or the questions are not as expected.
    """
    file = find_questions(folder)
    assert file is not None
    asked: dict[str, list[PassageQuestion]] = defaultdict(list)
    for number, row in enumerate(read_csv_rows(file, EXCERPT_COLUMNS, EXPECTED), start=2):
        asked[row["corpus_id"]] += _read_questions(file, number, row)
    for passage in read_chunking_texts(folder, options):
        if isinstance(passage, SkippedText):
            yield passage
        else:
            yield replace(passage, questions=asked.pop(passage.id or "", ()))
    for corpus, questions in asked.items():
        for name in dict.fromkeys(question.name for question in questions):
            yield SkippedQuestion(str(file), name, f"its corpus {corpus!r} is not in {CORPORA}/")


def _read_questions(file: Path, number: int, row: Mapping[str, str]) -> Iterator[PassageQuestion]:
    """Yield the question of a row for each of its excerpts."""
    name = f"line {number}"
    with error_context(file, f"question {number - 1}", EXPECTED):
        references = validate(ReferenceList, {"references": parse_json(row["references"], "references")}).references
    ambiguity = SEVERAL_REFERENCES if len(references) > 1 else ""
    for place, reference in enumerate(references, start=1):
        answer = StatedAnswer(reference.content, reference.start_index, reference.end_index)
        identifier = f"q{number - 1}" if place == 1 else f"q{number - 1}#{place}"
        yield PassageQuestion(str(file), name, row["question"], answer, identifier, ambiguity)


def read_chunking_texts(folder: Path, options: ReadOptions) -> Iterator[Passage | SkippedText]:
    """Yield the corpora of a folder."""
    for file in find_files(folder / CORPORA, ""):
        for passage in read_text_file(file, f"{CORPORA}/{file.name}", options):
            yield passage if isinstance(passage, SkippedText) else replace(passage, id=file.stem)


def read_chunking_judgments(folder: Path, options: ReadOptions) -> Judgments:  # noqa: ARG001
    """Return each question with its corpus as the only relevant document."""
    file = find_questions(folder)
    assert file is not None
    rows = {f"q{number}": row for number, row in enumerate(read_csv_rows(file, EXCERPT_COLUMNS, EXPECTED), start=1)}
    return Judgments(
        {name: row["question"] for name, row in rows.items()}, {name: {row["corpus_id"]: 1} for name, row in rows.items()}
    )
