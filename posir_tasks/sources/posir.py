"""Reader of the PosIR layout: `<language>/<domain>/{queries,corpus}.parquet` and `qrels/test.parquet`.

Layout and fields: the dataset infgrad/PosIR-Benchmark-v1, described in Zeng et al. 2026 (arXiv 2601.08363).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl
from datasets import Dataset
from polars._typing import PolarsDataType

from posir_tasks.evidence import Evidence
from posir_tasks.sources.checks import Problem, id_problems, read_columns, refuse, rows_where, text_problems
from posir_tasks.sources.data import PositionData
from posir_tasks.sources.repository import Repository

REPO_ID = "infgrad/PosIR-Benchmark-v1"
REVISION = "main"
#: What a folder of one language and domain holds.
FILES = ("corpus.parquet", "qrels/test.parquet", "queries.parquet")

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
    """The three tables of one language and domain (the corpus possibly of another language), as read."""

    corpus: pl.DataFrame
    queries: pl.DataFrame
    qrels: pl.DataFrame
    corpus_file: str
    queries_file: str
    qrels_file: str
    same_language: bool
    """Whether the spans are of the corpus's own texts; a cross-lingual corpus is of another language."""


def domains_of(repository: Repository, language: str) -> list[str]:
    """Return the domains that the data has for a language, sorted."""
    return sorted({path.split("/")[1] for path in repository.paths(language) if path.count("/") >= 2})


def read_tables(repository: Repository, language: str, corpus_language: str, domain: str) -> PosirTables:
    """Read the tables of a domain.

    Raises:
        DataError: A file is missing, corrupt or lacks a column.
    """
    corpus = repository.fetch(f"{corpus_language}/{domain}/corpus.parquet")
    queries = repository.fetch(f"{language}/{domain}/queries.parquet")
    qrels = repository.fetch(f"{language}/{domain}/qrels/test.parquet")
    return PosirTables(
        corpus=read_columns(corpus, CORPUS),
        queries=read_columns(queries, QUERIES),
        qrels=read_qrels(qrels),
        corpus_file=str(corpus),
        queries_file=str(queries),
        qrels_file=str(qrels),
        same_language=language == corpus_language,
    )


def read_qrels(file: Path) -> pl.DataFrame:
    """Read the pairs of query and relevant document, each once.

    Raises:
        DataError: The file is corrupt, lacks a column or has a row without a value.
    """
    qrels = read_columns(file, QRELS)
    refuse(
        problem
        for field in QRELS
        for problem in rows_where(qrels, pl.col(field).is_null(), file=str(file), field=field, what="is missing")
    )
    return qrels.filter(pl.col("score") > 0).unique(["query-id", "corpus-id"], maintain_order=True)


def problems_of(tables: PosirTables) -> list[Problem]:
    """Return everything that is wrong with the tables."""
    found = [
        *id_problems(tables.corpus, "_id", tables.corpus_file),
        *text_problems(tables.corpus, "text", tables.corpus_file),
        *id_problems(tables.queries, "_id", tables.queries_file),
        *text_problems(tables.queries, "text", tables.queries_file),
        *_span_problems(tables.queries, tables.queries_file),
        *_qrels_problems(tables),
    ]
    if tables.same_language and not found:
        found = _length_problems(tables)
    return found


def _span_problems(queries: pl.DataFrame, file: str) -> list[Problem]:
    span, length = pl.col("pos_char_span"), pl.col("pos_char_length")
    two = span.list.len() == 2
    start, end = span.list.get(0, null_on_oob=True), span.list.get(1, null_on_oob=True)
    field = "pos_char_span"
    return [
        *rows_where(queries, ~two, file=file, field=field, what="must be two integers, start and end"),
        *rows_where(queries, two & (start == end), file=file, field=field, what="is empty; end must be after start"),
        *rows_where(queries, two & (start > end), file=file, field=field, what="is reversed; end must be after start"),
        *rows_where(
            queries,
            two & ((start < 0) | (end > length)),
            file=file,
            field=field,
            what="is outside its document; 0 <= start < end <= pos_char_length",
        ),
        *rows_where(queries, length < 1, file=file, field="pos_char_length", what="must be at least 1"),
        *rows_where(queries, pl.col("pos_token_length") < 1, file=file, field="pos_token_length", what="must be at least 1"),
    ]


def _qrels_problems(tables: PosirTables) -> list[Problem]:
    positives = tables.qrels.filter(pl.col("query-id").is_in(tables.queries["_id"].implode()))
    counts = positives.group_by("query-id").len()
    queries = tables.queries.join(counts, left_on="_id", right_on="query-id", how="left", maintain_order="left")
    queries = queries.with_columns(pl.col("len").fill_null(0))
    return [
        *rows_where(
            queries,
            pl.col("len") == 0,
            file=tables.queries_file,
            field="_id",
            what=f"has no relevant document in {tables.qrels_file}; every query needs exactly one",
        ),
        *rows_where(
            queries,
            pl.col("len") > 1,
            file=tables.queries_file,
            field="_id",
            what=f"has several relevant documents in {tables.qrels_file}; every query needs exactly one",
        ),
        *rows_where(
            tables.qrels,
            pl.col("query-id").is_in(tables.queries["_id"].implode())
            & ~pl.col("corpus-id").is_in(tables.corpus["_id"].implode()),
            file=tables.qrels_file,
            field="corpus-id",
            what=f"is not in {tables.corpus_file}",
        ),
    ]


def _length_problems(tables: PosirTables) -> list[Problem]:
    lengths = tables.corpus.select(pl.col("_id").alias("corpus-id"), pl.col("text").str.len_chars().alias("characters"))
    queries = tables.queries.join(tables.qrels, left_on="_id", right_on="query-id", how="left", maintain_order="left")
    queries = queries.join(lengths, on="corpus-id", how="left", maintain_order="left")
    return rows_where(
        queries,
        pl.col("pos_char_length") != pl.col("characters").cast(pl.Int64),
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
    tables = read_tables(repository, language, corpus_language, domain)
    refuse(problems_of(tables))
    known = tables.qrels.join(tables.queries, left_on="query-id", right_on="_id", how="semi")
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
        dropped=tables.qrels["query-id"].n_unique() - known["query-id"].n_unique(),
    )
