"""Ranks by document: the rank of every query's relevant document, grouped by document. The position
profile follows from it.

Questions about one document are not independent, so a test or interval for new documents needs to
know which queries share one. This value is small, holds no text and no id, and adds. Two results on
the same data list their queries in the same order, so that they can be paired query by query.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np

from posir_tasks.base.arrays import Booleans, Floats, Integers, empty_integers
from posir_tasks.base.digests import digest
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
from posir_tasks.values.profile import (
    NDCG_AT_10,
    RANKS,
    PositionProfile,
    rank_columns,
    reading_json,
)
from posir_tasks.values.read_part import CountedWith
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
#: Most queries of a result that are read: 45 times those of SQuAD-PosQ, the largest task.
MAX_QUERIES = 2**22
#: Weight of a query, of which a place of n has one n-th: the least common multiple of 1 to 12.
PLACE_WEIGHT = 27_720

#: The key of a cell: the length bucket and the position bins in which a query is counted.
CellKey = tuple[int, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class DocumentSet:
    """The n queries about one set of documents; documents are ordered by a hash of their id,
    queries by cell and hash.
    """

    subset: str
    """Name of the subset of the task: a domain, or a pair of languages."""
    documents: str
    """Digest of the documents: equal for the same documents."""
    queries: str
    """Digest of the queries: with the same documents, equal for the same queries."""
    document_sizes: Integers
    """Queries of each document, shape (D,)."""
    cells: Integers
    """Index of each query's cell in `DocumentRanks.cell_keys`, shape (n,)."""
    ranks: Integers
    """Rank column of each query (`posir_tasks.values.profile.RANKS`), shape (n,)."""
    twelfths: Integers
    """Twelfth of what the model reads that contains the middle of each query's evidence, 0 to 11,
    or `Unread`; shape (n,).

    (0,) if it is unknown what the model reads, or where in it the evidence is.
    """
    thirds: Integers
    """Third of the document that contains it: 0, 1 or 2, shape (n,); (0,) if the places are
    unknown.
    """
    document_keys: Integers
    """Digests of each document, `KEY_NAMES`; 0 where unknown. Shape (D, 3)."""
    counted_with: CountedWith | None
    """The way in which the tokens before the evidence were counted; None if none had to be."""
    questions: Integers = field(default_factory=empty_integers)
    """Number of the query of each row, if rows are places of queries that have several, shape (n,);
    else (0,).
    """
    weights: Integers = field(default_factory=empty_integers)
    """Weight of each place, in parts of `PLACE_WEIGHT`, shape (n,); (0,) if rows are queries, which
    weigh the same.
    """

    @property
    def identity(self) -> tuple[str, str, str]:
        """Subset, documents and queries: equal for the same queries of another model."""
        return self.subset, self.documents, self.queries

    @property
    def key(self) -> tuple[str, str, str, bytes, bytes]:
        """The key by which sets are sorted."""
        ranks = self.ranks.astype(np.uint8).tobytes()
        twelfths = self.twelfths.astype(np.uint8).tobytes()
        return self.documents, self.queries, self.subset, ranks, twelfths

    def select(self, rows: Booleans) -> DocumentSet:
        """Return the set with some of its queries; documents without a query stay."""
        owners = np.repeat(np.arange(len(self.document_sizes)), self.document_sizes)
        sizes = np.bincount(owners[rows], minlength=len(self.document_sizes))
        bits = np.packbits(rows).tobytes()
        mask = blake2b(bits, key=self.queries.encode(), digest_size=HASH_BYTES)
        selected = dict[str, Any]()
        for name in ("cells", "ranks", "twelfths", "thirds", "questions", "weights"):
            column = getattr(self, name)
            selected[name] = column[rows] if len(column) else column
        return replace(self, queries=mask.hexdigest(), document_sizes=sizes, **selected)


@dataclass(frozen=True, eq=False)
class QueryColumns:
    """The n queries of all sets as columns, shape (n,)."""

    subsets: Integers
    """Number of each query's subset."""
    clusters: Integers
    """Number of each query's cluster: documents of all sets that share a text, a title or an
    opening.
    """
    documents: Integers
    """Number of each query's document; equal across sets for the same text."""
    cells: Integers
    ranks: Integers
    twelfths: Integers
    """Twelfth of what the model reads, 0 to 11, or `Unread`; shape (0,) if that of a query is
    unknown.
    """
    thirds: Integers
    """Third of the document, 0 to 2; shape (0,) if that of a query is unknown."""
    weights: Integers
    """Weight of each row in parts of `PLACE_WEIGHT`, if rows are places of queries; else shape
    (0,).
    """
    questions: Integers
    """Number of each row's query, if rows are places of queries; else shape (0,)."""

    @property
    def gains(self) -> Floats:
        """nDCG@10 of each query, in [0, 1]."""
        return NDCG_AT_10[self.ranks]

    @property
    def shares(self) -> Floats:
        """Weight 1/n of each of the n places of a query, shape (n,)."""
        return self.weights / PLACE_WEIGHT


@dataclass(frozen=True, eq=False)
class DocumentRanks:
    """Ranks of the relevant documents of queries, grouped by document. Values over the same axes
    add.
    """

    axes: Axes
    """The length buckets and position bins."""
    cell_keys: tuple[CellKey, ...] = field(repr=False)
    """The keys of the cells in use, sorted."""
    sets: tuple[DocumentSet, ...] = field(repr=False)
    """Sets of documents, sorted by `DocumentSet.key`."""
    left_out: int = 0
    """Queries that have too many places for a row each."""

    @classmethod
    def from_ranks(
        cls,
        scheme: PositionScheme,
        evidence: Evidence,
        ranks: Integers,
        placed: ReadEvidence | None = None,
        subset: str = "default",
        texts: Mapping[str, str] | None = None,
        queries: Sequence[str] | None = None,
    ) -> DocumentRanks:
        """Group ranks by document.

        Args:
            scheme: Assigns queries to cells.
            evidence: Of n queries.
            ranks: Rank of the relevant document of each query, from 1; 0 where it is not among the
                results. Shape (n,).
            placed: The evidence relative to what the model reads; None if that is unknown.
            subset: Name of the subset of the task that they belong to.
            texts: Texts of the relevant documents by id; without them, a document is known again in
                another subset by its title alone.
            queries: The query of each row, if rows are places of queries that have several.
        """
        cell_keys, cells = _list_cells(scheme, evidence)
        if not len(evidence):
            return cls(scheme.axes, tuple(cell_keys), ())
        documents, keys = _group_by_document(evidence, cells)
        order = [row for rows in documents for row in rows]
        first = [rows[0] for rows in documents]
        complete = evidence.complete(texts) if texts else evidence
        thirds = complete.twelfths() // (TWELFTHS // 3)
        twelfths = placed.twelfths if placed else empty_integers()
        numbers = np.array([*(queries or ())], np.str_)
        _, questions, counts = np.unique(numbers, return_inverse=True, return_counts=True)
        places = order if len(numbers) else []
        titles = dict(zip(evidence.document_ids, evidence.clusters, strict=False))
        names = [evidence.document_ids[row] for row in first]
        part = DocumentSet(
            subset=subset,
            documents=_digest_hashes(keys[row][0] for row in first),
            queries=_digest_hashes(keys[row][2] for row in order),
            document_sizes=np.array([len(rows) for rows in documents], np.int64),
            cells=cells[order],
            ranks=rank_columns(ranks)[order],
            twelfths=twelfths[order] if len(twelfths) else twelfths,
            thirds=thirds[order] if len(thirds) else thirds,
            document_keys=digest_documents(names, titles, texts or {}),
            counted_with=placed.counted_with if placed else None,
            questions=questions[places].astype(np.int64),
            weights=(PLACE_WEIGHT // counts[questions])[places].astype(np.int64),
        )
        return cls(scheme.axes, tuple(cell_keys), (part,))

    def __add__(self, other: DocumentRanks) -> DocumentRanks:
        self.axes.check_same(other.axes)
        cell_keys = tuple(sorted({*self.cell_keys, *other.cell_keys}))
        sets = []
        places = {key: place for place, key in enumerate(cell_keys)}
        for value in (self, other):
            moved = np.array([places[key] for key in value.cell_keys], np.int64)
            sets += [replace(part, cells=moved[part.cells]) for part in value.sets]
        left_out = self.left_out + other.left_out
        return DocumentRanks(self.axes, cell_keys, _sort_sets(sets), left_out)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, DocumentRanks)
            and (self.axes, self.left_out) == (other.axes, other.left_out)
            and self.to_json(PLACE_FIELDS) == other.to_json(PLACE_FIELDS)
        )

    def __hash__(self) -> int:
        return hash((self.axes, tuple(part.key for part in self.sets)))

    def same_queries(self, other: DocumentRanks) -> bool:
        """Return whether two values have the same queries of the same documents in the same cells,
        in the same order.
        """
        if (
            self.axes != other.axes
            or self.cell_keys != other.cell_keys
            or len(self.sets) != len(other.sets)
        ):
            return False
        for ours, theirs in zip(self.sets, other.sets, strict=True):
            if (ours.documents, ours.queries) != (theirs.documents, theirs.queries):
                return False
            if not np.array_equal(ours.cells, theirs.cells):
                return False
        return True

    @cached_property
    def columns(self) -> QueryColumns:
        """The queries of all sets."""
        nothing = empty_integers()
        names = sorted({part.subset for part in self.sets})
        sizes = np.concatenate([*(part.document_sizes for part in self.sets), nothing])
        row = np.repeat(np.arange(len(sizes)), sizes)
        owners = [nothing]
        firsts = dict[str, int]()
        for part in self.sets:
            # Sets of the same documents number them alike.
            first = firsts.setdefault(part.documents, 1 + sum(map(len, owners)))
            owners.append(np.arange(len(part.document_sizes)) + first)
        owner = np.concatenate(owners)
        keys = np.concatenate(
            [*(part.document_keys for part in self.sets), np.zeros((0, len(KEY_NAMES)), np.int64)]
        ).T

        def join(name: str) -> Integers:
            return np.concatenate([*(getattr(part, name) for part in self.sets), nothing])

        def join_complete(name: str) -> Integers:
            if all(len(getattr(part, name)) == len(part.ranks) for part in self.sets):
                return join(name)
            return nothing

        clusters = link_documents([owner, *keys])[row]
        questions = [nothing]
        for part in self.sets:
            largest = max(int(column.max(initial=0)) for column in questions)
            questions.append(part.questions + 1 + largest)
        if len(numbers := np.concatenate(questions)):
            # Places of one query are not independent, whatever documents they are in.
            clusters = link_documents([clusters + 1, numbers])
        return QueryColumns(
            subsets=np.repeat(
                [names.index(part.subset) for part in self.sets],
                [len(part.ranks) for part in self.sets],
            ).astype(np.int64),
            clusters=clusters,
            documents=link_documents([owner, keys[0]])[row],
            cells=join("cells"),
            ranks=join("ranks"),
            twelfths=join_complete("twelfths"),
            thirds=join_complete("thirds"),
            weights=join("weights"),
            questions=numbers,
        )

    @cached_property
    def cell_lengths(self) -> Integers:
        """Length bucket of each of the cells in use."""
        return np.array([length for length, _ in self.cell_keys], np.int64)

    @cached_property
    def memberships(self) -> tuple[Integers, Integers]:
        """The rows of the queries and their position bins, each of shape (m,): a query on a shared
        boundary has two.
        """
        bins_of_cells = [bins for _, bins in self.cell_keys]
        table = np.full((len(bins_of_cells), max(map(len, bins_of_cells), default=0)), -1)
        for cell, bins in enumerate(bins_of_cells):
            table[cell, : len(bins)] = bins
        places = table[self.columns.cells]
        query, member = np.nonzero(places >= 0)
        return query, places[query, member]

    @cached_property
    def profile(self) -> PositionProfile:
        """The position profile of these ranks."""
        lengths = len(self.axes.lengths)
        positions = len(self.axes.positions)
        columns = self.columns
        size = len(self.cell_keys)
        weights = columns.weights if len(columns.weights) else None
        entries = columns.cells * len(RANKS) + columns.ranks
        table = np.bincount(entries, weights, minlength=size * len(RANKS))
        table = table.astype(np.int64).reshape(size, len(RANKS))
        counts = np.zeros((lengths, positions, len(RANKS)), np.int64)
        totals = np.zeros((lengths, len(RANKS)), np.int64)
        np.add.at(totals, self.cell_lengths, table)
        for place in range(max((len(bins) for _, bins in self.cell_keys), default=0)):
            # Most cells have one bin.
            rows = np.flatnonzero([len(bins) > place for _, bins in self.cell_keys])
            bins = np.array([self.cell_keys[row][1][place] for row in rows])
            np.add.at(counts, (self.cell_lengths[rows], bins), table[rows])
        return PositionProfile(self.axes, counts, totals)

    def within_window(self) -> DocumentRanks:
        """Return the queries whose evidence lies within the model's window; raise ProfileError if
        that is unknown.
        """
        if any(len(part.twelfths) != len(part.ranks) for part in self.sets):
            raise ProfileError(
                "The window of a result is unknown, so its queries within the window are, too."
            )
        sets = [part.select(part.twelfths < TWELFTHS) for part in self.sets]
        return DocumentRanks(self.axes, self.cell_keys, _sort_sets(sets))

    @property
    def counted_with(self) -> CountedWith | None:
        """The way in which the tokens before the evidence were counted; None if none had to be."""
        ways = [part.counted_with for part in self.sets if part.counted_with]
        return max(ways, key=list(CountedWith).index, default=None)

    def to_json(self, fields: Fields | None = None) -> dict[str, Any]:
        """Return the fields of a result that hold the value; the axes are those of the profile
        next to it.
        """
        cells = {RANKS_KEY: {"cells": " ".join(map(_format_cell_key, self.cell_keys))}}
        data = dict[str, Any]()
        for key, names in (fields or FIELDS).items():
            sets = [_pack(part, key, names) for part in self.sets]
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
            data: The fields of a result, as `to_json` returned them.
            axes: The axes of the profile next to it.
            queries: Most queries of all sets together, which the profile next to it counts. Columns
                are unpacked up to that.
            fields: The fields, and what each has of a set; by default those of queries with one
                place.

        Raises:
            ProfileError: The JSON is missing or damaged.
            NewerSchemaError: A newer version of posir wrote it.
        """
        stored: list[list[Any]] = []
        fields = fields or FIELDS
        for key in fields:
            if key not in data:
                raise ProfileError(f"no field '{key}'. Run the model again.", key)
            with reading_json(data[key], SCHEMA, field=key):
                sets = data[key]["sets"]
                if not isinstance(sets, list) or not all(isinstance(row, dict) for row in sets):
                    raise ValueError("'sets' must be a list of objects")
                stored.append(sets)
        names = {str(name) for rows in stored for row in rows for name in row}
        unknown = sorted(names.difference(*fields.values()))
        if unknown:
            logger.warning(
                "fields of a newer version of posir are left out: %s",
                sanitize(", ".join(unknown), 200),
            )
        with reading_json(data[RANKS_KEY], SCHEMA, field=RANKS_KEY):
            cells = data[RANKS_KEY]["cells"].split()
            cell_keys = tuple(_parse_cell_key(text, axes) for text in cells)
            rows_of_sets = list(zip(*stored, strict=True))
        parts = list[DocumentSet]()
        left = min(queries, MAX_QUERIES)
        for rows in rows_of_sets:
            parts.append(_read_set(data, rows, len(cell_keys), left, fields))
            left -= len(parts[-1].ranks)
        return cls(axes, cell_keys, _sort_sets(parts))


def _sort_sets(sets: Iterable[DocumentSet]) -> tuple[DocumentSet, ...]:
    return tuple(sorted(sets, key=lambda part: part.key))


#: What each field has of a set.
Fields: TypeAlias = Mapping[str, tuple[str, ...]]
#: The fields of a result that hold the value, and what each has of every set: texts, columns, keys
#: of documents.
FIELDS: Fields = {
    RANKS_KEY: ("subset", "documents", "queries", "document_sizes", "cells", "ranks"),
    READ_RANKS_KEY: ("counted_with", "twelfths", "thirds"),
    KEYS_KEY: KEY_NAMES,
}
#: The same of places of queries that have several.
PLACE_FIELDS: Fields = {**FIELDS, WEIGHTS_KEY: ("questions", "weights")}


def _pack(part: DocumentSet, key: str, names: Iterable[str]) -> dict[str, Any]:
    """Return the entry of a set in a field; digests of documents only if one is known."""
    if key == KEYS_KEY:
        columns = zip(KEY_NAMES, part.document_keys.T, strict=True)
        return {name: pack_keys(column) for name, column in columns if column.any()}
    packed = dict[str, Any]()
    for name in names:
        value = getattr(part, name)
        packed[name] = pack_column(value) if isinstance(value, np.ndarray) else value
    return packed


def _read_set(
    data: Mapping[str, Any],
    rows: Iterable[Mapping[str, Any]],
    cells: int,
    most: int,
    fields: Fields,
) -> DocumentSet:
    """Return a set of at most `most` queries from what each field has of it; raise ProfileError if
    a column does not fit.
    """
    values: dict[str, Any] = {}
    for (key, names), row in zip(fields.items(), rows, strict=True):
        with reading_json(data[key], SCHEMA, field=key):
            if key == KEYS_KEY:
                documents = len(values["document_sizes"])
                keys = np.zeros((documents, len(names)), np.int64)
                for place, name in enumerate(names):
                    if name in row:
                        keys[:, place] = unpack_keys(row[name], documents)
                values["document_keys"] = keys
                continue
            values |= {name: _unpack(name, row[name], most) for name in names}
            queries = int(values["document_sizes"].sum())
            # The sizes that a column may have, and the first number that is too large.
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


def _unpack(name: str, value: Any, most: int) -> Any:
    if name == "counted_with":
        return None if value is None else CountedWith(value)
    if name in ("subset", "documents", "queries"):
        return str(value)
    return unpack_column(value, most)


def _list_cells(scheme: PositionScheme, evidence: Evidence) -> tuple[list[CellKey], Integers]:
    """Return the keys of the cells in use, sorted, and the index of each query's cell among them,
    shape (n,).
    """
    cells = scheme.cells(evidence)
    lengths = scheme.length_buckets(evidence)
    bins: list[list[int]] = [[] for _ in range(len(evidence))]
    for query, position in zip(cells.query.tolist(), cells.position.tolist(), strict=True):
        bins[query].append(position)
    sorted_bins = (tuple(sorted(positions)) for positions in bins)
    query_cells = list(zip(lengths.tolist(), sorted_bins, strict=True))
    cell_keys = sorted(set(query_cells))
    places = {key: place for place, key in enumerate(cell_keys)}
    return cell_keys, np.array([places[key] for key in query_cells], np.int64)


def order_queries(scheme: PositionScheme, evidence: Evidence) -> list[list[int]]:
    """Return the rows of the queries of each document, in the order of a `DocumentSet`."""
    return _group_by_document(evidence, _list_cells(scheme, evidence)[1])[0]


def _group_by_document(
    evidence: Evidence, cells: Integers
) -> tuple[list[list[int]], list[tuple[bytes, int, bytes]]]:
    """Return the rows of the queries of each document, and the key of each query: hash of document,
    cell, hash of its id.

    Documents are ordered by the hash of id and length, the queries of one by cell and hash.
    """
    characters = evidence.characters.tolist() or [0] * len(evidence)
    documents_and_sizes = list(zip(evidence.document_ids, characters, strict=True))
    # Documents repeat: each is hashed once.
    hashes = {row: digest(*row) for row in set(documents_and_sizes)}
    document_keys = [hashes[row] for row in documents_and_sizes]
    query_keys = [digest(name) for name in evidence.query_ids]
    keys = list(zip(document_keys, cells.tolist(), query_keys, strict=True))
    order = sorted(range(len(keys)), key=keys.__getitem__)
    groups = groupby(order, key=document_keys.__getitem__)
    return [list(rows) for _, rows in groups], keys


def _digest_hashes(hashes: Iterable[bytes]) -> str:
    return blake2b(b"".join(hashes), digest_size=HASH_BYTES).hexdigest()


def _format_cell_key(key: CellKey) -> str:
    length, bins = key
    return f"{length}:{','.join(map(str, bins))}"


def _parse_cell_key(text: str, axes: Axes) -> CellKey:
    """Read what `_format_cell_key` returned; raise ValueError if it is no cell of these axes."""
    first, _, rest = text.partition(":")
    length = int(first)
    bins = tuple(map(int, rest.split(","))) if rest else ()
    bounds = range(len(axes.positions))
    if length not in range(len(axes.lengths)) or not all(number in bounds for number in bins):
        raise ValueError(f"the cell {_format_cell_key((length, bins))} is none of the profile's")
    return length, bins
