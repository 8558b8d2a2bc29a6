"""Readers of files (SQuAD-format JSON, JSON Lines and Parquet with a question or a text per row,
text files) and of the Hub.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, ClassVar

import polars as pl
from pydantic import AliasChoices, BeforeValidator, Field

from posir_tasks.base.errors import DataError, summarize_error
from posir_tasks.base.files import iterate_lines, open_decompressed, read_decompressed, split_suffix
from posir_tasks.base.limits import LimitError
from posir_tasks.base.table_files import read_delimited
from posir_tasks.base.untrusted import GateError, decode, parse_json
from posir_tasks.base.wording import sanitized
from posir_tasks.data.checks import iterate_rows, read_column_types, read_table
from posir_tasks.data.formats.documents import (
    BINARY_BYTES,
    is_binary,
    read_html_file,
    read_pdf_file,
    read_text_file,
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
from posir_tasks.data.formats.published import is_repliqa, read_repliqa
from posir_tasks.data.formats.recognition import describe_fields, list_keys
from posir_tasks.data.formats.records import (
    Id,
    StrictRecord,
    Text,
    error_context,
    has_fields,
    list_rows,
    read_lines,
    read_records,
    validate,
)
from posir_tasks.data.formats.wikipedia import (
    is_natural_questions,
    is_tydi,
    read_natural_questions,
    read_tydi,
)
from posir_tasks.data.markers import is_token, states_no_answer

#: Split of a dataset on the Hub that is read.
HUB_SPLIT = "train"
#: Columns that may hold the text, in order of preference.
TEXT_COLUMNS = ("text", "content", "contents", "body", "document", "passage")
ID_COLUMNS = ("_id", "id")
PLAIN_TEXT, JSON_LINES, PARQUET = (
    (".txt", ".md", ".markdown", ".text"),
    (".jsonl", ".ndjson", ".json"),
    (".parquet",),
)
#: Of published datasets with a question per line or row; a `.json` may be one line.
TABLES, ROWS = (".csv", ".tsv"), (".jsonl", *PARQUET)


def read_text_table(file: Path, name: str, options: ReadOptions) -> Iterator[Item]:
    """Yield the text of every row of a file of comma-, semicolon- or tab-separated values, or why
    it has none.
    """
    frame = read_delimited(file)
    # A column of numbers is no text.
    columns = {
        key: frame[key].cast(pl.Float64, strict=False).null_count() > frame[key].null_count()
        for key in frame.columns
    }
    field = find_text_column(columns, options)
    if field is None:
        yield _without_text(name, name, columns)
        return
    chosen = replace(options, column=field)
    for number, row in enumerate(frame.iter_rows(named=True), start=1):
        yield read_text_row(
            row | {field: row[field] or ""}, name, f"row {number}", f"{name}:{number}", chosen
        )


def read_text_lines(file: Path, name: str, options: ReadOptions) -> Iterator[Item]:
    """Yield the text of every line of JSON Lines, or why it has none."""
    for number, line in read_lines(file, f"{name}:"):
        if isinstance(line, SkippedText):
            yield line
            continue
        try:
            row = parse_json(line, f"{name}:{number}")
        except GateError as error:
            yield SkippedText(f"{name}:{number}", "not a JSON object", error.problem, name)
            continue
        yield read_text_row(row, name, f"line {number}", f"{name}:{number}", options)


def read_text_rows(file: Path, name: str, options: ReadOptions) -> Iterator[Item]:
    """Yield the text of every row of a Parquet file, or why it has none."""
    try:
        schema = read_column_types(file)
        field = find_text_column({key: kind == pl.String for key, kind in schema.items()}, options)
        if field is None:
            yield _without_text(name, name, schema)
            return
        frame = read_table(
            file,
            list(dict.fromkeys([*(key for key in _id_columns(options) if key in schema), field])),
        )
    except LimitError:
        raise
    except DataError as error:
        yield SkippedText(name, "not Parquet", str(error), name)
        return
    for number, row in enumerate(frame.iter_rows(named=True), start=1):
        yield read_text_row(row, name, f"row {number}", f"{name}:{number}", options)


def read_text_row(row: object, file: str, where: str, name: str, options: ReadOptions) -> Item:
    """Return the text of a row, a mapping at a place of a file, or why it has none; `name` is its
    file and number.
    """
    if not isinstance(row, Mapping):
        return SkippedText(name, "not a JSON object", file=file)
    field = find_text_column({key: isinstance(value, str) for key, value in row.items()}, options)
    if field is None:
        return _without_text(name, file, row)
    identifier = next(
        (row[key] for key in _id_columns(options) if row.get(key) not in (None, "")), None
    )
    if not isinstance(identifier, str | int | None):
        return SkippedText(name, "with an id that is neither text nor an integer", file=file)
    text = str(row[field]).encode("utf-8", "replace").decode()
    own = None if identifier is None else str(identifier)
    return (
        Passage(file, where, text, id=own)
        if text.strip()
        else SkippedText(name, "empty", file=file)
    )


def _without_text(name: str, file: str, columns: Iterable[object]) -> SkippedText:
    detail = (
        f"it has {sanitized(', '.join(map(str, columns)), 300)}; name one with --column, or "
        "text_field in `posir build`"
    )
    return SkippedText(name, "without a text column", detail, file)


def _id_columns(options: ReadOptions) -> tuple[str, ...]:
    return (options.id_column,) if options.id_column else ID_COLUMNS


def find_text_column(columns: Mapping[str, bool], options: ReadOptions) -> str | None:
    """Return the column with the text, given which columns hold text; None if there is none or it
    is not clear.
    """
    textual = [
        name for name, is_text in columns.items() if is_text and name not in _id_columns(options)
    ]
    if options.column is not None:
        return options.column if options.column in textual else None
    preferred = [name for name in TEXT_COLUMNS if name in textual]
    return preferred[0] if preferred else textual[0] if len(textual) == 1 else None


def _parse_integer(value: object) -> object:
    """Return the integer that a text or a number with nothing after its point states; anything else
    as it is.
    """
    if isinstance(value, str) and re.fullmatch(r"-?\d+", value.strip()):
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _list_stated(value: object) -> list[object]:
    """Return each of several answers: a list of objects or of pairs (start and text), an object of
    lists, or one object.
    """
    if isinstance(value, dict):
        columns = {name: item if isinstance(item, list) else [item] for name, item in value.items()}
        rows = zip_longest(*columns.values())
        objects = [
            {name: item for name, item in zip(columns, row, strict=True) if item is not None}
            for row in rows
        ]
        return [row for row in objects if row]
    values = value if isinstance(value, list) else [value]
    pairs = (
        {"answer_start": row[0], "text": row[1]} if isinstance(row, list) and len(row) == 2 else row
        for row in values
    )
    return [row for row in pairs if row is not None]


class _AnswerField(StrictRecord):
    text: Annotated[Text, Field(validation_alias=AliasChoices("text", "answer_text"))]
    answer_start: Annotated[int, BeforeValidator(_parse_integer)]


#: What the questions of CUAD's templates begin with (arXiv 2103.06268): each is about its contract
#: alone.
CUAD_TEMPLATE = "Highlight the parts (if any) of this contract"


class _AllAnswers(StrictRecord):
    answers: Annotated[list[_AnswerField], BeforeValidator(list_rows)]


def _list_all_answers(file: str, name: str, text: str, stated: object) -> Iterator[PassageQuestion]:
    """Yield a question for each answer, all of which count in CUAD; raise ValueError if there is
    none.
    """
    answers = validate(_AllAnswers, stated).answers
    if not answers or (isinstance(stated, Mapping) and states_no_answer(stated)):
        raise ValueError(UNANSWERABLE)
    yield from list_places(
        file, name, text, (StatedAnswer(answer.text, answer.answer_start) for answer in answers)
    )


class _AnswersField(StrictRecord):
    answers: _AnswerField


def _list_answers(stated: Mapping[str, Any]) -> list[StatedAnswer]:
    """Return the answers that a question lists; raise ValueError if there is none, or with what is
    wrong with the first.
    """
    rows, answers, problems = (
        _list_stated(stated.get("answers")),
        list[StatedAnswer](),
        list[ValueError](),
    )
    for row in rows:
        text = (row.get("text") or row.get("answer_text")) if isinstance(row, dict) else None
        try:
            # A mark may have no start.
            if isinstance(text, str) and is_token(text):
                answers.append(StatedAnswer(text))
            else:
                answer = validate(_AnswersField, {"answers": row}).answers
                answers.append(StatedAnswer(answer.text, answer.answer_start))
        except ValueError as error:
            problems.append(error)
    if problems and not answers:
        raise problems[0]
    if not answers:
        raise ValueError(UNANSWERABLE)
    return answers


class _Line(StrictRecord, extra="allow"):
    expected: ClassVar = (
        "one JSON object per line with 'context', 'question' and 'start' with 'end', 'answer' "
        "with 'start', or 'answer' alone; "
        "'id' and 'document' may name question and document"
    )

    context: Annotated[Text, Field(validation_alias=AliasChoices("context", "passage"))]
    question: Text | None = None
    title: Text | None = None
    document: Id | None = None
    id: Annotated[Id | None, Field(validation_alias=AliasChoices("id", "question_id"))] = None


class _LineAnswer(StrictRecord):
    answer: Text | None = None
    start: int | None = None
    end: int | None = None


def read_json_lines(file: Path) -> Iterator[Item]:
    """Yield the document of each line, or row of Parquet, with its question if it has one; raise
    DataError if it is wrong.
    """
    for place, line in read_records(file, _Line):
        if isinstance(line, SkippedText):
            yield line
        else:
            yield from _read_line(line, str(file), place)


def has_question_rows(file: Path) -> bool:
    """Return whether a Parquet file has columns of questions and their documents."""
    return has_fields(file, frozenset({"question", "context"}), frozenset({"question", "passage"}))


def read_row(row: object, file: str, place: str) -> Iterator[Item]:
    """Yield a row's document, with its question if it has one; raise DataError if it is not as a
    line is expected to be.
    """
    with error_context(file, place, _Line.expected):
        line = validate(_Line, row)
    yield from _read_line(line, file, place)


def _list_line_answers(stated: Mapping[str, Any]) -> list[StatedAnswer]:
    """Return the answers of a line, listed or in fields of its own; raise ValueError if there is
    none, or one is wrong.
    """
    if states_no_answer(stated):
        raise ValueError(UNANSWERABLE)
    answer = validate(_LineAnswer, stated)
    is_empty = "answers" in stated and answer.answer is None and answer.start is None
    if is_empty or _list_stated(stated.get("answers")):
        return _list_answers(stated)
    return [StatedAnswer(answer.answer, answer.start, answer.end)]


def _read_line(line: _Line, file: str, place: str) -> Iterator[Item]:
    name, questions, stated = line.id or place, list[PassageQuestion](), line.model_extra or {}
    try:
        if line.question is not None and line.question.startswith(CUAD_TEMPLATE):
            questions += _list_all_answers(file, name, line.question, stated)
        elif line.question is not None:
            # Checked here, since an invalid answer excludes this question only.
            first, *others = _list_line_answers(stated)
            questions.append(
                PassageQuestion(file, name, line.question, first, line.id, others=tuple(others))
            )
        elif any(stated.get(field) for field in ("answers", "answer", "end")):
            raise ValueError("has an answer but no 'question'")
    except ValueError as error:
        yield skip_question(file, name, str(error))
    ids = [line.id] if line.id else []
    yield Passage(file, place, line.context, questions, line.document, line.title or "", ids)


class _SquadQuestion(StrictRecord, extra="allow"):
    id: Id | None = None
    question: Text


class _Paragraph(StrictRecord):
    context: Text
    qas: list[Any]


class _Article(StrictRecord):
    title: Text | None = None
    paragraphs: list[Any]


SQUAD = (
    "SQuAD-format JSON, data > paragraphs > context and qas > id, question, answers > text, "
    "answer_start"
)
MALFORMED = "that are malformed"


@dataclass(frozen=True)
class _Section:
    """A paragraph of an article, with its questions by their number in it."""

    place: str
    title: str
    context: str
    questions: Mapping[int, _SquadQuestion]


def _read_sections(file: str, place: str, stated: object) -> Iterator[_Section | SkippedText]:
    """Yield the paragraphs of an article, and each article, paragraph or question that is
    malformed, for its reason.
    """
    try:
        article = validate(_Article, stated, place)
    except ValueError as error:
        yield SkippedText(f"{file}: {place}", MALFORMED, str(error), file)
        yield from _skip_questions(file, place, stated)
        return
    for row, part in enumerate(article.paragraphs):
        where, questions = f"{place}.paragraphs[{row}]", dict[int, _SquadQuestion]()
        try:
            paragraph = validate(_Paragraph, part, where)
        except ValueError as error:
            yield SkippedText(f"{file}: {where}", MALFORMED, str(error), file)
            yield from _skip_questions(file, where, {"paragraphs": [part]})
            continue
        for position, qa in enumerate(paragraph.qas):
            try:
                questions[position] = validate(_SquadQuestion, qa, f"{where}.qas[{position}]")
            except ValueError as error:
                yield skip_question(file, f"{where}.qas[{position}]", str(error))
        yield _Section(where, article.title or "", paragraph.context, questions)


def _skip_questions(file: str, place: str, article: object) -> Iterator[SkippedText]:
    """Yield each question that is lost with a malformed article or paragraph."""
    paragraphs = article.get("paragraphs") if isinstance(article, dict) else None
    for row, paragraph in enumerate(paragraphs if isinstance(paragraphs, list) else ()):
        questions = paragraph.get("qas") if isinstance(paragraph, dict) else None
        for position, _ in enumerate(questions if isinstance(questions, list) else ()):
            yield skip_question(
                file,
                f"{place}, question {position} of paragraph {row}",
                "its paragraph is malformed",
            )


def read_squad_json(file: Path) -> Iterator[Item]:
    """Yield contexts with questions, or rows, as `datasets` exports SQuAD: list, `data`, or lines;
    else raise DataError.
    """
    with error_context(file, "", SQUAD):
        content = _load(file)
        data = content.get("data") if isinstance(content, dict) else None
        rows = (
            data
            if isinstance(data, list)
            and data
            and isinstance(data[0], dict)
            and "context" in data[0]
            else []
        )
        articles = [] if rows else _list_articles(content, str(file))
    for number, row in enumerate(rows):
        yield from read_row(row, str(file), f"data[{number}]")
    for number, article in enumerate(articles):
        for section in _read_sections(str(file), f"data[{number}]", article):
            if isinstance(section, SkippedText):
                yield section
                continue
            place, questions = section.place, list[PassageQuestion]()
            for position, qa in section.questions.items():
                name = qa.id or f"{place}.qas[{position}]"
                try:
                    if qa.question.startswith(CUAD_TEMPLATE):
                        questions += _list_all_answers(str(file), name, qa.question, qa.model_extra)
                        continue
                    stated = qa.model_extra or {}
                    if states_no_answer(stated):
                        raise ValueError(UNANSWERABLE)
                    first, *others = _list_answers(stated)
                    questions.append(
                        PassageQuestion(
                            str(file), name, qa.question, first, qa.id, others=tuple(others)
                        )
                    )
                except ValueError as error:
                    yield skip_question(str(file), name, str(error))
            ids = [qa.id for qa in section.questions.values() if qa.id]
            yield Passage(
                str(file), place, section.context, questions, title=section.title, question_ids=ids
            )


def _list_articles(content: object, file: str) -> list[object]:
    """Return the articles of a file; raise ValueError if it is not of SQuAD's form, or none of them
    is.
    """
    articles = content.get("data") if isinstance(content, dict) else None
    seen = describe_fields(list_keys(content)).removesuffix(".")
    if not isinstance(articles, list) or not _has_paragraphs(articles):
        raise ValueError(f"its form is not recognized. {seen}")
    first: SkippedText | None = None
    for number, article in enumerate(articles):
        for section in _read_sections(file, f"data[{number}]", article):
            if isinstance(section, _Section):
                return articles
            first = first or section
    if first:
        raise ValueError(f"{first.detail}. {seen}")
    return articles


def _has_paragraphs(articles: Sequence[object]) -> bool:
    stated = [isinstance(article, dict) and "paragraphs" in article for article in articles]
    return any(stated) or not stated


def is_cuad(file: Path) -> bool:
    """Return whether a file of SQuAD-format JSON, or of lines or rows with questions, begins with a
    question of CUAD.
    """
    if split_suffix(file)[1] in PARQUET:
        return has_question_rows(file) and asks_about_contract(next(iterate_rows(file), None))
    with open_decompressed(file) as content:
        return CUAD_TEMPLATE.encode() in content.read(2**20)


def asks_about_contract(row: object) -> bool:
    """Return whether a row has a question of CUAD's templates."""
    return isinstance(row, dict) and str(row.get("question")).startswith(CUAD_TEMPLATE)


def read_questions(file: Path) -> Iterator[Item]:
    """Yield the documents of a file with their questions: SQuAD-format JSON, JSON Lines or
    Parquet.
    """
    return read_squad_json(file) if split_suffix(file)[1] == ".json" else read_json_lines(file)


def is_squad_json(file: Path) -> bool:
    """Return whether a file is meant to be SQuAD-format JSON: its first line is not one of a file
    of JSON Lines with texts.
    """
    with open_decompressed(file) as content:
        try:
            first = parse_json(next(iterate_lines(content, file), b""), file)
        except GateError:
            return True
    return not isinstance(first, dict) or bool({"data", "context"} & first.keys())


def _load(file: Path) -> object:
    """Return the content of a file of JSON, or of one JSON value per line; a list becomes the value
    of `data`.
    """
    content = decode(read_decompressed(file))
    try:
        value = parse_json(content, file)
    except GateError as error:
        if "Extra data" not in error.problem:
            raise
        value = [parse_json(line, file) for line in content.split("\n") if line.strip()]
    return {"data": value} if isinstance(value, list) else value


def _load_hub(reference: str, commit: str) -> Iterable[object]:
    from datasets import load_dataset

    name, _, configuration = reference.partition(":")
    try:
        rows: Iterable[object] = load_dataset(
            name, configuration or None, split=HUB_SPLIT, revision=commit
        )
    except Exception as error:  # pyarrow has errors of its own, too
        raise DataError(
            f"{reference}: split '{HUB_SPLIT}' cannot be loaded from the Hub "
            f"({summarize_error(error)}). Check the name and "
            "the revision, or give a file or folder."
        ) from error
    return rows


def find_hub_use(reference: str, commit: str) -> Use:
    """Return the texts of which the questions of a dataset on the Hub can be asked; raise DataError
    as `read_hub`.
    """
    return (
        Use.WITHIN
        if asks_about_contract(next(iter(_load_hub(reference, commit)), None))
        else Use.CORPUS
    )


def read_hub(reference: str, commit: str, options: ReadOptions) -> Iterator[Item]:
    """Yield the rows of a commit of `owner/name`, perhaps with `:configuration`; raise DataError if
    that fails.
    """
    source = f"{reference}@{commit}"
    for number, row in enumerate(_load_hub(reference, commit)):
        if options.column is None and isinstance(row, dict) and {"context", "passage"} & row.keys():
            yield from read_row(row, source, f"row {number}")
        else:
            yield read_text_row(row, source, f"row {number}", f"{source}: row {number}", options)


@dataclass(frozen=True)
class FileFormat:
    """A format of one file."""

    title: str
    suffixes: tuple[str, ...]
    read: Callable[[Path, str, ReadOptions], Iterator[Item]]
    """Yields the content of a file, given its path, its name for messages, and what the user
    says.
    """
    accepts: Callable[[Path], bool] = lambda _: True
    """Whether a file with one of the suffixes is in the format."""
    use: Use | None = None
    """Texts of which its questions can be asked; None if it has texts alone."""


#: In order of precedence: the first that accepts a file reads it; if the user names a column of
#: texts, the rows are texts.
FILE_FORMATS = (
    FileFormat(
        "TyDi QA",
        ROWS,
        lambda file, _, options: expect_skips(read_tydi([file], options)),
        is_tydi,
        Use.CORPUS,
    ),
    FileFormat(
        "Natural Questions",
        ROWS,
        lambda file, _, options: expect_skips(read_natural_questions([file], options)),
        is_natural_questions,
        Use.CORPUS,
    ),
    FileFormat(
        "RepLiQA",
        PARQUET,
        lambda file, _, options: expect_skips(read_repliqa(file, options)),
        is_repliqa,
        Use.CORPUS,
    ),
    FileFormat(
        "CUAD", (".json", *ROWS), lambda file, *_: read_questions(file), is_cuad, Use.WITHIN
    ),
    FileFormat(
        "SQuAD-format JSON",
        (".json",),
        lambda file, *_: read_squad_json(file),
        is_squad_json,
        Use.CORPUS,
    ),
    FileFormat(
        "JSON Lines with questions",
        JSON_LINES,
        lambda file, *_: read_json_lines(file),
        lambda file: has_fields(file, frozenset({"context"}), frozenset({"passage"})),
        Use.CORPUS,
    ),
    FileFormat(
        "Parquet with questions",
        PARQUET,
        lambda file, *_: read_json_lines(file),
        has_question_rows,
        Use.CORPUS,
    ),
    FileFormat("JSON Lines with texts", JSON_LINES, read_text_lines),
    FileFormat("Parquet with texts", PARQUET, read_text_rows),
    FileFormat("CSV with texts", TABLES, read_text_table),
    FileFormat("HTML", (".html", ".htm", ".xhtml"), read_html_file),
    FileFormat("PDF", (".pdf",), read_pdf_file),
    FileFormat("plain text or Markdown", ("", *PLAIN_TEXT), read_text_file),
)


def find_file_format(file: Path, options: ReadOptions) -> FileFormat | None:
    """Return the format of a file, None if it is none of ours; raise DataError if it cannot be
    read.
    """
    suffix = split_suffix(file)[1]
    formats = (format_ for format_ in FILE_FORMATS if suffix in format_.suffixes)
    with error_context(file, "", ", ".join(format_.title for format_ in FILE_FORMATS)):
        texts = options.column is not None
        return next((row for row in formats if not (texts and row.use) and row.accepts(file)), None)


def read_file(file: Path, name: str, options: ReadOptions) -> Iterator[Item]:
    """Yield the content of a file, or why it has none; raise DataError if it is not as its format
    is expected.
    """
    format_ = find_file_format(file, options)
    if format_ is not None:
        with error_context(file, "", format_.title):
            yield from format_.read(file, name, options)
        return
    with error_context(file, "", "text"), open_decompressed(file) as content:
        yield SkippedText(
            name,
            "binary" if is_binary(content.read(BINARY_BYTES)) else "of another kind",
            file=name,
        )
