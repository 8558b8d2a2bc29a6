"""Evaluation sets of retrieval systems: AutoRAG, LlamaIndex and ragas.

They state which chunks are relevant to a question, and not where the evidence in a chunk is: they
have judgments. Where a golden set of LlamaIndex or ragas is in a folder with the documents that
its chunks were taken from, each chunk is located in its document and is the evidence.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path

from posir_tasks.base.digests import digest
from posir_tasks.base.files import split_suffix
from posir_tasks.base.table_files import read_delimited
from posir_tasks.base.untrusted import read_json
from posir_tasks.data.data import Judgments
from posir_tasks.data.formats.passages import (
    Cause,
    Claim,
    Claims,
    Item,
    Items,
    Passage,
    ReadOptions,
    SkippedText,
    StatedAnswer,
    add_claims,
    read_text,
    settle_claims,
    skip_question,
)
from posir_tasks.data.formats.records import (
    FieldError,
    Row,
    error_context,
    load_values,
    read_rows,
)
from posir_tasks.data.formats.shape import TABLES, has_marks, list_fields
from posir_tasks.text.locating import fold_breaks, locate_once
from posir_tasks.text.spans import UnlocatedError

AUTORAG = (
    "AutoRAG, qa.parquet with qid, query, retrieval_gt and corpus.parquet with doc_id, contents"
)
PAIRS = "an EmbeddingQAFinetuneDataset of LlamaIndex, with queries, corpus and relevant_docs"
GOLDEN = (
    "a golden set, a row per question with query and reference_contexts (LlamaIndex, in examples), "
    "user_input and reference_contexts, or question, contexts and ground_truth (ragas)"
)
#: Fields of golden sets: LlamaIndex's LabelledRagDataset, ragas from 0.2 on and before, DeepEval.
GOLDEN_MARKS = (
    "examples/ query reference_contexts|user_input reference_contexts|query reference_contexts|"
    "question contexts ground_truth|question contexts ground_truths|"
    "question context/ ground_truth|input context/ expected_output"
)
#: Fields of a row.
QUERY = "query|user_input|question|input"
CONTEXTS = "reference_contexts|contexts|context"
#: Tokens of a list of texts as it is written by Python.
OF_LISTS = {tokenize.STRING, tokenize.OP, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER}
#: What ragas writes before a context of a question about several.
HOP = re.compile(r"^<\d+-hop>\s*")


@dataclass
class JudgmentSet:
    """Texts, and questions with the ids of the texts that are relevant."""

    file: str
    """The file of the questions."""
    texts: dict[str, str] = field(default_factory=dict)
    queries: dict[str, str] = field(default_factory=dict)
    relevant: dict[str, list[str]] = field(default_factory=dict)

    def list_items(self) -> Items:
        """Yield the texts with the questions, of which no place is known."""
        claims = Claims()
        for name, query in self.queries.items():
            relevant = self.relevant.get(name, [])
            if not relevant:
                yield skip_question(self.file, name, Cause.NOT_RELEVANT)
            for document in dict.fromkeys(relevant):
                claim = Claim(self.file, name, query, _list_no_place)
                claims.setdefault(document, []).append(claim)
        documents = (read_text(self.file, name, text, name) for name, text in self.texts.items())
        yield from settle_claims(documents, claims, "the data")

    def list_judgments(self) -> Judgments:
        """Return the judgments; each relevant text has grade 1."""
        queries = {name: text for name, text in self.queries.items() if self.relevant.get(name)}
        grades = {name: dict.fromkeys(self.relevant[name], 1.0) for name in queries}
        return Judgments(queries, grades)


def _list_no_place(text: str) -> list[StatedAnswer | None]:  # noqa: ARG001
    return [None]


def read_autorag(folder: Path) -> JudgmentSet:
    """Read AutoRAG's `qa.parquet` and `corpus.parquet`, or `qa_test.parquet` and the like; of the
    lists in `retrieval_gt`, all ids are relevant.
    """
    data = JudgmentSet(str(folder))
    for place, row, file in _read_parts(folder, "corpus*.parquet"):
        with error_context(file, place, AUTORAG):
            _add(data.texts, row.identifier("doc_id"), row.text("contents"), "text")
    for place, row, file in _read_parts(folder, "qa*.parquet"):
        with error_context(file, place, AUTORAG):
            name = row.identifier("qid")
            _add(data.queries, name, row.text("query"), "question")
            if not row.has("retrieval_gt"):
                raise FieldError("'retrieval_gt' is missing")
            data.relevant[name] = [*_flatten(row.fields["retrieval_gt"])]
    return data


def _read_parts(folder: Path, pattern: str) -> Iterator[tuple[str, Row, Path]]:
    """Yield place, row and file of each record of all files, such as of several splits."""
    for file in sorted(folder.glob(pattern)):
        for place, row in _read_records(file, AUTORAG):
            yield place, row, file


def _add(texts: dict[str, str], name: str, text: str, noun: str) -> None:
    """Add a text by its id; raise ValueError if another one has the id."""
    if texts.setdefault(name, text) != text:
        raise ValueError(f"another {noun} has the id {name} too; ids must be unique")


def _flatten(value: object) -> Iterator[str]:
    """Yield the ids of a text, a list or a list of lists; none if they are empty."""
    if isinstance(value, list):
        for item in value:
            yield from _flatten(item)
    elif isinstance(value, str | int):
        if str(value):
            yield str(value)
    elif value is not None:
        raise FieldError("'retrieval_gt' must be a list of lists of ids")


def is_pairs(file: Path) -> bool:
    """Return whether a file is an EmbeddingQAFinetuneDataset of LlamaIndex."""
    return has_marks(list_fields(file), "queries/ corpus/|queries/ relevant_docs/|relevant_docs/")


def read_pairs(file: Path) -> JudgmentSet:
    """Read an EmbeddingQAFinetuneDataset of LlamaIndex."""
    data = JudgmentSet(str(file))
    with error_context(file, "", PAIRS):
        row = Row.of(read_json(file))
        data.queries = {key: item.text("value") for key, item in _list_values(row, "queries")}
        data.texts = {key: item.text("value") for key, item in _list_values(row, "corpus")}
        values = _list_values(row, "relevant_docs")
        data.relevant = {key: item.texts("value") for key, item in values}
    return data


def _list_values(row: Row, name: str) -> Iterator[tuple[str, Row]]:
    """Yield each id of an object, and its value as the only field of a row."""
    if not row.has(name):
        raise FieldError(f"'{name}' is missing")
    for key, value in Row.of(row.fields[name], name).fields.items():
        yield key, Row({"value": value}, f"{name}.{key}")


@dataclass(frozen=True)
class GoldenQuestion:
    """A question of a golden set."""

    file: str
    name: str
    text: str
    contexts: Mapping[str, str]
    """Texts of the relevant chunks by their ids, by default digests of them."""


def is_golden(file: Path) -> bool:
    """Return whether a file is a golden set of LlamaIndex or ragas."""
    return has_marks(list_fields(file), GOLDEN_MARKS)


def read_golden(file: Path) -> Iterator[GoldenQuestion]:
    """Yield the questions of a golden set; raise DataError if one is malformed."""
    for number, (place, row) in enumerate(_read_records(file, GOLDEN), start=1):
        with error_context(file, place, GOLDEN):
            name = row.identifier("id|qid", "") or f"q{number}"
            contexts = [HOP.sub("", text) for text in _read_texts(row, CONTEXTS)]
            ids = [digest(text).hex() for text in contexts]
            stated = "reference_context_ids|reference_node_id"
            if row.has(stated) and len(listed := _read_texts(row, stated)) == len(contexts):
                ids = listed
            by_id = {key: text for key, text in zip(ids, contexts, strict=True) if text.strip()}
            query = row.text(QUERY)
        yield GoldenQuestion(str(file), name, query, by_id)


def _read_records(file: Path, expected: str) -> Iterator[tuple[str, Row]]:
    """Yield place and row of each record: of a list, or a list in `examples`, or of a table."""
    suffix = split_suffix(file)[1]
    if suffix in TABLES:
        for number, fields in enumerate(read_delimited(file).iter_rows(named=True), start=1):
            yield f"row {number}", Row(fields)
    elif suffix == ".json":
        with error_context(file, "", expected):
            value = load_values(file)
            if isinstance(value, dict):
                value = value.get("examples", value)
            if isinstance(value, dict) and any(isinstance(item, str) for item in value.values()):
                # One row.
                value = [value]
            rows = Row({"examples": value}).rows("examples")
        yield from ((row.place, Row(row.fields)) for row in rows)
    else:
        for place, row in read_rows(file, expected):
            if isinstance(row, SkippedText):
                raise FieldError(f"{place} is {row.reason} ({row.detail})")
            yield place, row


def _read_texts(row: Row, names: str) -> list[str]:
    """Return a list of texts, none if it is null; a table has it as Python, NumPy or JSON."""
    present = next((name for name in names.split("|") if name in row.fields), names)
    value = row.fields.get(present, "")
    if value is None:
        return []
    if isinstance(value, str) and present in row.fields:
        return _parse_texts(value)
    return row.texts(names)


def _parse_texts(text: str) -> list[str]:
    """List the quoted texts of a list, between which NumPy writes no commas; any other text is
    one.
    """
    with suppress(tokenize.TokenError, SyntaxError, ValueError):
        tokens = [*tokenize.generate_tokens(StringIO(text).readline)]
        if {token.type for token in tokens} <= OF_LISTS:
            quoted = (token.string for token in tokens if token.type == tokenize.STRING)
            return [*map(ast.literal_eval, quoted)]
    return [text]


def read_golden_file(file: Path) -> JudgmentSet:
    """Read a golden set alone: its contexts are the texts."""
    data = JudgmentSet(str(file))
    with error_context(file, "", GOLDEN):
        for question in read_golden(file):
            _add(data.queries, question.name, question.text, "question")
            for name, text in question.contexts.items():
                _add(data.texts, name, text, "text")
            data.relevant[question.name] = [*question.contexts]
    return data


def place_golden(files: Iterable[Path], documents: Iterable[Item]) -> Items:
    """Yield documents with the questions of golden sets whose contexts are in them, and what is
    left out.
    """
    listed = [
        replace(item, id=item.id or item.name) if isinstance(item, Passage) else item
        for item in documents
    ]
    texts = {item.id or "": item.text for item in listed if isinstance(item, Passage)}
    folded = {name: fold_breaks(text) for name, text in texts.items()}
    claims = Claims()
    for file in files:
        for question in read_golden(file):
            placed = _place_contexts(question.contexts.values(), texts, folded)
            yield from add_claims(claims, str(file), question.name, question.text, placed)
    yield from settle_claims(listed, claims, "the folder")


def _place_contexts(
    contexts: Iterable[str], texts: Mapping[str, str], folded: Mapping[str, str]
) -> Iterator[tuple[str, StatedAnswer]]:
    """Yield document and place of each context; raise UnlocatedError if it is not in one document
    once.
    """
    for context in contexts:
        piece = fold_breaks(context)
        found = [name for name, text in folded.items() if piece in text]
        if len(found) != 1:
            where = f"in {len(found)} documents" if found else "in no document"
            raise UnlocatedError(f"its context is {where}")
        (document,) = found
        yield document, StatedAnswer.from_span(locate_once(context, texts[document]))


def list_items(read: Callable[[Path], JudgmentSet], path: Path, options: ReadOptions) -> Items:  # noqa: ARG001
    """Yield the texts of a set with its questions."""
    return read(path).list_items()


def list_judgments(
    read: Callable[[Path], JudgmentSet],
    path: Path,
    options: ReadOptions,  # noqa: ARG001
) -> Judgments:
    """Return the judgments of a set."""
    return read(path).list_judgments()
