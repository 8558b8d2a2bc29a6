"""Readers for SQuAD-format JSON, and for JSON Lines and Parquet with a question per row."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from posir_tasks.base.files import iterate_lines, open_decompressed, split_suffix
from posir_tasks.base.untrusted import InputError, parse_json
from posir_tasks.data.checks import iterate_rows
from posir_tasks.data.formats.passages import (
    Answer,
    Cause,
    Item,
    Items,
    Passage,
    PassageQuestion,
    ReadOptions,
    SkippedItem,
    UnusableError,
    build_span_questions,
    skip_question,
)
from posir_tasks.data.formats.records import (
    PARQUET,
    FieldError,
    Row,
    UnrecognizedError,
    convert_errors,
    has_fields,
    load_values,
    read_items,
)
from posir_tasks.data.markers import is_clear_marker, is_flagged_unanswerable

#: Prefix of CUAD questions (arXiv 2103.06268). All answers to such a question are evidence.
CUAD_TEMPLATE = "Highlight the parts (if any) of this contract"
CONTEXT = "context|passage"
#: Alternative columns of Parquet files with questions.
QUESTION_COLUMNS = ("question context", "question passage")
SQUAD = (
    "SQuAD-format JSON, data > paragraphs > context and qas > id, question, answers > text, "
    "answer_start"
)
LINES = (
    "one JSON object per line with 'context', 'question' and 'start' with 'end', 'answer' with "
    "'start', or only 'answer'; 'id' and 'document' are optional ids of question and document"
)
MALFORMED = "malformed"


def list_answers(row: Row) -> list[Answer]:
    """List the answers in `answers`, or else the answer in `answer`, `start` and `end`.

    Raises:
        UnusableError: The question has no answer.
        FieldError: All answers are malformed. The message describes the first problem.
    """
    if is_flagged_unanswerable(row.fields):
        raise UnusableError(Cause.UNANSWERABLE)
    objects = _list_objects(row.fields.get("answers"))
    if not objects:
        text = row.get_text("answer") if row.has("answer") else None
        start = row.get_integer("start") if row.has("start") else None
        end = row.get_integer("end") if row.has("end") else None
        if "answers" in row.fields and text is None and start is None:
            raise UnusableError(Cause.UNANSWERABLE)
        return [Answer(text, start, end)]
    answers = []
    problems = []
    for value in objects:
        try:
            answer_row = Row.parse(value, "answers")
            text = answer_row.get_text("text|answer_text")
            # The marker of a missing answer needs no start.
            start = None if is_clear_marker(text) else answer_row.get_integer("answer_start")
            answers.append(Answer(text, start))
        except ValueError as error:
            problems.append(error)
    if not answers:
        raise problems[0]
    return answers


def _list_objects(value: object) -> list[Any]:
    """Convert answers to a list of objects. The value may be a list of objects or (start, text)
    pairs, an object of lists, or an object.
    """
    if isinstance(value, dict):
        columns = [item if isinstance(item, list) else [item] for item in value.values()]
        rows = [dict(zip(value, cells, strict=True)) for cells in zip_longest(*columns)]
        return [row for row in rows if any(cell is not None for cell in row.values())]
    answers = list[Any]()
    for item in value if isinstance(value, list) else [value]:
        match item:
            case None:
                pass
            case [start, text]:
                answers.append({"answer_start": start, "text": text})
            case _:
                answers.append(item)
    return answers


def _list_questions(row: Row, file: str, name: str, identifier: str) -> list[PassageQuestion]:
    """Build the question of a row, or one per span for CUAD; raise ValueError if it is unusable."""
    text = row.get_text("question")
    answers = list_answers(row)
    if text.startswith(CUAD_TEMPLATE):
        return build_span_questions(file, name, text, answers)
    return [PassageQuestion(file, name, text, tuple(answers), identifier or None)]


def read_question_row(row: Row, location: str, file: str, column: str = CONTEXT) -> Items:
    """Yield the document of a row with its question, if any; raise FieldError if malformed."""
    context = row.get_text(column)
    title = row.get_text("title", "")
    document = row.get_id("document", "")
    identifier = row.get_id("id|question_id", "")
    row.get_text("question", "")
    name = identifier or location
    questions = []
    try:
        if row.has("question"):
            questions = _list_questions(row, file, name, identifier)
        elif any(row.fields.get(field) for field in ("answers", "answer", "end")):
            raise FieldError("has an answer but no 'question'")
    except ValueError as error:
        yield skip_question(file, name, error)
    ids = [identifier] if identifier else []
    yield Passage(file, location, context, questions, document or None, title, ids)


def read_json_lines(file: Path, options: ReadOptions | None = None) -> Items:
    """Yield the document in each row of JSON Lines or Parquet with its question, if any."""
    column = (options.column if options else None) or CONTEXT
    return read_items(file, LINES, partial(read_question_row, file=str(file), column=column))


def has_questions_on(file: Path, column: str) -> bool:
    """Return True for a JSON Lines or Parquet file with questions about the texts in a column."""
    fields = ("question", "answer", "answers", "start")
    names = [f"{column} question {field}" for field in fields[1:]]
    return column not in fields and has_fields(file, *names)


def read_squad_json(file: Path, options: ReadOptions | None = None) -> Items:  # noqa: ARG001
    """Yield contexts with questions. The file contains articles, or rows exported by `datasets`.

    Raises:
        UnrecognizedError: The file has another layout, or all articles are malformed.
        DataError: The file cannot be read.
    """
    with convert_errors(file, "", SQUAD):
        content = load_values(file)
    articles = content.get("data") if isinstance(content, dict) else content
    values = articles if isinstance(articles, list) else []
    if values and isinstance(values[0], dict) and "context" in values[0]:
        for number, value in enumerate(values):
            location = f"data[{number}]"
            with convert_errors(file, location, LINES):
                yield from read_question_row(Row.parse(value), location, str(file))
        return
    has_article = any(isinstance(article, dict) and "paragraphs" in article for article in values)
    items = list[Item]()
    for number, article in enumerate(values if has_article else ()):
        items += _read_article(article, f"data[{number}]", str(file))
    if articles != [] and not any(isinstance(item, Passage) for item in items):
        details = [item.detail for item in items if isinstance(item, SkippedItem)]
        problem = details[0] if details else "its layout is not recognized"
        raise UnrecognizedError(f"{file}: {problem}. Expected: {SQUAD}.")
    yield from items


def _read_article(article: object, location: str, file: str) -> Items:
    try:
        row = Row.parse(article, location)
        title = row.get_text("title", "")
        paragraphs = row.get("paragraphs", list)
    except FieldError as error:
        yield SkippedItem(f"{file}: {location}", MALFORMED, str(error), file)
        paragraphs = article.get("paragraphs") if isinstance(article, dict) else None
        for number, paragraph in enumerate(paragraphs if isinstance(paragraphs, list) else ()):
            yield from _skip_questions(paragraph, f"{location}.paragraphs[{number}]", file)
        return
    for number, paragraph in enumerate(paragraphs):
        yield from _read_paragraph(paragraph, title, f"{location}.paragraphs[{number}]", file)


def _read_paragraph(paragraph: object, title: str, location: str, file: str) -> Items:
    try:
        row = Row.parse(paragraph, location)
        context = row.get_text("context")
        values = row.get("qas", list)
    except FieldError as error:
        yield SkippedItem(f"{file}: {location}", MALFORMED, str(error), file)
        yield from _skip_questions(paragraph, location, file)
        return
    questions = []
    ids = []
    for number, value in enumerate(values):
        name = f"{location}.qas[{number}]"
        try:
            question = Row.parse(value)
            question.get_text("question")
            if identifier := question.get_id("id", ""):
                name = identifier
                ids.append(identifier)
            questions += _list_questions(question, file, name, identifier)
        except ValueError as error:
            yield skip_question(file, name, error)
    yield Passage(file, location, context, questions, title=title, question_ids=ids)


def _skip_questions(paragraph: object, location: str, file: str) -> Iterator[SkippedItem]:
    values = paragraph.get("qas") if isinstance(paragraph, dict) else None
    for number in range(len(values) if isinstance(values, list) else 0):
        yield skip_question(file, f"{location}.qas[{number}]", Cause.MALFORMED)


def read_questions(file: Path, options: ReadOptions) -> Items:
    """Yield the documents in a SQuAD-format, JSON Lines or Parquet file with their questions."""
    read = read_squad_json if split_suffix(file)[1] == ".json" else read_json_lines
    return read(file, options)


def is_squad_json(file: Path) -> bool:
    """Return False if the first line is a JSON Lines row without `context`."""
    with open_decompressed(file) as content:
        try:
            value = parse_json(next(iterate_lines(content, file), b""), file)
        except InputError:
            return True
    return not isinstance(value, dict) or "data" in value or "context" in value


def is_question_file(file: Path) -> bool:
    """Return True for JSON Lines with contexts, or Parquet with questions and contexts."""
    is_table = split_suffix(file)[1] in PARQUET
    return has_fields(file, *(QUESTION_COLUMNS if is_table else ("context", "passage")))


def is_cuad(file: Path) -> bool:
    """Return True if the first questions of a file are from CUAD."""
    if split_suffix(file)[1] in PARQUET:
        if not is_question_file(file):
            return False
        question = next(iterate_rows(file), {}).get("question")
        return str(question).startswith(CUAD_TEMPLATE)
    with open_decompressed(file) as content:
        return CUAD_TEMPLATE.encode() in content.read(2**20)
