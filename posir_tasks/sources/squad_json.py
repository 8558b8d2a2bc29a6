"""Import of SQuAD-format JSON (v1 and v2) into the PosIR layout."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from posir_tasks.errors import DataError, PosirError
from posir_tasks.languages import LANGUAGES
from posir_tasks.progress import progress
from posir_tasks.sources.checks import refuse
from posir_tasks.sources.posir import CORPUS, QRELS, QUERIES, PosirTables, problems_of

DOMAIN_NAME = re.compile(r"[a-z0-9][a-z0-9_]*")


@dataclass(frozen=True)
class LeftOut:
    """A question that was not imported."""

    file: str
    question_id: str
    why: str


@dataclass
class Imported:
    """What was found in the files."""

    documents: dict[str, str] = field(default_factory=dict)
    """Text to document id."""
    queries: list[dict[str, Any]] = field(default_factory=list)
    """Rows of `queries.parquet`, with the relevant document's id as `corpus-id`."""
    left_out: list[LeftOut] = field(default_factory=list)


@dataclass(frozen=True)
class Question:
    """A question as a file has it."""

    file: str
    id: str
    text: str
    answers: Sequence[Any]


def paragraphs(file: Path) -> Iterator[tuple[str, list[Question]]]:
    """Yield each context of a file with its questions.

    Raises:
        DataError: The file is not SQuAD-format JSON.
    """
    try:
        for article in json.loads(file.read_text(encoding="utf-8-sig"))["data"]:
            for paragraph in article["paragraphs"]:
                asked = [
                    Question(str(file), str(qa["id"]), text_of(qa, "question"), qa.get("answers") or ())
                    for qa in paragraph["qas"]
                ]
                yield text_of(paragraph, "context"), asked
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror}).") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(
            f"{file}: not SQuAD-format JSON ({type(error).__name__}: {error}). Wanted: data > paragraphs > context and "
            "qas > id, question, answers > text, answer_start."
        ) from error


def text_of(item: Mapping[str, Any], field: str) -> str:
    """Return a field that must be a text.

    Raises:
        TypeError: It is not a text.
        UnicodeEncodeError: It has half a surrogate pair, which is no character.
    """
    value = item[field]
    if not isinstance(value, str):
        raise TypeError(f"'{field}' must be a text and is {type(value).__name__}")
    value.encode("utf-8")
    return value


def first_span(question: Question, context: str) -> tuple[int, int]:
    """Return start and end of a question's first answer in its context.

    Raises:
        ValueError: There is no answer, or it does not stand where it says.
    """
    if not question.answers:
        raise ValueError("has no answer")
    try:
        text, start = question.answers[0]["text"], question.answers[0]["answer_start"]
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError("its answer lacks 'text' or 'answer_start'") from error
    if not (isinstance(text, str) and isinstance(start, int) and text):
        raise ValueError("its answer's 'text' must be a text and 'answer_start' an integer")
    if start < 0 or context[start : start + len(text)] != text:
        raise ValueError(f"its answer {_short(text)} does not stand at character {start}")
    return start, start + len(text)


def import_squad(
    files: Sequence[Path], *, language: str, domain: str, output: Path, count_tokens: Callable[[str], int]
) -> Imported:
    """Import files as one domain of a language into `output/<language>/<domain>/`, whole or not at all.

    Args:
        files: SQuAD-format JSON.
        language: Code such as `jpn-Jpan`.
        domain: Name of the domain's folder.
        output: Folder in the PosIR layout.
        count_tokens: Gives the length of a document in tokens.

    Raises:
        PosirError: Language or domain are not allowed, or the domain exists.
        DataError: A file is unreadable, or nothing in the files can be used.
    """
    folder = output / _allowed_language(language) / _allowed_domain(domain)
    if folder.exists():
        raise PosirError(f"{folder}: exists already. Remove it first, or choose another --domain or --output.")
    found = Imported()
    for file in progress(files, "Reading"):
        for context, asked in paragraphs(file):
            document = found.documents.setdefault(context, f"{domain}_{len(found.documents)}")
            for question in asked:
                _add_question(found, question, document, context)
    if not found.queries:
        raise DataError(f"{', '.join(map(str, files))}: no question with a usable answer; nothing was written.")
    lengths = {text: count_tokens(text) for text in progress(list(found.documents), "Counting tokens")}
    for query in found.queries:
        query["pos_token_length"] = lengths[query.pop("context")]
    write_domain(tables_of(found, folder), folder)
    return found


def _allowed_language(language: str) -> str:
    codes = [known.code for known in LANGUAGES]
    if language not in codes:
        raise PosirError(
            f"--language {language}: unknown. Known are {', '.join(codes)}; a new language is one row of "
            "posir_tasks/languages.py."
        )
    return language


def _allowed_domain(domain: str) -> str:
    if not DOMAIN_NAME.fullmatch(domain):
        raise PosirError(f"--domain {domain}: not allowed. A domain is a folder's name of a-z, 0-9 and _, such as news_media.")
    return domain


def _add_question(found: Imported, question: Question, document: str, context: str) -> None:
    try:
        start, end = first_span(question, context)
        if not question.text.strip():
            raise ValueError("its text is empty")
    except ValueError as problem:
        found.left_out.append(LeftOut(question.file, question.id, str(problem)))
        return
    key = "\0".join((document, question.id, question.text, str(start)))
    found.queries.append(
        {
            "_id": hashlib.blake2b(key.encode(), digest_size=16).hexdigest(),
            "text": question.text,
            "pos_char_span": [start, end],
            "pos_char_length": len(context),
            "context": context,
            "corpus-id": document,
        }
    )


def tables_of(found: Imported, folder: Path) -> PosirTables:
    """Return what was found as the tables of the PosIR layout; a question that occurs twice is kept once."""
    rows = pl.DataFrame(found.queries, schema_overrides={"pos_char_span": pl.List(pl.Int64)}).unique("_id", maintain_order=True)
    return PosirTables(
        corpus=pl.DataFrame({"_id": list(found.documents.values()), "text": list(found.documents)}, schema=CORPUS),
        queries=rows.select(list(QUERIES)).cast(QUERIES),  # type: ignore[arg-type]
        qrels=rows.select(pl.col("_id").alias("query-id"), "corpus-id", pl.lit(1.0).alias("score")).cast(QRELS),  # type: ignore[arg-type]
        corpus_file=str(folder / "corpus.parquet"),
        queries_file=str(folder / "queries.parquet"),
        qrels_file=str(folder / "qrels" / "test.parquet"),
        same_language=True,
    )


def write_domain(tables: PosirTables, folder: Path) -> None:
    """Write the tables of a domain into a new folder, whole or not at all.

    Raises:
        DataError: The loader would refuse the tables.
    """
    refuse(problems_of(tables))
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        (beside / "qrels").mkdir()
        tables.corpus.write_parquet(beside / "corpus.parquet")
        tables.queries.write_parquet(beside / "queries.parquet")
        tables.qrels.with_columns(pl.col("score").cast(pl.Int64)).write_parquet(beside / "qrels" / "test.parquet")
        beside.chmod(0o755)
        beside.rename(folder)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def _short(text: str) -> str:
    return repr(text if len(text) <= 30 else text[:29] + "…")
