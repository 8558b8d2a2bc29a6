"""Questions with the answers that a file states: SQuAD-format JSON, and JSON Lines or Parquet with
a question per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from posir_tasks.base.files import iterate_lines, open_decompressed, read_decompressed, split_suffix
from posir_tasks.base.untrusted import GateError, decode, parse_json
from posir_tasks.data.checks import iterate_rows
from posir_tasks.data.formats.passages import (
    UNANSWERABLE,
    Item,
    Passage,
    PassageQuestion,
    ReadOptions,
    SkippedText,
    StatedAnswer,
    list_places,
    skip_question,
)
from posir_tasks.data.formats.recognition import describe_fields, list_keys
from posir_tasks.data.formats.records import FieldError, Row, error_context, has_fields, read_rows
from posir_tasks.data.markers import is_token, states_no_answer

#: Beginning of the questions of CUAD's templates (arXiv 2103.06268): each is about its contract
#: alone, and all of its answers count.
CUAD_TEMPLATE = "Highlight the parts (if any) of this contract"
CONTEXT = "context|passage"
#: Columns of Parquet with questions and their documents.
QUESTION_COLUMNS = ("question context", "question passage")
SQUAD = (
    "SQuAD-format JSON, data > paragraphs > context and qas > id, question, answers > text, "
    "answer_start"
)
LINES = (
    "one JSON object per line with 'context', 'question' and 'start' with 'end', 'answer' with "
    "'start', or 'answer' alone; 'id' and 'document' may name question and document"
)
MALFORMED = "that are malformed"


def list_answers(row: Row) -> list[StatedAnswer]:
    """List the answers of a question, in `answers` or in fields of the row; raise ValueError if
    there is none, or with what is wrong with the first.
    """
    if states_no_answer(row.fields):
        raise ValueError(UNANSWERABLE)
    stated = _list_objects(row.fields.get("answers"))
    if not stated:
        text = row.text("answer") if row.has("answer") else None
        start = row.integer("start") if row.has("start") else None
        end = row.integer("end") if row.has("end") else None
        if "answers" in row.fields and text is None and start is None:
            raise ValueError(UNANSWERABLE)
        return [StatedAnswer(text, start, end)]
    answers = []
    problems = []
    for value in stated:
        try:
            answers.append(_read_answer(Row.of(value, "answers")))
        except ValueError as error:
            problems.append(error)
    if not answers:
        raise problems[0]
    return answers


def _read_answer(row: Row) -> StatedAnswer:
    text = row.text("text|answer_text")
    if is_token(text):
        # A mark may have no start.
        return StatedAnswer(text)
    return StatedAnswer(text, row.integer("answer_start"))


def _list_objects(value: object) -> list[Any]:
    """List each of several answers: a list of objects or of pairs (start and text), an object of
    lists, or one object.
    """
    if isinstance(value, dict):
        columns = {name: item if isinstance(item, list) else [item] for name, item in value.items()}
        rows = []
        for values in zip_longest(*columns.values()):
            cells = zip(columns, values, strict=True)
            rows.append({name: item for name, item in cells if item is not None})
        return [row for row in rows if row]
    answers = list[Any]()
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, list) and len(item) == 2:
            answers.append({"answer_start": item[0], "text": item[1]})
        elif item is not None:
            answers.append(item)
    return answers


def _list_questions(row: Row, file: str, name: str, identifier: str) -> list[PassageQuestion]:
    """List the question of a row, several for CUAD; raise ValueError if it cannot be used."""
    text = row.text("question")
    answers = list_answers(row)
    if text.startswith(CUAD_TEMPLATE):
        return list_places(file, name, text, answers)
    first, *others = answers
    return [PassageQuestion(file, name, text, first, identifier or None, others=tuple(others))]


def read_question_row(row: Row, file: str, place: str) -> Iterator[Item]:
    """Yield a row's document, with its question if it has one; raise DataError if its fields are
    malformed.
    """
    with error_context(file, place, LINES):
        context = row.text(CONTEXT)
        title = row.text("title", "")
        document = row.identifier("document", "")
        identifier = row.identifier("id|question_id", "")
        row.text("question", "")
    name = identifier or place
    questions = list[PassageQuestion]()
    try:
        if row.has("question"):
            questions = _list_questions(row, file, name, identifier)
        elif any(row.fields.get(field) for field in ("answers", "answer", "end")):
            raise ValueError("has an answer but no 'question'")
    except ValueError as error:
        yield skip_question(file, name, str(error))
    ids = [identifier] if identifier else []
    yield Passage(file, place, context, questions, document or None, title, ids)


def read_json_lines(file: Path, options: ReadOptions | None = None) -> Iterator[Item]:  # noqa: ARG001
    """Yield the document of each line, or row of Parquet, with its question if it has one."""
    for place, row in read_rows(file, LINES):
        if isinstance(row, SkippedText):
            yield row
        else:
            yield from read_question_row(row, str(file), place)


def read_squad_json(file: Path, options: ReadOptions | None = None) -> Iterator[Item]:  # noqa: ARG001
    """Yield contexts with questions, or rows, as `datasets` exports SQuAD: list, `data`, or lines.

    Raises:
        DataError: The file is in another form, or all of its articles are malformed.
    """
    with error_context(file, "", SQUAD):
        content = _load(file)
        data = content.get("data") if isinstance(content, dict) else None
        listed = data if isinstance(data, list) else []
        has_rows = bool(listed) and isinstance(listed[0], dict) and "context" in listed[0]
        articles = [] if has_rows else _read_articles(content, data, str(file))
    yield from articles
    for number, value in enumerate(listed if has_rows else ()):
        place = f"data[{number}]"
        with error_context(file, place, LINES):
            row = Row.of(value)
        yield from read_question_row(row, str(file), place)


def _load(file: Path) -> object:
    """Return a JSON value, or the values of lines; a list becomes the value of `data`."""
    content = decode(read_decompressed(file))
    try:
        value = parse_json(content, file)
    except GateError:
        lines = [line for line in content.split("\n") if line.strip()]
        if len(lines) < 2 or not _is_json(lines[0], file):
            raise
        value = [parse_json(line, file) for line in lines]
    return {"data": value} if isinstance(value, list) else value


def _is_json(line: str, file: Path) -> bool:
    try:
        parse_json(line, file)
    except GateError:
        return False
    return True


def _read_articles(content: object, articles: object, file: str) -> list[Item]:
    """Read the paragraphs of articles; raise ValueError if there is none."""
    is_article = [
        isinstance(article, dict) and "paragraphs" in article
        for article in (articles if isinstance(articles, list) else [None])
    ]
    seen = describe_fields(list_keys(content)).removesuffix(".")
    if not isinstance(articles, list) or not (any(is_article) or not articles):
        raise ValueError(f"its form is not recognized. {seen}")
    items = list[Item]()
    for number, article in enumerate(articles):
        items += _read_article(article, f"data[{number}]", file)
    if items and not any(isinstance(item, Passage) for item in items):
        raise ValueError(f"{items[0].detail}. {seen}")  # type: ignore[union-attr]
    return items


def _read_article(article: object, place: str, file: str) -> Iterator[Item]:
    try:
        row = Row.of(article, place)
        title = row.text("title", "")
        paragraphs = row.items("paragraphs")
    except FieldError as error:
        yield SkippedText(f"{file}: {place}", MALFORMED, str(error), file)
        parts = article.get("paragraphs") if isinstance(article, dict) else None
        for number, part in enumerate(parts if isinstance(parts, list) else ()):
            yield from _skip_questions(part, f"{place}.paragraphs[{number}]", file)
        return
    for number, part in enumerate(paragraphs):
        yield from _read_paragraph(part, title, f"{place}.paragraphs[{number}]", file)


def _read_paragraph(part: object, title: str, place: str, file: str) -> Iterator[Item]:
    try:
        row = Row.of(part, place)
        context = row.text("context")
        asked = row.items("qas")
    except FieldError as error:
        yield SkippedText(f"{file}: {place}", MALFORMED, str(error), file)
        yield from _skip_questions(part, place, file)
        return
    questions = list[PassageQuestion]()
    ids = []
    for number, value in enumerate(asked):
        name = f"{place}.qas[{number}]"
        try:
            question = Row.of(value)
            question.text("question")
            if identifier := question.identifier("id", ""):
                name = identifier
                ids.append(identifier)
            questions += _list_questions(question, file, name, identifier)
        except ValueError as error:
            yield skip_question(file, name, str(error))
    yield Passage(file, place, context, questions, title=title, question_ids=ids)


def _skip_questions(part: object, place: str, file: str) -> Iterator[SkippedText]:
    """Yield each question that is lost with its paragraph."""
    asked = part.get("qas") if isinstance(part, dict) else None
    for number in range(len(asked) if isinstance(asked, list) else 0):
        yield skip_question(file, f"{place}.qas[{number}]", "its paragraph is malformed")


def read_questions(file: Path, options: ReadOptions) -> Iterator[Item]:
    """Yield the documents of a file with their questions, as its suffix says."""
    read = read_squad_json if split_suffix(file)[1] == ".json" else read_json_lines
    return read(file, options)


def is_squad_json(file: Path) -> bool:
    """Return whether a file is meant to be SQuAD-format JSON: its first line is not one of JSON
    Lines with texts.
    """
    with open_decompressed(file) as content:
        try:
            first = parse_json(next(iterate_lines(content, file), b""), file)
        except GateError:
            return True
    return not isinstance(first, dict) or "data" in first or "context" in first


def is_question_file(file: Path) -> bool:
    """Return whether JSON Lines or Parquet have questions with their documents."""
    is_table = split_suffix(file)[1] == ".parquet"
    return has_fields(file, *(QUESTION_COLUMNS if is_table else ("context", "passage")))


def is_cuad(file: Path) -> bool:
    """Return whether a file with questions begins with one of CUAD."""
    if split_suffix(file)[1] == ".parquet":
        return is_question_file(file) and asks_about_contract(next(iterate_rows(file), None))
    with open_decompressed(file) as content:
        return CUAD_TEMPLATE.encode() in content.read(2**20)


def asks_about_contract(row: object) -> bool:
    """Return whether a row has a question of CUAD's templates."""
    return isinstance(row, Mapping) and str(row.get("question")).startswith(CUAD_TEMPLATE)
