"""Readers for folders with documents, questions and judgments: BEIR and Chroma's evaluation.

BEIR (Thakur et al. 2021, arXiv 2104.08663) consists of `corpus.jsonl`, `queries.jsonl` and
`qrels/<split>.tsv`; the first two may be compressed (`.jsonl.gz`). BEIR has no field for evidence.
posir reads evidence from the qrels columns `start` and `end`, and from these fields of a query or
its `metadata`: `pos_char_span`; `answer` or `evidence` (a text, a list of texts, or an object that
maps documents to either); and `{"<document>": [{"sentences": [4]}]}` with 0-based sentence numbers,
as in BEIR's SciFact.

Chroma's chunking evaluation (Smith & Troynikov 2024, Evaluating Chunking Strategies for Retrieval)
consists of `corpora/` and `questions.csv` (`questions_df.csv` in the package
`chunking_evaluation`). Columns: `question`; `references`, a JSON list of `content`, `start_index`
and `end_index`; `corpus_id`, the name of a file in `corpora/` without suffix.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from posir_tasks.base.errors import DataError
from posir_tasks.base.files import find_compressed, find_files
from posir_tasks.base.table_files import read_delimited
from posir_tasks.base.untrusted import parse_json, read_csv_rows
from posir_tasks.base.wording import sanitize
from posir_tasks.data.checks import CheckedTable, raise_problems
from posir_tasks.data.data import Judgments
from posir_tasks.data.formats.documents import read_text_file
from posir_tasks.data.formats.passages import (
    Answer,
    Cause,
    DeferredQueries,
    DeferredQuery,
    Items,
    Passage,
    ReadOptions,
    SkippedItem,
    UnusableError,
    add_deferred,
    attach_queries,
    skip_question,
)
from posir_tasks.data.formats.records import (
    Row,
    choose_split,
    convert_errors,
    read_items,
    read_rows,
)
from posir_tasks.data.grades import GRADE_RULE, MAX_GRADE, CollectedGrades, collect_grades
from posir_tasks.data.markers import is_flagged_unanswerable
from posir_tasks.text.sentences import find_sentences

CORPUS = "corpus.jsonl"
QUERIES = "queries.jsonl"
QRELS = "qrels"
QRELS_COLUMNS = ("query-id", "corpus-id", "score")
SPAN_COLUMNS = ("start", "end")
DEFAULT_SPLIT = "test"
#: Fields that may contain evidence texts.
TEXT_FIELDS = ("answer", "evidence")
#: Language of SciFact, the only dataset with sentence numbers.
SCIFACT_LANGUAGE = "en"
CORPUS_ROW = "one JSON object per line with '_id' and 'text', and optionally 'title'"
QUERY_ROW = (
    "one JSON object per line with '_id' and 'text', and optionally 'pos_char_span', [start, end], "
    "and 'answer'"
)

#: Starts and ends of spans; None if missing.
Spans: TypeAlias = list[tuple[int | None, int | None]]


def read_beir_texts(folder: Path, options: ReadOptions) -> Items:  # noqa: ARG001
    """Yield the documents in a BEIR folder. Titles are kept separate from the text."""
    return read_items(find_compressed(folder / CORPUS), CORPUS_ROW, _read_document)


def _read_document(row: Row, location: str) -> Items:
    title = row.get_text("title", "")
    yield Passage(CORPUS, location, row.get_text("text"), id=_read_id(row), title=title)


def _read_id(row: Row) -> str:
    name = row.get_id("_id")
    if not name:
        raise ValueError("'_id' is empty")
    return name


def read_beir(folder: Path, options: ReadOptions) -> Items:
    """Yield the documents in a BEIR folder with a question per evidence span of the split."""
    qrels = _find_qrels(folder, options)
    rows, grades = _read_qrels(qrels)
    spans: dict[tuple[str, str], Spans] = defaultdict(list)
    for query, document, score, start, end in rows.unique(maintain_order=True).iter_rows():
        if score > 0 and (start, end) != (None, None):
            spans[query, document].append((start, end))
    queries, skipped = _read_queries(folder)
    yield from skipped
    yield from grades.skip_contradictions(str(qrels))
    file = str(find_compressed(folder / QUERIES))
    deferred = DeferredQueries()
    for name, row in queries.items():
        relevant = {key: grade for key, grade in grades.by_query.get(name, {}).items() if grade > 0}
        if not relevant:
            # The query may belong to another split.
            yield skip_question(file, name, Cause.NOT_RELEVANT)
        for document, grade in relevant.items():
            find = partial(list_evidence, row, document, spans[name, document])
            deferred_query = DeferredQuery(file, name, row.get_text("text"), find, grade)
            deferred.setdefault(document, []).append(deferred_query)
    for name, documents in grades.by_query.items():
        if name not in queries and max(documents.values()) > 0:
            yield skip_question(str(qrels), name, Cause.NO_TEXT)
    yield from attach_queries(read_beir_texts(folder, options), deferred, CORPUS)


def _read_queries(folder: Path) -> tuple[dict[str, Row], list[SkippedItem]]:
    """Read the queries by id, and skipped lines; raise DataError for repeated ids."""
    file = find_compressed(folder / QUERIES)
    skipped = []
    queries = dict[str, Row]()
    for location, row in read_rows(file, QUERY_ROW):
        if isinstance(row, SkippedItem):
            skipped.append(row)
            continue
        with convert_errors(file, location, QUERY_ROW):
            name = _read_id(row)
            row.get_text("text")
        if queries.setdefault(name, row) != row:
            problem = "another question has the same id; ids must be unique."
            raise DataError(f"{file}: question {name}: {problem}")
    return queries, skipped


def _find_qrels(folder: Path, options: ReadOptions) -> Path:
    """Return the qrels file of a split. The default is `test`, or else the first split by name."""
    folder = folder / QRELS
    splits = sorted(path.stem for path in folder.glob("*.tsv"))
    default = splits[0] if splits and DEFAULT_SPLIT not in splits else DEFAULT_SPLIT
    return folder / f"{choose_split(folder, options.split, splits, default)}.tsv"


def read_beir_judgments(folder: Path, options: ReadOptions) -> Judgments:
    """Return all judgments of a split, including irrelevant and missing documents."""
    queries, _ = _read_queries(folder)
    _, grades = _read_qrels(_find_qrels(folder, options))
    columns: dict[str, dict[str, str]] = defaultdict(dict)
    texts = {}
    for name in grades.by_query:
        if name not in queries:
            continue
        text = queries[name].get_text("text")
        if text.strip():
            texts[name] = text
        fields, metadata = _list_fields(queries[name])
        for key, value in {**fields, **metadata}.items():
            if isinstance(value, str | int) and key not in ("_id", "text"):
                columns[key][name] = str(value)
    return Judgments(texts, grades.by_query, dict(columns), grades.contradictions)


def _list_fields(query: Row) -> list[Mapping[str, Any]]:
    metadata = query.fields.get("metadata")
    return [query.fields, metadata if isinstance(metadata, Mapping) else {}]


def _read_qrels(file: Path) -> tuple[pl.DataFrame, CollectedGrades]:
    """Read qrels as rows with spans and as grades; raise DataError for malformed rows."""
    frame = read_delimited(file)
    missing = [name for name in QRELS_COLUMNS if name not in frame.columns]
    if missing:
        present = sanitize(", ".join(frame.columns), 300) or "none"
        raise DataError(f"{file}: missing column(s) {', '.join(missing)}; the file has {present}.")
    spans = [
        pl.lit(None, pl.String).alias(name) for name in SPAN_COLUMNS if name not in frame.columns
    ]
    frame = frame.with_columns(spans)
    score = pl.col("score").str.strip_chars().cast(pl.Float64, strict=False)
    # NaN is greater than any number.
    score = pl.when(score.abs() <= MAX_GRADE).then(score)
    table = CheckedTable(str(file), frame)
    problems = []
    for name in QRELS_COLUMNS:
        problems += table.check_rows(pl.col(name).is_null(), name, "is missing")
    converted = {
        "score": score,
        **{name: pl.col(name).cast(pl.Int64, strict=False) for name in SPAN_COLUMNS},
    }
    for name, values in converted.items():
        is_malformed = pl.col(name).is_not_null() & values.is_null()
        rule = GRADE_RULE if name == "score" else "must be an integer"
        problems += table.check_rows(is_malformed, name, rule)
    raise_problems(problems)
    rows = frame.with_columns(**converted).select(*QRELS_COLUMNS, *SPAN_COLUMNS)
    return rows, collect_grades(rows.select(QRELS_COLUMNS).iter_rows())


def list_evidence(query: Row, document: str, spans: Spans, text: str) -> Sequence[Answer | None]:
    """List the distinct answers of a query in a relevant document.

    Args:
        query: The query.
        document: Id of the document.
        spans: Spans from the qrels.
        text: Text of the document.

    Returns:
        The answers, or [None] if the data has no evidence.

    Raises:
        ValueError: A field is malformed, or the query is marked as unanswerable.
    """
    sources = _list_fields(query)
    distinct_spans = dict.fromkeys(spans)
    texts = dict[str, None]()
    for fields in sources:
        if is_flagged_unanswerable(fields):
            raise UnusableError(Cause.UNANSWERABLE)
        row = Row(fields)
        if row.has("pos_char_span"):
            distinct_spans[row.get_span("pos_char_span")] = None
        for key in TEXT_FIELDS:
            texts |= dict.fromkeys(_list_texts(fields.get(key), document, key))
    if len(distinct_spans) == 1 and len(texts) == 1:
        ((start, end),) = distinct_spans
        answers = [Answer(next(iter(texts)), start, end)]
    else:
        answers = [Answer(None, *span) for span in distinct_spans]
        answers += map(Answer, texts)
    answers += _list_sentences(sources[1].get(document), text)
    return answers or [None]


def _list_texts(value: Any, document: str, field: str) -> Iterator[str]:
    """Yield the texts in a field: a text, a list, or an object with either per document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _list_texts(value.get(document), document, field)
    elif isinstance(value, list):
        for item in value:
            yield from _list_texts(item, document, field)
    elif value is not None:
        raise ValueError(
            f"'{field}' must be a text, a list of texts, or an object with either per document"
        )


def _list_sentences(annotations: Any, document: str) -> Iterator[Answer]:
    """Yield the sentence runs of SciFact annotations, such as `[{"sentences": [4, 5]}]`."""
    numbers = set[int]()
    for row in annotations if isinstance(annotations, list) else ():
        values = row.get("sentences") if isinstance(row, Mapping) else ()
        numbers.update(number for number in values or () if isinstance(number, int))
    sentences = find_sentences(document, SCIFACT_LANGUAGE) if numbers else []
    last = max(numbers, default=-1)
    if last >= len(sentences):
        raise ValueError(f"refers to sentence {last} of its document, which has {len(sentences)}")
    firsts = sorted(number for number in numbers if number - 1 not in numbers)
    for first in firsts:
        last = first
        while last + 1 in numbers:
            last += 1
        yield Answer.from_span((sentences[first].start, sentences[last].end))


CORPORA = "corpora"
QUESTIONS = ("questions.csv", "questions_df.csv")
EXCERPT_COLUMNS = ("question", "references", "corpus_id")
QUESTION_TABLE = (
    f"a table with the columns {', '.join(EXCERPT_COLUMNS)}, as in Chroma's chunking evaluation"
)


def _find_questions(folder: Path) -> Path:
    return next(folder / name for name in QUESTIONS if (folder / name).is_file())


def _read_questions(file: Path) -> dict[str, dict[str, str]]:
    """Return the question rows by id: `q1`, `q2` and so on."""
    rows = read_csv_rows(file, EXCERPT_COLUMNS, QUESTION_TABLE)
    return {f"q{number}": row for number, row in enumerate(rows, start=1)}


def read_chunking(folder: Path, options: ReadOptions) -> Items:
    """Yield each corpus in a folder as a document with its questions."""
    file = _find_questions(folder)
    deferred = DeferredQueries()
    for name, row in _read_questions(file).items():
        pairs = []
        with convert_errors(file, f"question {name[1:]}", QUESTION_TABLE):
            excerpts = Row({"references": parse_json(row["references"], "references")})
            for excerpt in excerpts.get_rows("references"):
                start = excerpt.get_integer("start_index")
                answer = Answer(
                    excerpt.get_text("content"), start, excerpt.get_integer("end_index")
                )
                pairs.append((row["corpus_id"], answer))
        yield from add_deferred(deferred, str(file), name, row["question"], pairs)
    yield from attach_queries(read_chunking_texts(folder, options), deferred, f"{CORPORA}/")


def read_chunking_texts(folder: Path, options: ReadOptions) -> Items:
    """Yield each corpus in a folder as a document."""
    for file in find_files(folder / CORPORA, ""):
        for item in read_text_file(file, replace(options, root=folder)):
            yield replace(item, id=file.stem) if isinstance(item, Passage) else item


def read_chunking_judgments(folder: Path, options: ReadOptions) -> Judgments:  # noqa: ARG001
    """Return judgments with each question's corpus as its only relevant document."""
    rows = _read_questions(_find_questions(folder))
    return Judgments(
        {name: row["question"] for name, row in rows.items()},
        {name: {row["corpus_id"]: 1} for name, row in rows.items()},
    )
