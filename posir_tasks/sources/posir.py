"""Reader of the PosIR layout: `<language>/<domain>/{queries,corpus}.parquet` and `qrels/test.parquet`.

Layout and fields: the dataset infgrad/PosIR-Benchmark-v1, described in Zeng et al. 2026 (arXiv 2601.08363).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from datasets import Dataset
from polars._typing import PolarsDataType

from posir_tasks.evidence import Evidence
from posir_tasks.sources.checks import (
    Problem,
    ProblemsError,
    check_ids,
    check_rows,
    check_texts,
    raise_problems,
    read_valid_columns,
)
from posir_tasks.sources.data import PositionData
from posir_tasks.sources.repository import Repository

REPO_ID = "infgrad/PosIR-Benchmark-v1"
REVISION = "main"
#: What a folder of one language and domain holds.
FILES = ("corpus.parquet", "qrels/test.parquet", "queries.parquet")

#: More characters or tokens than any text has; what is beyond could not be added without an overflow.
LONGEST = 2**31 - 1

CORPUS: dict[str, PolarsDataType] = {"_id": pl.String, "text": pl.String}
QRELS: dict[str, PolarsDataType] = {"query-id": pl.String, "corpus-id": pl.String, "score": pl.Float64}
QUERIES: dict[str, PolarsDataType] = {
    "_id": pl.String,
    "text": pl.String,
    "pos_char_span": pl.List(pl.Int64),
    "pos_char_length": pl.Int64,
    "pos_token_length": pl.Int64,
}


@dataclass(frozen=True)
class PosirTables:
    """The three tables of one language and domain (the corpus possibly of another language), as read.

    A column that a file lacks or has of another kind is not there.
    """

    corpus: pl.DataFrame
    queries: pl.DataFrame
    qrels: pl.DataFrame
    corpus_file: str
    queries_file: str
    qrels_file: str
    same_language: bool
    """Whether the spans are of the corpus's own texts; a cross-lingual corpus is of another language."""

    @property
    def positives(self) -> pl.DataFrame:
        """The pairs of query and relevant document, each once."""
        return self.qrels.filter(pl.col("score") > 0).unique(["query-id", "corpus-id"], maintain_order=True)

    @property
    def complete(self) -> bool:
        """Whether every column is there."""
        return all(
            set(wanted) == set(frame.columns)
            for wanted, frame in ((CORPUS, self.corpus), (QUERIES, self.queries), (QRELS, self.qrels))
        )


def list_domains(repository: Repository, language: str) -> list[str]:
    """Return the domains that the data has for a language, sorted; a folder with a dot in front is being written."""
    folders = (path.split("/")[1] for path in repository.paths(language) if path.count("/") >= 2)
    return sorted({folder for folder in folders if not folder.startswith(".")})


def inspect_domain(
    repository: Repository, language: str, corpus_language: str, domain: str
) -> tuple[PosirTables, list[Problem]]:
    """Read the tables of a domain as far as they can be, and find everything that is wrong with them.

    Raises:
        DataError: The Hub cannot be reached.
    """
    corpus_file, corpus, of_corpus = _read(repository, f"{corpus_language}/{domain}/corpus.parquet", CORPUS)
    queries_file, queries, of_queries = _read(repository, f"{language}/{domain}/queries.parquet", QUERIES)
    qrels_file, qrels, of_qrels = _read(repository, f"{language}/{domain}/qrels/test.parquet", QRELS)
    tables = PosirTables(
        corpus=corpus,
        queries=queries,
        qrels=qrels,
        corpus_file=corpus_file,
        queries_file=queries_file,
        qrels_file=qrels_file,
        same_language=language == corpus_language,
    )
    return tables, [*of_corpus, *of_queries, *of_qrels, *check_tables(tables)]


def _read(
    repository: Repository, path: str, columns: Mapping[str, PolarsDataType]
) -> tuple[str, pl.DataFrame, Sequence[Problem]]:
    """Return a file's path, what can be read of it, and what is wrong with it."""
    try:
        file = repository.fetch(path)
    except ProblemsError as error:
        return error.problems[0].file, pl.DataFrame(), error.problems
    return str(file), *read_valid_columns(file, columns)


def check_tables(tables: PosirTables) -> list[Problem]:
    """Return everything that is wrong with the content of the tables."""
    found = [
        *_row_problems(tables.corpus, CORPUS, tables.corpus_file, "document"),
        *check_ids(tables.corpus, "_id", tables.corpus_file),
        *check_texts(tables.corpus, "text", tables.corpus_file),
        *_row_problems(tables.queries, QUERIES, tables.queries_file, "query"),
        *check_ids(tables.queries, "_id", tables.queries_file),
        *check_texts(tables.queries, "text", tables.queries_file),
        *_length_problems(tables.queries, tables.queries_file),
        *_span_problems(tables.queries, tables.queries_file),
        *_qrels_problems(tables.qrels, tables.qrels_file),
    ]
    if tables.complete:
        found += _pairing_problems(tables)
        if tables.same_language:
            found += _document_length_problems(tables)
    return found


def _row_problems(frame: pl.DataFrame, columns: Mapping[str, PolarsDataType], file: str, what: str) -> list[Problem]:
    lacks_all = frame.is_empty() and set(frame.columns) == set(columns)
    return [Problem(file, None, f"has no rows; at least one {what} is needed")] if lacks_all else []


def _length_problems(queries: pl.DataFrame, file: str) -> list[Problem]:
    return [
        problem
        for field in ("pos_char_length", "pos_token_length")
        for problem in check_rows(
            queries,
            ~pl.col(field).is_between(1, LONGEST),
            file=file,
            field=field,
            what=f"must be at least 1 and at most {LONGEST:,}",
        )
    ]


def _span_problems(queries: pl.DataFrame, file: str) -> list[Problem]:
    span, length, field = pl.col("pos_char_span"), pl.col("pos_char_length"), "pos_char_span"
    start, end = span.list.get(0, null_on_oob=True), span.list.get(1, null_on_oob=True)
    two = (span.list.len() == 2).fill_null(False) & start.is_not_null() & end.is_not_null()
    outside = (start < 0) | (end > length).fill_null(False)
    return [
        *check_rows(queries, ~two, file=file, field=field, what="must be two integers, start and end"),
        *check_rows(queries, two & (start == end), file=file, field=field, what="is empty; end must be after start"),
        *check_rows(queries, two & (start > end), file=file, field=field, what="is reversed; end must be after start"),
        *check_rows(
            queries,
            two & outside,
            file=file,
            field=field,
            what="is outside its document; 0 <= start < end <= pos_char_length",
        ),
    ]


def _qrels_problems(qrels: pl.DataFrame, file: str) -> list[Problem]:
    missing = [
        problem
        for field in QRELS
        for problem in check_rows(qrels, pl.col(field).is_null(), file=file, field=field, what="is missing")
    ]
    finite = pl.col("score").is_finite() | pl.col("score").is_null()
    return missing + check_rows(qrels, ~finite, file=file, field="score", what="is no number; 1 says relevant, 0 not")


def _pairing_problems(tables: PosirTables) -> list[Problem]:
    counts = tables.positives.group_by("query-id").len()
    queries = tables.queries.join(counts, left_on="_id", right_on="query-id", how="left", maintain_order="left")
    queries = queries.with_columns(pl.col("len").fill_null(0))
    asked = pl.col("query-id").is_in(tables.queries["_id"].implode())
    there = pl.col("corpus-id").is_in(tables.corpus["_id"].implode())
    return [
        *check_rows(
            queries,
            pl.col("len") == 0,
            file=tables.queries_file,
            field="_id",
            what=f"has no relevant document in {tables.qrels_file}; every query needs exactly one",
        ),
        *check_rows(
            queries,
            pl.col("len") > 1,
            file=tables.queries_file,
            field="_id",
            what=f"has several relevant documents in {tables.qrels_file}; every query needs exactly one",
        ),
        *check_rows(
            tables.qrels,
            ((pl.col("score") > 0) & asked & ~there).fill_null(False),
            file=tables.qrels_file,
            field="corpus-id",
            what=f"is not in {tables.corpus_file}",
        ),
    ]


def _document_length_problems(tables: PosirTables) -> list[Problem]:
    lengths = tables.corpus.select(pl.col("_id").alias("corpus-id"), pl.col("text").str.len_chars().alias("characters"))
    queries = tables.queries.join(
        tables.positives.unique("query-id", keep="first"), left_on="_id", right_on="query-id", how="left", maintain_order="left"
    ).join(lengths.unique("corpus-id", keep="first"), on="corpus-id", how="left", maintain_order="left")
    return check_rows(
        queries,
        (pl.col("pos_char_length") != pl.col("characters").cast(pl.Int64)).fill_null(False),
        file=tables.queries_file,
        field="pos_char_length",
        what=f"is not the length in characters of the relevant document in {tables.corpus_file}",
    )


def read_domain(repository: Repository, language: str, corpus_language: str, domain: str) -> PositionData:
    """Read and check one domain.

    Args:
        repository: In the PosIR layout.
        language: Of queries, qrels and spans, such as `deu-Latn`.
        corpus_language: Of the corpus; another one for cross-lingual retrieval, where document ids agree.
        domain: Folder of the domain.

    Raises:
        DataError: Something is wrong; all of it is named.
    """
    tables, problems = inspect_domain(repository, language, corpus_language, domain)
    raise_problems(problems)
    positives = tables.positives
    known = positives.join(tables.queries, left_on="query-id", right_on="_id", how="semi")
    queries = tables.queries.join(known, left_on="_id", right_on="query-id", how="left", maintain_order="left")
    span = queries["pos_char_span"].list
    return PositionData(
        corpus=Dataset.from_polars(tables.corpus.rename({"_id": "id"})),
        queries=Dataset.from_polars(queries.select(pl.col("_id").alias("id"), "text")),
        evidence=Evidence(
            query_ids=queries["_id"].to_list(),
            document_ids=queries["corpus-id"].to_list(),
            starts=span.get(0).to_numpy(),
            ends=span.get(1).to_numpy(),
            characters=queries["pos_char_length"].to_numpy(),
            tokens=queries["pos_token_length"].to_numpy(),
        ),
        revision=repository.revision,
        dropped=positives["query-id"].n_unique() - known["query-id"].n_unique(),
    )
