"""Readers of runs: TREC, ranx, predictions of mteb, and JSON, JSON Lines, CSV or Parquet of query id, document id and score."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from posir_tasks.compressed_files import GZIP_ERRORS, read_decompressed, split_suffix
from posir_tasks.errors import DataError, PosirError, summarize_error
from posir_tasks.files import find_files
from posir_tasks.models.names import bare_name
from posir_tasks.sources.decoding import decode

#: A score by document id by query id.
Rankings: TypeAlias = dict[str, dict[str, float]]

#: Names of a column or field, in order of preference; those of ranx, pandas exports, BEIR and TREC are among them.
QUERY_FIELDS = ("query_id", "query-id", "q_id", "qid", "query", "topic")
DOCUMENT_FIELDS = ("document_id", "document-id", "doc_id", "docid", "docno", "corpus-id", "corpus_id", "document", "doc")
SCORE_FIELDS = ("score", "sim", "similarity")
RANK_FIELD = "rank"
#: Columns of a TREC run: query, `Q0`, document, rank, score, tag.
TREC_COLUMNS = 6
#: What mteb's prediction files state beside the subsets, and how their names end.
MODEL_KEY, PREDICTIONS = "mteb_model_meta", "_predictions.json"
#: The suffix of ranx's own compressed format, CBOR in LZ4.
LZ4 = ".lz4"
KINDS = "a TREC run, predictions of `mteb run --prediction-folder`, or JSON, JSON Lines, CSV or Parquet of ranked documents"


@dataclass(frozen=True)
class Run:
    """The documents that a system retrieved for queries."""

    name: str
    """Name of the system."""
    rankings: Rankings = field(default_factory=dict)
    """Rankings that say nothing of a subset."""
    by_subset: Mapping[str, Rankings] = field(default_factory=dict)
    """Rankings by subset of a task, as mteb's predictions state them."""
    duplicates: int = 0
    """Rows that repeat the query and the document of an earlier one; the highest score counts."""
    misranked: int = 0
    """Queries whose column `rank` orders documents otherwise than their scores, which decide, as in trec_eval."""


@dataclass(frozen=True)
class RunRow:
    """A row of a file as the file states it."""

    place: str
    """Place in the file, such as `line 17`."""
    query: object
    document: object
    score: object
    rank: object = None


class RankingBuilder:
    """Collects checked rows, and the first row of each kind of problem."""

    def __init__(self, file: Path | str) -> None:
        self.rankings: Rankings = {}
        self.duplicates = 0
        self._file = file
        self._ranks: dict[str, dict[str, int]] = {}
        self._problems: dict[str, list[str]] = {}

    def add(self, row: RunRow) -> None:
        """Add a row, or remember what is wrong with it."""
        query, document = self._read_id(row, "query id", row.query), self._read_id(row, "document id", row.document)
        score = None
        try:
            score = float(row.score)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            self._refuse(row, "score", row.score, "must be a number")
        if score is not None and not math.isfinite(score):
            self._refuse(row, "score", row.score, "must be finite")
        if query is None or document is None or score is None:
            return
        ranking = self.rankings.setdefault(query, {})
        self.duplicates += document in ranking
        ranking[document] = max(score, ranking.get(document, score))
        if isinstance(row.rank, int) or (isinstance(row.rank, str) and row.rank.isdecimal()):
            self._ranks.setdefault(query, {}).setdefault(document, int(row.rank))

    def _read_id(self, row: RunRow, name: str, value: object) -> str | None:
        if isinstance(value, str) and value and "\0" not in value:
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        self._refuse(row, name, value, "must be a text that is not empty, or an integer")
        return None

    def _refuse(self, row: RunRow, name: str, value: object, rule: str) -> None:
        self._problems.setdefault(f"field '{name}' {rule}", []).append(f"{row.place} ({str(value)[:40]!r})")

    def count_misranked(self) -> int:
        """Return the number of queries in which a document with a higher score has a later rank."""
        return sum(
            any(
                before > after
                for before, after in pairwise(ranks[name] for name in _sort_by_score(self.rankings[query], ranks))
            )
            for query, ranks in self._ranks.items()
        )

    def check(self) -> None:
        """Raise DataError if a row was refused, with the number and the first of each kind."""
        if self._problems:
            kinds = (
                f"{problem}: {len(places):,} {'row' if len(places) == 1 else 'rows'}, first {places[0]}"
                for problem, places in self._problems.items()
            )
            raise DataError(f"{self._file}: {'; '.join(kinds)}.")


def _sort_by_score(scores: Mapping[str, float], ranks: Mapping[str, int]) -> list[str]:
    """Return documents with a rank by score, those with the same score by rank."""
    return sorted(ranks, key=lambda name: (-scores[name], ranks[name]))


def check_exists(path: Path) -> None:
    """Raise PosirError if there is no such file or folder."""
    if not path.exists():
        raise PosirError(f"{path}: no such file or folder. Give {KINDS}.")


def read_run(path: Path, task: str) -> Run:
    """Read a run from a file, or from all files of a folder, which are its parts.

    Of a folder with predictions of mteb, those of the task are read.

    Args:
        path: A file or folder.
        task: Name of the task.

    Raises:
        DataError: A file cannot be read, or a row has no ids or a score that is not a finite number.
        PosirError: There is no such file, or there is none in the folder.
    """
    check_exists(path)
    if not path.is_dir():
        return read_run_file(path)
    files = [file for file in find_files(path, "") if not file.name.startswith(".")]
    predictions = [file for file in files if file.name.endswith(PREDICTIONS)]
    if predictions:
        files = [file for file in predictions if file.name == f"{task}{PREDICTIONS}"]
    if not files:
        stated = ", ".join(sorted({file.name.removesuffix(PREDICTIONS) for file in predictions}))
        raise PosirError(
            f"{path}: has predictions for {stated} and none for {task}. Give --data one of these."
            if predictions
            else f"{path}: has no files. Give {KINDS}."
        )
    run = merge_parts([read_run_file(file) for file in files])
    return run if predictions else replace(run, name=path.resolve().name)


def merge_parts(parts: list[Run]) -> Run:
    """Return one run of the rankings of several; of a document that a query has in several, the highest score counts."""
    rankings: Rankings = {}
    by_subset: dict[str, Rankings] = {}
    duplicates = sum(part.duplicates for part in parts)
    for part in parts:
        duplicates += _merge(rankings, part.rankings)
        duplicates += sum(_merge(by_subset.setdefault(subset, {}), ranked) for subset, ranked in part.by_subset.items())
    return Run(parts[0].name, rankings, by_subset, duplicates, sum(part.misranked for part in parts))


def _merge(rankings: Rankings, others: Rankings) -> int:
    duplicates = 0
    for query, scores in others.items():
        ranking = rankings.setdefault(query, {})
        duplicates += len(ranking.keys() & scores.keys())
        for document, score in scores.items():
            ranking[document] = max(score, ranking.get(document, score))
    return duplicates


def read_run_file(file: Path) -> Run:
    """Read a run from a file, whose name without suffixes is the run's name.

    Raises:
        DataError: It cannot be read, or has a row without ids or a finite score.
    """
    stem, suffix = split_suffix(file)
    if suffix == LZ4:
        raise PosirError(f"{file}: ranx's compressed format is not read. Save it with `run.save('{stem}.parquet')` of ranx.")
    try:
        if suffix == ".json":
            return _read_json(file, stem, json.loads(decode(read_decompressed(file))))
        builder = RankingBuilder(file)
        for row in READERS.get(suffix, _read_trec)(file):
            builder.add(row)
    except (OSError, ValueError, RecursionError, *GZIP_ERRORS) as error:
        raise DataError(f"{file}: cannot be read ({summarize_error(error)}). Give {KINDS}.") from error
    builder.check()
    if not builder.rankings:
        raise DataError(f"{file}: has no ranked document. Give {KINDS}.")
    return Run(stem, builder.rankings, {}, builder.duplicates, builder.count_misranked())


def _read_json(file: Path, name: str, content: object) -> Run:
    """Read predictions of mteb, or an object with documents and scores, or a list of documents, for each query."""
    if isinstance(content, list):
        builder = RankingBuilder(file)
        for number, record in enumerate(content):
            builder.add(_to_row(f"[{number}]", record))
        builder.check()
        return Run(name, builder.rankings, {}, builder.duplicates, builder.count_misranked())
    if not isinstance(content, dict):
        raise DataError(f"{file}: must be an object with the documents of each query, or a list of rows.")
    if MODEL_KEY not in content:
        return Run(name, check_rankings(file, "", content))
    model = content[MODEL_KEY].get("model_name") if isinstance(content[MODEL_KEY], dict) else None
    by_subset: dict[str, Rankings] = {}
    for subset, splits in content.items():
        if subset == MODEL_KEY:
            continue
        if not isinstance(splits, dict) or len(splits) != 1:
            raise DataError(f"{file}: field '{subset}' must have the rankings of one split.")
        by_subset[subset] = check_rankings(file, f"{subset}: ", next(iter(splits.values())))
    return Run(bare_name(str(model)) if model else name, {}, by_subset)


def check_rankings(file: Path | str, where: str, content: object) -> Rankings:
    """Return the rankings of an object with documents and scores, or a list of documents, for each query.

    Args:
        file: The file, for messages.
        where: Place in the file, empty or with a colon at the end.
        content: What the file states.

    Raises:
        DataError: It is something else, or a score is not finite.
    """
    builder = RankingBuilder(file)
    for query, documents in content.items() if isinstance(content, Mapping) else ():
        if isinstance(documents, list):
            documents = {name: len(documents) - place for place, name in reversed(list(enumerate(documents)))}
        if not isinstance(documents, Mapping):
            raise DataError(
                f"{file}: {where}query {query!r}: must have an object of documents and scores, or a list of documents."
            )
        # A query without documents is retrieved, and has found nothing.
        builder.rankings.setdefault(query, {})
        for document, score in documents.items():
            builder.add(RunRow(f"{where}query {query}", query, document, score))
    builder.check()
    if not builder.rankings:
        raise DataError(f"{file}: {where}has no rankings. Give {KINDS}.")
    return builder.rankings


def _read_trec(file: Path) -> Iterator[RunRow]:
    for number, line in enumerate(decode(read_decompressed(file)).splitlines(), start=1):
        columns = line.split()
        if not columns:
            continue
        if len(columns) != TREC_COLUMNS:
            raise DataError(
                f"{file}: line {number}: has {len(columns)} columns; a TREC run has {TREC_COLUMNS}: query, Q0, document, rank, "
                "score and tag."
            )
        query, _, document, rank, score, _ = columns
        yield RunRow(f"line {number}", query, document, score, rank)


def _read_delimited(delimiter: str) -> Callable[[Path], Iterator[RunRow]]:
    def read(file: Path) -> Iterator[RunRow]:
        rows = csv.DictReader(io.StringIO(decode(read_decompressed(file)), newline=""), delimiter=delimiter)
        names = _find_columns(file, rows.fieldnames or ())
        for row in rows:
            yield RunRow(f"line {rows.line_num}", *(row[name] if name else None for name in names))

    return read


def _read_json_lines(file: Path) -> Iterator[RunRow]:
    for number, line in enumerate(decode(read_decompressed(file)).splitlines(), start=1):
        if line.strip():
            yield _to_row(f"line {number}", json.loads(line))


def _to_row(place: str, record: object) -> RunRow:
    values: Mapping[str, Any] = record if isinstance(record, dict) else {}

    def find(names: tuple[str, ...]) -> Any:
        return next((values[name] for name in names if name in values), None)

    return RunRow(place, find(QUERY_FIELDS), find(DOCUMENT_FIELDS), find(SCORE_FIELDS), values.get(RANK_FIELD))


def _read_parquet(file: Path) -> Iterator[RunRow]:
    import polars as pl

    from posir_tasks.table_files import scan_parquet

    try:
        frame = scan_parquet(file).collect()
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{file}: cannot be read as Parquet ({summarize_error(error)}).") from error
    names = _find_columns(file, frame.columns)
    columns = [frame[name].to_list() if name else [None] * frame.height for name in names]
    for number, values in enumerate(zip(*columns, strict=True), start=1):
        yield RunRow(f"row {number}", *values)


def _find_columns(file: Path, present: Any) -> list[str | None]:
    """Return the names of the columns of query, document, score and rank; the last may be missing."""
    names = []
    for kind, allowed in (("query", QUERY_FIELDS), ("document", DOCUMENT_FIELDS), ("score", SCORE_FIELDS)):
        name = next((name for name in allowed if name in present), None)
        if name is None:
            raise DataError(
                f"{file}: no column of the {kind}; the file has {', '.join(map(str, present)) or 'none'}. "
                f"Name one {' or '.join(allowed[:3])}."
            )
        names.append(name)
    return [*names, RANK_FIELD if RANK_FIELD in present else None]


READERS: Mapping[str, Callable[[Path], Iterator[RunRow]]] = {
    ".csv": _read_delimited(","),
    ".tsv": _read_delimited("\t"),
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".parquet": _read_parquet,
    ".parq": _read_parquet,
}
