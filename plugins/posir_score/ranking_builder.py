"""Collection of a run's rows, and of the problems in them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
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
    is_missing,
    read_hits,
    read_id,
    read_number,
    read_rank,
)
from posir_score.orders import OrderCheck, sort_hits
from posir_tasks.base.errors import DataError
from posir_tasks.base.wording import pluralize, sanitize

logger = logging.getLogger(__name__)

#: Hits by query id, best first.
HitsByQuery: TypeAlias = dict[str, Collection[Hit]]

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


def list_kinds(headings: Sequence[str]) -> list[str]:
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


#: Location of an invalid row, its invalid value, and the ids of its query and document.
InvalidRow: TypeAlias = tuple[str, *tuple[Any, ...]]


class RankingBuilder:
    """Collects valid rows, and counts invalid rows by problem."""

    def __init__(self, source: Path | str, order: OrderChoice) -> None:
        self.source = source
        self.order = order
        self.hits: dict[str, list[Hit]] = {}
        self.columns: RunColumns | None = None
        """The hits of a regular file. If set, `hits` is empty."""
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
