"""Descriptions of data in no form that is read: its fields or first line, and the form that is
nearest to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from posir_tasks.base.errors import DataError
from posir_tasks.base.files import GZIP_ERRORS, find_files, open_decompressed, split_suffix
from posir_tasks.base.table_files import read_delimited
from posir_tasks.base.untrusted import GateError, parse_json, read_json
from posir_tasks.base.wording import sanitized
from posir_tasks.data.checks import read_column_types

#: Bytes of a line that are looked at, files of a folder, and fields that are listed.
MAX_LINE = 2**16
MAX_FILES = 8
MAX_FIELDS = 8
#: Fields that are compared with those of forms, and characters of each.
MAX_COMPARED = 64
MAX_NAME = 40
#: How alike two names are from which one may be meant by the other, as `difflib` counts it.
MIN_ALIKE = 0.8
READ_FORMS = (
    "Forms that are read: questions in SQuAD-format JSON, JSON Lines, Parquet or a BEIR folder; "
    "judgments in TREC qrels; "
    "texts in JSON Lines, Parquet, CSV, TSV, HTML, PDF or plain text; see docs/data.md."
)
AS_BEIR = (
    "Write corpus.jsonl (_id, text), queries.jsonl (_id, text) and qrels/test.tsv (query-id, "
    "corpus-id, score) from it."
)


@dataclass(frozen=True)
class DataForm:
    """A form of data, which is recognized by the names of its fields."""

    title: str
    fields: frozenset[str]
    advice: str
    """A sentence with what to do with data that is nearly in this form; empty if nothing."""


def _build_form(title: str, fields: str, advice: str) -> DataForm:
    return DataForm(title, frozenset(fields.split()), advice)


FORMS = (
    _build_form(
        "SQuAD-format JSON",
        "data version title paragraphs context qas id question answers answer_start text "
        "is_impossible",
        "It has data > paragraphs > context and qas > id, question, answers > text, answer_start.",
    ),
    _build_form(
        "JSON Lines or Parquet with questions",
        "context question answer answers start end id document title",
        "Each row has context, question and answer, and start if the answer occurs several times.",
    ),
    _build_form("texts", "_id id title text content contents body document passage", ""),
    _build_form("the corpus of a BEIR folder", "_id title text metadata", "Give its folder."),
    _build_form(
        "the qrels of a BEIR folder",
        "query-id corpus-id score",
        "Give the folder that has qrels/, not the file.",
    ),
    # Forms of others that are not read.
    _build_form(
        "AutoRAG's questions", "qid query retrieval_gt generation_gt", f"It is not read. {AS_BEIR}"
    ),
    _build_form(
        "AutoRAG's corpus",
        "doc_id contents path start_end_idx metadata",
        f"It is not read. {AS_BEIR}",
    ),
    _build_form(
        "a data set of ragas",
        "user_input retrieved_contexts reference_contexts reference response question contexts "
        "ground_truth",
        f"It is not read. {AS_BEIR}",
    ),
    _build_form(
        "training data of DPR",
        "dataset question answers positive_ctxs negative_ctxs hard_negative_ctxs ctxs",
        f"It is not read. {AS_BEIR}",
    ),
    _build_form(
        "HotpotQA or 2WikiMultihopQA",
        "_id question answer context supporting_facts type level evidences",
        f"It is not read. {AS_BEIR}",
    ),
)


def describe_fields(fields: Iterable[str], what: str = "fields") -> str:
    """Return sentences with the fields that data has, the nearest form, what to do, and the forms
    that are read.
    """
    stated = list(dict.fromkeys(fields))
    more = ", ..." if len(stated) > MAX_FIELDS else ""
    listed = ", ".join(sanitized(field) for field in stated[:MAX_FIELDS]) or "none"
    nearest = find_nearest_form(stated)
    said = f"The nearest form is {nearest.title}. {nearest.advice}".strip() if nearest else ""
    return " ".join(filter(None, [f"It has the {what} {listed}{more}.", said, READ_FORMS]))


def describe_form(path: Path) -> str:
    """Return sentences as `describe_fields` does, of a file by its columns, keys or first line, or
    of the files of a folder.
    """
    if path.is_dir():
        return _describe_folder(path)
    fields, what = list_fields(path)
    if fields:
        return describe_fields(fields, what)
    return f"Its first line is {_read_first_line(path)!r}. {READ_FORMS}"


def _describe_folder(folder: Path) -> str:
    files = [file for file in find_files(folder, "") if not file.name.startswith(".")]
    advice = list[str]()
    listed = list[str]()
    for file in files[:MAX_FILES]:
        nearest = find_nearest_form(list_fields(file)[0])
        listed.append(
            sanitized(file.name) + (f" (nearest form: {nearest.title})" if nearest else "")
        )
        advice += [nearest.advice] if nearest and nearest.advice else []
    more = ", ..." if len(files) > MAX_FILES else ""
    return " ".join(
        [f"It has {', '.join(listed) or 'no files'}{more}.", *dict.fromkeys(advice), READ_FORMS]
    )


def find_nearest_form(fields: Collection[str]) -> DataForm | None:
    """Return the form that shares most of its fields, by names that are alike; None if no form
    shares any.
    """
    shares = {form: _count_alike(fields, form) / len(form.fields | {*fields}) for form in FORMS}
    nearest = max(FORMS, key=shares.__getitem__)
    return nearest if shares[nearest] else None


def _count_alike(fields: Iterable[str], form: DataForm) -> int:
    names = [field[:MAX_NAME].lower() for field in islice(fields, MAX_COMPARED)]
    return sum(bool(get_close_matches(name, form.fields, 1, MIN_ALIKE)) for name in names)


def list_fields(file: Path) -> tuple[list[str], str]:
    """Return the columns of a table or the fields of the first object of JSON, and which these are;
    none if unreadable.
    """
    suffix = split_suffix(file)[1]
    try:
        if suffix == ".parquet":
            return [*read_column_types(file)], "columns"
        if suffix in (".csv", ".tsv"):
            return read_delimited(file).columns, "columns"
        if suffix in (".json", ".jsonl", ".ndjson"):
            return list_keys(_read_first_value(file)), "fields"
    except (DataError, OSError, *GZIP_ERRORS):
        # It is told where its rows are read.
        return [], ""
    return [], ""


def list_keys(value: object) -> list[str]:
    """Return the keys of an object, with those of the first of its list `data`; or of the first
    object of a list.
    """
    if isinstance(value, list):
        return list_keys(value[0]) if value else []
    if not isinstance(value, dict):
        return []
    nested = value.get("data")
    inner = list_keys(nested) if isinstance(nested, list) else []
    # A list that stands alone is read as the value of `data`.
    return inner if isinstance(nested, list) and len(value) == 1 else [*value, *inner]


def _read_first_value(file: Path) -> object:
    """Return the first line of JSON, or the whole file if that is no JSON value."""
    with open_decompressed(file) as content:
        line = content.readline(MAX_LINE)
    try:
        return parse_json(line, file)
    except GateError:
        return read_json(file)


def _read_first_line(file: Path) -> str:
    try:
        with open_decompressed(file) as content:
            lines = (line.strip() for line in content.read(MAX_LINE).splitlines())
            first = next(filter(None, lines), b"")
    except (OSError, *GZIP_ERRORS):
        return ""
    return sanitized(first.decode("utf-8", "replace"))
