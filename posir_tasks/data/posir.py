"""Read and write the PosIR layout: `<language>/<domain>/{queries,corpus}.parquet` and
`qrels/test.parquet`.

The layout and fields are those of infgrad/PosIR-Benchmark-v1 (Zeng et al. 2026, arXiv 2601.08363).
"""

import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from posir_tasks.base.errors import DataError, PosirError, summarize_error
from posir_tasks.base.files import MAX_PART_STEM, PART_SUFFIX, follow_links, remove_stale_parts
from posir_tasks.base.wording import sanitize
from posir_tasks.data.checks import (
    NO_COLUMNS,
    CheckedTable,
    DataProblem,
    ProblemsError,
    Schema,
    count_tolerated,
    raise_problems,
    read_column_types,
    read_valid_columns,
)
from posir_tasks.data.copies import count_repeated, count_repeated_texts, find_copies
from posir_tasks.data.data import PositionData
from posir_tasks.data.declared import REPO_ID
from posir_tasks.data.grades import read_grade
from posir_tasks.data.pairing import ADVICE, LONG_RUN, compare_documents
from posir_tasks.data.posir_rules import (
    CORPUS,
    PLACES,
    QRELS,
    QUERIES,
    TITLE,
    PosirTables,
    check_not_empty,
    check_places,
    check_tables,
    list_warnings,
    tolerate_tables,
)
from posir_tasks.data.repository import LocalRepository, Repository, get_folder_name
from posir_tasks.text.languages import CODE, PIVOT, check_code
from posir_tasks.values.evidence import Evidence, Place

#: Files of one language and domain.
FILES = ("corpus.parquet", "qrels/test.parquet", "queries.parquet")
LAYOUT = f"<language>/<domain>/{{{','.join(FILES)}}}"
#: Optional file for queries with several evidence spans.
PLACES_FILE = "places.parquet"
#: Optional columns of queries.
TITLES: Schema = {TITLE: pl.String}
#: Maximum span bound in characters. Clipping avoids overflow in sums.
MAX_BOUND = 2**40
#: File systems limit names to 255 bytes; temporary names add affixes.
DOMAIN_NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,99}")
DOMAIN_RULE = "a folder name of at most 100 characters from a-z, 0-9 and _, such as news_media"


@dataclass(frozen=True, order=True)
class SubsetKey:
    """Languages and domain of a subset."""

    language: str
    corpus_language: str
    domain: str

    @property
    def files(self) -> list[str]:
        """Paths of corpus, qrels and queries."""
        languages = (self.corpus_language, self.language, self.language)
        return [f"{code}/{self.domain}/{file}" for code, file in zip(languages, FILES, strict=True)]

    @property
    def places(self) -> str:
        """Path of the optional file with queries that have several evidence spans."""
        return f"{self.language}/{self.domain}/{PLACES_FILE}"

    def __str__(self) -> str:
        return "-".join(dict.fromkeys((self.language, self.corpus_language))) + f"/{self.domain}"


def list_present_files(repository: Repository, keys: Iterable[SubsetKey]) -> list[str]:
    """List the files of the given domains, including the optional files of a local folder."""
    paths = []
    for key in keys:
        paths += key.files
        if isinstance(repository, LocalRepository) and repository.locate(key.places).is_file():
            paths.append(key.places)
    return paths


def list_domains(repository: Repository, language: str) -> list[str]:
    """List the domains of a language, sorted. Hidden folders are unfinished imports."""
    folders = (
        path.split("/")[1] for path in repository.list_paths(language) if path.count("/") >= 2
    )
    return sorted({folder for folder in folders if not folder.startswith(".")})


def inspect_domain(repository: Repository, key: SubsetKey) -> tuple[list[DataProblem], list[str]]:
    """Return the problems and warnings of a domain; raise DataError if the Hub is unreachable."""
    tables, problems = _read_tables(repository, key)
    if tables.same_language and key.language != PIVOT.code:
        originals = _read_local(repository, f"{PIVOT.code}/{key.domain}/{FILES[0]}", CORPUS)
        tables = replace(tables, originals=originals if originals.height else None)
    problems += check_tables(tables)
    if not problems and not tables.same_language:
        return _inspect_pairing(tables, repository, key)
    warnings = list_warnings(tables)
    if tables.complete and "corpus-id" in tables.places.frame.columns:
        documents = tables.corpus.frame.select("text", id="_id")
        relevant = [*tables.positives["corpus-id"], *tables.places.frame["corpus-id"]]
        pairs = _join_positives(tables).drop_nulls("text").select("text", "corpus-id")
        repeated_warning = count_repeated_texts(pairs.iter_rows(), documents).warning
        copies = find_copies(documents, relevant)
        warnings += [copies.describe()] if copies else []
        warnings += [repeated_warning] if repeated_warning else []
    return problems, [f"{key}: {sentence}" for sentence in warnings]


def _join_positives(tables: PosirTables) -> pl.DataFrame:
    return tables.queries.frame.join(
        tables.positives, left_on="_id", right_on="query-id", maintain_order="left"
    )


def _read_tables(repository: Repository, key: SubsetKey) -> tuple[PosirTables, list[DataProblem]]:
    """Read the tables of a domain. Also return the problems of their columns."""
    problems = list[DataProblem]()

    def read(path: str, columns: Schema, optional: Schema = NO_COLUMNS) -> CheckedTable:
        try:
            file = repository.fetch(path)
        except ProblemsError as error:
            problems.extend(error.problems)
            return CheckedTable(error.problems[0].file, pl.DataFrame())
        frame, column_problems = read_valid_columns(file, columns, optional)
        problems.extend(column_problems)
        return CheckedTable(str(file), frame)

    corpus_file, qrels_file, queries_file = key.files
    tables = PosirTables(
        corpus=read(corpus_file, CORPUS),
        queries=read(queries_file, QUERIES, TITLES),
        qrels=read(qrels_file, QRELS),
        same_language=key.language == key.corpus_language,
    )
    if key.places in repository.list_paths(key.places.rpartition("/")[0]):
        tables = replace(tables, places=read(key.places, PLACES, TITLES))
    return tables, problems


def _inspect_pairing(
    tables: PosirTables, repository: Repository, key: SubsetKey
) -> tuple[list[DataProblem], list[str]]:
    """Check that documents with the same id are translations. Texts are only compared if local."""
    corpus = _read_local(repository, f"{key.language}/{key.domain}/{FILES[0]}", CORPUS)
    documents = _join_positives(tables).group_by(id="corpus-id", maintain_order=True)
    pairs = documents.agg(characters=pl.col("pos_char_length").first())
    translations = tables.corpus.frame.select(id="_id", other_text="text")
    pairs = pairs.join(translations, on="id", maintain_order="left")
    texts = corpus.unique("_id", keep="first").select("text", id="_id")
    agreement = compare_documents(pairs.join(texts, on="id", how="left", maintain_order="left"))
    height = tables.corpus.frame.height
    warnings = []
    if corpus.height not in (0, height):
        warnings.append(
            f"{key}: {corpus.height:,} documents in {key.language}, {height:,} in "
            f"{key.corpus_language}"
        )
    if agreement.is_mispaired:
        message = (
            "refers to documents that are not translations of the documents with the same id in "
            f"{tables.corpus.file}: {agreement}. {ADVICE}"
        )
        return [DataProblem(tables.qrels.file, "corpus-id", message)], warnings
    run = agreement.mismatched_run
    if len(run) >= LONG_RUN:
        warnings.append(
            f"{key}: {len(run)} consecutive documents, from {run[0]} to {run[-1]}, may not be "
            f"translations of the documents with the same id; {agreement}. {ADVICE}."
        )
    return [], warnings


def _read_local(repository: Repository, path: str, columns: Schema) -> pl.DataFrame:
    """Read a valid local file; return an empty frame for any other file."""
    if isinstance(repository, LocalRepository) and repository.locate(path).is_file():
        frame, problems = read_valid_columns(repository.locate(path), columns)
        if not problems:
            return frame
    return pl.DataFrame(schema=columns)


def read_domain(
    repository: Repository, language: str, corpus_language: str, domain: str
) -> PositionData:
    """Read the usable rows of a domain, as in the authors' code.

    Args:
        repository: Data in the PosIR layout.
        language: Language of queries, qrels and spans, such as `deu-Latn`.
        corpus_language: Language of the corpus. If it differs from `language`, the document ids
            must be the same.
        domain: Name of the domain folder.

    Raises:
        DataError: A file or column is missing or unreadable, documents with the same id are not
            translations, or no query can be evaluated.
    """
    key = SubsetKey(language, corpus_language, domain)
    tables, problems = _read_tables(repository, key)
    places = tables.places.frame
    # An optional column with the wrong type is ignored.
    problems = [problem for problem in problems if problem.field != TITLE]
    raise_problems([*problems, *check_not_empty(tables), *check_places(tables)])
    usable, tolerated = tolerate_tables(tables)
    warnings = [f"{key}: {rows.sentence}" for rows in tolerated]
    has_queries = usable.queries.frame.height or places.height
    if not has_queries or usable.corpus.frame.is_empty():
        lines = [f"{tables.queries.file}: no query can be evaluated.", *warnings]
        raise DataError("\n".join(lines if usable.same_language else [*lines, f"{ADVICE}."]))
    if not usable.same_language:
        pairing_problems, pairing_warnings = _inspect_pairing(usable, repository, key)
        raise_problems(pairing_problems)
        warnings += pairing_warnings
    queries = usable.queries.frame
    if places.height:
        rows = places.with_columns(document="corpus-id")
        queries = pl.concat([queries, rows], how="diagonal")
    columns = places.select("_id", "query-id", "score").iter_rows()
    data = PositionData(
        documents=usable.corpus.frame.select(pl.col("_id").alias("id"), "text"),
        questions=queries.select(pl.col("_id").alias("id"), "text"),
        evidence=build_evidence(queries),
        revision=repository.resolve_revision(list_present_files(repository, [key])),
        tolerated=count_tolerated(tolerated),
        places={name: Place(query, read_grade(grade)) for name, query, grade in columns},
    )
    repeated = count_repeated(data)
    if repeated.warning:
        warnings.append(f"{key}: {repeated.warning}")
    return replace(data, warnings=tuple(warnings), repeated=repeated)


def build_evidence(queries: pl.DataFrame) -> Evidence:
    """Build the evidence of usable queries."""
    spans = queries["pos_char_span"].list.sort().list
    titles: tuple[str, ...] = ()
    if TITLE in queries.columns:
        title = pl.col(TITLE).fill_null("").str.strip_chars().first().over("document")
        titles = tuple(queries.select(title)[TITLE])
    return Evidence(
        query_ids=queries["_id"].to_list(),
        document_ids=queries["document"].to_list(),
        starts=spans.get(0).clip(-MAX_BOUND, MAX_BOUND).to_numpy(),
        ends=spans.get(1).clip(-MAX_BOUND, MAX_BOUND).to_numpy(),
        characters=queries["pos_char_length"].to_numpy(),
        tokens=queries["pos_token_length"].to_numpy(),
        clusters=titles,
    )


def open_folder(folder: Path, language: str) -> LocalRepository:
    """Open a folder in the PosIR layout, or the folder of one language or domain; raise DataError
    if it is missing or has another language.
    """
    root = Path(os.path.abspath(folder.expanduser()))  # noqa: PTH100 (a link keeps its name)
    if not root.is_dir():
        raise DataError(
            f"{root}: no such folder. Give a folder in the PosIR layout, or one of its domains."
        )
    data, code, domain = _locate_layout(root) or (root, "", "")
    if not code:
        return LocalRepository(data)
    if CODE.fullmatch(code) and code != language:
        raise DataError(f"{root}: contains the language {code}, not {language}.")
    return LocalRepository(root, f"{language}/{domain}" if domain else language)


def require_domains(repository: Repository, language: str) -> list[str]:
    """List the domains of a language; raise DataError if there are none."""
    domains = list_domains(repository, language)
    if not domains:
        languages = {path.split("/")[0] for path in repository.list_paths() if path.count("/") >= 2}
        raise DataError(
            f"{repository.location}: no {language} data; expected {LAYOUT}. It contains "
            f"{', '.join(sorted(languages)) or 'no language'}."
        )
    return domains


def find_layout(path: Path) -> tuple[Path, list[SubsetKey]] | None:
    """Find data in the PosIR layout. The path may be the data folder, its parent (as in
    `POSIR_DATA`), or the folder of one language or domain.

    Returns:
        The root folder, which contains `<language>/<domain>/`, and the subsets: all domains with
        the corpus in their language, then the domains that also have an English corpus. None for
        data in other layouts.

    Raises:
        DataError: There is no domain.
    """
    layout = _locate_layout(Path(os.path.abspath(path)))  # noqa: PTH100 (a link keeps its name)
    if layout is None:
        return None
    root, language, domain = layout
    repository = LocalRepository(root)
    languages = [language] if language else sorted(path.name for path in root.glob("[!.]*/"))
    keys = []
    for code in languages:
        domains = [domain] if domain else list_domains(repository, code)
        keys += [SubsetKey(code, code, name) for name in domains]
    if not keys:
        raise DataError(f"{root}: no domain; expected {LAYOUT}.")
    english = list_domains(repository, PIVOT.code)
    cross_lingual = [
        replace(key, corpus_language=PIVOT.code)
        for key in keys
        if key.language != PIVOT.code and key.domain in english
    ]
    return root, [*keys, *cross_lingual]


def _locate_layout(folder: Path) -> tuple[Path, str, str] | None:
    """Return the root of the data, and the language and domain of the folder, which are empty
    strings for the root; None for data in other layouts.
    """
    data = folder / get_folder_name(REPO_ID)
    language = folder.parent
    for root, pattern, code, domain in (
        (folder, "*/*/", "", ""),
        (data, "*/*/", "", ""),
        (folder.parent, f"{folder.name}/*/", folder.name, ""),
        (language.parent, f"{language.name}/{folder.name}/", language.name, folder.name),
    ):
        files = [file for name in FILES for file in root.glob(pattern + name)]
        if any(map(_fits_layout, files)):
            return root, code, domain
    return None


def _fits_layout(file: Path) -> bool:
    """Return False for AutoRAG's `corpus.parquet`, which has different columns."""
    if file.name != FILES[0] or any((file.parent / name).exists() for name in FILES[1:]):
        return True
    try:
        columns = read_column_types(file)
    except DataError:
        # Reading the data raises the error again.
        return True
    return "_id" in columns or "text" in columns


@dataclass(frozen=True)
class Target:
    """A domain to write."""

    language: str
    domain: str
    output: Path

    @property
    def folder(self) -> Path:
        """Folder of the domain."""
        return self.output / self.language / self.domain

    def check(self) -> None:
        """Raise PosirError if the language or domain is invalid, or if the folder exists."""
        check_code(self.language)
        if not DOMAIN_NAME.fullmatch(self.domain):
            raise PosirError(
                f"--domain {sanitize(self.domain)}: invalid domain. Give {DOMAIN_RULE}."
            )
        if self.folder.exists():
            raise PosirError(
                f"{self.folder}: already exists. Remove it first, or choose another --domain or "
                "--output."
            )


def _tabulate_queries(data: PositionData) -> pl.DataFrame:
    evidence = data.evidence
    pairs = pl.Series(np.stack([evidence.starts, evidence.ends], axis=1))
    spans = pairs.cast(QUERIES["pos_char_span"])
    texts = data.questions["text"]
    columns = (evidence.query_ids, texts, spans, evidence.characters, evidence.tokens)
    queries = pl.DataFrame(dict(zip(QUERIES, columns, strict=True)), schema=QUERIES)
    titles = [title or None for title in evidence.clusters]
    return queries.with_columns(pl.Series(TITLE, titles, pl.String)) if titles else queries


def _tabulate(data: PositionData, folder: Path) -> dict[str, pl.DataFrame]:
    """Map file names to the tables of a domain; raise ProblemsError if they are invalid."""
    single, several = data.split_places()
    pairs = {"query-id": single.evidence.query_ids, "corpus-id": single.evidence.document_ids}
    corpus = data.documents.rename({"id": "_id"})
    qrels = pl.DataFrame({**pairs, "score": [1.0] * len(single.evidence)}, schema=QRELS)
    queries = _tabulate_queries(single)
    rows = [data.places[name] for name in several.evidence.query_ids]
    places = _tabulate_queries(several).with_columns(
        pl.Series("query-id", [place.query for place in rows], pl.String),
        pl.Series("corpus-id", several.evidence.document_ids, pl.String),
        pl.Series("score", [place.grade for place in rows], pl.Float64),
    )
    corpus_file, qrels_file, queries_file = FILES
    tables = PosirTables(
        corpus=CheckedTable(str(folder / corpus_file), corpus),
        queries=CheckedTable(str(folder / queries_file), queries),
        qrels=CheckedTable(str(folder / qrels_file), qrels),
        same_language=True,
        places=CheckedTable(str(folder / PLACES_FILE), places),
    )
    raise_problems(check_tables(tables))
    frames = {corpus_file: corpus, qrels_file: qrels.cast({"score": pl.Int64})}
    frames[queries_file] = queries
    if rows:
        is_whole = all(isinstance(place.grade, int) for place in rows)
        frames[PLACES_FILE] = places.cast({"score": pl.Int64 if is_whole else pl.Float64})
    return frames


def write_domain(data: PositionData, folder: Path, others: Mapping[str, str] | None = None) -> None:
    """Write a domain into a new folder. On failure, no folder is created.

    Args:
        data: The data of the domain.
        folder: The folder to create.
        others: Name to text of additional files.

    Raises:
        DataError: The data is invalid.
        PosirError: The folder cannot be written.
    """
    tables = _tabulate(data, folder)
    try:
        # Keep a symbolic link to a folder.
        target = follow_links(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_stale_parts(target.parent)
        prefix = f".{target.name[:MAX_PART_STEM]}."
        with tempfile.TemporaryDirectory(
            dir=target.parent, prefix=prefix, suffix=PART_SUFFIX
        ) as temporary:
            part = Path(temporary)
            for file, table in tables.items():
                (part / file).parent.mkdir(exist_ok=True)
                table.write_parquet(part / file)
            for name, text in (others or {}).items():
                (part / name).write_text(text, encoding="utf-8")
            part.chmod(0o755)
            part.rename(target)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise PosirError(
            f"{folder}: cannot be written ({summarize_error(error)}). Free disk space, or choose "
            "another --output."
        ) from error
