"""Ranks of relevant documents, grouped by document. Position profiles are computed from them.

Questions about the same document are not independent, so intervals need to know the groups. Ranks
are additive and contain no texts or ids. Results on the same data list queries in the same order,
so they can be paired by query.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np

from posir_tasks.base.arrays import Booleans, Floats, Integers, freeze_arrays, make_empty_column
from posir_tasks.base.caching import cache_recent
from posir_tasks.base.errors import ProfileError
from posir_tasks.base.wording import sanitize
from posir_tasks.values.columns import pack_column, unpack_column
from posir_tasks.values.document_keys import (
    KEY_NAMES,
    digest_documents,
    link_documents,
    pack_keys,
    unpack_keys,
)
from posir_tasks.values.evidence import TWELFTHS, Evidence, ReadEvidence, Unread
from posir_tasks.values.layouts import QueryLayout
from posir_tasks.values.profile import (
    NDCG_AT_10,
    RANKS,
    PositionProfile,
    map_ranks_to_columns,
    validate_json,
)
from posir_tasks.values.query_order import CellKey, group_by_document, list_cells
from posir_tasks.values.read_part import TokenCountMethod
from posir_tasks.values.result_schema import (
    KEYS_KEY,
    RANKS_KEY,
    READ_RANKS_KEY,
    SCHEMA,
    WEIGHTS_KEY,
)
from posir_tasks.values.schemes import Axes, PositionScheme

logger = logging.getLogger(__name__)

#: Bytes of a hash that orders documents and queries.
HASH_BYTES = 8
#: Maximum number of queries in a result, 45 times as many as in the largest task, SQuAD-PosQ.
MAX_QUERIES = 2**22
#: Weight of a query, split equally between its spans: the least common multiple of 1 to 12.
PLACE_WEIGHT = 27_720


@dataclass(frozen=True, eq=False)
class DocumentSet:
    """The n queries about one set of documents, sorted by document hash, cell and query hash."""

    subset: str
    """Subset of the task: a domain or a pair of languages."""
    documents: str
    """Digest of the documents."""
    queries: str
    """Digest of the queries, comparable if the documents are the same."""
    document_sizes: Integers
    """Number of queries per document, shape (D,)."""
    cells: Integers
    """Indices into `DocumentRanks.cell_keys`, shape (n,)."""
    ranks: Integers
    """Columns of `posir_tasks.values.profile.RANKS`, shape (n,)."""
    twelfths: Integers
    """Twelfth of the window that contains the middle of the evidence, 0 to 11, or an `Unread` code;
    shape (n,), or (0,) if the window or the position is unknown.
    """
    thirds: Integers
    """Third of the document that contains the middle of the evidence, 0 to 2; shape (n,), or (0,)
    if positions are unknown.
    """
    document_keys: Integers
    """Digests of each document in the order of `KEY_NAMES`, 0 if unknown; shape (D, 3)."""
    counted_with: TokenCountMethod | None
    """How tokens before the evidence were counted, or None if they were not needed."""
    questions: Integers = field(default_factory=make_empty_column)
    """Query number of each row if rows are evidence spans, shape (n,); else shape (0,)."""
    weights: Integers = field(default_factory=make_empty_column)
    """Weight of each span in units of 1 / `PLACE_WEIGHT`, shape (n,); shape (0,) if rows are
    queries, which have equal weights.
    """

    @property
    def identity(self) -> tuple[str, str, str]:
        """Subset, documents and queries; equal for two models on the same queries."""
        return self.subset, self.documents, self.queries

    @property
    def sort_key(self) -> tuple[str, str, str, bytes, bytes]:
        """Key that sorts sets independently of the order of addition."""
        ranks = self.ranks.astype(np.uint8).tobytes()
        twelfths = self.twelfths.astype(np.uint8).tobytes()
        return self.documents, self.queries, self.subset, ranks, twelfths

    def select(self, mask: Booleans) -> DocumentSet:
        """Select queries. Documents are kept even if none of their queries is selected."""
        owners = np.repeat(np.arange(len(self.document_sizes)), self.document_sizes)
        sizes = np.bincount(owners[mask], minlength=len(self.document_sizes))
        bits = np.packbits(mask).tobytes()
        digest = blake2b(bits, key=self.queries.encode(), digest_size=HASH_BYTES)
        columns = dict[str, Any]()
        for name in ("cells", "ranks", "twelfths", "thirds", "questions", "weights"):
            column = getattr(self, name)
            columns[name] = column[mask] if len(column) else column
        return replace(self, queries=digest.hexdigest(), document_sizes=sizes, **columns)


@dataclass(frozen=True, eq=False)
class QueryColumns:
    """The n queries of all sets as columns of shape (n,).

    `twelfths` and `thirds` have shape (0,) if the value of any query is unknown. `weights` and
    `questions` have shape (0,) unless rows are evidence spans.
    """

    subsets: Integers
    """Index of the subset."""
    clusters: Integers
    """Cluster number, equal for documents that share a text, a title or an opening."""
    documents: Integers
    """Document number, equal for the same text in different sets."""
    cells: Integers
    ranks: Integers
    twelfths: Integers
    """Twelfth of the window, 0 to 11, or an `Unread` code."""
    thirds: Integers
    """Third of the document, 0 to 2."""
    weights: Integers
    """Weight in units of 1 / `PLACE_WEIGHT`."""
    questions: Integers
    """Query number."""

    @property
    def gains(self) -> Floats:
        """nDCG@10 of each query, in [0, 1]."""
        return NDCG_AT_10[self.ranks]

    @property
    def shares(self) -> Floats:
        """Weight of each span, 1/n for a query with n spans."""
        return self.weights / PLACE_WEIGHT


@dataclass(frozen=True, eq=False)
class DocumentRanks:
    """Ranks of the relevant documents, grouped by document; additive over the same axes."""

    axes: Axes
    """Length buckets and position bins."""
    cell_keys: tuple[CellKey, ...] = field(repr=False)
    """Sorted keys of the cells that contain queries."""
    sets: tuple[DocumentSet, ...] = field(repr=False)
    """Sets of documents, sorted by `DocumentSet.sort_key`."""
    left_out: int = 0
    """Number of queries excluded because they have too many spans."""

    @classmethod
    def from_ranks(
        cls,
        scheme: PositionScheme,
        evidence: Evidence,
        ranks: Integers,
        read_evidence: ReadEvidence | None = None,
        subset: str = "default",
        texts: Mapping[str, str] | None = None,
        queries: Sequence[str] | None = None,
    ) -> DocumentRanks:
        """Group ranks by document.

        Args:
            scheme: Assigns queries to cells.
            evidence: The evidence of n queries.
            ranks: Rank of each query's relevant document from 1, or 0 for a miss; shape (n,).
            read_evidence: The evidence relative to the window; None if the window is unknown.
            subset: Subset of the task.
            texts: Texts of the relevant documents by id. Without them, documents are only linked by
                title.
            queries: Query id of each row, if rows are evidence spans.
        """
        cell_keys, cells = list_cells(scheme, evidence)
        if not len(evidence):
            return cls(scheme.axes, tuple(cell_keys), ())
        documents, keys = group_by_document(evidence, cells)
        order = [row for rows in documents for row in rows]
        first_rows = [rows[0] for rows in documents]
        complete = evidence.add_lengths(texts) if texts else evidence
        thirds = complete.compute_twelfths() // (TWELFTHS // 3)
        twelfths = read_evidence.twelfths if read_evidence else make_empty_column()
        numbers = np.array([*(queries or ())], np.str_)
        _, questions, counts = np.unique(numbers, return_inverse=True, return_counts=True)
        place_rows = order if len(numbers) else []
        titles = dict(zip(evidence.document_ids, evidence.clusters, strict=False))
        document_ids = [evidence.document_ids[row] for row in first_rows]
        document_set = DocumentSet(
            subset=subset,
            documents=_digest_hashes(keys[row][0] for row in first_rows),
            queries=_digest_hashes(keys[row][2] for row in order),
            document_sizes=np.array([len(rows) for rows in documents], np.int64),
            cells=cells[order],
            ranks=map_ranks_to_columns(ranks)[order],
            twelfths=twelfths[order] if len(twelfths) else twelfths,
            thirds=thirds[order] if len(thirds) else thirds,
            document_keys=digest_documents(document_ids, titles, texts or {}),
            counted_with=read_evidence.counted_with if read_evidence else None,
            questions=questions[place_rows].astype(np.int64),
            weights=(PLACE_WEIGHT // counts[questions])[place_rows].astype(np.int64),
        )
        return cls(scheme.axes, tuple(cell_keys), (document_set,))

    def __add__(self, other: DocumentRanks) -> DocumentRanks:
        self.axes.check_same(other.axes)
        cell_keys = tuple(sorted({*self.cell_keys, *other.cell_keys}))
        sets = []
        for value in (self, other):
            indices = np.array([cell_keys.index(key) for key in value.cell_keys], np.int64)
            sets += [
                replace(document_set, cells=indices[document_set.cells])
                for document_set in value.sets
            ]
        left_out = self.left_out + other.left_out
        return DocumentRanks(self.axes, cell_keys, _sort_sets(sets), left_out)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, DocumentRanks)
            and (self.axes, self.left_out) == (other.axes, other.left_out)
            and self.to_json(PLACE_FIELDS) == other.to_json(PLACE_FIELDS)
        )

    def __hash__(self) -> int:
        return hash((self.axes, tuple(document_set.sort_key for document_set in self.sets)))

    def has_same_queries(self, other: DocumentRanks) -> bool:
        """Return True if queries, documents and cells are equal, in the same order."""
        return self._query_key == other._query_key

    @property
    def _query_key(self) -> tuple[object, ...]:
        keys = [
            (document_set.documents, document_set.queries, document_set.cells.tobytes())
            for document_set in self.sets
        ]
        return self.axes, self.cell_keys, keys

    @property
    def _queries(self) -> _Queries:
        names = ("document_sizes", "cells", "thirds", "document_keys", "questions", "weights")
        keys = []
        for part in self.sets:
            columns = [getattr(part, name).tobytes() for name in names]
            keys.append((part.subset, part.documents, part.queries, *columns))
        return _Queries((self.axes, self.cell_keys, *keys), self)

    @cached_property
    def columns(self) -> QueryColumns:
        """The queries of all sets."""
        columns = _link_queries(self._queries)
        return replace(columns, ranks=self.join("ranks"), twelfths=self.join("twelfths"))

    @cached_property
    def layout(self) -> QueryLayout:
        """Documents and position bins of the queries, shared by results on the same queries."""
        return _lay_out_queries(self._queries)

    def join(self, name: str) -> Integers:
        """Concatenate a column of all sets, unless it is missing in a set with queries."""
        columns = [getattr(document_set, name) for document_set in self.sets]
        pairs = zip(self.sets, columns, strict=True)
        is_complete = all(
            len(column) > 0 or not len(document_set.ranks) for document_set, column in pairs
        )
        return np.concatenate(
            [make_empty_column(), *columns] if is_complete else [make_empty_column()]
        )

    @cached_property
    def cell_lengths(self) -> Integers:
        """Length bucket of each cell, shape (cells,)."""
        return np.array([length for length, _ in self.cell_keys], np.int64)

    @cached_property
    def cell_bins(self) -> Integers:
        """Position bins of each cell, padded with -1, shape (cells, maximum number of bins)."""
        bins_of_cells = [bins for _, bins in self.cell_keys]
        table = np.full((len(bins_of_cells), max(map(len, bins_of_cells), default=0)), -1)
        for cell, bins in enumerate(bins_of_cells):
            table[cell, : len(bins)] = bins
        return table

    @cached_property
    def profile(self) -> PositionProfile:
        """The position profile of these ranks."""
        columns = self.columns
        weights = columns.weights if len(columns.weights) else 1
        table = np.zeros((len(self.cell_keys), len(RANKS)), np.int64)
        np.add.at(table, (columns.cells, columns.ranks), weights)
        counts = np.zeros((len(self.axes.lengths), len(self.axes.positions), len(RANKS)), np.int64)
        totals = np.zeros((len(self.axes.lengths), len(RANKS)), np.int64)
        np.add.at(totals, self.cell_lengths, table)
        cell, member = np.nonzero(self.cell_bins >= 0)
        bins = self.cell_bins[cell, member]
        np.add.at(counts, (self.cell_lengths[cell], bins), table[cell])
        return PositionProfile(self.axes, counts, totals)

    def select_within_window(self) -> DocumentRanks:
        """Select the queries whose evidence lies within the window.

        Raises:
            ProfileError: The window is unknown.
        """
        if any(len(document_set.twelfths) != len(document_set.ranks) for document_set in self.sets):
            raise ProfileError(
                "The window of a result is unknown, so its queries within the window are unknown."
            )
        sets = [document_set.select(document_set.twelfths < TWELFTHS) for document_set in self.sets]
        return DocumentRanks(self.axes, self.cell_keys, _sort_sets(sets))

    @property
    def counted_with(self) -> TokenCountMethod | None:
        """Least accurate method that counted tokens, or None if counts were not needed."""
        methods = [
            document_set.counted_with for document_set in self.sets if document_set.counted_with
        ]
        return max(methods, key=list(TokenCountMethod).index, default=None)

    def to_json(self, fields: Fields | None = None) -> dict[str, Any]:
        """Return the fields of a result. The axes are stored with the profile."""
        cells = {RANKS_KEY: {"cells": " ".join(map(_format_cell_key, self.cell_keys))}}
        data = dict[str, Any]()
        for key, names in (fields or FIELDS).items():
            sets = [_pack(document_set, key, names) for document_set in self.sets]
            data[key] = {"schema": SCHEMA, **cells.get(key, {}), "sets": sets}
        return data

    @classmethod
    def from_json(
        cls,
        data: Mapping[str, Any],
        axes: Axes,
        queries: int = MAX_QUERIES,
        fields: Fields | None = None,
    ) -> DocumentRanks:
        """Read ranks by document.

        Args:
            data: The fields of a result, as returned by `to_json`.
            axes: The axes, which are stored with the profile.
            queries: Number of queries in the profile, the limit for unpacking columns.
            fields: Attributes of a set by field; defaults to `FIELDS`.

        Raises:
            ProfileError: A field is missing or damaged.
            NewerSchemaError: A newer version of posir wrote the result.
        """
        rows_by_field: list[list[Any]] = []
        fields = fields or FIELDS
        for key in fields:
            if key not in data:
                raise ProfileError(f"no field '{key}'. Run the model again.", key)
            with validate_json(data[key], SCHEMA, field=key):
                sets = data[key]["sets"]
                if not isinstance(sets, list) or not all(isinstance(row, dict) for row in sets):
                    raise ValueError("'sets' must be a list of objects")
                rows_by_field.append(sets)
        names = {str(name) for rows in rows_by_field for row in rows for name in row}
        unknown_names = sorted(names.difference(*fields.values()))
        if unknown_names:
            logger.warning(
                "ignoring fields written by a newer version of posir: %s",
                sanitize(", ".join(unknown_names), 200),
            )
        with validate_json(data[RANKS_KEY], SCHEMA, field=RANKS_KEY):
            cell_keys = _parse_cell_keys(data[RANKS_KEY]["cells"], axes)
            rows_of_sets = list(zip(*rows_by_field, strict=True))
        document_sets = list[DocumentSet]()
        remaining = min(queries, MAX_QUERIES)
        for rows in rows_of_sets:
            document_sets.append(_read_set(data, rows, len(cell_keys), remaining, fields))
            remaining -= len(document_sets[-1].ranks)
        return cls(axes, cell_keys, _sort_sets(document_sets))


#: Number of cached sets of queries, and number of queries up to which there may be more.
CACHED_TASKS, CACHED_QUERIES = 8, 400_000


@dataclass(frozen=True)
class _Queries:
    """The queries of ranks by document, equal for all models with the same queries."""

    key: tuple[object, ...]
    """All columns that do not depend on the model."""
    source: DocumentRanks = field(compare=False)


@cache_recent(CACHED_TASKS, CACHED_QUERIES, lambda columns: len(columns.clusters))
def _link_queries(queries: _Queries) -> QueryColumns:
    """Join the columns of the sets, and number documents and clusters."""
    ranks = queries.source
    subset_names = sorted({document_set.subset for document_set in ranks.sets})
    subsets = [make_empty_column()]
    owners = [make_empty_column()]
    questions = [make_empty_column()]
    keys = [np.zeros((0, len(KEY_NAMES)), np.int64)]
    firsts = dict[str, int]()
    document_count = 1
    question_count = 1
    for document_set in ranks.sets:
        # Sets of the same documents share numbers.
        first = firsts.setdefault(document_set.documents, document_count)
        owners.append(np.arange(len(document_set.document_sizes)) + first)
        document_count += len(document_set.document_sizes)
        questions.append(document_set.questions + question_count)
        question_count += len(document_set.questions)
        subsets.append(np.full(len(document_set.ranks), subset_names.index(document_set.subset)))
        keys.append(document_set.document_keys)
    owner = np.concatenate(owners)
    sizes = ranks.join("document_sizes")
    row = np.repeat(np.arange(len(sizes)), sizes)
    texts, *other_keys = np.concatenate(keys).T
    clusters = link_documents([owner, texts, *other_keys])[row]
    question_numbers = np.concatenate(questions)
    if len(question_numbers):
        # Spans of one query are dependent, even in different documents.
        clusters = link_documents([clusters + 1, question_numbers])
    columns = QueryColumns(
        subsets=np.concatenate(subsets),
        clusters=clusters,
        documents=link_documents([owner, texts])[row],
        cells=ranks.join("cells"),
        ranks=make_empty_column(),
        twelfths=make_empty_column(),
        thirds=ranks.join("thirds"),
        weights=ranks.join("weights"),
        questions=question_numbers,
    )
    return freeze_arrays(columns)


@cache_recent(CACHED_TASKS, CACHED_QUERIES, lambda layout: len(layout.clusters))
def _lay_out_queries(queries: _Queries) -> QueryLayout:
    ranks = queries.source
    columns = _link_queries(queries)
    query_bins = ranks.cell_bins[columns.cells]
    query, member = np.nonzero(query_bins >= 0)
    layout = QueryLayout(
        lengths=ranks.cell_lengths[columns.cells],
        clusters=columns.clusters,
        query=query,
        position=query_bins[query, member],
        bins=len(ranks.axes.positions),
        thirds=columns.thirds,
        weights=columns.shares,
    )
    return freeze_arrays(layout)


def _sort_sets(sets: Iterable[DocumentSet]) -> tuple[DocumentSet, ...]:
    return tuple(sorted(sets, key=lambda document_set: document_set.sort_key))


#: Attributes of `DocumentSet` by field of a result.
Fields: TypeAlias = Mapping[str, tuple[str, ...]]
#: Attributes of queries with one evidence span.
FIELDS: Fields = {
    RANKS_KEY: ("subset", "documents", "queries", "document_sizes", "cells", "ranks"),
    READ_RANKS_KEY: ("counted_with", "twelfths", "thirds"),
    KEYS_KEY: KEY_NAMES,
}
#: Attributes of queries with several evidence spans.
PLACE_FIELDS: Fields = {**FIELDS, WEIGHTS_KEY: ("questions", "weights")}


def _pack(document_set: DocumentSet, key: str, names: Iterable[str]) -> dict[str, Any]:
    """Return the entry of a set in a field. Columns without any document key are omitted."""
    if key == KEYS_KEY:
        columns = zip(KEY_NAMES, document_set.document_keys.T, strict=True)
        return {name: pack_keys(column) for name, column in columns if column.any()}
    entry = dict[str, Any]()
    for name in names:
        value = getattr(document_set, name)
        entry[name] = pack_column(value) if isinstance(value, np.ndarray) else value
    return entry


def _read_set(
    data: Mapping[str, Any],
    rows: Iterable[Mapping[str, Any]],
    cells: int,
    max_queries: int,
    fields: Fields,
) -> DocumentSet:
    """Read a set from its entry in each field; raise ProfileError if a column is inconsistent."""
    values: dict[str, Any] = {}
    for (key, names), row in zip(fields.items(), rows, strict=True):
        with validate_json(data[key], SCHEMA, field=key):
            if key == KEYS_KEY:
                documents = len(values["document_sizes"])
                keys = np.zeros((documents, len(names)), np.int64)
                for column, name in enumerate(names):
                    if name in row:
                        keys[:, column] = unpack_keys(row[name], documents)
                values["document_keys"] = keys
                continue
            values |= {name: _unpack(name, row[name], max_queries) for name in names}
            queries = int(values["document_sizes"].sum())
            # Allowed sizes and exclusive upper bound of each column.
            limits = {
                "cells": ({queries}, cells),
                "ranks": ({queries}, len(RANKS)),
                "twelfths": ({0, queries}, max(Unread) + 1),
                "thirds": ({0, queries}, 3),
                "questions": ({queries}, queries),
                "weights": ({queries}, PLACE_WEIGHT),
            }
            for name in limits.keys() & {*names}:
                sizes, bound = limits[name]
                if len(values[name]) not in sizes or values[name].max(initial=-1) >= bound:
                    raise ValueError(
                        f"'{name}' does not fit the other columns of a set, or the profile's cells"
                    )
    return DocumentSet(**values)


def _unpack(name: str, value: Any, max_queries: int) -> Any:
    if name == "counted_with":
        return None if value is None else TokenCountMethod(value)
    if name in ("subset", "documents", "queries"):
        return str(value)
    return unpack_column(value, max_queries)


def _digest_hashes(hashes: Iterable[bytes]) -> str:
    return blake2b(b"".join(hashes), digest_size=HASH_BYTES).hexdigest()


def _format_cell_key(key: CellKey) -> str:
    length, bins = key
    return f"{length}:{','.join(map(str, bins))}"


@lru_cache
def _parse_cell_keys(text: str, axes: Axes) -> tuple[CellKey, ...]:
    """Parse cell keys separated by spaces. Raise ValueError if a cell is not on the axes."""
    cell_keys = list[CellKey]()
    for item in text.split():
        length_text, _, bins_text = item.partition(":")
        length = int(length_text)
        bins = tuple(map(int, bins_text.split(","))) if bins_text else ()
        if length not in range(len(axes.lengths)) or not {*bins} <= {*range(len(axes.positions))}:
            raise ValueError(f"the profile has no cell {_format_cell_key((length, bins))}")
        cell_keys.append((length, bins))
    return tuple(cell_keys)
