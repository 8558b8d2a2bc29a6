"""Readers of runs: TREC, ranx, predictions of mteb, and JSON, JSON Lines, CSV or Parquet of query
id, document id and score.

The readers of ir_measures and ranx drop ranks, so that scores may contradict them in silence; both
keep NaN, and of a repeated document ranx takes the last row. They say neither line nor file.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

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
    OrderCheck,
    find_repeated_column,
    is_missing,
    read_hits,
    read_id,
    read_number,
    read_rank,
    read_rows,
    sort_by_score,
    sort_hits,
)
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
from posir_tasks.base.wording import pluralize, sanitized
from posir_tasks.models.references import bare_name

logger = logging.getLogger(__name__)

#: Hits by query id, each query's best first.
HitsByQuery: TypeAlias = dict[str, list[Hit]]

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
FEWEST_COLUMNS = 3
NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
#: What mteb's prediction files state beside the subsets, and how their names end.
MODEL_KEY, PREDICTIONS = "mteb_model_meta", "_predictions.json"
#: Where Elasticsearch's `_rank_eval` has the hits of each query.
RANK_EVAL = "details"
#: The suffix of ranx's own compressed format, CBOR in LZ4.
LZ4 = ".lz4"
KINDS = (
    "a TREC run, predictions of `mteb run --prediction-folder`, or JSON, JSON Lines, CSV or "
    "Parquet of ranked documents"
)
ID_RULE = "must be a text of Unicode characters that is not empty, or an integer"
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
    splits: frozenset[str] = frozenset()
    """Splits of a task, as mteb's predictions state them."""


class RankingBuilder:
    """Collects checked rows, and the first row of each kind of problem."""

    def __init__(self, file: Path | str, order: Order | None = None) -> None:
        """Take the file, for messages, and what the user says ranks documents."""
        self._file, self._order = file, order
        self.hits: dict[str, list[Hit]] = {}
        self._problems: dict[str, tuple[int, str]] = {}
        """Number of rows with a problem, and the first."""
        self._score_fields: dict[str, str] = {}
        """The first row with each name of the score."""
        self._without_rank = 0, ""
        self._has_rank = False
        self.ranked_by: Order = "score"
        """The origin of the scores, once they are built."""

    def add_answer(self, place: str, query: object, answer: object) -> None:
        """Add the hits of a query in any form that a retriever may return; it may have none, and
        has found nothing.
        """
        if (name := read_id(query)) is None:
            self._refuse(place, "query id", query, ID_RULE)
            return
        try:
            self.hits.setdefault(name, []).extend(read_hits(answer, MAX_HITS, order=self._order))
        except AnswerError as error:
            self._count("hits cannot be read", f"{place}: {error}")

    def add_row(self, place: str, record: object) -> None:
        """Add a row with a document, or with all hits of a query in lists."""
        values = record if isinstance(record, Mapping) else {}
        lists = LISTS & values.keys()
        if written := sorted(name for name in lists if isinstance(values[name], str)):
            rule = (
                "must be a list, which a table of text does not have; save the run as JSON Lines "
                "or Parquet"
            )
            self._refuse(place, written[0], values[written[0]], rule)
        elif lists:
            self.add_answer(place, _find_field(values, "query"), values)
        else:
            name = next((name for name in FIELDS["score"] if values.get(name) is not None), None)
            if name is not None:
                self._score_fields.setdefault(name, place)
            self.add(place, *(_find_field(values, kind) for kind in FIELDS))

    def add(
        self,
        place: str,
        query: object,
        document: object,
        score: object,
        rank: object,
        distance: object,
    ) -> None:
        """Add a row as the file states it, or remember what is wrong with it, and its place, such
        as `line 17`.
        """
        ids = [read_id(query), read_id(document)]
        for name, stated, value in zip(
            ("query id", "document id"), (query, document), ids, strict=True
        ):
            if value is None:
                self._refuse(place, name, stated, ID_RULE)
        if ids[0] is None or ids[1] is None:
            return
        number = read_rank(rank)
        self._has_rank = self._has_rank or number is not None
        if number is None:
            rows, first = self._without_rank
            self._without_rank = rows + 1, first or _name_row(place, rank, ids)
        is_distance = distance is not None and (score is None or self._order == "distance")
        name, stated = ("distance", distance) if is_distance else ("score", score)
        # Without a score or a distance, the rank decides, or the order of the rows if the user says
        # so.
        is_needed = stated is not None or (number is None and self._order != "rank")
        try:
            decisive = self._read_number(stated) if is_needed else None
        except ValueError as error:
            self._count(f"field '{name}' {error}", _name_row(place, stated, ids))
            return
        signed = -decisive if decisive is not None and is_distance else decisive
        self.hits.setdefault(ids[0], []).append(
            Hit(ids[1], signed, number, is_distance=is_distance)
        )

    def _read_number(self, value: object) -> float | None:
        return None if self._order == "rank" and is_missing(value) else read_number(value)

    def _refuse(self, place: str, name: str, value: object, rule: str) -> None:
        self._count(f"field '{name}' {rule}", _name_row(place, value))

    def _count(self, problem: str, row: str) -> None:
        number, first = self._problems.get(problem, (0, row))
        self._problems[problem] = number + 1, first

    def build(self) -> tuple[HitsByQuery, int]:
        """Return the hits, best first, and the number of rows that repeat a query and a document.

        A row that was refused, no rows, hits without what others have, or scores that contradict
        the order without the user's word are a DataError.
        """
        if self._has_rank and self._without_rank[0] and self._order in (None, "rank"):
            rule = "must be a whole number from 0, as in other rows (--order score needs none)"
            self._problems[f"field 'rank' {rule}"] = self._without_rank
        if len(self._score_fields) > 1 and self._order != "rank":
            names = " and ".join(
                f"{name}, first in {place}" for name, place in self._score_fields.items()
            )
            self._count("scores of different fields cannot be compared", names)
        if self._problems:
            kinds = (
                f"{problem}: {pluralize(rows, 'row')}, first {first}"
                for problem, (rows, first) in self._problems.items()
            )
            raise DataError(f"{self._file}: {'; '.join(kinds)}.")
        if not self.hits:
            raise DataError(f"{self._file}: has no ranked document. Give {KINDS}.")
        check = OrderCheck(self._order)
        for query, hits in self.hits.items():
            check.add(query, hits)
        if problem := check.describe_problem():
            raise DataError(f"{self._file}: {problem}")
        if guess := check.describe_guess():
            logger.warning("%s: %s", self._file, guess)
        self.ranked_by = check.ranked_by
        repeated = sum(
            len(hits) - len({hit.document for hit in hits}) for hits in self.hits.values()
        )
        return {query: sort_hits(hits, self._order) for query, hits in self.hits.items()}, repeated


def _name_row(place: str, value: object, ids: Sequence[str | None] = ()) -> str:
    """Return the place of a row and what it states, with its query and document."""
    try:
        shown = str(value)[:40]
    except ValueError:  # an integer of thousands of digits
        shown = "a long integer"
    row = " of query {}, document {}".format(*(sanitized(str(name)) for name in ids)) if ids else ""
    return f"{place} ({shown!r}){row}"


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
    if not files:
        stated = ", ".join(sorted({file.name.removesuffix(PREDICTIONS) for file in predictions}))
        raise PosirError(
            f"{path}: has predictions for {stated} and none for {task}. Give --data one of these."
            if predictions
            else f"{path}: has no files. Give {KINDS}."
        )
    parts = [read_run_file(file, order) for file in files]
    by_subset: dict[str, HitsByQuery] = {}
    duplicates = sum(part.duplicates for part in parts)
    for file, part in zip(files, parts, strict=True):
        for subset, by_query in part.by_subset.items():
            for query, hits in by_query.items():
                earlier = by_subset.setdefault(subset, {}).get(query, [])
                if earlier and hits:
                    _check_comparable(file, query, {run.ranked_by for run in parts})
                duplicates += len(
                    {hit.document for hit in earlier} & {hit.document for hit in hits}
                )
                by_subset[subset][query] = sort_by_score([*earlier, *hits])
    name = parts[0].name if predictions else path.resolve().name
    return Run(name, by_subset, duplicates, splits=parts[0].splits)


def _check_comparable(file: Path, query: str, ranked_by: Collection[Order]) -> None:
    """Raise DataError unless all files of a run have scores, or all distances: ranks in two files
    say nothing of each other.
    """
    if "rank" in ranked_by or len(ranked_by) > 1:
        raise DataError(
            f"{file}: query {sanitized(query)} is in another file of the folder, too, and the "
            f"files are ranked by {' and '.join(sorted(ranked_by))}, which cannot be compared. "
            "Give the scores of all, or all documents of a query in one file."
        )


def read_run_file(file: Path, order: Order | None = None) -> Run:
    """Read a run from a file, whose name without suffixes is the run's name; arguments and errors
    as in `read_run`.
    """
    stem, suffix = split_suffix(file)
    if suffix == LZ4:
        raise PosirError(
            f"{file}: ranx's compressed format is not read. Save it with "
            f"`run.save('{stem}.parquet')` of ranx."
        )
    content = read_json(file) if suffix == ".json" else []
    if isinstance(content, dict):
        return _read_object(file, stem, content, order)
    if not isinstance(content, list):
        raise DataError(
            f"{file}: must be an object with the documents of each query, or a list of rows."
        )
    builder = RankingBuilder(file, order)
    try:
        rows: Iterator[tuple[str, Any]]
        if suffix == ".json":
            rows = ((f"[{number}]", record) for number, record in enumerate(content))
        elif suffix in (".csv", ".tsv"):
            rows = _read_cells(file, "," if suffix == ".csv" else "\t", order)
        elif suffix in (".parquet", ".parq"):
            rows = _read_parquet(file)
        elif suffix in (".jsonl", ".ndjson"):
            lines = enumerate(decode(read_bytes(file)).split("\n"), start=1)
            rows = (
                (f"line {number}", parse_json(line, f"{file}: line {number}"))
                for number, line in lines
                if line.strip()
            )
        else:
            rows = label_columns(file, _split_lines(decode(read_bytes(file)), "\t"), order)
        for place, record in rows:
            builder.add_row(place, record)
    except (GateError, OSError, ValueError) as error:
        problem = error.problem if isinstance(error, GateError) else summarize_error(error)
        where = str(error).removesuffix(f": {problem}") if isinstance(error, GateError) else file
        raise DataError(f"{where}: cannot be read: {problem}. Give {KINDS}.") from error
    rankings, duplicates = builder.build()
    return Run(stem, {ANY_SUBSET: rankings}, duplicates, builder.ranked_by)


def _read_object(file: Path, name: str, content: Mapping[str, Any], order: Order | None) -> Run:
    """Read predictions of mteb, or an object with documents and scores, or a list of documents, for
    each query.
    """
    if MODEL_KEY not in content:
        details = content.get(RANK_EVAL)
        builder = collect_answers(
            file, "", details if isinstance(details, dict) else content, order
        )
        rankings, duplicates = builder.build()
        return Run(name, {ANY_SUBSET: rankings}, duplicates, builder.ranked_by)
    model = content[MODEL_KEY].get("model_name") if isinstance(content[MODEL_KEY], dict) else None
    by_subset: dict[str, HitsByQuery] = {}
    for subset, splits in content.items():
        if subset == MODEL_KEY:
            continue
        if not isinstance(splits, dict) or len(splits) != 1:
            stated = ", ".join(map(sanitized, splits)) if isinstance(splits, dict) else "none"
            raise DataError(
                f"{file}: field '{sanitized(subset)}' must have the rankings of one split; it has "
                f"{stated}. Leave one."
            )
        # mteb writes the documents of a query in no order.
        by_subset[subset], _ = collect_answers(
            file, f"{subset}: ", next(iter(splits.values())), order or "score"
        ).build()
    splits = frozenset(next(iter(stated)) for key, stated in content.items() if key != MODEL_KEY)
    return Run(bare_name(str(model)) if model else name, by_subset, splits=splits)


def collect_answers(
    file: Path | str, where: str, content: object, order: Order | None
) -> RankingBuilder:
    """Collect the hits of an object with those of each query.

    The hits of a query are what a retriever may return. `where` is their place in the file, for
    messages: empty or with a colon at the end.
    """
    builder = RankingBuilder(f"{file}: {where}".removesuffix(": ") if where else file, order)
    for query, hits in content.items() if isinstance(content, Mapping) else ():
        builder.add_answer(f"query {sanitized(str(query))}", query, hits)
    return builder


def is_table(given: object) -> bool:
    """Return whether a value is a frame, or a list of rows with query and document, and not of
    several runs.
    """
    first = next(iter(given), None) if isinstance(given, list) else None
    is_record = isinstance(first, Mapping) and any(
        isinstance(first.get(name), str | int) for name in FIELDS["query"]
    )
    return read_rows(given) is not given or is_record or isinstance(first, tuple)


def read_rankings(name: str, given: Any, order: Order | None) -> tuple[HitsByQuery, int]:
    """Return the hits of hits by query, of a frame, or of rows, as `RankingBuilder.build`; a name
    is for messages.
    """
    if isinstance(given, Mapping):
        return collect_answers(name, "", given, order).build()
    if (repeated := find_repeated_column(given)) is not None:
        raise DataError(f"{name}: has several columns {sanitized(repeated)}. Leave one of them.")
    rows = [(f"row {number}", row) for number, row in enumerate(read_rows(given), start=1)]
    builder = RankingBuilder(name, order)
    is_labeled = all(isinstance(row, Mapping) for _, row in rows)
    for place, record in rows if is_labeled else label_columns(name, rows, order):
        builder.add_row(place, record)
    return builder.build()


def _find_field(record: Mapping[str, Any], kind: str) -> Any:
    """Return what a row states of query, document, score, rank or distance; None if nothing."""
    return next((record[name] for name in FIELDS[kind] if name in record), None)


def _split_lines(text: str, delimiter: str) -> Iterator[tuple[str, list[str]]]:
    """Yield place and cells of each line that is not blank, divided by a delimiter, or else by
    white space.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        cells = [cell.strip() for cell in line.strip().split(delimiter)]
        if any(cells):
            yield f"line {number}", cells if len(cells) >= FEWEST_COLUMNS else line.split()


class Third(NamedTuple):
    """The meaning of the third of three columns, and why it was inferred."""

    heading: Literal["rank", "score"]
    reason: str = ""
    """Empty if nothing was inferred."""


def read_third_column(by_query: Collection[Sequence[object]], order: Order | None) -> Third:
    """Return whether the third column has ranks or scores, given the cells of each query in the
    order of its rows.

    Raises:
        ValueError: The values of each query are 1 to k, and neither rise nor fall from row to row.
    """
    ranks = [[read_rank(cell) for cell in cells] for cells in by_query]
    if not ranks or any(rank is None for values in ranks for rank in values):
        return Third("score")
    if order is not None:
        return Third("rank" if order == "rank" else "score")
    whole = [[rank for rank in values if rank is not None] for values in ranks]
    several = [values for values in whole if len(values) > 1]
    starts = {min(values) for values in whole}
    is_complete = len(starts) == 1 and all(
        sorted(values) == [*range(min(values), min(values) + len(values))] for values in whole
    )
    if not several:
        return Third("score", "each query has one row") if starts <= {0, 1} else Third("score")
    if all(a < b for values in several for a, b in pairwise(values)):
        return Third(
            "rank" if starts <= {0, 1} else "score", "its whole numbers rise from row to row"
        )
    if not is_complete or not starts <= {0, 1}:
        return Third("score")
    if all(a > b for values in several for a, b in pairwise(values)):
        return Third("score", "its whole numbers fall from row to row")
    raise ValueError(
        f"has the whole numbers from {min(starts)} on in each query, which neither rise nor fall "
        "from row to row"
    )


def _name_third_column(file: Path | str, rows: Iterable[Sequence[Any]], order: Order | None) -> str:
    """Return the heading of the third of three columns, and say what was inferred; raise DataError
    if it may be either.
    """
    by_query: dict[str, list[object]] = {}
    for cells in rows:
        if len(cells) == FEWEST_COLUMNS:
            by_query.setdefault(str(cells[0]), []).append(cells[2])
    try:
        third = read_third_column(by_query.values(), order)
    except ValueError as error:
        raise DataError(
            f"{file}: the third column {error}. Say what it has: --order rank (the lowest is "
            "best) or --order score (the highest)."
        ) from None
    if third.reason:
        other = "score" if third.heading == "rank" else "rank"
        logger.warning(
            "%s: the third column is read as %ss, as %s; --order %s reads it as %ss",
            file,
            third.heading,
            third.reason,
            other,
            other,
        )
    return third.heading


def label_columns(
    file: Path | str, rows: Iterable[tuple[str, Sequence[Any]]], order: Order | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield place and fields of rows without headings: TREC runs, and the shorter ones of Tevatron,
    MS MARCO and ColBERT.
    """
    listed = [*rows]
    headings = {
        3: ("query", "document", _name_third_column(file, (cells for _, cells in listed), order)),
        4: ("query", "document", "rank", "score"),
        5: TREC_COLUMNS[:5],
        6: TREC_COLUMNS,
    }
    for place, cells in listed:
        joined = _join_blanks(cells)
        if len(joined) not in headings:
            raise DataError(
                f"{file}: {place}: has {len(cells)} columns; a TREC run has {len(TREC_COLUMNS)}: "
                "query, Q0, document, rank, score and tag; others have query, document and score "
                "or rank, or query, document, rank and score. Write tabs between columns if ids "
                "have blanks."
            )
        yield place, dict(zip(headings[len(joined)], joined, strict=True))


def _join_blanks(cells: Sequence[Any]) -> Sequence[Any]:
    """Return the columns of a TREC run whose document id or tag has blanks, if rank and score can
    be in one place alone.
    """
    places = [
        place
        for place in range(3, len(cells) - 1)
        if str(cells[place]).isdecimal() and NUMBER.fullmatch(str(cells[place + 1]))
    ]
    if len(cells) < len(TREC_COLUMNS) or len(places) != 1:
        return cells
    document, tag = " ".join(cells[2 : places[0]]), " ".join(cells[places[0] + 2 :])
    return [*cells[:2], document, *cells[places[0] : places[0] + 2], *([tag] if tag else [])]


def _read_cells(file: Path, delimiter: str, order: Order | None) -> Iterator[tuple[str, Any]]:
    """Yield place and fields of each row of a table, with or without headings."""
    text = decode(read_bytes(file)).removeprefix("\ufeff")
    text = text if "\n" in text else text.replace("\r", "\n")
    heading = text.lstrip("\r\n").partition("\n")[0]
    delimiter = ";" if heading.count(";") > heading.count(delimiter) else delimiter
    _, first = next(_split_lines(heading, delimiter), ("", []))
    if any(NUMBER.fullmatch(cell) for cell in first[2:]) and not set(first) & {
        *chain(*FIELDS.values())
    }:
        yield from label_columns(file, _split_lines(text, delimiter), order)
        return
    headings, rows = parse_table(text, file, delimiter=delimiter)
    names = _choose_columns(file, headings)
    for number, row in rows:
        yield f"line {number}", {name: row[column] for column, name in names}


def _read_parquet(file: Path) -> Iterator[tuple[str, Any]]:
    # Of a damaged file, polars ends in a panic, which is no exception of Python's and prints a
    # traceback of its own.
    import pyarrow.parquet as pq
    from pyarrow.lib import ArrowException

    from posir_tasks.base.parquet import iterate_batches

    try:
        check_readable(file)
        headings = pq.read_schema(file).names
        require_distinct(headings, file)
        columns = [name for _, name in _choose_columns(file, headings)]
        rows = (row for batch in iterate_batches(file, columns) for row in batch.to_pylist())
        for number, row in enumerate(rows, start=1):
            yield f"row {number}", row
    except ArrowException as error:
        raise GateError(
            file, f"is no readable Parquet ({sanitized(summarize_error(error), 200)})"
        ) from error


def _choose_columns(file: Path, present: Sequence[str]) -> list[tuple[int, str]]:
    """Return place and name of the columns with query, document, score, rank and distance, or with
    lists of them.
    """
    named = {
        kind: next((name for name in allowed if name in present), None)
        for kind, allowed in FIELDS.items()
    }
    if repeated := [
        name for name in (*named.values(), *sorted(LISTS)) if name and present.count(name) > 1
    ]:
        raise DataError(f"{file}: has several columns {sanitized(repeated[0])}. Leave one of them.")
    lists = [name for name in present if name in LISTS]
    needed = (
        ["query"]
        if lists
        else ["query", "document", *([] if named["rank"] or named["distance"] else ["score"])]
    )
    for kind in needed:
        if named[kind] is None:
            raise DataError(
                f"{file}: no column of the {kind}; the file has "
                f"{sanitized(', '.join(present), 300) or 'none'}. "
                "Name one "
                f"{' or '.join(FIELDS[kind][:3])}{', as in the table of the queries' if lists else ''}."  # noqa: E501
            )
    chosen = {*lists, *(name for name in named.values() if name)}
    return [(place, name) for place, name in enumerate(present) if name in chosen]
