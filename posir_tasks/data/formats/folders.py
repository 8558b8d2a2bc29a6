"""Readers of folders: BEIR, Chroma's chunking evaluation, and files of any format.

BEIR (Thakur et al. 2021, arXiv 2104.08663) has `corpus.jsonl`, `queries.jsonl` and
`qrels/<split>.tsv`; the first two may be compressed (`.jsonl.gz`). It has no field for evidence,
which is read from columns `start` and `end` of the qrels, and from fields of a query or of its
`metadata`: `pos_char_span`; `answer` or `evidence` with a text, a list of texts, or an object with
either for each document; and, as in BEIR's own SciFact, `{"<document>": [{"sentences": [4]}]}` with
the numbers of sentences from 0.

The chunking evaluation (Smith & Troynikov 2024, Evaluating Chunking Strategies for Retrieval, and
their package `chunking_evaluation`, which names the file `questions_df.csv`) has `questions.csv`
and `corpora/`. Columns: `question`; `references`, a JSON list of `content`, `start_index` and
`end_index`; `corpus_id`, the name of a file in `corpora/` without its suffix.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias

import polars as pl
from pydantic import Field

from posir_tasks.base.errors import DataError
from posir_tasks.base.files import find_compressed, find_files, split_suffix
from posir_tasks.base.table_files import read_delimited
from posir_tasks.base.untrusted import parse_json, read_csv_rows
from posir_tasks.base.wording import sanitized
from posir_tasks.data.checks import CheckedTable, raise_problems
from posir_tasks.data.data import Judgments
from posir_tasks.data.formats import published, wikipedia
from posir_tasks.data.formats.documents import read_text_file
from posir_tasks.data.formats.files import (
    JSON_LINES,
    PARQUET,
    ROWS,
    TABLES,
    find_file_format,
    read_file,
)
from posir_tasks.data.formats.passages import (
    UNANSWERABLE,
    Item,
    Passage,
    PassageQuestion,
    ReadOptions,
    SkippedText,
    StatedAnswer,
    Use,
    expect_skips,
    list_places,
    skip_question,
)
from posir_tasks.data.formats.records import (
    Id,
    StrictRecord,
    Text,
    error_context,
    read_records,
    validate,
)
from posir_tasks.data.grades import GRADE_RULE, CollectedGrades, collect_grades, read_grade
from posir_tasks.data.markers import states_no_answer
from posir_tasks.text.sentences import find_sentences

CORPUS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels"
COLUMNS = ("query-id", "corpus-id", "score")
SPAN = ("start", "end")
SPLIT = "test"
#: Fields with the text of the evidence.
TEXT_FIELDS = ("answer", "evidence")
#: Language of the texts whose evidence is given by the numbers of sentences.
LANGUAGE = "en"

#: Start and end, of which a file may state one alone.
Spans: TypeAlias = list[tuple[int | None, int | None]]


class _CorpusRow(StrictRecord):
    expected: ClassVar = "one JSON object per line with '_id' and 'text', and optionally 'title'"

    id: Annotated[Id, Field(alias="_id", min_length=1)]
    text: Text
    title: Text | None = None


class Query(StrictRecord, extra="allow"):
    """A line of the queries; its evidence is checked later, since an invalid one excludes this
    query only.
    """

    expected: ClassVar = (
        "one JSON object per line with '_id' and 'text', and optionally 'pos_char_span', [start, "
        "end], and 'answer'"
    )

    id: Annotated[Id, Field(alias="_id", min_length=1)]
    text: Text


class _QuerySpan(StrictRecord):
    pos_char_span: Annotated[list[int], Field(min_length=2, max_length=2)] | None = None


def is_beir_folder(folder: Path) -> bool:
    """Return whether a folder has a corpus and queries as BEIR has them."""
    return all(find_compressed(folder / name).is_file() for name in (CORPUS, QUERIES))


def read_beir_texts(folder: Path, options: ReadOptions) -> Iterator[Item]:  # noqa: ARG001
    """Yield the documents of a BEIR folder."""
    for place, row in read_records(find_compressed(folder / CORPUS), _CorpusRow):
        if isinstance(row, SkippedText):
            yield row
        else:
            yield Passage(CORPUS, place, row.text, id=row.id, title=row.title or "")


def read_beir(folder: Path, options: ReadOptions) -> Iterator[Item]:
    """Yield a BEIR folder's documents with the questions of a split; ids are preserved, titles are
    not part of the documents.

    A query has a question for each place of its evidence in each of its relevant documents.
    """
    qrels = _find_qrels(folder, options)
    file, relevant = (
        str(find_compressed(folder / QUERIES)),
        defaultdict[str, dict[str, Spans]](lambda: defaultdict(list)),
    )
    judged = _read_qrels(qrels)
    grades = _collect_grades(judged)
    pairs = (
        judged.filter(pl.col("score") > 0).select(*COLUMNS[:2], *SPAN).unique(maintain_order=True)
    )
    for name, document, start, end in pairs.iter_rows():
        relevant[name][document] += [] if start is None and end is None else [(start, end)]
    queries, skipped = _read_queries(folder)
    yield from skipped
    yield from grades.skip_contradictions(str(qrels))
    asked: dict[str, list[tuple[Query, Spans, float]]] = defaultdict(list)
    for query in queries.values():
        documents = relevant.pop(query.id, {})
        if not documents:
            unjudged = skip_question(
                file,
                query.id,
                f"has no relevant document in {qrels}; every query needs at least one",
            )
            # It may be of another split.
            yield replace(unjudged, is_expected=True)
        for document, spans in documents.items():
            asked[document].append((query, spans, grades.by_query[query.id][document]))
    for name in relevant:
        yield skip_question(str(qrels), name, f"its text is not in {QUERIES}")
    used = Counter[str]()
    for passage in read_beir_texts(folder, options):
        if isinstance(passage, Passage):
            questions = list(_read_places(passage, asked.pop(str(passage.id), ()), used, file))
            yield from (item for item in questions if isinstance(item, SkippedText))
            stated = [item for item in questions if isinstance(item, PassageQuestion)]
            yield replace(passage, file=str(find_compressed(folder / CORPUS)), questions=stated)
        else:
            yield passage
    for document, unmatched in asked.items():
        for query, _, _ in unmatched:
            yield skip_question(
                file, query.id, f"its relevant document {document!r} is not in {CORPUS}"
            )


def _read_places(
    passage: Passage, asked: Iterable[tuple[Query, Spans, float]], used: Counter[str], file: str
) -> Iterator[PassageQuestion | SkippedText]:
    """Yield a question for each place of the evidence in a document; `used` has how many places
    queries have before it.
    """
    for query, spans, grade in asked:
        try:
            stated = list_evidence(query, str(passage.id), spans, passage.text)
        except ValueError as error:
            yield skip_question(file, query.id, str(error))
            continue
        yield from list_places(
            file, query.id, query.text, stated or [None], used[query.id] + 1, grade
        )
        used[query.id] += len(stated) or 1


def _read_queries(folder: Path) -> tuple[dict[str, Query], list[SkippedText]]:
    """Return the queries by id, and the lines that cannot be decoded; raise DataError if different
    queries have one id.
    """
    file, skipped = find_compressed(folder / QUERIES), list[SkippedText]()
    queries: dict[str, Query] = {}
    for _, query in read_records(file, Query):
        if isinstance(query, SkippedText):
            skipped.append(query)
        elif queries.setdefault(query.id, query) != query:
            raise DataError(
                f"{file}: question {query.id}: another question has the id too; ids must be unique."
            )
    return queries, skipped


def _find_qrels(folder: Path, options: ReadOptions) -> Path:
    """Return the qrels of a split, by default of `test`, or the first in alphabetical order; raise
    DataError without any.
    """
    splits = sorted(path.stem for path in (folder / QRELS).glob("*.tsv"))
    if not options.split and not splits:
        raise DataError(f"{folder / QRELS}: no qrels; expected {QRELS}/{SPLIT}.tsv.")
    split = options.split or (SPLIT if SPLIT in splits else splits[0])
    file = folder / QRELS / f"{split}.tsv"
    if not file.is_file():
        raise DataError(
            f"{file}: missing. Available splits: {', '.join(splits) or 'none'}; choose one with "
            "--split."
        )
    return file


def read_judgments(folder: Path, options: ReadOptions) -> Judgments:
    """Return the judgments of a split, those of irrelevant and unknown documents included; raise
    DataError as `read_beir`.
    """
    queries, _ = _read_queries(folder)
    grades = _collect_grades(_read_qrels(_find_qrels(folder, options)))
    known = {name: queries[name] for name in grades.by_query if name in queries}
    columns: dict[str, dict[str, str]] = defaultdict(dict)
    for name, query in known.items():
        fields = query.model_extra or {}
        metadata = fields.get("metadata")
        for key, value in {**fields, **(metadata if isinstance(metadata, dict) else {})}.items():
            if isinstance(value, str | int):
                columns[key][name] = str(value)
    texts = {name: query.text for name, query in known.items() if query.text.strip()}
    return Judgments(texts, grades.by_query, dict(columns), grades.contradictions)


def _read_qrels(file: Path) -> pl.DataFrame:
    """Read the columns of qrels, scores as `read_grade` does; raise DataError if a row is
    malformed.
    """
    frame = read_delimited(file)
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        known = sanitized(", ".join(frame.columns), 300) or "none"
        raise DataError(f"{file}: missing column(s) {', '.join(missing)}; the file has {known}.")
    frame = frame.with_columns(
        pl.lit(None, pl.String).alias(name) for name in SPAN if name not in frame.columns
    )
    grades = pl.Series("grade", map(_find_grade, frame["score"]), pl.Float64)
    integers = {name: pl.col(name).cast(pl.Int64, strict=False) for name in SPAN}
    checks = [
        *((name, pl.col(name).is_null(), "is missing") for name in COLUMNS),
        ("score", pl.col("score").is_not_null() & grades.is_null(), GRADE_RULE),
        *(
            (name, pl.col(name).is_not_null() & integers[name].is_null(), "must be an integer")
            for name in SPAN
        ),
    ]
    table = CheckedTable(str(file), frame)
    raise_problems(
        problem
        for field, invalid, message in checks
        for problem in table.check_rows(invalid, field, message)
    )
    return frame.with_columns(score=grades).cast(dict.fromkeys(SPAN, pl.Int64))


def _find_grade(stated: str | None) -> float | None:
    """Return a grade; None if it is malformed."""
    with suppress(ValueError):
        return read_grade(stated)
    return None


def _collect_grades(qrels: pl.DataFrame) -> CollectedGrades:
    # The frame has floats, of which whole numbers are integers.
    rows = qrels.select(COLUMNS).iter_rows()
    return collect_grades((query, document, read_grade(score)) for query, document, score in rows)


def list_evidence(query: Query, name: str, spans: Spans, document: str) -> list[StatedAnswer]:
    """Return every place of a query's evidence in a relevant document, once; raise ValueError if a
    field is wrong.
    """
    fields = query.model_extra or {}
    metadata = fields.get("metadata")
    stated = [fields, metadata if isinstance(metadata, Mapping) else {}]
    if any(map(states_no_answer, stated)):
        raise ValueError(UNANSWERABLE)
    own = [span for row in stated if (span := validate(_QuerySpan, row).pos_char_span)]
    distinct = list(dict.fromkeys([*spans, *((start, end) for start, end in own)]))
    texts = list(
        dict.fromkeys(
            text
            for row in stated
            for key in TEXT_FIELDS
            for text in _list_texts(row.get(key), name, key)
        )
    )
    sentences = _list_sentences(stated[1].get(name), document)
    if len(distinct) == 1 and len(texts) == 1:
        return [StatedAnswer(texts[0], *distinct[0]), *sentences]
    return [
        *(StatedAnswer(None, *span) for span in distinct),
        *map(StatedAnswer, texts),
        *sentences,
    ]


def _list_texts(value: Any, document: str, field: str) -> Iterator[str]:
    """Yield the texts of a field: a text, a list of texts, or an object with either for each
    document.
    """
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _list_texts(value.get(document), document, field)
    elif isinstance(value, list):
        for item in value:
            yield from _list_texts(item, document, field)
    elif value is not None:
        raise ValueError(
            f"'{field}' must be a text, a list of texts, or an object with either for each document"
        )


def _list_sentences(annotations: Any, document: str) -> Iterator[StatedAnswer]:
    """Return the runs of sentences that BEIR's SciFact names as evidence, `[{"sentences": [4]}]`,
    by their spans.
    """
    annotated = (
        [row for row in annotations if isinstance(row, Mapping)]
        if isinstance(annotations, list)
        else []
    )
    numbers = {
        number
        for row in annotated
        for number in row.get("sentences") or ()
        if isinstance(number, int)
    }
    if not numbers:
        return
    sentences = find_sentences(document, LANGUAGE)
    if max(numbers) >= len(sentences):
        raise ValueError(
            f"names sentence {max(numbers)} of its document, which has {len(sentences)}"
        )
    first = {number for number in numbers if number - 1 not in numbers}
    last = sorted(number for number in numbers if number + 1 not in numbers)
    for begin, end in zip(sorted(first), last, strict=True):
        yield StatedAnswer.from_span((sentences[begin].start, sentences[end].end))


CORPORA = "corpora"
QUESTIONS = ("questions.csv", "questions_df.csv")
EXCERPT_COLUMNS = ("question", "references", "corpus_id")
EXPECTED = (
    f"a table with the columns {', '.join(EXCERPT_COLUMNS)}, as Chroma's chunking evaluation has it"
)


class _ReferenceRecord(StrictRecord):
    content: str
    start_index: int
    end_index: int


class _ReferenceList(StrictRecord):
    references: list[_ReferenceRecord]


def is_chunking_folder(folder: Path) -> bool:
    """Return whether a folder has questions and corpora as the chunking evaluation has them."""
    return (folder / CORPORA).is_dir() and any((folder / name).is_file() for name in QUESTIONS)


def _read_table(folder: Path) -> tuple[Path, list[dict[str, str]]]:
    file = next(file for name in QUESTIONS if (file := folder / name).is_file())
    return file, list(read_csv_rows(file, EXCERPT_COLUMNS, EXPECTED))


def read_chunking(folder: Path, options: ReadOptions) -> Iterator[Item]:
    """Yield the corpora of a folder, with a question for each excerpt; raise DataError if these are
    not as expected.
    """
    file, rows = _read_table(folder)
    asked: dict[str, list[PassageQuestion]] = defaultdict(list)
    for number, row in enumerate(rows, start=1):
        with error_context(file, f"question {number}", EXPECTED):
            references = validate(
                _ReferenceList, {"references": parse_json(row["references"], "references")}
            ).references
        if not references:
            yield skip_question(str(file), f"line {number + 1}", UNANSWERABLE)
        answers = (
            StatedAnswer(part.content, part.start_index, part.end_index) for part in references
        )
        places = list_places(str(file), f"q{number}", row["question"], answers)
        asked[row["corpus_id"]] += (replace(place, name=f"line {number + 1}") for place in places)
    for passage in read_chunking_texts(folder, options):
        yield (
            replace(passage, questions=asked.pop(passage.id or "", ()))
            if isinstance(passage, Passage)
            else passage
        )
    for corpus, questions in asked.items():
        for name in dict.fromkeys(question.name for question in questions):
            yield skip_question(str(file), name, f"its corpus {corpus!r} is not in {CORPORA}/")


def read_chunking_texts(folder: Path, options: ReadOptions) -> Iterator[Item]:
    """Yield the corpora of a folder."""
    for file in find_files(folder / CORPORA, ""):
        for passage in read_text_file(file, f"{CORPORA}/{file.name}", options):
            yield replace(passage, id=file.stem) if isinstance(passage, Passage) else passage


def read_chunking_judgments(folder: Path, options: ReadOptions) -> Judgments:  # noqa: ARG001
    """Return each question with its corpus as the only relevant document."""
    rows = {f"q{number}": row for number, row in enumerate(_read_table(folder)[1], start=1)}
    return Judgments(
        {name: row["question"] for name, row in rows.items()},
        {name: {row["corpus_id"]: 1} for name, row in rows.items()},
    )


#: Names of files that describe a dataset, in lower case.
ABOUT_DATA = frozenset(
    {"readme.md", "license", "license.md", "license.txt", "dataset_info.json", "dataset_infos.json"}
)


def _read_files(folder: Path, options: ReadOptions) -> Iterator[Item]:
    for file in _list_data_files(folder):
        name = file.relative_to(folder).as_posix()
        try:
            yield from read_file(file, name, options)
        except DataError as error:
            yield SkippedText(name, "unreadable", str(error), name)


def list_files(folder: Path) -> list[Path]:
    """Return the files below a folder, sorted, hidden ones excepted."""
    return [
        file
        for file in find_files(folder, "")
        if not any(part.startswith(".") for part in file.relative_to(folder).parts)
    ]


def _list_data_files(folder: Path) -> list[Path]:
    """Return the files below a folder without those that describe a dataset, if there are files of
    rows, as on the Hub.
    """
    files = list_files(folder)
    if (folder / "snapshots").is_dir() and (folder / "blobs").is_dir():
        # The cache of the Hub: its other files are the same content by digest.
        files = [file for file in files if file.relative_to(folder).parts[0] == "snapshots"]
    has_rows = any(split_suffix(file)[1] in (*JSON_LINES, *PARQUET, *TABLES) for file in files)
    return [
        file
        for file in files
        if not (has_rows and file.name.lower() in ABOUT_DATA) and not _is_card(file)
    ]


def _is_card(file: Path) -> bool:
    """Return whether a file is the card of a dataset on the Hub: a README with metadata."""
    if file.name.lower() != "readme.md":
        return False
    with file.open("rb") as content:
        return content.readline().strip() == b"---"


def _find_use(folder: Path, options: ReadOptions) -> Use | None:
    """Return the texts of which the questions of files can be asked, the fewest of any; None
    without questions.
    """
    uses = set[Use | None]()
    for file in _list_data_files(folder):
        with suppress(DataError):
            uses |= {format_.use} if (format_ := find_file_format(file, options)) else set()
    return next((use for use in (Use.WITHIN, Use.CORPUS) if use in uses), None)


@dataclass(frozen=True)
class FolderFormat:
    """A format of a folder."""

    title: str
    accepts: Callable[[Path], bool]
    read: Callable[[Path, ReadOptions], Iterator[Item]]
    find_use: Callable[[Path, ReadOptions], Use | None] = lambda *_: Use.CORPUS
    """Returns the texts of which its questions can be asked; None if it has texts alone."""
    read_texts: Callable[[Path, ReadOptions], Iterator[Item]] | None = None
    """Yields the documents alone, if `read` takes longer or needs more."""
    read_judgments: Callable[[Path, ReadOptions], Judgments] | None = None
    """Returns all judgments, if a query may have grades or several relevant documents."""


def _build_rows_format(
    title: str,
    accepts: Callable[[Path], bool],
    read: Callable[[Iterable[Path], ReadOptions], Iterator[Item]],
) -> FolderFormat:
    """Return the format of a folder whose files of rows have questions about the same pages."""

    def find_rows(folder: Path) -> list[Path]:
        return [
            file for file in list_files(folder) if split_suffix(file)[1] in ROWS and accepts(file)
        ]

    def read_rows(folder: Path, options: ReadOptions) -> Iterator[Item]:
        return expect_skips(read(find_rows(folder), options))

    return FolderFormat(title, lambda folder: bool(find_rows(folder)), read_rows)


def _select(
    read: Callable[[Path, ReadOptions], Iterator[Item]],
) -> Callable[[Path, ReadOptions], Iterator[Item]]:
    """Return a reader whose skipped questions are left out by the rules of its data."""
    return lambda folder, options: expect_skips(read(folder, options))


FOLDER_FORMATS = (
    FolderFormat(
        "a BEIR folder",
        is_beir_folder,
        read_beir,
        read_texts=read_beir_texts,
        read_judgments=read_judgments,
    ),
    FolderFormat(
        "a folder of Chroma's chunking evaluation",
        is_chunking_folder,
        read_chunking,
        read_texts=read_chunking_texts,
        read_judgments=read_chunking_judgments,
    ),
    FolderFormat("a folder of MIRACL", wikipedia.is_miracl, _select(wikipedia.read_miracl)),
    FolderFormat(
        "a folder of LegalBench-RAG",
        published.is_legalbench,
        _select(published.read_legalbench),
        lambda *_: Use.NAMED,
    ),
    FolderFormat("a folder of MS MARCO v2", published.is_marco, _select(published.read_marco)),
    FolderFormat("a folder of BRIGHT", published.is_bright, _select(published.read_bright)),
    _build_rows_format("a folder of TyDi QA", wikipedia.is_tydi, wikipedia.read_tydi),
    _build_rows_format(
        "a folder of Natural Questions",
        wikipedia.is_natural_questions,
        wikipedia.read_natural_questions,
    ),
    FolderFormat("a folder of files", Path.is_dir, _read_files, _find_use),
)


def find_folder_format(folder: Path) -> FolderFormat:
    """Return the format of a folder that is not in the PosIR layout."""
    return next(format_ for format_ in FOLDER_FORMATS if format_.accepts(folder))
