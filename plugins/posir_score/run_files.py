"""Readers for run files: TREC, ranx, mteb's predictions, and JSON, JSON Lines, CSV or Parquet with
query id, document id and score.

The readers of ir_measures and ranx are not used: they ignore ranks, so they miss contradictions
between ranks and scores. They accept NaN, ranx keeps the last row of a repeated document, and their
errors contain neither file nor line.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from posir_score.columns import RunColumns
from posir_score.hits import (
    COLUMN_NAMES,
    DISTANCE_FIELDS,
    DOC_FIELDS,
    HIT_LIST_PATHS,
    ID_FIELDS_BY_TEXT_FIELD,
    MAX_HITS,
    SCORE_FIELDS,
    AnswerError,
    Hit,
    Order,
    OrderChoice,
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
from posir_tasks.base.limits import LimitError
from posir_tasks.base.untrusted import (
    InputError,
    decode,
    parse_json,
    parse_table,
    read_bytes,
    read_json,
    require_distinct,
)
from posir_tasks.base.wording import drop_organization, pluralize, sanitize

logger = logging.getLogger(__name__)

#: Hits by query id, best first.
HitsByQuery: TypeAlias = dict[str, Collection[Hit]]
#: Rows of a run with their locations for messages, such as `line 17`.
Rows: TypeAlias = Iterable[tuple[str, Any]]

#: Field or column names by kind of value, in order of preference.
FIELDS_BY_KIND = {
    "query": ("query_id", "query-id", "q_id", "qid", "query", "topic", "user_input", "input"),
    "document": (*DOC_FIELDS, "document", "doc", "id"),
    "score": SCORE_FIELDS,
    "rank": ("rank",),
    "distance": DISTANCE_FIELDS,
}
KIND_BY_FIELD = {name: kind for kind, names in FIELDS_BY_KIND.items() for name in names}
FIELD_NAMES = frozenset(KIND_BY_FIELD)
#: Fields that contain a list of hits.
LIST_FIELDS = frozenset(chain(*COLUMN_NAMES.values(), HIT_LIST_PATHS, ID_FIELDS_BY_TEXT_FIELD)) - {
    "value",
    "hits/hits",
}
TREC_COLUMNS = ("query", "Q0", "document", "rank", "score", "tag")
#: Minimum number of columns if there are no headings: query, document, and score or rank.
MIN_COLUMNS = 3
NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
#: Metadata key of mteb's prediction files.
MODEL_META_KEY = "mteb_model_meta"
#: File suffix of mteb's prediction files.
PREDICTIONS_SUFFIX = "_predictions.json"
SUPPORTED_FORMATS = (
    "a TREC run, predictions from `mteb run --prediction-folder`, or JSON, JSON Lines, CSV or "
    "Parquet of ranked documents"
)
ID_REQUIREMENT = "must be a string of Unicode characters that is not empty, or an integer"
RANK_REQUIREMENT = (
    "field 'rank' must be an integer of at least 0, as in other rows (--order score ignores it)"
)
#: Key of rankings without a subset.
ANY_SUBSET = ""


@dataclass(frozen=True)
class Run:
    """The documents or chunks that a system retrieved for queries."""

    name: str
    by_subset: Mapping[str, HitsByQuery]
    """Hits by subset; by `ANY_SUBSET` unless the run consists of mteb's predictions."""
    duplicates: int = 0
    """Number of rows that repeat a query and a document. The highest score counts."""
    ranked_by: Order = "score"
    """The values that the scores come from. Distances are negated."""
    requested_hits: int = 0
    """Number of hits per query that a retriever was asked for; 0 for a file."""
    hit_range: tuple[int, int] = (0, 0)
    """Minimum and maximum number of hits that a retriever returned for a query."""
    retriever_description: str = ""
    """Description of the retriever calls and the hit format; empty for a file."""
    splits: frozenset[str] = frozenset()
    """Splits of the task; only in mteb's predictions."""


#: Location of an invalid row, its invalid value, and the ids of its query and document.
InvalidRow: TypeAlias = tuple[str, *tuple[Any, ...]]


class RankingBuilder:
    """Collects valid rows, and counts invalid rows by problem."""

    def __init__(self, source: Path | str, order: OrderChoice) -> None:
        self.source = source
        self.order = order
        self.hits: dict[str, list[Hit]] = {}
        self.columns: RunColumns | None = None
        """The hits of a regular TREC file. If set, `hits` is empty."""
        self.problems: dict[str, tuple[int, InvalidRow]] = {}
        """Number of rows and first row, by problem."""
        self.score_fields: dict[str, str] = {}
        """Location of the first row with each score field."""
        self.has_rank = False

    def add_answer(self, location: str, query: object, answer: object) -> None:
        """Add the hits of a query, in any format of `read_hits`."""
        name = read_id(query)
        if name is None:
            self.count_problem(f"field 'query id' {ID_REQUIREMENT}", location, query)
            return
        try:
            hits = read_hits(answer, MAX_HITS, order=self.order)
        except AnswerError as error:
            self.count_problem("hits cannot be read", f"{location}: {error}")
            return
        self.hits.setdefault(name, []).extend(hits)

    def add_row(self, location: str, record: object) -> None:
        """Add a row with one document, or with all hits of a query as lists."""
        fields = record if isinstance(record, Mapping) else {}
        list_fields = sorted(LIST_FIELDS & fields.keys())
        for name in list_fields:
            if isinstance(fields[name], str):
                rule = (
                    "must be a list; text tables cannot contain lists, so save the run as JSON "
                    "Lines or Parquet"
                )
                self.count_problem(f"field '{name}' {rule}", location, fields[name])
                return
        values = {}
        for kind, names in FIELDS_BY_KIND.items():
            values[kind] = next((fields[name] for name in names if name in fields), None)
        if list_fields:
            self.add_answer(location, values["query"], fields)
            return
        for name in SCORE_FIELDS:
            if fields.get(name) is not None:
                self.score_fields.setdefault(name, location)
                break
        self._add_hit(location, values)

    def _add_hit(self, location: str, values: Mapping[str, Any]) -> None:
        query = read_id(values["query"])
        document = read_id(values["document"])
        for kind, name in (("query", query), ("document", document)):
            if name is None:
                problem = f"field '{kind} id' {ID_REQUIREMENT}"
                self.count_problem(problem, location, values[kind])
        if query is None or document is None:
            return
        rank = read_rank(values["rank"])
        if rank is None:
            self.count_problem(RANK_REQUIREMENT, location, values["rank"], query, document)
        self.has_rank = self.has_rank or rank is not None
        is_distance = values["distance"] is not None and (
            values["score"] is None or self.order == "distance"
        )
        kind = "distance" if is_distance else "score"
        value = values[kind]
        number = None
        # With a rank, or with --order rank, the score is optional.
        is_optional = self.order == "rank" and is_missing(value)
        if not is_optional and (value is not None or rank is None):
            try:
                number = read_number(value)
            except ValueError as error:
                self.count_problem(f"field '{kind}' {error}", location, value, query, document)
                return
        hit = Hit(document, number, rank)
        if is_distance:
            hit = Hit(document, None, rank, distance=number)
        self.hits.setdefault(query, []).append(hit)

    def count_problem(self, problem: str, *row: *InvalidRow) -> None:
        """Count an invalid row, and store the first row of each problem."""
        # Only the row in a message is described: a run may have millions of rows without ranks.
        count, first = self.problems.get(problem, (0, row))
        self.problems[problem] = (count + 1, first)

    def build(self, name: str) -> Run:
        """Build a run. Hits are sorted, best first.

        Raises:
            DataError: There are invalid rows or no rows, some hits lack a score, or scores
                contradict the ranks and no order is chosen.
        """
        if not self.has_rank or self.order in ("score", "distance"):
            self.problems.pop(RANK_REQUIREMENT, None)
        if len(self.score_fields) > 1 and self.order != "rank":
            names = [f"{name}, first in {row}" for name, row in self.score_fields.items()]
            self.count_problem(
                "scores from different fields cannot be compared", " and ".join(names)
            )
        if self.problems:
            sentences = [
                f"{problem}: {pluralize(rows, 'row')}, first {_describe_row(*first)}"
                for problem, (rows, first) in self.problems.items()
            ]
            raise DataError(f"{self.source}: {'; '.join(sentences)}.")
        if not self.hits and self.columns is None:
            raise DataError(
                f"{self.source}: contains no ranked document. Give {SUPPORTED_FORMATS}."
            )
        check = OrderCheck(self.order)
        by_query: HitsByQuery
        if self.columns is not None:
            self.columns.check_order(check)
            duplicates = self.columns.count_duplicates()
            self._raise_if_order_unclear(check)
            by_query = {**self.columns.sort(self.order)}
        else:
            duplicates = 0
            for query, hits in self.hits.items():
                check.add(query, hits)
                duplicates += len(hits) - len({hit.document for hit in hits})
            self._raise_if_order_unclear(check)
            by_query = {query: sort_hits(hits, self.order) for query, hits in self.hits.items()}
        return Run(name, {ANY_SUBSET: by_query}, duplicates, check.ranked_by)

    def _raise_if_order_unclear(self, check: OrderCheck) -> None:
        """Raise DataError if the order is unclear, and warn if it was inferred."""
        if problem := check.describe_problem():
            raise DataError(f"{self.source}: {problem}")
        if guess := check.describe_guess():
            logger.warning("%s: %s", self.source, guess)


def _describe_row(location: str, *details: Any) -> str:
    if not details:
        return location
    value, *ids = details
    try:
        quotation = repr(str(value)[:40])
    except ValueError:  # an integer with thousands of digits
        quotation = "a long integer"
    row = " of query {}, document {}".format(*map(sanitize, ids)) if ids else ""
    return f"{location} ({quotation}){row}"


def read_run(path: Path, task: str, order: OrderChoice = None) -> Run:
    """Read a run from a file, or from all files of a folder.

    In a folder with mteb's predictions, only the task's file is read. If several files contain the
    same query and document, the highest score counts.

    Args:
        path: The file or folder.
        task: Name of the task.
        order: Order of the hits; None to sort by score and reject scores that contradict the ranks.

    Raises:
        DataError: A row is invalid, or the order is unclear.
    """
    if not path.is_dir():
        return read_run_file(path, order)
    files = [file for file in find_files(path, "") if not file.name.startswith(".")]
    predictions = [file for file in files if file.name.endswith(PREDICTIONS_SUFFIX)]
    if predictions:
        files = [file for file in predictions if file.name == f"{task}{PREDICTIONS_SUFFIX}"]
    if not files and predictions:
        tasks = ", ".join(
            sorted({file.name.removesuffix(PREDICTIONS_SUFFIX) for file in predictions})
        )
        raise PosirError(
            f"{path}: contains predictions for {tasks}, but not for {task}. Use --data with one "
            "of these."
        )
    if not files:
        raise PosirError(f"{path}: contains no files. Give {SUPPORTED_FORMATS}.")
    runs = [read_run_file(file, order) for file in files]
    origins = sorted({run.ranked_by for run in runs})
    by_subset: dict[str, HitsByQuery] = {}
    duplicates = sum(run.duplicates for run in runs)
    for file, run in zip(files, runs, strict=True):
        for subset, by_query in run.by_subset.items():
            merged_hits = by_subset.setdefault(subset, {})
            for query, hits in by_query.items():
                other_hits = merged_hits.setdefault(query, hits)
                if other_hits is hits:
                    continue
                # Ranks from different files cannot be compared.
                if other_hits and hits and origins not in (["score"], ["distance"]):
                    raise DataError(
                        f"{file}: query {sanitize(query)} is also in another file of the folder, "
                        f"and the files are ranked by {' and '.join(origins)}, which cannot be "
                        "compared. Give scores in all files, or put all documents of a query into "
                        "one file."
                    )
                names = {hit.document for hit in other_hits}
                duplicates += len(names & {hit.document for hit in hits})
                merged_hits[query] = sort_by_score([*other_hits, *hits])
    name = runs[0].name if predictions else path.resolve().name
    return Run(name, by_subset, duplicates, splits=runs[0].splits)


def read_run_file(file: Path, order: OrderChoice = None) -> Run:
    """Read a run from a file. Its name is the file name without suffixes.

    Raises:
        DataError: As in `read_run`.
    """
    stem, suffix = split_suffix(file)
    if suffix == ".lz4":
        raise PosirError(
            f"{file}: ranx's compressed format is not supported. Save the run in ranx with "
            f"`run.save('{stem}.parquet')`."
        )
    content = read_json(file) if suffix == ".json" else []
    if not isinstance(content, list):
        return _read_object(file, stem, content, order)
    builder = RankingBuilder(file, order)
    rows: Rows = [(f"[{number}]", record) for number, record in enumerate(content)]
    readers = dict.fromkeys((".parquet", ".parq"), _read_parquet)
    readers |= dict.fromkeys((".jsonl", ".ndjson"), _read_json_lines)
    try:
        if suffix in (".csv", ".tsv"):
            rows = _read_table(file, "," if suffix == ".csv" else "\t", builder)
        elif suffix in readers:
            rows = readers[suffix](file)
        elif suffix != ".json":
            rows = _read_lines(file, builder)
        for location, record in rows:
            builder.add_row(location, record)
    except LimitError:
        raise
    except InputError as error:
        location = str(error).removesuffix(f": {error.problem}")
        raise DataError(
            f"{location}: cannot be read: {error.problem}. Give {SUPPORTED_FORMATS}."
        ) from error
    except (OSError, ValueError) as error:
        raise DataError(
            f"{file}: cannot be read: {summarize_error(error)}. Give {SUPPORTED_FORMATS}."
        ) from error
    return builder.build(stem)


def _read_object(file: Path, name: str, content: Any, order: OrderChoice) -> Run:
    """Read mteb's predictions, or an object that maps queries to hits."""
    if not isinstance(content, dict):
        raise DataError(
            f"{file}: must be an object that maps each query to its documents, or a list of rows."
        )
    if MODEL_META_KEY not in content:
        # Elasticsearch's `_rank_eval` has the hits in `details`.
        details = content.get("details")
        by_query = details if isinstance(details, dict) else content
        return replace(read_rankings(str(file), by_query, order), name=name)
    meta = content[MODEL_META_KEY]
    model = meta.get("model_name") if isinstance(meta, dict) else None
    by_subset = {}
    splits: set[str] = set()
    for subset, by_split in content.items():
        if subset == MODEL_META_KEY:
            continue
        if not isinstance(by_split, dict) or len(by_split) != 1:
            names = ", ".join(map(sanitize, by_split)) if isinstance(by_split, dict) else "none"
            raise DataError(
                f"{file}: field '{sanitize(subset)}' must contain the rankings of one split, but "
                f"contains {names}. Keep one."
            )
        splits.update(by_split)
        (rankings,) = by_split.values()
        # mteb writes documents unordered.
        run = read_rankings(f"{file}: {subset}", rankings, order or "score")
        by_subset[subset] = run.by_subset[ANY_SUBSET]
    name = drop_organization(str(model)) if model else name
    return Run(name, by_subset, splits=frozenset(splits))


def is_table(value: object) -> bool:
    """Return True for a frame or a list of rows, which is one run instead of a list of runs."""
    first = next(iter(value), None) if isinstance(value, list) else None
    if isinstance(first, Mapping):
        return any(isinstance(first.get(name), str | int) for name in FIELDS_BY_KIND["query"])
    return is_frame(value) or isinstance(first, tuple)


def read_rankings(name: str, value: Any, order: OrderChoice) -> Run:
    """Read a run from a frame, from rows, or from hits by query in any format of `read_hits`."""
    builder = RankingBuilder(name, order)
    if isinstance(value, Mapping):
        for query, hits in value.items():
            builder.add_answer(f"query {sanitize(str(query))}", query, hits)
        return builder.build(name)
    rows: Rows = [(f"row {number}", row) for number, row in enumerate(read_rows(value), start=1)]
    if not all(isinstance(row, Mapping) for _, row in rows):
        rows = label_columns(name, rows, order)
    for location, record in rows:
        builder.add_row(location, record)
    return builder.build(name)


def _read_lines(file: Path, builder: RankingBuilder) -> Rows:
    """Parse a regular TREC file into `builder.columns`. Return the rows of any other file."""
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
    """Yield the location and cells of each line, without blank lines. Lines are split at the
    delimiter or, if this gives fewer than `MIN_COLUMNS` cells, at white space.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        cells = [cell.strip() for cell in line.strip().split(delimiter)]
        if any(cells):
            yield f"line {number}", cells if len(cells) >= MIN_COLUMNS else line.split()


def _name_third_column(source: Path | str, rows: Rows, order: OrderChoice) -> str:
    """Return `rank` or `score` for the third of three columns, and warn if it was inferred.

    Raises:
        DataError: Each query has the integers from 0 or 1 up, neither rising nor falling.
    """
    by_query = defaultdict(list)
    for _, cells in rows:
        if len(cells) == MIN_COLUMNS:
            rank = read_rank(cells[2])
            if rank is None:
                return "score"
            by_query[str(cells[0])].append(rank)
    columns = [*by_query.values()]
    if not columns:
        return "score"
    if order is not None:
        return "rank" if order == "rank" else "score"
    starts = {min(column) for column in columns}
    rises = all(column == sorted(set(column)) for column in columns)
    falls = all(column == sorted(set(column), reverse=True) for column in columns)
    first = min(starts)
    is_complete = all(sorted(column) == [*range(first, first + len(column))] for column in columns)
    may_be_ranks = starts <= {0, 1}
    if rises or (falls and is_complete and may_be_ranks):
        is_rank = rises and not falls and may_be_ranks
        heading = "rank" if is_rank else "score"
        alternative = "score" if is_rank else "rank"
        logger.warning(
            "%s: the third column is read as %ss, since its integers %s from row to row; give "
            "--order %s to read it as %ss",
            source,
            heading,
            "fall" if falls else "rise",
            alternative,
            alternative,
        )
        return heading
    if is_complete and may_be_ranks:
        raise DataError(
            f"{source}: the third column contains the integers from {first} up for each query, "
            "which neither rise nor fall from row to row. Use --order rank if the lowest is best, "
            "or --order score if the highest is best."
        )
    return "score"


def label_columns(source: Path | str, rows: Rows, order: OrderChoice) -> Rows:
    """Yield the location and fields of rows without headings, as in TREC runs and in the shorter
    rows of Tevatron, MS MARCO and ColBERT.
    """
    rows = [*rows]
    headings = {
        3: ("query", "document", _name_third_column(source, rows, order)),
        4: ("query", "document", "rank", "score"),
        5: TREC_COLUMNS[:5],
        6: TREC_COLUMNS,
    }
    for location, cells in rows:
        columns = _join_split_ids(cells)
        if len(columns) not in headings:
            raise DataError(
                f"{source}: {location}: has {len(cells)} columns; a TREC run has "
                f"{len(TREC_COLUMNS)}: query, Q0, document, rank, score and tag; other runs have "
                "query, document and score or rank, or query, document, rank and score. Separate "
                "the columns by tabs if ids contain spaces."
            )
        yield location, dict(zip(headings[len(columns)], columns, strict=True))


def _join_split_ids(cells: Sequence[Any]) -> Sequence[Any]:
    """Join the cells of a document id or tag with spaces, if only one cell can be the rank."""
    ranks = [
        index
        for index in range(3, len(cells) - 1)
        if str(cells[index]).isdecimal() and NUMBER.fullmatch(str(cells[index + 1]))
    ]
    if len(cells) < len(TREC_COLUMNS) or len(ranks) != 1:
        return cells
    rank = ranks[0]
    document = " ".join(cells[2:rank])
    return [*cells[:2], document, *cells[rank : rank + 2], " ".join(cells[rank + 2 :])]


def _read_table(file: Path, delimiter: str, builder: RankingBuilder) -> Rows:
    """Parse a regular table into `builder.columns`, or return the rows of any other table."""
    content = read_bytes(file)
    heading, _, lines = content.partition(b"\n")
    kinds = _list_kinds(heading.decode(errors="replace").split(delimiter))
    # Quotation marks and other line breaks need a reader of whole rows.
    if kinds and not any(mark in content for mark in (b'"', b"\r", b"\0")):
        builder.columns = RunColumns.parse_table(lines, kinds, delimiter)
    if builder.columns:
        return ()
    return _read_cells(file, decode(content), delimiter, builder.order)


def _list_kinds(headings: Sequence[str]) -> list[str]:
    """Return the kind of value in each column, or the heading of any other column; empty unless the
    table has one column each for queries, documents and scores.
    """
    kinds = [KIND_BY_FIELD.get(heading, heading) for heading in headings]
    is_regular = (
        len(set(kinds)) == len(kinds)
        and {"query", "document", "score"} <= {*kinds}
        and {"distance", *LIST_FIELDS}.isdisjoint(kinds)
    )
    return kinds if is_regular else []


def _read_cells(file: Path, text: str, delimiter: str, order: OrderChoice) -> Rows:
    """Yield the location and fields of each row of a table, with or without headings."""
    text = text.removeprefix("\ufeff")
    text = text if "\n" in text else text.replace("\r", "\n")
    heading = text.lstrip("\r\n").partition("\n")[0]
    delimiter = ";" if heading.count(";") > heading.count(delimiter) else delimiter
    _, first = next(_split_lines(heading, delimiter), ("", []))
    has_number = any(NUMBER.fullmatch(cell) for cell in first[2:])
    if has_number and FIELD_NAMES.isdisjoint(first):
        yield from label_columns(file, _split_lines(text, delimiter), order)
        return
    headings, rows = parse_table(text, file, delimiter=delimiter)
    _check_columns(file, headings)
    for number, row in rows:
        yield f"line {number}", dict(zip(headings, row, strict=True))


def _read_parquet(file: Path) -> Rows:
    # polars panics on damaged files instead of raising an exception.
    import pyarrow.parquet as pq
    from pyarrow.lib import ArrowException

    from posir_tasks.base.parquet import iterate_batches

    try:
        check_readable(file)
        headings = pq.read_schema(file).names
        require_distinct(headings, file)
        _check_columns(file, headings)
        columns = [name for name in headings if name in FIELD_NAMES | LIST_FIELDS]
        batches = iterate_batches(file, columns)
        for number, row in enumerate((row for batch in batches for row in batch.to_pylist()), 1):
            yield f"row {number}", row
    except ArrowException as error:
        raise InputError(
            file, f"is not a valid Parquet file ({sanitize(summarize_error(error), 200)})"
        ) from error


def _check_columns(file: Path, headings: Collection[str]) -> None:
    """Raise DataError unless there are columns for query, document, and score, rank or distance;
    with lists of hits, only the query column is required.
    """
    has_lists = not LIST_FIELDS.isdisjoint(headings)
    fields = {kind for kind, names in FIELDS_BY_KIND.items() if not set(names).isdisjoint(headings)}
    required_kinds = ["query"] if has_lists else ["query", "document"]
    if not has_lists and fields.isdisjoint(("rank", "distance")):
        required_kinds.append("score")
    for kind in required_kinds:
        if kind not in fields:
            example = ", as in the table of queries" if has_lists else ""
            raise DataError(
                f"{file}: has no {kind} column; its columns are "
                f"{sanitize(', '.join(headings), 300) or 'none'}. Name one "
                f"{' or '.join(FIELDS_BY_KIND[kind][:3])}{example}."
            )
