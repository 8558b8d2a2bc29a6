"""Readers for MRQA and QASPER, whose rows contain a document with a list of questions.

MRQA: Fisch et al. 2019, arXiv 1910.09753. A file starts with a header. `char_spans` are pairs of
code points with an inclusive end; each occurrence of an answer is an evidence span. QASPER: Dasigi
et al. 2021, arXiv 2105.03011. The evidence is the union of the paragraphs that the annotators
selected. A paper consists of an abstract, headings and paragraphs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from posir_tasks.base.files import split_suffix
from posir_tasks.base.untrusted import read_json
from posir_tasks.data.formats.page_rows import require_answers
from posir_tasks.data.formats.passages import (
    Answer,
    Cause,
    Items,
    Passage,
    ReadOptions,
    SkippedItem,
    UnusableError,
    build_span_questions,
    skip_question,
)
from posir_tasks.data.formats.records import Row, convert_errors, has_fields, read_items
from posir_tasks.data.markers import is_flagged_unanswerable
from posir_tasks.text.locating import drop_space, locate_once
from posir_tasks.text.spans import UnlocatedError

MRQA = (
    "MRQA, a header, then one JSON object per line with context and qas > qid, question, "
    "detected_answers > text, char_spans"
)
MRQA_FIELDS = "context qas qid question detected_answers text char_spans"
QASPER = (
    "QASPER, an object of papers with title, abstract, full_text > paragraphs and qas > question, "
    "question_id, answers > answer > unanswerable, evidence"
)
QASPER_FIELDS = (
    "title abstract full_text paragraphs qas question question_id answers answer unanswerable "
    "evidence"
)
#: Separator between abstract, headings and paragraphs.
SEPARATOR = "\n\n"
#: Prefix of evidence that is a figure or table.
FIGURE = "FLOAT SELECTED"


def read_mrqa(file: Path, options: ReadOptions) -> Items:  # noqa: ARG001
    """Yield the contexts in an MRQA file with their questions."""
    return read_items(file, MRQA, partial(_read_mrqa_row, file=str(file)))


def _read_mrqa_row(row: Row, location: str, file: str) -> Items:
    if row.has("header"):
        return
    context = row.get_text("context")
    # On the Hub, a row contains one question.
    question_rows = [row] if row.has("detected_answers") else row.get_rows("qas")
    questions = []
    ids = []
    for number, question in enumerate(question_rows):
        name = f"{location}, question {number}"
        try:
            name = question.get_id("qid")
            ids.append(name)
            answers = dict.fromkeys(_list_mrqa_answers(question, context))
            questions += build_span_questions(file, name, question.get_text("question"), answers)
        except ValueError as error:
            yield skip_question(file, name, error)
    yield Passage(file, location, context, questions, question_ids=ids)


def _list_mrqa_answers(question: Row, context: str) -> Iterator[Answer]:
    """Yield every occurrence of every answer. Case and white space may differ."""
    answers = question.get_rows("detected_answers")
    if not answers or is_flagged_unanswerable(question.fields):
        raise UnusableError(Cause.UNANSWERABLE)
    for answer in answers:
        text = answer.get_text("text")
        for start, last in _list_inclusive(answer):
            quotation = context[start : last + 1]
            if _fold(quotation) == _fold(text):
                yield Answer.from_span((start, last + 1))
            else:
                yield Answer(text, start)


def _list_inclusive(answer: Row) -> list[tuple[int, int]]:
    if isinstance(answer.fields.get("char_spans"), dict):
        return [
            (row.get_integer("start"), row.get_integer("end"))
            for row in answer.get_rows("char_spans")
        ]
    pairs = enumerate(answer.get("char_spans", list))
    return [
        Row({"char_spans": pair}, f"[{number}]").get_span("char_spans") for number, pair in pairs
    ]


def _fold(text: str) -> str:
    return "".join(map(drop_space, text.casefold()))


def read_qasper(file: Path, options: ReadOptions) -> Items:  # noqa: ARG001
    """Yield papers with questions. The file is an object by paper id, or has a row per paper."""
    if split_suffix(file)[1] != ".json" or has_fields(file, "qas"):
        yield from read_items(file, QASPER, partial(_read_paper, file=str(file), paper=""))
        return
    with convert_errors(file, "", QASPER):
        papers = Row.parse(read_json(file)).fields
    for name, value in papers.items():
        with convert_errors(file, name, QASPER):
            yield from _read_paper(Row.parse(value), name, str(file), name)


def _read_paper(row: Row, location: str, file: str, paper: str) -> Items:
    paper = paper or row.get_id("id")
    pieces = [row.get_text("abstract")]
    for section in row.get_rows("full_text"):
        pieces += [section.get_text("section_name", ""), *section.get_texts("paragraphs")]
    text = SEPARATOR.join(filter(str.strip, pieces))
    title = row.get_text("title")
    questions = []
    for question in row.get_rows("qas"):
        name = question.get_id("question_id")
        try:
            evidence = [locate_once(paragraph, text) for paragraph in _list_paragraphs(question)]
            answers = map(Answer.from_span, dict.fromkeys(evidence))
            questions += build_span_questions(file, name, question.get_text("question"), answers)
        except (UnusableError, UnlocatedError) as error:
            yield skip_question(file, name, error)
    if not text:
        yield SkippedItem(f"{file}: {location}", "empty", file=file)
        return
    yield Passage(file, location, text, questions, paper, title)


def _list_paragraphs(question: Row) -> list[str]:
    """List the evidence paragraphs of all annotators; raise UnusableError if there are none."""
    annotations = question.get_rows("answers")
    answers = [row for row in annotations if not row.get("answer/unanswerable", bool)]
    require_answers(answers, len(annotations))
    evidence = [text for answer in answers for text in answer.get_texts("answer/evidence")]
    paragraphs = [
        text for text in dict.fromkeys(evidence) if text.strip() and not text.startswith(FIGURE)
    ]
    if not paragraphs:
        raise UnusableError(Cause.NOT_TEXT)
    return paragraphs
