"""Import of question answering data into the PosIR layout, whatever format it comes in.

A reader of a format yields passages with what is asked about them; here spans are checked, tokens counted, and a domain written
that the loader takes, whole or not at all.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from posir_build.spans import Span, StatedAnswer, repaired_span, stated_span
from posir_tasks.display.progress import progress
from posir_tasks.errors import DataError, PosirError, summarize_error
from posir_tasks.files import PART, remove_stale_parts
from posir_tasks.languages import LANGUAGES
from posir_tasks.sources.checks import EXAMPLES, refuse
from posir_tasks.sources.posir import CORPUS, QUERIES, PosirTables, problems_of

DOMAIN_NAME = re.compile(r"[a-z0-9][a-z0-9_]*")


@dataclass(frozen=True)
class Question:
    """A question as a file has it."""

    file: str
    name: str
    """What it is called in messages: its id, or where it stands."""
    text: str
    claim: StatedAnswer
    id: str | None = None
    """The id that its query keeps; None where one is to be made."""


@dataclass(frozen=True)
class Passage:
    """A document as a file has it, with what is asked about it."""

    file: str
    place: str
    """Where in the file, for messages."""
    text: str
    asked: Sequence[Question] = ()
    id: str | None = None
    """The id that it keeps; None where passages are told apart by their text and numbered."""
    title: str = ""
    """A title that is no part of `text`, in which spans count."""


@dataclass(frozen=True)
class SkippedQuestion:
    """A question that is not imported."""

    file: str
    question: str
    why: str

    def __str__(self) -> str:
        return f"{self.file}: question {self.question}: {self.why}"


@dataclass(frozen=True)
class RepairedSpan:
    """A question whose span was repaired."""

    file: str
    question: str
    claim: StatedAnswer
    """What the file states."""
    span: Span


@dataclass
class Imported:
    """What was found in the files."""

    documents: dict[str, str] = field(default_factory=dict)
    """Document id to text."""
    queries: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Query id to a row of `queries.parquet`, with the relevant document's id as `corpus-id`."""
    left_out: list[SkippedQuestion] = field(default_factory=list)
    """By file and in its order."""
    moved: list[RepairedSpan] = field(default_factory=list)
    titles: int = 0
    """Documents whose title was not imported."""


@dataclass(frozen=True)
class Target:
    """Where an import goes."""

    language: str
    """Code such as `jpn-Jpan`."""
    domain: str
    """Name of the domain's folder."""
    output: Path
    """Folder in the PosIR layout."""

    @property
    def folder(self) -> Path:
        """The domain's folder."""
        return self.output / self.language / self.domain

    def check(self) -> None:
        """Check that something may be written there.

        Raises:
            PosirError: Language or domain are not allowed, or the domain exists.
        """
        codes = [known.code for known in LANGUAGES]
        if self.language not in codes:
            raise PosirError(
                f"--language {self.language}: unknown. Known are {', '.join(codes)}; a new language is one row of "
                "posir_tasks/languages.py."
            )
        if not DOMAIN_NAME.fullmatch(self.domain):
            raise PosirError(
                f"--domain {self.domain}: not allowed. A domain is a folder's name of a-z, 0-9 and _, such as news_media."
            )
        if self.folder.exists():
            raise PosirError(f"{self.folder}: exists already. Remove it first, or choose another --domain or --output.")


def import_passages(
    found: Iterable[Passage | SkippedQuestion], target: Target, *, count_tokens: Callable[[str], int], repair: bool = False
) -> Imported:
    """Import passages as one domain of a language, whole or not at all.

    Args:
        found: What a reader yields.
        target: Where to.
        count_tokens: Gives the length of a document in tokens.
        repair: Move a span that does not fit to the one place nearby that does; see `repaired_span`.

    Raises:
        PosirError: The target is not allowed.
        DataError: A file is unreadable, or nothing in the files can be used.
    """
    target.check()
    imported = collected(found, target.domain, repair=repair)
    if not imported.queries:
        left_out = "".join(f"\n{one}" for one in imported.left_out[:EXAMPLES])
        raise DataError(f"There is no question with a usable answer; nothing was written.{left_out}")
    asked = list({query["corpus-id"] for query in imported.queries.values()})
    lengths = {name: count_tokens(imported.documents[name]) for name in progress(asked, "Counting tokens")}
    for query in imported.queries.values():
        query["pos_token_length"] = lengths[query["corpus-id"]]
    write_domain(tables_of(imported, target.folder), target.folder)
    return imported


def collected(found: Iterable[Passage | SkippedQuestion], domain: str, *, repair: bool) -> Imported:
    """Give every passage and question an id, and every question its span.

    Raises:
        DataError: A passage is blank, or two share an id.
    """
    imported = Imported()
    numbered: dict[str, str] = {}
    for one in found:
        if isinstance(one, SkippedQuestion):
            imported.left_out.append(one)
            continue
        where = f"{one.file}: {one.place}"
        if not one.text.strip():
            raise DataError(f"{where}: the text is empty; every document must have content.")
        document = one.id or numbered.setdefault(one.text, f"{domain}_{len(imported.documents)}")
        if imported.documents.setdefault(document, one.text) != one.text:
            raise DataError(f"{where}: the id {document!r} is that of another document too; ids must be unique.")
        imported.titles += bool(one.title.strip())
        for question in one.asked:
            try:
                _add(imported, question, document, repair=repair)
            except ValueError as why:
                imported.left_out.append(SkippedQuestion(question.file, question.name, str(why)))
    return imported


def _add(imported: Imported, question: Question, document: str, *, repair: bool) -> None:
    """Add a question about a document.

    Raises:
        ValueError: It is left out; the text says why.
        DataError: Its id is that of another question.
    """
    if not question.text.strip():
        raise ValueError("its text is empty")
    text = imported.documents[document]
    span, moved = _span(question.claim, text, repair=repair)
    key = "\0".join((document, question.name, question.text, str(span.start), str(span.end)))
    query: dict[str, Any] = {
        "_id": question.id or hashlib.blake2b(key.encode(), digest_size=16).hexdigest(),
        "text": question.text,
        "pos_char_span": [span.start, span.end],
        "pos_char_length": len(text),
        "corpus-id": document,
    }
    if imported.queries.setdefault(query["_id"], query) is not query:
        if imported.queries[query["_id"]] == query:
            raise ValueError("is there already, word for word")
        raise DataError(
            f"{question.file}: question {question.name}: the id is that of another question too; ids must be unique."
        )
    if moved:
        imported.moved.append(RepairedSpan(question.file, question.name, question.claim, span))


def _span(claim: StatedAnswer, document: str, *, repair: bool) -> tuple[Span, bool]:
    """Return an answer's span, and whether it was repaired."""
    try:
        return stated_span(claim, document), False
    except ValueError:
        if not repair or claim.start is None or not (claim.text and claim.text.strip()):
            raise
    return repaired_span(claim.text, claim.start, document), True


def tables_of(imported: Imported, folder: Path) -> PosirTables:
    """Return what was found as the tables of the PosIR layout."""
    rows = pl.DataFrame(list(imported.queries.values()), schema={**QUERIES, "corpus-id": pl.String})
    return PosirTables(
        corpus=pl.DataFrame({"_id": list(imported.documents), "text": list(imported.documents.values())}, schema=CORPUS),
        queries=rows.select(list(QUERIES)),
        qrels=rows.select(pl.col("_id").alias("query-id"), "corpus-id", pl.lit(1.0).alias("score")),
        corpus_file=str(folder / "corpus.parquet"),
        queries_file=str(folder / "queries.parquet"),
        qrels_file=str(folder / "qrels" / "test.parquet"),
        same_language=True,
    )


def write_domain(tables: PosirTables, folder: Path) -> None:
    """Write the tables of a domain into a new folder, whole or not at all.

    Raises:
        DataError: The loader would refuse the tables.
        PosirError: The folder cannot be written.
    """
    refuse(problems_of(tables))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        remove_stale_parts(folder.parent)
        beside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=PART))
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
    except (OSError, pl.exceptions.PolarsError) as error:
        raise PosirError(
            f"{folder}: cannot be written ({summarize_error(error)}). Make room, or choose another --output."
        ) from error
