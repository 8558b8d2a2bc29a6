"""Readers of runs: TREC, ranx, predictions of mteb, and JSON, JSON Lines, CSV or Parquet of query id, document id and score.

The readers of ir_measures and ranx drop ranks, so that scores may contradict them in silence; both keep NaN, and of a repeated
document ranx takes the last row. They say neither line nor file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from posir_score.hits import Hit, Order, OrderCheck, rank_hits, read_id
from posir_tasks.display.wording import sanitized
from posir_tasks.errors import DataError, PosirError, summarize_error
from posir_tasks.files import find_files, split_suffix
from posir_tasks.gate import GateError, decode, parse_json, parse_table, read_bytes, read_json
from posir_tasks.models.references import bare_name

#: Hits by query id, each query's best first.
HitsByQuery: TypeAlias = dict[str, list[Hit]]

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
KINDS = "a TREC run, predictions of `mteb run --prediction-folder`, or JSON, JSON Lines, CSV or Parquet of ranked documents"
#: Subset of rankings that say nothing of one.
ANY_SUBSET = ""


@dataclass(frozen=True)
class Run:
    """The documents or chunks that a system retrieved for queries."""

    name: str
    by_subset: Mapping[str, HitsByQuery]
    """Hits by subset of a task, as mteb's predictions state them; else those of `ANY_SUBSET`."""
    duplicates: int = 0
    """Rows that repeat the query and the document of an earlier one; the highest score counts."""
    asked: int = 0
    """Documents or chunks that a retriever was asked for; 0 for a file."""
    returned: tuple[int, int] = (0, 0)


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

    def build(self, order: Order | None) -> tuple[HitsByQuery, int]:
        """Return the hits, best first, and the number of rows that repeat a query and a document.

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
        repeated = sum(len(hits) - len({hit.document for hit in hits}) for hits in self.hits.values())
        return {query: rank_hits(hits, order) for query, hits in self.hits.items()}, repeated


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
        for subset, by_query in part.by_subset.items():
            for query, hits in by_query.items():
                earlier = by_subset.setdefault(subset, {}).get(query, [])
                duplicates += len({hit.document for hit in earlier} & {hit.document for hit in hits})
                by_subset[subset][query] = rank_hits([*earlier, *hits], "score")
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
    by_subset: dict[str, HitsByQuery] = {}
    for subset, splits in content.items():
        if subset == MODEL_KEY:
            continue
        if not isinstance(splits, dict) or len(splits) != 1:
            raise DataError(f"{file}: field '{sanitized(subset)}' must have the rankings of one split.")
        # mteb writes the documents of a query in no order.
        by_subset[subset], _ = check_rankings(file, f"{subset}: ", next(iter(splits.values())), order or "score")
    return Run(bare_name(str(model)) if model else name, by_subset)


def check_rankings(file: Path | str, where: str, content: object, order: Order | None) -> tuple[HitsByQuery, int]:
    """Return the hits of an object with the documents of each query, and the number of rows that repeat one.

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
