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
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from posir_score.columns import RunColumns
from posir_score.hits import (
    OrderChoice,
    is_frame,
    read_rank,
    read_rows,
)
from posir_score.json_columns import parse_json_lines
from posir_score.orders import sort_by_score
from posir_score.ranking_builder import (
    ANY_SUBSET,
    FIELD_NAMES,
    FIELDS_BY_KIND,
    LIST_FIELDS,
    SUPPORTED_FORMATS,
    HitsByQuery,
    RankingBuilder,
    Run,
    list_kinds,
)
from posir_tasks.base.errors import DataError, PosirError, summarize_error
from posir_tasks.base.files import check_readable, find_files, split_suffix
from posir_tasks.base.limits import LimitError
from posir_tasks.base.untrusted import (
    InputError,
    check_columns,
    decode,
    parse_json,
    parse_table,
    read_bytes,
    read_json,
    require_distinct,
)
from posir_tasks.base.wording import drop_organization, sanitize

logger = logging.getLogger(__name__)

#: Rows of a run with their locations for messages, such as `line 17`.
Rows: TypeAlias = Iterable[tuple[str, Any]]

TREC_COLUMNS = ("query", "Q0", "document", "rank", "score", "tag")
#: Minimum number of columns if there are no headings: query, document, and score or rank.
MIN_COLUMNS = 3
RANK = re.compile(r"\+?\d+")
NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
#: Metadata key of mteb's prediction files.
MODEL_META_KEY = "mteb_model_meta"
#: File suffix of mteb's prediction files.
PREDICTIONS_SUFFIX = "_predictions.json"


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
    try:
        if suffix != ".json":
            rows = _read_rows(file, suffix, builder)
        for location, record in rows:
            builder.add_row(location, record)
    except LimitError:
        raise
    except InputError as error:
        raise DataError(f"{error}. Give {SUPPORTED_FORMATS}.") from error
    except (OSError, ValueError) as error:
        raise DataError(
            f"{file}: cannot be read: {summarize_error(error)}. Give {SUPPORTED_FORMATS}."
        ) from error
    return builder.build(stem)


def _read_rows(file: Path, suffix: str, builder: RankingBuilder) -> Rows:
    """Parse a regular file into `builder.columns`, or return the rows of any other file."""
    match suffix:
        case ".csv" | ".tsv":
            return _read_table(file, "," if suffix == ".csv" else "\t", builder)
        case ".jsonl" | ".ndjson":
            return _read_json_lines(file, builder)
        case ".parquet" | ".parq":
            return _read_parquet(file)
        case _:
            return _read_lines(file, builder)


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


def _read_json_lines(file: Path, builder: RankingBuilder) -> Rows:
    """Parse regular JSON Lines into `builder.columns`. Return the rows of any other file."""
    content = read_bytes(file)
    builder.columns = parse_json_lines(content)
    if builder.columns:
        return ()
    return _parse_lines(file, decode(content))


def _parse_lines(file: Path, text: str) -> Rows:
    for number, line in enumerate(text.split("\n"), start=1):
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
        if RANK.fullmatch(str(cells[index])) and NUMBER.fullmatch(str(cells[index + 1]))
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
    text = heading.decode(errors="replace").lstrip("\ufeff")
    headings = [name.strip() for name in text.split(delimiter)]
    check_columns(len(headings), file)
    kinds = list_kinds(headings)
    # Quotation marks, other line breaks and invalid headings need a reader of whole rows.
    is_plain = "\ufffd" not in text and not any(mark in content for mark in (b'"', b"\r", b"\0"))
    if kinds and is_plain:
        builder.columns = RunColumns.parse_table(lines, kinds, delimiter)
    if builder.columns:
        return ()
    return _read_cells(file, decode(content), delimiter, builder.order)


def _read_cells(file: Path, text: str, delimiter: str, order: OrderChoice) -> Rows:
    """Yield the location and fields of each row of a table, with or without headings."""
    text = text.removeprefix("\ufeff")
    text = text if "\n" in text else text.replace("\r", "\n")
    heading = text.lstrip("\r\n").partition("\n")[0]
    names = map(str.strip, heading.split(delimiter))
    if FIELD_NAMES.isdisjoint(names) and heading.count(";") > heading.count(delimiter):
        delimiter = ";"
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
