"""The PosIR layout: `<language>/<domain>/{queries,corpus}.parquet` and `qrels/test.parquet`, in any folder.

Layout and fields: the dataset infgrad/PosIR-Benchmark-v1, described in Zeng et al. 2026 (arXiv 2601.08363).
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from datasets import Dataset
from polars._typing import PolarsDataType

from posir_tasks.errors import DataError, PosirError
from posir_tasks.evidence import Evidence
from posir_tasks.languages import CODE, PIVOT
from posir_tasks.sources.checks import CheckedTable, DataProblem, ProblemsError, raise_problems, read_valid_columns
from posir_tasks.sources.data import PositionData, count_tolerated
from posir_tasks.sources.pairing import ADVICE, LONG_RUN, compare_documents
from posir_tasks.sources.posir_rules import (
    CORPUS,
    QRELS,
    QUERIES,
    TITLE,
    PosirTables,
    check_not_empty,
    check_tables,
    tolerate_tables,
)
from posir_tasks.sources.repository import PARQUET, LocalRepository, Repository, folder_name

REPO_ID = "infgrad/PosIR-Benchmark-v1"
REVISION = "main"
#: The files of one language and domain.
FILES = ("corpus.parquet", "qrels/test.parquet", "queries.parquet")

#: Spans are clipped to this many characters, beyond any document, so that their sums do not overflow.
MAX_PLACE = 2**40


def domain_files(language: str, corpus_language: str, domain: str) -> list[str]:
    """Return the paths of the files of a domain: corpus, qrels and queries."""
    languages = (corpus_language, language, language)
    return [f"{code}/{domain}/{file}" for code, file in zip(languages, FILES, strict=True)]


def list_domains(repository: Repository, language: str) -> list[str]:
    """Return the domains of a language, sorted; hidden folders are unfinished imports and ignored."""
    folders = (path.split("/")[1] for path in repository.paths(language) if path.count("/") >= 2)
    return sorted({folder for folder in folders if not folder.startswith(".")})


@dataclass(frozen=True)
class DomainInspection:
    """The tables of a domain, and what is wrong with them."""

    tables: PosirTables
    problems: Sequence[DataProblem]
    warnings: Sequence[str] = ()
    """Warnings: valid, but possibly a mistake."""


def inspect_domain(repository: Repository, language: str, corpus_language: str, domain: str) -> DomainInspection:
    """Read the valid columns of a domain's tables, and find every problem with them: what `posir validate` refuses.

    Raises:
        DataError: The Hub cannot be reached.
    """
    tables, problems = _read_tables(repository, language, corpus_language, domain)
    problems += [*check_not_empty(tables), *check_tables(tables)]
    if problems or tables.same_language:
        return DomainInspection(tables, problems)
    return _inspect_pairing(tables, repository, language, corpus_language, domain)


def _read_tables(
    repository: Repository, language: str, corpus_language: str, domain: str
) -> tuple[PosirTables, list[DataProblem]]:
    """Return the valid columns of a domain's tables, and the problems with files and columns."""
    corpus, corpus_problems = _read_table(repository, f"{corpus_language}/{domain}/corpus.parquet", CORPUS)
    queries, query_problems = _read_table(repository, f"{language}/{domain}/queries.parquet", QUERIES, {TITLE: pl.String})
    qrels, qrels_problems = _read_table(repository, f"{language}/{domain}/qrels/test.parquet", QRELS)
    tables = PosirTables(corpus, queries, qrels, same_language=language == corpus_language)
    return tables, [*corpus_problems, *query_problems, *qrels_problems]


def _inspect_pairing(
    tables: PosirTables, repository: Repository, language: str, corpus_language: str, domain: str
) -> DomainInspection:
    """Check that documents of two languages with one id are translations; texts that are on the Hub are not downloaded."""
    own = _read_local(repository, f"{language}/{domain}/corpus.parquet", CORPUS)
    judged = _read_local(repository, f"{corpus_language}/{domain}/qrels/test.parquet", QRELS)
    agreement = compare_documents(_pair_documents(tables, own, judged))
    height, subset, warnings = tables.corpus.frame.height, f"{language}-{corpus_language}/{domain}", []
    if not own.is_empty() and own.height != height:
        warnings.append(f"{subset}: {own.height:,} documents in {language}, {height:,} in {corpus_language}")
    if agreement.is_mispaired:
        message = (
            f"names documents that are not translations of those of the same id in {tables.corpus.file}: {agreement}. {ADVICE}"
        )
        return DomainInspection(tables, [DataProblem(tables.qrels.file, "corpus-id", message)], warnings)
    run = agreement.mismatched_run
    if len(run) >= LONG_RUN:
        warnings.append(
            f"{subset}: {len(run)} consecutive documents, from {run[0]} to {run[-1]}, may not be translations of those of the "
            f"same id; {agreement}. {ADVICE}."
        )
    return DomainInspection(tables, [], warnings)


def _read_local(repository: Repository, path: str, columns: Mapping[str, PolarsDataType]) -> pl.DataFrame:
    """Return the rows of a file with valid columns on this machine, and no rows in place of any other."""
    if isinstance(repository, LocalRepository) and repository.locate(path).is_file():
        frame, problems = read_valid_columns(repository.locate(path), columns)
        if not problems:
            return frame
    return pl.DataFrame(schema=columns)


def read_corpus(repository: Repository, language: str, domain: str) -> pl.DataFrame:
    """Return the valid columns of a domain's corpus; raise DataError if it cannot be read or has an invalid column."""
    table, problems = _read_table(repository, f"{language}/{domain}/corpus.parquet", CORPUS)
    raise_problems(problems)
    return table.frame


def _pair_documents(tables: PosirTables, own: pl.DataFrame, judged: pl.DataFrame) -> pl.DataFrame:
    """Return the relevant documents as `compare_documents` takes them."""
    queries = tables.queries.frame.join(tables.positives, left_on="_id", right_on="query-id", maintain_order="left")
    first, questions = pl.col("pos_char_length").first(), pl.len()
    documents = queries.group_by("corpus-id", maintain_order=True).agg(first.alias("characters"), questions.alias("questions"))
    others = (
        judged.filter(pl.col("score") > 0).group_by("corpus-id").agg(pl.col("query-id").n_unique().alias("other_questions"))
    )
    return (
        documents.rename({"corpus-id": "id"})
        .join(tables.corpus.frame.rename({"_id": "id", "text": "other_text"}), on="id", maintain_order="left")
        .join(own.unique("_id", keep="first").rename({"_id": "id"}), on="id", how="left", maintain_order="left")
        .join(others.rename({"corpus-id": "id"}), on="id", how="left", maintain_order="left")
    )


def _read_table(
    repository: Repository,
    path: str,
    columns: Mapping[str, PolarsDataType],
    optional: Mapping[str, PolarsDataType] | None = None,
) -> tuple[CheckedTable, Sequence[DataProblem]]:
    """Return the valid columns of a file, and its problems."""
    try:
        file = repository.fetch(path)
    except ProblemsError as error:
        return CheckedTable(error.problems[0].file, pl.DataFrame()), error.problems
    frame, problems = read_valid_columns(file, columns, optional)
    return CheckedTable(str(file), frame), problems


def read_domain(repository: Repository, language: str, corpus_language: str, domain: str) -> PositionData:
    """Read one domain as the authors' code does, with every row that can be evaluated.

    Args:
        repository: Data in the PosIR layout.
        language: Language of queries, qrels and spans, such as `deu-Latn`.
        corpus_language: Language of the corpus; another one for cross-lingual retrieval, with the same document ids.
        domain: Name of the domain's folder.

    Raises:
        DataError: A file or column is missing or unreadable, documents of two languages are not translations of each other, or
            no query can be evaluated.
    """
    tables, problems = _read_tables(repository, language, corpus_language, domain)
    # The column is optional: of another type, it is none of the layout's.
    raise_problems([problem for problem in problems if problem.field != TITLE] + check_not_empty(tables))
    kept, tolerated = tolerate_tables(tables)
    subset = "-".join(dict.fromkeys((language, corpus_language))) + f"/{domain}"
    warnings = [f"{subset}: {rows.sentence}" for rows in tolerated]
    if kept.queries.frame.is_empty() or kept.corpus.frame.is_empty():
        advice = [] if kept.same_language else [f"{ADVICE}."]
        raise DataError("\n".join([f"{tables.queries.file}: no query can be evaluated.", *warnings, *advice]))
    if not kept.same_language:
        inspection = _inspect_pairing(kept, repository, language, corpus_language, domain)
        raise_problems(inspection.problems)
        warnings += inspection.warnings
    return PositionData(
        corpus=Dataset.from_polars(kept.corpus.frame.rename({"_id": "id"})),
        queries=Dataset.from_polars(kept.queries.frame.select(pl.col("_id").alias("id"), "text")),
        evidence=build_evidence(kept),
        revision=repository.revision(domain_files(language, corpus_language, domain)),
        tolerated=count_tolerated(tolerated),
        warnings=tuple(warnings),
    )


def build_evidence(tables: PosirTables) -> Evidence:
    """Return the evidence of the queries in tolerated tables."""
    queries = tables.queries.frame
    span = queries["pos_char_span"].list.sort().list
    titles: tuple[str, ...] = ()
    if TITLE in queries.columns:
        titles = tuple(queries.select(pl.col(TITLE).fill_null("").str.strip_chars().first().over("document"))[TITLE].to_list())
    return Evidence(
        query_ids=queries["_id"].to_list(),
        document_ids=queries["document"].to_list(),
        starts=span.get(0).clip(-MAX_PLACE, MAX_PLACE).to_numpy(),
        ends=span.get(1).clip(-MAX_PLACE, MAX_PLACE).to_numpy(),
        characters=queries["pos_char_length"].to_numpy(),
        tokens=queries["pos_token_length"].to_numpy(),
        clusters=titles,
    )


@dataclass(frozen=True)
class CustomFolder(LocalRepository):
    """A folder that holds the PosIR layout or a part of it: the domains of a language, or one domain."""

    language: str
    prefix: str = ""
    """The part of `<language>/<domain>` that the folder itself represents."""

    def paths(self, folder: str = "", suffixes: tuple[str, ...] = PARQUET) -> list[str]:
        """Return the paths of the files of some formats below a folder of the layout, sorted."""
        prefixed = [f"{self.prefix}/{path}" if self.prefix else path for path in super().paths(suffixes=suffixes)]
        return [path for path in prefixed if not folder or path.startswith(f"{folder}/")]

    def locate(self, path: str) -> Path:
        """Return where a file of the layout is, or would be."""
        return super().locate(path.removeprefix(f"{self.prefix}/"))


def open_folder(folder: Path, language: str) -> CustomFolder:
    """Open a folder in the PosIR layout (`<language>/<domain>/`), the folder of a language in it, or that of a domain.

    Raises:
        DataError: There is no such folder, or it holds another language.
    """
    root = Path(os.path.abspath(folder.expanduser()))  # noqa: PTH100 (a link keeps its name)
    if not root.is_dir():
        raise DataError(f"{root}: no such folder. Give a folder in the PosIR layout, or one domain of it.")
    if any((root / file).exists() for file in FILES):
        prefix, held = f"{language}/{root.name}", root.parent.name
    elif any(root.glob("*/queries.parquet")):
        prefix, held = language, root.name
    else:
        prefix, held = "", language
    if CODE.fullmatch(held) and held != language:
        raise DataError(f"{root}: holds the language {held}, not {language}.")
    return CustomFolder(root, language, prefix)


def require_domains(repository: Repository, language: str) -> list[str]:
    """Return the domains of a language in a repository in the PosIR layout.

    Raises:
        DataError: There are none, or the repository cannot be reached.
    """
    domains = list_domains(repository, language)
    if not domains:
        languages = {path.split("/")[0] for path in repository.paths() if path.count("/") >= 2}
        has = f"It has {', '.join(sorted(languages))}." if languages else "It has no data in the PosIR layout."
        files = ", ".join(FILES)
        raise DataError(f"{repository.location}: no {language} data; expected {language}/<domain>/ with {files}. {has}")
    return domains


@dataclass(frozen=True)
class SubsetKey:
    """Languages and domain of data that is loaded together; a cross-lingual corpus has another language than the queries."""

    language: str
    corpus_language: str
    domain: str

    def __str__(self) -> str:
        return "-".join(dict.fromkeys((self.language, self.corpus_language))) + f"/{self.domain}"


@dataclass(frozen=True)
class DataFolder:
    """A folder in the PosIR layout, or a part of it."""

    root: Path
    """The folder that holds `<language>/<domain>/`."""
    language: str | None = None
    """None for all languages."""
    domain: str | None = None

    def subset_keys(self) -> list[SubsetKey]:
        """Return each domain with its own corpus, then with the English corpus if the domain has one.

        Raises:
            DataError: There is no domain.
        """
        repository = LocalRepository(self.root)
        folders = sorted(path.name for path in self.root.iterdir() if path.is_dir() and not path.name.startswith("."))
        monolingual = [
            SubsetKey(language, language, domain)
            for language in ([self.language] if self.language else folders)
            for domain in ([self.domain] if self.domain else list_domains(repository, language))
        ]
        english = list_domains(repository, PIVOT.code)
        cross_lingual = [
            SubsetKey(key.language, PIVOT.code, key.domain)
            for key in monolingual
            if key.language != PIVOT.code and key.domain in english
        ]
        if not monolingual:
            raise DataError(f"{self.root}: no domain; expected <language>/<domain>/ with {', '.join(FILES)}.")
        return monolingual + cross_lingual


def resolve_folder(path: Path) -> DataFolder:
    """Find the root of a folder that is the data, the parent folder as in `POSIR_DATA`, one language, or one domain.

    Raises:
        PosirError: There is no such folder, or it is none of these.
    """
    if not path.is_dir():
        problem = "is a file; `posir import` converts other formats" if path.exists() else "no such folder"
        raise PosirError(f"{path}: {problem}. Give a folder in the PosIR layout, <language>/<domain>/.")
    layout = find_layout(path)
    if layout is None:
        raise PosirError(
            f"{path}: no data in the PosIR layout, <language>/<domain>/{{{','.join(FILES)}}}. Give the folder that holds the "
            "folders of the languages, or the folder of a language or a domain; `posir import` converts other formats."
        )
    return layout


def find_layout(path: Path) -> DataFolder | None:
    """Return what `resolve_folder` does, None if a folder has no data in the PosIR layout."""
    folder = Path(os.path.abspath(path))  # noqa: PTH100 (a link keeps its name)
    data = folder / folder_name(REPO_ID)
    if _holds(folder, "*/*/"):
        return DataFolder(folder)
    if _holds(data, "*/*/"):
        return DataFolder(data)
    if _holds(folder, "*/"):
        return DataFolder(folder.parent, folder.name)
    if _holds(folder, ""):
        return DataFolder(folder.parent.parent, folder.parent.name, folder.name)
    return None


def _holds(folder: Path, depth: str) -> bool:
    return any(file for name in FILES for file in folder.glob(depth + name))
