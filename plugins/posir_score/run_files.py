"""Readers of runs: TREC, ranx, predictions of mteb, and JSON, JSON Lines, CSV or Parquet of query id, document id and score.

The readers of ir_measures and ranx drop ranks, so that scores may contradict them in silence; both keep NaN, and of a repeated
document ranx takes the last row. They say neither line nor file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from posir_tasks.display.wording import pluralize, sanitized
from posir_tasks.errors import DataError, PosirError, summarize_error
from posir_tasks.files import find_files, split_suffix
from posir_tasks.gate import GateError, decode, parse_json, parse_table, read_bytes, read_json
from posir_tasks.models.references import bare_name

#: A score by document id by query id.
Rankings: TypeAlias = dict[str, dict[str, float]]

#: Names of a column or field by what it has, in order of preference; those of ranx, pandas exports, BEIR and TREC are among
#: them. PyTerrier has both `docno`, the id, and `docid`, a number of its index.
FIELDS = {
    "query": ("query_id", "query-id", "q_id", "qid", "query", "topic"),
    "document": ("document_id", "document-id", "doc_id", "docno", "docid", "corpus-id", "corpus_id", "document", "doc"),
    "score": ("score", "sim", "similarity"),
    "rank": ("rank",),
}
TREC_COLUMNS = ("query", "Q0", "document", "rank", "score", "tag")
#: What mteb's prediction files state beside the subsets, and how their names end.
MODEL_KEY, PREDICTIONS = "mteb_model_meta", "_predictions.json"
#: The suffix of ranx's own compressed format, CBOR in LZ4.
LZ4 = ".lz4"
#: Scores of unranked documents that rise in at least this share of queries, and by chance with less than this probability, are
#: taken for distances.
RISING_SHARE, RISING_CHANCE = 0.9, 1e-3
KINDS = "a TREC run, predictions of `mteb run --prediction-folder`, or JSON, JSON Lines, CSV or Parquet of ranked documents"
#: Subset of rankings that say nothing of one.
ANY_SUBSET = ""
#: The order of a query's documents: the highest score first, as in trec_eval, the lowest, or that of the stated ranks, or else
#: of the rows or hits.
Order: TypeAlias = Literal["score", "distance", "rank"]


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
        scores = [hit.score for hit in hits if hit.score is not None]
        distinct = len(set(scores))
        if distinct < 2 or len(scores) < len(hits):
            return
        self.queries += 1
        ranked = sorted((hit.rank, score) for hit, score in zip(hits, scores, strict=True) if hit.rank is not None)
        if ranked:
            # Of the same rank, scores may be any.
            groups = [[score for _, score in group] for _, group in groupby(ranked, key=lambda item: item[0])]
            lowest = math.inf
            for group in groups:
                if max(group) > lowest:
                    self.contradicting.append(query)
                    break
                lowest = min(lowest, *group)
            return
        self.unranked += 1
        if all(a <= b for a, b in pairwise(scores)):
            self.rising += 1
            self.log_chance -= math.lgamma(distinct + 1)

    def describe_problem(self) -> str:
        """Return a sentence if the scores cannot be trusted, which names the option that decides; else nothing."""
        if self.contradicting:
            problem = (
                f"in {len(self.contradicting):,} of {pluralize(self.queries, 'query', 'queries')}, first "
                f"{sanitized(self.contradicting[0])}, the scores contradict the ranks: a document with a higher score comes "
                "later"
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


def rank_hits(hits: Sequence[Hit], order: Order | None) -> dict[str, float]:
    """Return a score by document, higher is better, best first; a document that occurs several times has its best.

    Without an order, that of the scores counts, or of the ranks if there are no scores.
    """
    if order == "rank" or any(hit.score is None for hit in hits):
        placed = sorted(enumerate(hits), key=lambda item: (item[0] if item[1].rank is None else item[1].rank, item[0]))
        scored = [(hit.document, float(len(hits) - place)) for place, (_, hit) in enumerate(placed)]
    else:
        sign = -1.0 if order == "distance" else 1.0
        scored = [(hit.document, sign * hit.score) for hit in hits if hit.score is not None]
    best: dict[str, float] = {}
    for document, score in scored:
        best[document] = max(score, best.get(document, score))
    return dict(sorted(best.items(), key=lambda item: -item[1]))


@dataclass(frozen=True)
class Run:
    """The documents that a system retrieved for queries."""

    name: str
    by_subset: Mapping[str, Rankings]
    """Rankings by subset of a task, as mteb's predictions state them; else those of `ANY_SUBSET`."""
    duplicates: int = 0
    """Rows that repeat the query and the document of an earlier one; the highest score counts."""
    asked: int = 0
    """Documents or chunks that a retriever was asked for; 0 for a file."""
    returned: tuple[int, int] = (0, 0)


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
        self.hits: dict[str, list[Hit]] = {}
        self._problems: dict[str, list[str]] = {}

    def add(self, place: str, query: object, document: object, score: object, rank: object = None) -> None:
        """Add a row as the file states it, or remember what is wrong with it, and its place, such as `line 17`."""
        ids = [read_id(query), read_id(document)]
        for name, stated, value in zip(("query id", "document id"), (query, document), ids, strict=True):
            if value is None:
                self._refuse(place, name, stated, "must be a text of Unicode characters that is not empty, or an integer")
        number = math.nan
        try:
            number = float(score)  # type: ignore[arg-type]
            problem = "" if math.isfinite(number) else "must be finite"
        except OverflowError:
            problem = "must be finite"
        except (TypeError, ValueError):
            problem = "must be a number"
        if problem:
            self._refuse(place, "score", score, problem)
        elif ids[0] is not None and ids[1] is not None:
            is_rank = isinstance(rank, int) or (isinstance(rank, str) and rank.isdecimal() and len(rank) < 19)
            self.hits.setdefault(ids[0], []).append(Hit(ids[1], number, int(rank) if is_rank else None))  # type: ignore[call-overload]

    def _refuse(self, place: str, name: str, value: object, rule: str) -> None:
        try:
            shown = str(value)[:40]
        except ValueError:  # an integer of thousands of digits
            shown = "a long integer"
        self._problems.setdefault(f"field '{name}' {rule}", []).append(f"{place} ({shown!r})")

    def build(self, order: Order | None) -> tuple[Rankings, int]:
        """Return the rankings, and the number of rows that repeat a query and a document.

        A row that was refused, no rows, or scores that contradict the order without the user's word are a DataError.
        """
        if self._problems:
            kinds = (
                f"{problem}: {len(places):,} {'row' if len(places) == 1 else 'rows'}, first {places[0]}"
                for problem, places in self._problems.items()
            )
            raise DataError(f"{self._file}: {'; '.join(kinds)}.")
        if not self.hits:
            raise DataError(f"{self._file}: has no ranked document. Give {KINDS}.")
        check = OrderCheck()
        for query, hits in self.hits.items() if order is None else ():
            check.add(query, hits)
        if problem := check.describe_problem():
            raise DataError(f"{self._file}: {problem}")
        rankings = {query: rank_hits(hits, order) for query, hits in self.hits.items()}
        return rankings, sum(len(hits) - len(rankings[query]) for query, hits in self.hits.items())


def read_run(path: Path, task: str, order: Order | None = None) -> Run:
    """Read a run from a file, or from all files of a folder, which are its parts.

    Of a folder with predictions of mteb, those of the task are read. Of a document that a query has in several files, the
    highest score counts. Without an order, that of the scores counts, which may then not contradict stated ranks.
    """
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
    first, *others = (read_run_file(file, order) for file in files)
    by_subset, duplicates = {**first.by_subset}, first.duplicates
    for part in others:
        duplicates += part.duplicates
        for subset, rankings in part.by_subset.items():
            for query, scores in rankings.items():
                ranking = by_subset.setdefault(subset, {}).setdefault(query, {})
                duplicates += len(ranking.keys() & scores.keys())
                ranking |= {document: max(score, ranking.get(document, score)) for document, score in scores.items()}
    return Run(first.name if predictions else path.resolve().name, by_subset, duplicates)


def read_run_file(file: Path, order: Order | None = None) -> Run:
    """Read a run from a file, whose name without suffixes is the run's name; arguments and errors as in `read_run`."""
    stem, suffix = split_suffix(file)
    if suffix == LZ4:
        raise PosirError(f"{file}: ranx's compressed format is not read. Save it with `run.save('{stem}.parquet')` of ranx.")
    content = read_json(file) if suffix == ".json" else []
    if isinstance(content, dict):
        return _read_object(file, stem, content, order)
    if not isinstance(content, list):
        raise DataError(f"{file}: must be an object with the documents of each query, or a list of rows.")
    builder = RankingBuilder(file)
    try:
        rows: Iterator[tuple[str, Any]]
        if suffix == ".json":
            rows = ((f"[{number}]", record) for number, record in enumerate(content))
        elif suffix in (".csv", ".tsv"):
            headings, cells = parse_table(read_bytes(file), file, delimiter="," if suffix == ".csv" else "\t")
            names = _choose_columns(file, headings)
            rows = ((f"line {number}", {name: row[column] for column, name in names}) for number, row in cells)
        elif suffix in (".parquet", ".parq"):
            rows = _read_parquet(file)
        else:
            rows = _read_lines(file, as_json=suffix in (".jsonl", ".ndjson"))
        for place, record in rows:
            builder.add(place, *_find_fields(record))
    except (GateError, OSError, ValueError) as error:
        problem = error.problem if isinstance(error, GateError) else summarize_error(error)
        where = str(error).removesuffix(f": {problem}") if isinstance(error, GateError) else file
        raise DataError(f"{where}: cannot be read: {problem}. Give {KINDS}.") from error
    rankings, duplicates = builder.build(order)
    return Run(stem, {ANY_SUBSET: rankings}, duplicates)


def _read_object(file: Path, name: str, content: Mapping[str, Any], order: Order | None) -> Run:
    """Read predictions of mteb, or an object with documents and scores, or a list of documents, for each query."""
    if MODEL_KEY not in content:
        rankings, duplicates = check_rankings(file, "", content, order)
        return Run(name, {ANY_SUBSET: rankings}, duplicates)
    model = content[MODEL_KEY].get("model_name") if isinstance(content[MODEL_KEY], dict) else None
    by_subset: dict[str, Rankings] = {}
    for subset, splits in content.items():
        if subset == MODEL_KEY:
            continue
        if not isinstance(splits, dict) or len(splits) != 1:
            raise DataError(f"{file}: field '{sanitized(subset)}' must have the rankings of one split.")
        # mteb writes the documents of a query in no order.
        by_subset[subset], _ = check_rankings(file, f"{subset}: ", next(iter(splits.values())), order or "score")
    return Run(bare_name(str(model)) if model else name, by_subset)


def check_rankings(file: Path | str, where: str, content: object, order: Order | None) -> tuple[Rankings, int]:
    """Return the rankings of an object with the documents of each query, and the number of rows that repeat one.

    Documents are an object of scores by document, a list of ids, or a list of pairs of id and score or of objects. `where` is
    their place in the file, for messages: empty or with a colon at the end.
    """
    builder = RankingBuilder(f"{file}: {where}".removesuffix(": ") if where else file)
    for query, documents in content.items() if isinstance(content, Mapping) else ():
        if not isinstance(documents, Mapping | list | tuple):
            raise DataError(
                f"{file}: {where}query {query!r}: must have an object of documents and scores, or a list of documents, of "
                "pairs of document and score, or of objects with both."
            )
        # It may have no document: it is retrieved, and has found nothing.
        builder.hits.setdefault(str(query), [])
        place = f"query {sanitized(str(query))}"
        if isinstance(documents, Mapping):
            for document, score in documents.items():
                builder.add(place, query, document, score)
            continue
        for number, item in enumerate(documents, start=1):
            document, score = item if isinstance(item, list | tuple) and len(item) == 2 else (item, len(documents) - number + 1)
            if isinstance(item, Mapping):
                _, document, score, _ = _find_fields(item)
            builder.add(f"{place}, document {number}", query, document, score, number)
    return builder.build(order)


def _find_fields(record: object) -> list[Any]:
    """Return query, document, score and rank of a row, None where it has none."""
    values = record if isinstance(record, Mapping) else {}
    return [next((values[name] for name in names if name in values), None) for names in FIELDS.values()]


def _read_lines(file: Path, *, as_json: bool) -> Iterator[tuple[str, Any]]:
    """Yield place and content of each line that is not blank: a JSON object, or a row of a TREC run."""
    for number, line in enumerate(decode(read_bytes(file)).split("\n"), start=1):
        place = f"line {number}"
        if not line.strip():
            continue
        if as_json:
            yield place, parse_json(line, f"{file}: {place}")
            continue
        columns = line.split()
        if len(columns) != len(TREC_COLUMNS):
            raise DataError(
                f"{file}: {place}: has {len(columns)} columns; a TREC run has {len(TREC_COLUMNS)}: query, Q0, document, rank, "
                "score and tag."
            )
        yield place, dict(zip(TREC_COLUMNS, columns, strict=True))


def _read_parquet(file: Path) -> Iterator[tuple[str, Any]]:
    # Of a damaged file, polars ends in a panic, which is no exception of Python's and prints a traceback of its own.
    import pyarrow.parquet as pq
    from pyarrow.lib import ArrowException

    try:
        with pq.ParquetFile(file) as table:
            columns = [name for _, name in _choose_columns(file, table.schema_arrow.names)]
            rows = (row for batch in table.iter_batches(columns=columns) for row in batch.to_pylist())
            for number, row in enumerate(rows, start=1):
                yield f"row {number}", row
    except ArrowException as error:
        raise GateError(file, f"is no readable Parquet ({sanitized(summarize_error(error), 200)})") from error


def _choose_columns(file: Path, present: Sequence[str]) -> list[tuple[int, str]]:
    """Return place and name of the columns of query, document, score and rank; the last may be missing."""
    chosen = []
    for kind, allowed in FIELDS.items():
        name = next((name for name in allowed if name in present), None)
        if name is not None:
            chosen.append((present.index(name), name))
        elif kind != "rank":
            raise DataError(
                f"{file}: no column of the {kind}; the file has {', '.join(present) or 'none'}. "
                f"Name one {' or '.join(allowed[:3])}."
            )
    return chosen
