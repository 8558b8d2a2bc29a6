"""Readers of runs: TREC, ranx, predictions of mteb, and JSON, JSON Lines, CSV or Parquet of query
id, document id and score.

The readers of ir_measures and ranx drop ranks, so that scores may contradict them in silence; both
keep NaN, and of a repeated document ranx takes the last row. They say neither line nor file.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from posir_score.columns import RunColumns
from posir_score.hits import (
    ANSWERS,
    COLUMNS,
    DISTANCES,
    DOCUMENTS,
    MAX_HITS,
    SCORES,
    TEXTS_ALONE,
    AnswerError,
    Hit,
    Order,
    is_frame,
    is_missing,
    read_hits,
    read_id,
    read_number,
    read_rank,
    read_rows,
)
from posir_score.orders import OrderCheck, sort_by_score, sort_hits
from posir_tasks.base.errors import DataError, PosirError, summarize_error
from posir_tasks.base.files import check_readable, find_files, split_suffix
from posir_tasks.base.untrusted import (
    GateError,
    decode,
    parse_json,
    parse_table,
    read_bytes,
    read_json,
    require_distinct,
)
from posir_tasks.base.wording import drop_organization, pluralize, sanitize

logger = logging.getLogger(__name__)

#: Hits by query id, each query's best first.
HitsByQuery: TypeAlias = dict[str, Sequence[Hit]]
#: Rows of a run, each with its place for messages, such as `line 17`.
Rows: TypeAlias = Iterable[tuple[str, Any]]

#: Names of a column or field by what it has, in order of preference.
FIELDS = {
    "query": ("query_id", "query-id", "q_id", "qid", "query", "topic", "user_input", "input"),
    "document": (*DOCUMENTS, "document", "doc", "id"),
    "score": SCORES,
    "rank": ("rank",),
    "distance": DISTANCES,
}
#: Fields with the hits of a query in lists.
LISTS = frozenset(chain(*COLUMNS.values(), ANSWERS, TEXTS_ALONE)) - {"value", "hits/hits"}
TREC_COLUMNS = ("query", "Q0", "document", "rank", "score", "tag")
#: Columns of a run without headings: query, document, and score or rank.
MIN_COLUMNS = 3
NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
#: What mteb's prediction files state next to the subsets.
MODEL_KEY = "mteb_model_meta"
#: How their names end.
PREDICTIONS = "_predictions.json"
KINDS = (
    "a TREC run, predictions of `mteb run --prediction-folder`, or JSON, JSON Lines, CSV or "
    "Parquet of ranked documents"
)
ID_RULE = "must be a text of Unicode characters that is not empty, or an integer"
RANK_RULE = (
    "field 'rank' must be a whole number from 0, as in other rows (--order score needs none)"
)
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
    ranked_by: Order = "score"
    """The origin of the scores: the file, distances with the opposite sign, or ranks."""
    asked: int = 0
    """Documents or chunks that a retriever was asked for; 0 for a file."""
    returned: tuple[int, int] = (0, 0)
    """The fewest and the most that it returned for a query."""
    reading: str = ""
    """How a retriever was asked and its hits were read; empty for a file."""
    splits: frozenset[str] = frozenset()
    """Splits of a task, as mteb's predictions state them."""


class RankingBuilder:
    """Collects checked rows, and the first row of each kind of problem."""

    def __init__(self, source: Path | str, order: Order | None) -> None:
        self.source = source
        self.order = order
        self.hits: dict[str, list[Hit]] = {}
        self.columns: RunColumns | None = None
        """All hits instead, if the lines of a file are regular."""
        self.problems: dict[str, tuple[int, str]] = {}
        """Number of rows with a problem, and the first."""
        self.score_fields: dict[str, str] = {}
        """The first row with each name of the score."""
        self.has_rank = False

    def add_answer(self, place: str, query: object, answer: object) -> None:
        """Add the hits of a query in any form that a retriever may return, perhaps none."""
        name = read_id(query)
        if name is None:
            self.count_problem(f"field 'query id' {ID_RULE}", _name_row(place, query))
            return
        try:
            hits = read_hits(answer, MAX_HITS, order=self.order)
        except AnswerError as error:
            self.count_problem("hits cannot be read", f"{place}: {error}")
            return
        self.hits.setdefault(name, []).extend(hits)

    def add_row(self, place: str, record: object) -> None:
        """Add a row with a document, or with all hits of a query in lists."""
        values = record if isinstance(record, Mapping) else {}
        lists = sorted(LISTS & values.keys())
        for name in lists:
            if isinstance(values[name], str):
                rule = (
                    "must be a list, which a table of text does not have; save the run as JSON "
                    "Lines or Parquet"
                )
                self.count_problem(f"field '{name}' {rule}", _name_row(place, values[name]))
                return
        stated = {}
        for kind, names in FIELDS.items():
            stated[kind] = next((values[name] for name in names if name in values), None)
        if lists:
            self.add_answer(place, stated["query"], values)
            return
        for name in SCORES:
            if values.get(name) is not None:
                self.score_fields.setdefault(name, place)
                break
        self._add_hit(place, stated)

    def _add_hit(self, place: str, stated: Mapping[str, Any]) -> None:
        query = read_id(stated["query"])
        document = read_id(stated["document"])
        for kind, name in (("query", query), ("document", document)):
            if name is None:
                self.count_problem(f"field '{kind} id' {ID_RULE}", _name_row(place, stated[kind]))
        if query is None or document is None:
            return
        rank = read_rank(stated["rank"])
        if rank is None:
            self.count_problem(RANK_RULE, _name_row(place, stated["rank"], query, document))
        self.has_rank = self.has_rank or rank is not None
        is_distance = stated["distance"] is not None and (
            stated["score"] is None or self.order == "distance"
        )
        kind = "distance" if is_distance else "score"
        value = stated[kind]
        number = None
        # Without a score or a distance, the rank decides, or the order of the rows if the user says
        # so.
        is_left_out = self.order == "rank" and is_missing(value)
        if not is_left_out and (value is not None or rank is None):
            try:
                number = read_number(value)
            except ValueError as error:
                row = _name_row(place, value, query, document)
                self.count_problem(f"field '{kind}' {error}", row)
                return
        hit = Hit(document, number, rank)
        if is_distance:
            hit = Hit(document, None, rank, distance=number)
        self.hits.setdefault(query, []).append(hit)

    def count_problem(self, problem: str, row: str) -> None:
        """Count a row with a problem, and keep the first."""
        number, first = self.problems.get(problem, (0, row))
        self.problems[problem] = (number + 1, first)

    def build(self, name: str) -> Run:
        """Build a run, each query's hits best first.

        A row that was refused, no rows, hits without what others have, or scores that contradict
        the order without the user's word are a DataError.
        """
        if not self.has_rank or self.order in ("score", "distance"):
            self.problems.pop(RANK_RULE, None)
        if len(self.score_fields) > 1 and self.order != "rank":
            names = [f"{name}, first in {place}" for name, place in self.score_fields.items()]
            self.count_problem("scores of different fields cannot be compared", " and ".join(names))
        if self.problems:
            kinds = [
                f"{problem}: {pluralize(rows, 'row')}, first {first}"
                for problem, (rows, first) in self.problems.items()
            ]
            raise DataError(f"{self.source}: {'; '.join(kinds)}.")
        if not self.hits and self.columns is None:
            raise DataError(f"{self.source}: has no ranked document. Give {KINDS}.")
        check = OrderCheck(self.order)
        by_query: HitsByQuery
        if self.columns is not None:
            self.columns.check_order(check)
            repeated = self.columns.count_repeated()
            self._refuse_order(check)
            by_query = {**self.columns.sort(self.order)}
        else:
            repeated = 0
            for query, hits in self.hits.items():
                check.add(query, hits)
                repeated += len(hits) - len({hit.document for hit in hits})
            self._refuse_order(check)
            by_query = {query: sort_hits(hits, self.order) for query, hits in self.hits.items()}
        return Run(name, {ANY_SUBSET: by_query}, repeated, check.ranked_by)

    def _refuse_order(self, check: OrderCheck) -> None:
        """Raise DataError if scores cannot decide, and report what was inferred."""
        if problem := check.describe_problem():
            raise DataError(f"{self.source}: {problem}")
        if guess := check.describe_guess():
            logger.warning("%s: %s", self.source, guess)


def _name_row(place: str, value: object, *ids: str) -> str:
    """Name a row by its place, what it states, and its query and document."""
    try:
        shown = repr(str(value)[:40])
    except ValueError:  # an integer of thousands of digits
        shown = "a long integer"
    row = " of query {}, document {}".format(*map(sanitize, ids)) if ids else ""
    return f"{place} ({shown}){row}"


def read_run(path: Path, task: str, order: Order | None = None) -> Run:
    """Read a run from a file, or from all files of a folder, which are its parts.

    Of a folder with predictions of mteb, those of the task are read. Of a document that a query has
    in several files, the highest score counts. Without an order, that of the scores counts, which
    may then not contradict stated ranks.
    """
    if not path.is_dir():
        return read_run_file(path, order)
    files = [file for file in find_files(path, "") if not file.name.startswith(".")]
    predictions = [file for file in files if file.name.endswith(PREDICTIONS)]
    if predictions:
        files = [file for file in predictions if file.name == f"{task}{PREDICTIONS}"]
    if not files and predictions:
        stated = ", ".join(sorted({file.name.removesuffix(PREDICTIONS) for file in predictions}))
        raise PosirError(
            f"{path}: has predictions for {stated} and none for {task}. Give --data one of these."
        )
    if not files:
        raise PosirError(f"{path}: has no files. Give {KINDS}.")
    parts = [read_run_file(file, order) for file in files]
    origins = sorted({part.ranked_by for part in parts})
    by_subset: dict[str, HitsByQuery] = {}
    duplicates = sum(part.duplicates for part in parts)
    for file, part in zip(files, parts, strict=True):
        for subset, by_query in part.by_subset.items():
            merged = by_subset.setdefault(subset, {})
            for query, hits in by_query.items():
                earlier = merged.get(query, [])
                # Ranks in two files say nothing of each other.
                if earlier and hits and origins not in (["score"], ["distance"]):
                    raise DataError(
                        f"{file}: query {sanitize(query)} is in another file of the folder, too, "
                        f"and the files are ranked by {' and '.join(origins)}, which cannot be "
                        "compared. Give the scores of all, or all documents of a query in one file."
                    )
                names = {hit.document for hit in earlier}
                duplicates += len(names & {hit.document for hit in hits})
                merged[query] = sort_by_score([*earlier, *hits])
    name = parts[0].name if predictions else path.resolve().name
    return Run(name, by_subset, duplicates, splits=parts[0].splits)


def read_run_file(file: Path, order: Order | None = None) -> Run:
    """Read a run from a file, whose name without suffixes is the run's name; arguments and errors
    as in `read_run`.
    """
    stem, suffix = split_suffix(file)
    if suffix == ".lz4":
        raise PosirError(
            f"{file}: ranx's compressed format is not read. Save it with "
            f"`run.save('{stem}.parquet')` of ranx."
        )
    content = read_json(file) if suffix == ".json" else []
    if not isinstance(content, list):
        return _read_object(file, stem, content, order)
    builder = RankingBuilder(file, order)
    rows: Rows = [(f"[{number}]", record) for number, record in enumerate(content)]
    try:
        if suffix in (".csv", ".tsv"):
            rows = _read_cells(file, "," if suffix == ".csv" else "\t", order)
        elif suffix in (".parquet", ".parq"):
            rows = _read_parquet(file)
        elif suffix in (".jsonl", ".ndjson"):
            rows = _read_json_lines(file)
        elif suffix != ".json":
            rows = _read_lines(file, builder)
        for place, record in rows:
            builder.add_row(place, record)
    except GateError as error:
        where = str(error).removesuffix(f": {error.problem}")
        raise DataError(f"{where}: cannot be read: {error.problem}. Give {KINDS}.") from error
    except (OSError, ValueError) as error:
        raise DataError(
            f"{file}: cannot be read: {summarize_error(error)}. Give {KINDS}."
        ) from error
    return builder.build(stem)


def _read_object(file: Path, name: str, content: Any, order: Order | None) -> Run:
    """Read predictions of mteb, or an object with documents and scores, or a list of documents, for
    each query.
    """
    if not isinstance(content, dict):
        raise DataError(
            f"{file}: must be an object with the documents of each query, or a list of rows."
        )
    if MODEL_KEY not in content:
        # Elasticsearch's `_rank_eval` has the hits in `details`.
        details = content.get("details")
        by_query = details if isinstance(details, dict) else content
        return replace(read_rankings(str(file), by_query, order), name=name)
    meta = content[MODEL_KEY]
    model = meta.get("model_name") if isinstance(meta, dict) else None
    by_subset: dict[str, HitsByQuery] = {}
    splits = set[str]()
    for subset, by_split in content.items():
        if subset == MODEL_KEY:
            continue
        if not isinstance(by_split, dict) or len(by_split) != 1:
            stated = ", ".join(map(sanitize, by_split)) if isinstance(by_split, dict) else "none"
            raise DataError(
                f"{file}: field '{sanitize(subset)}' must have the rankings of one split; it has "
                f"{stated}. Leave one."
            )
        splits.update(by_split)
        # mteb writes the documents of a query in no order.
        (rankings,) = by_split.values()
        read = read_rankings(f"{file}: {subset}", rankings, order or "score")
        by_subset[subset] = read.by_subset[ANY_SUBSET]
    name = drop_organization(str(model)) if model else name
    return Run(name, by_subset, splits=frozenset(splits))


def is_table(value: object) -> bool:
    """Tell whether a value is a frame, or a list of rows with query and document, and not of
    several runs.
    """
    first = next(iter(value), None) if isinstance(value, list) else None
    if isinstance(first, Mapping):
        return any(isinstance(first.get(name), str | int) for name in FIELDS["query"])
    return is_frame(value) or isinstance(first, tuple)


def read_rankings(name: str, value: Any, order: Order | None) -> Run:
    """Read a run from hits by query, which are what a retriever may return, from a frame, or from
    rows.
    """
    builder = RankingBuilder(name, order)
    if isinstance(value, Mapping):
        for query, hits in value.items():
            builder.add_answer(f"query {sanitize(str(query))}", query, hits)
        return builder.build(name)
    rows: Rows = [(f"row {number}", row) for number, row in enumerate(read_rows(value), start=1)]
    if not all(isinstance(row, Mapping) for _, row in rows):
        rows = label_columns(name, rows, order)
    for place, record in rows:
        builder.add_row(place, record)
    return builder.build(name)


def _read_lines(file: Path, builder: RankingBuilder) -> Rows:
    """Keep the columns if the lines are regular, else read their rows."""
    content = read_bytes(file)
    builder.columns = RunColumns.parse(content)
    if builder.columns:
        return ()
    return label_columns(file, _split_lines(decode(content), "\t"), builder.order)


def _read_json_lines(file: Path) -> Rows:
    for number, line in enumerate(decode(read_bytes(file)).split("\n"), start=1):
        if line.strip():
            yield f"line {number}", parse_json(line, f"{file}: line {number}")


def _split_lines(text: str, delimiter: str) -> Iterator[tuple[str, list[str]]]:
    """Yield place and cells of each line that is not blank, divided by a delimiter, or else by
    white space.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        cells = [cell.strip() for cell in line.strip().split(delimiter)]
        if any(cells):
            yield f"line {number}", cells if len(cells) >= MIN_COLUMNS else line.split()


def _name_third_column(
    source: Path | str, rows: Iterable[tuple[str, Sequence[Any]]], order: Order | None
) -> str:
    """Find whether the third of three columns has ranks or scores, and say what was inferred.

    Raises:
        DataError: The values of each query are 1 to k, and neither rise nor fall from row to row.
    """
    by_query: dict[str, list[int | None]] = {}
    for _, cells in rows:
        if len(cells) == MIN_COLUMNS:
            by_query.setdefault(str(cells[0]), []).append(read_rank(cells[2]))
    ranks = [[rank for rank in column if rank is not None] for column in by_query.values()]
    if not ranks or [*map(len, ranks)] != [*map(len, by_query.values())]:
        return "score"
    if order is not None:
        return "rank" if order == "rank" else "score"
    starts = {min(column) for column in ranks}
    rises = all(column == sorted(set(column)) for column in ranks)
    falls = all(column == sorted(set(column), reverse=True) for column in ranks)
    first = min(starts)
    is_complete = all(sorted(column) == [*range(first, first + len(column))] for column in ranks)
    may_be_ranks = starts <= {0, 1}
    if rises or (falls and is_complete and may_be_ranks):
        is_rank = rises and not falls and may_be_ranks
        heading, other = ("rank", "score") if is_rank else ("score", "rank")
        logger.warning(
            "%s: the third column is read as %ss, as its whole numbers %s from row to row; "
            "--order %s reads it as %ss",
            source,
            heading,
            "fall" if falls else "rise",
            other,
            other,
        )
        return heading
    if is_complete and may_be_ranks:
        raise DataError(
            f"{source}: the third column has the whole numbers from {first} on in each "
            "query, which neither rise nor fall from row to row. Say what it has: --order rank "
            "(the lowest is best) or --order score (the highest)."
        )
    return "score"


def label_columns(
    source: Path | str, rows: Iterable[tuple[str, Sequence[Any]]], order: Order | None
) -> Rows:
    """Yield place and fields of rows without headings: TREC runs, and the shorter ones of Tevatron,
    MS MARCO and ColBERT.
    """
    listed = [*rows]
    headings = {
        3: ("query", "document", _name_third_column(source, listed, order)),
        4: ("query", "document", "rank", "score"),
        5: TREC_COLUMNS[:5],
        6: TREC_COLUMNS,
    }
    for place, cells in listed:
        joined = _join_blanks(cells)
        if len(joined) not in headings:
            raise DataError(
                f"{source}: {place}: has {len(cells)} columns; a TREC run has "
                f"{len(TREC_COLUMNS)}: query, Q0, document, rank, score and tag; others have "
                "query, document and score or rank, or query, document, rank and score. Write "
                "tabs between columns if ids have blanks."
            )
        yield place, dict(zip(headings[len(joined)], joined, strict=True))


def _join_blanks(cells: Sequence[Any]) -> Sequence[Any]:
    """Join the columns of a TREC run whose document id or tag has blanks, if rank and score can
    be in one place only.
    """
    places = [
        place
        for place in range(3, len(cells) - 1)
        if str(cells[place]).isdecimal() and NUMBER.fullmatch(str(cells[place + 1]))
    ]
    if len(cells) < len(TREC_COLUMNS) or len(places) != 1:
        return cells
    rank = places[0]
    document = " ".join(cells[2:rank])
    return [*cells[:2], document, *cells[rank : rank + 2], " ".join(cells[rank + 2 :])]


def _read_cells(file: Path, delimiter: str, order: Order | None) -> Rows:
    """Yield place and fields of each row of a table, with or without headings."""
    text = decode(read_bytes(file)).removeprefix("\ufeff")
    text = text if "\n" in text else text.replace("\r", "\n")
    heading = text.lstrip("\r\n").partition("\n")[0]
    delimiter = ";" if heading.count(";") > heading.count(delimiter) else delimiter
    _, first = next(_split_lines(heading, delimiter), ("", []))
    has_number = any(NUMBER.fullmatch(cell) for cell in first[2:])
    if has_number and not set(first) & {*chain(*FIELDS.values())}:
        yield from label_columns(file, _split_lines(text, delimiter), order)
        return
    headings, rows = parse_table(text, file, delimiter=delimiter)
    chosen = _choose_columns(file, headings)
    for number, row in rows:
        cells = zip(headings, row, strict=True)
        yield f"line {number}", {name: cell for name, cell in cells if name in chosen}


def _read_parquet(file: Path) -> Rows:
    # Of a damaged file, polars ends in a panic, which is no exception of Python's and prints a
    # traceback of its own.
    import pyarrow.parquet as pq
    from pyarrow.lib import ArrowException

    from posir_tasks.base.parquet import iterate_batches

    try:
        check_readable(file)
        headings = pq.read_schema(file).names
        require_distinct(headings, file)
        batches = iterate_batches(file, _choose_columns(file, headings))
        for number, row in enumerate((row for batch in batches for row in batch.to_pylist()), 1):
            yield f"row {number}", row
    except ArrowException as error:
        raise GateError(
            file, f"is no readable Parquet ({sanitize(summarize_error(error), 200)})"
        ) from error


def _choose_columns(file: Path, headings: Sequence[str]) -> list[str]:
    """Choose the columns with query, document, score, rank and distance, or with lists of them."""
    named = {}
    for kind, names in FIELDS.items():
        named[kind] = next((name for name in names if name in headings), None)
    lists = [name for name in headings if name in LISTS]
    needed = ["query"] if lists else ["query", "document"]
    if not (lists or named["rank"] or named["distance"]):
        needed.append("score")
    for kind in needed:
        if named[kind] is None:
            where = ", as in the table of the queries" if lists else ""
            raise DataError(
                f"{file}: no column of the {kind}; the file has "
                f"{sanitize(', '.join(headings), 300) or 'none'}. Name one "
                f"{' or '.join(FIELDS[kind][:3])}{where}."
            )
    return [name for name in headings if name in lists or name in named.values()]
