"""Readers of runs: TREC, ranx, predictions of mteb, and JSON, JSON Lines, CSV or Parquet of query id, document id and score."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from posir_tasks.display.wording import pluralize, sanitized
from posir_tasks.errors import DataError, PosirError, summarize_error
from posir_tasks.files import find_files, split_suffix
from posir_tasks.gate import GateError, decode, parse_json, parse_table, read_bytes, read_json
from posir_tasks.models.references import bare_name

#: A score by document id by query id.
Rankings: TypeAlias = dict[str, dict[str, float]]

#: Names of a column or field, in order of preference; those of ranx, pandas exports, BEIR and TREC are among them.
QUERY_FIELDS = ("query_id", "query-id", "q_id", "qid", "query", "topic")
#: PyTerrier has both `docno`, the id, and `docid`, a number of its index.
DOCUMENT_FIELDS = ("document_id", "document-id", "doc_id", "docno", "docid", "corpus-id", "corpus_id", "document", "doc")
SCORE_FIELDS = ("score", "sim", "similarity")
RANK_FIELD = "rank"
#: Digits of a rank are fewer.
MAX_DIGITS = 19
#: Columns of a TREC run: query, `Q0`, document, rank, score, tag.
TREC_COLUMNS = 6
#: What mteb's prediction files state beside the subsets, and how their names end.
MODEL_KEY, PREDICTIONS = "mteb_model_meta", "_predictions.json"
#: The suffix of ranx's own compressed format, CBOR in LZ4.
LZ4 = ".lz4"
#: Scores of unranked documents that rise in at least this share of queries, and by chance with less than this probability, are
#: taken for distances.
RISING_SHARE, RISING_CHANCE = 0.9, 1e-3
KINDS = "a TREC run, predictions of `mteb run --prediction-folder`, or JSON, JSON Lines, CSV or Parquet of ranked documents"


class Order(StrEnum):
    """The source of the order of a query's documents."""

    SCORE = "score"
    """The highest score first, as in trec_eval."""
    DISTANCE = "distance"
    """The lowest score first."""
    RANK = "rank"
    """The stated ranks, or else the order of the rows or hits."""


class Hit(NamedTuple):
    """A retrieved document or chunk as a system states it."""

    document: str
    score: float | None = None
    """None if the order alone is stated."""
    rank: int | None = None
    """Its stated rank or place, lower is better; None if the order of the hits means nothing."""


@dataclass
class OrderCheck:
    """Finds scores that contradict the order in which a system returned documents: distances, or those of an earlier stage."""

    queries: int = 0
    """Queries of which at least two documents have different scores."""
    contradicting: list[str] = field(default_factory=list)
    """Queries in which a document with a higher score has a later rank."""
    unranked: int = 0
    """Queries without ranks."""
    rising: int = 0
    """Queries without ranks whose scores rise from the first document to the last."""
    log_chance: float = 0.0
    """Natural logarithm of the probability that as many scores rise in random order."""

    def add(self, query: str, hits: Sequence[Hit]) -> None:
        """Compare the scores of a query's documents with their order."""
        distinct = len({hit.score for hit in hits if hit.score is not None})
        if distinct < 2 or any(hit.score is None for hit in hits):
            return
        self.queries += 1
        if any(hit.rank is not None for hit in hits):
            if _contradicts([(hit.rank, hit.score) for hit in hits if hit.rank is not None and hit.score is not None]):
                self.contradicting.append(query)
            return
        self.unranked += 1
        if all(a <= b for a, b in pairwise(hit.score for hit in hits if hit.score is not None)):
            self.rising += 1
            self.log_chance -= math.lgamma(distinct + 1)

    def describe_problem(self) -> str:
        """Return a sentence if the scores cannot be trusted, which names the option that decides; else nothing."""
        if self.contradicting:
            queries = pluralize(self.queries, "query", "queries")
            problem = (
                f"in {len(self.contradicting):,} of {queries}, first {sanitized(self.contradicting[0])}, the scores contradict "
                "the ranks: a document with a higher score comes later"
            )
        elif self.rising >= RISING_SHARE * max(self.unranked, 1) and self.log_chance < math.log(RISING_CHANCE):
            problem = (
                f"in {self.rising:,} of {pluralize(self.unranked, 'query', 'queries')} the scores rise from the first document "
                "to the last, as distances do"
            )
        else:
            return ""
        return (
            f"{problem}. Say what decides: --order distance (the lowest score is best), --order rank (the order as it is "
            "stated), or --order score (the highest score is best)."
        )


def _contradicts(ranked: list[tuple[int, float]]) -> bool:
    """Return whether a higher score has a later rank; of the same rank, scores may be any."""
    lowest, group, group_rank = math.inf, math.inf, None
    for rank, score in sorted(ranked, key=lambda item: (item[0], -item[1])):
        if rank != group_rank:
            lowest, group_rank = min(lowest, group), rank
        if score > lowest:
            return True
        group = min(group, score)
    return False


def rank_hits(hits: Sequence[Hit], order: Order | None) -> dict[str, float]:
    """Return a score by document, higher is better, best first; a document that occurs several times has its best.

    Args:
        hits: Documents or chunks of a query.
        order: What their order follows from; None for the score, or their ranks if there are no scores.
    """
    if order is Order.RANK or any(hit.score is None for hit in hits):
        placed = sorted(enumerate(hits), key=lambda item: (item[0] if item[1].rank is None else item[1].rank, item[0]))
        scored = [(hit.document, float(len(hits) - place)) for place, (_, hit) in enumerate(placed)]
    else:
        sign = -1.0 if order is Order.DISTANCE else 1.0
        scored = [(hit.document, sign * hit.score) for hit in hits if hit.score is not None]
    best: dict[str, float] = {}
    for document, score in scored:
        best[document] = max(score, best.get(document, score))
    return dict(sorted(best.items(), key=lambda item: -item[1]))


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
    asked: int = 0
    """Documents or chunks that a retriever was asked for; 0 for a file."""
    returned: tuple[int, int] = (0, 0)
    """Fewest and most that it returned for a query."""


@dataclass(frozen=True)
class RunRow:
    """A row of a file as the file states it."""

    place: str
    """Place in the file, such as `line 17`."""
    query: object
    document: object
    score: object
    rank: object = None


def read_id(value: object) -> str | None:
    """Return the id of a query or document as a text; None if it can be none.

    trec_eval would read it up to a zero byte, and ends the process if it is not Unicode.
    """
    try:
        text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
        text.encode()
    except ValueError:  # half of a surrogate pair, or an integer of thousands of digits
        return None
    return text if text and "\0" not in text else None


class RankingBuilder:
    """Collects checked rows, and the first row of each kind of problem."""

    def __init__(self, file: Path | str) -> None:
        self._file = file
        self._hits: dict[str, list[Hit]] = {}
        self._problems: dict[str, list[str]] = {}

    def add_query(self, query: str) -> None:
        """Add a query, which may have no document: it is retrieved, and has found nothing."""
        self._hits.setdefault(query, [])

    def add(self, row: RunRow) -> None:
        """Add a row, or remember what is wrong with it."""
        query, document = self._read_id(row, "query id", row.query), self._read_id(row, "document id", row.document)
        score = None
        try:
            score = float(row.score)  # type: ignore[arg-type]
        except OverflowError:
            score = math.inf
        except (TypeError, ValueError):
            self._refuse(row, "score", row.score, "must be a number")
        if score is not None and not math.isfinite(score):
            self._refuse(row, "score", row.score, "must be finite")
        if query is None or document is None or score is None:
            return
        is_rank = isinstance(row.rank, int) or (
            isinstance(row.rank, str) and row.rank.isdecimal() and len(row.rank) < MAX_DIGITS
        )
        self._hits.setdefault(query, []).append(Hit(document, score, int(row.rank) if is_rank else None))  # type: ignore[call-overload]

    def _read_id(self, row: RunRow, name: str, value: object) -> str | None:
        if (read := read_id(value)) is None:
            self._refuse(row, name, value, "must be a text of Unicode characters that is not empty, or an integer")
        return read

    def _refuse(self, row: RunRow, name: str, value: object, rule: str) -> None:
        try:
            shown = str(value)[:40]
        except ValueError:  # an integer of thousands of digits
            shown = "a long integer"
        self._problems.setdefault(f"field '{name}' {rule}", []).append(f"{row.place} ({shown!r})")

    def build(self, order: Order | None) -> tuple[Rankings, int]:
        """Return the rankings, and the number of rows that repeat a query and a document.

        Raises:
            DataError: A row was refused, of which the number and the first of each kind are named, there are none, or the
                scores contradict the order of the documents and the user has not said which counts.
        """
        if self._problems:
            kinds = (
                f"{problem}: {len(places):,} {'row' if len(places) == 1 else 'rows'}, first {places[0]}"
                for problem, places in self._problems.items()
            )
            raise DataError(f"{self._file}: {'; '.join(kinds)}.")
        if not self._hits:
            raise DataError(f"{self._file}: has no ranked document. Give {KINDS}.")
        check = OrderCheck()
        for query, hits in self._hits.items() if order is None else ():
            check.add(query, hits)
        if problem := check.describe_problem():
            raise DataError(f"{self._file}: {problem}")
        rankings = {query: rank_hits(hits, order) for query, hits in self._hits.items()}
        return rankings, sum(len(hits) - len(rankings[query]) for query, hits in self._hits.items())


def check_exists(path: Path) -> None:
    """Raise PosirError if there is no such file or folder."""
    if not path.exists():
        raise PosirError(f"{path}: no such file or folder. Give {KINDS}.")


def read_run(path: Path, task: str, order: Order | None = None) -> Run:
    """Read a run from a file, or from all files of a folder, which are its parts.

    Of a folder with predictions of mteb, those of the task are read.

    Args:
        path: A file or folder.
        task: Name of the task.
        order: What the order of documents follows from; None for the scores, which may then not contradict stated ranks.

    Raises:
        DataError: A file cannot be read, a row has no ids or a score that is not a finite number, or scores contradict ranks.
        PosirError: There is no such file, or there is none in the folder.
    """
    check_exists(path)
    if not path.is_dir():
        return read_run_file(path, order)
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
    run = merge_parts([read_run_file(file, order) for file in files])
    return run if predictions else replace(run, name=path.resolve().name)


def merge_parts(parts: list[Run]) -> Run:
    """Return one run of the rankings of several; of a document that a query has in several, the highest score counts."""
    rankings: Rankings = {}
    by_subset: dict[str, Rankings] = {}
    duplicates = sum(part.duplicates for part in parts)
    for part in parts:
        duplicates += _merge(rankings, part.rankings)
        duplicates += sum(_merge(by_subset.setdefault(subset, {}), ranked) for subset, ranked in part.by_subset.items())
    return Run(parts[0].name, rankings, by_subset, duplicates)


def _merge(rankings: Rankings, others: Rankings) -> int:
    duplicates = 0
    for query, scores in others.items():
        ranking = rankings.setdefault(query, {})
        duplicates += len(ranking.keys() & scores.keys())
        for document, score in scores.items():
            ranking[document] = max(score, ranking.get(document, score))
    return duplicates


def read_run_file(file: Path, order: Order | None = None) -> Run:
    """Read a run from a file, whose name without suffixes is the run's name; arguments and errors as in `read_run`."""
    stem, suffix = split_suffix(file)
    if suffix == LZ4:
        raise PosirError(f"{file}: ranx's compressed format is not read. Save it with `run.save('{stem}.parquet')` of ranx.")
    if suffix == ".json":
        return _read_json(file, stem, order)
    builder = RankingBuilder(file)
    try:
        for row in READERS.get(suffix, _read_trec)(file):
            builder.add(row)
    except (GateError, OSError, ValueError) as error:
        problem = error.problem if isinstance(error, GateError) else summarize_error(error)
        where = str(error).removesuffix(f": {problem}") if isinstance(error, GateError) else file
        raise DataError(f"{where}: cannot be read: {problem}. Give {KINDS}.") from error
    rankings, duplicates = builder.build(order)
    return Run(stem, rankings, duplicates=duplicates)


def _read_json(file: Path, name: str, order: Order | None) -> Run:
    """Read predictions of mteb, or an object with documents and scores, or a list of documents, for each query."""
    content = read_json(file)
    if isinstance(content, list):
        builder = RankingBuilder(file)
        for number, record in enumerate(content):
            builder.add(_to_row(f"[{number}]", record))
        rankings, duplicates = builder.build(order)
        return Run(name, rankings, duplicates=duplicates)
    if not isinstance(content, dict):
        raise DataError(f"{file}: must be an object with the documents of each query, or a list of rows.")
    if MODEL_KEY not in content:
        rankings, duplicates = check_rankings(file, "", content, order)
        return Run(name, rankings, duplicates=duplicates)
    model = content[MODEL_KEY].get("model_name") if isinstance(content[MODEL_KEY], dict) else None
    by_subset: dict[str, Rankings] = {}
    for subset, splits in content.items():
        if subset == MODEL_KEY:
            continue
        if not isinstance(splits, dict) or len(splits) != 1:
            raise DataError(f"{file}: field '{sanitized(subset)}' must have the rankings of one split.")
        # mteb writes the documents of a query in no order.
        by_subset[subset], _ = check_rankings(file, f"{subset}: ", next(iter(splits.values())), order or Order.SCORE)
    return Run(bare_name(str(model)) if model else name, {}, by_subset)


def check_rankings(file: Path | str, where: str, content: object, order: Order | None) -> tuple[Rankings, int]:
    """Return the rankings of an object with the documents of each query, and the number of rows that repeat one.

    Documents are an object of scores by document, a list of ids, or a list of pairs of id and score or of objects.

    Args:
        file: The file, for messages.
        where: Place in the file, empty or with a colon at the end.
        content: What the file states.
        order: As in `read_run`.

    Raises:
        DataError: It is something else, a score is not finite, or scores contradict the order of the documents.
    """
    builder = RankingBuilder(f"{file}: {where}".removesuffix(": ") if where else file)
    for query, documents in content.items() if isinstance(content, Mapping) else ():
        if not isinstance(documents, Mapping | list | tuple):
            raise DataError(
                f"{file}: {where}query {query!r}: must have an object of documents and scores, or a list of documents, of "
                "pairs of document and score, or of objects with both."
            )
        builder.add_query(str(query))
        place = f"query {sanitized(str(query))}"
        if isinstance(documents, Mapping):
            for document, score in documents.items():
                builder.add(RunRow(place, query, document, score))
        for number, item in enumerate(documents if isinstance(documents, list | tuple) else (), start=1):
            if isinstance(item, Mapping):
                builder.add(replace(_to_row(f"{place}, document {number}", item), query=query, rank=number))
            else:
                document, score = (
                    item if isinstance(item, list | tuple) and len(item) == 2 else (item, len(documents) - number + 1)
                )
                builder.add(RunRow(f"{place}, document {number}", query, document, score, number))
    return builder.build(order)


def _read_lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line that is not blank; raise GateError or ValueError if the file is no such text."""
    for number, line in enumerate(decode(read_bytes(file)).split("\n"), start=1):
        if line.strip():
            yield number, line


def _read_trec(file: Path) -> Iterator[RunRow]:
    for number, line in _read_lines(file):
        columns = line.split()
        if len(columns) != TREC_COLUMNS:
            raise DataError(
                f"{file}: line {number}: has {len(columns)} columns; a TREC run has {TREC_COLUMNS}: query, Q0, document, rank, "
                "score and tag."
            )
        query, _, document, rank, score, _ = columns
        yield RunRow(f"line {number}", query, document, score, rank)


def _read_delimited(delimiter: str) -> Callable[[Path], Iterator[RunRow]]:
    def read(file: Path) -> Iterator[RunRow]:
        headings, rows = parse_table(read_bytes(file), file, delimiter=delimiter)
        places = [None if name is None else headings.index(name) for name in _find_columns(file, headings)]
        for number, cells in rows:
            yield RunRow(f"line {number}", *(None if place is None else cells[place] for place in places))

    return read


def _read_json_lines(file: Path) -> Iterator[RunRow]:
    for number, line in _read_lines(file):
        yield _to_row(f"line {number}", parse_json(line, f"{file}: line {number}"))


def _to_row(place: str, record: object) -> RunRow:
    values: Mapping[str, Any] = record if isinstance(record, Mapping) else {}

    def find(names: tuple[str, ...]) -> Any:
        return next((values[name] for name in names if name in values), None)

    return RunRow(place, find(QUERY_FIELDS), find(DOCUMENT_FIELDS), find(SCORE_FIELDS), values.get(RANK_FIELD))


def _read_parquet(file: Path) -> Iterator[RunRow]:
    # Of a damaged file, polars ends in a panic, which is no exception of Python's and prints a traceback of its own.
    import pyarrow.parquet as pq
    from pyarrow.lib import ArrowException

    try:
        table = pq.ParquetFile(file)
        names = _find_columns(file, table.schema_arrow.names)
        batches = table.iter_batches(columns=[name for name in names if name])
        rows = (row for batch in batches for row in batch.to_pylist())
        for number, values in enumerate(rows, start=1):
            yield RunRow(f"row {number}", *(values.get(name) for name in names))
    except ArrowException as error:
        raise GateError(file, f"is no readable Parquet ({sanitized(summarize_error(error), 200)})") from error


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
