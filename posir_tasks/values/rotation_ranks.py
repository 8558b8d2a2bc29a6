"""Ranks of rotated documents: the same question with its evidence in each third of the document.

Test W rotates the whole document, truncation included. Test R rotates an excerpt that fits into the
window. Versions are ranked among the unchanged other documents. Values are additive (`a + b` pools
subsets), and every estimate is computed from them without the model.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, TypeAlias

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from posir_tasks.base.arrays import Booleans, Integers, empty_integers
from posir_tasks.base.errors import PosirError
from posir_tasks.text.rotations import VERSIONS
from posir_tasks.values.columns import pack_column, unpack_column
from posir_tasks.values.document_ranks import DocumentRanks, DocumentSet
from posir_tasks.values.evidence import TWELFTHS, Unread
from posir_tasks.values.profile import RANKS, reading_json
from posir_tasks.values.result_schema import ROTATIONS_KEY, SCHEMA

#: Environment variable with the number of documents to rotate per length; 0 for none.
ROTATED_VARIABLE = "POSIR_ROTATED"
#: Number of documents to rotate per length, shared equally by the subsets of the task.
DEFAULT_SAMPLE = 400
#: Number of combinations of a document's versions in one test.
VERSION_BITS = 2**VERSIONS
#: Bits that mark a question with rows in test W, and in test R.
IN_WHOLE = 1
IN_WINDOW = 2
#: Exclusive upper limit of stored counts.
MAX_SAMPLE = 2**31


class Window(StrEnum):
    """The text that test R rotates."""

    WHOLE = "whole"
    """The document, read completely: both tests have the same rows."""
    EXCERPT = "excerpt"
    """An excerpt that fits into the window."""
    UNKNOWN = "unknown"
    """None, since the window is unknown."""


class Untested(StrEnum):
    """The reason why a result has no rotated versions."""

    ORDER_BLIND = "order_blind"
    """Scores do not depend on word order, so every version has the rank of the original."""
    NO_TEXTS = "no_texts"
    """The system returns ranks and cannot score new texts."""
    ONE_UNIT = "one_unit"
    """No sampled document has two sentences."""
    SEVERAL_POSITIONS = "several_positions"
    """Each question has several places of evidence."""
    SCORES_DIFFER = "scores_differ"
    """The embedder does not reproduce the scores of the run."""


class LeftOut(StrEnum):
    """The reason why a sampled document or question has no rows; the prefix is the counted unit."""

    DOCUMENTS_OF_ONE_UNIT = "documents_of_one_unit"
    DOCUMENTS_WITHOUT_EXCERPT = "documents_without_excerpt"
    QUESTIONS_OUTSIDE_EXCERPT = "questions_outside_excerpt"
    QUESTIONS_MISSED_BY_FIRST_STAGE = "questions_missed_by_first_stage"
    QUESTIONS_WITHOUT_SPAN = "questions_without_span"
    QUESTIONS_WITH_FEW_HITS = "questions_with_few_hits"
    COPIES = "copies"
    """Copies of a question's document among the other documents."""


@dataclass(frozen=True, eq=False)
class RotationSet:
    """The rotated documents of one `DocumentSet`, in the same order of documents and queries.

    A row is a question and a version of its document; rows are sorted by question.
    """

    subset: str
    documents: str
    """Digest of the documents, as in `DocumentSet`."""
    queries: str
    """Digest of the queries, as in `DocumentSet`."""
    sample_size: int
    """Requested number of documents per length, over all subsets of the task."""
    subsets: int
    """Number of subsets that share the sample."""
    untested: Untested | None = None
    """None if there are rows."""
    sample: Integers = field(default_factory=empty_integers)
    """Rank of each document, from 1, in the sample of its length, or 0 if it is not sampled; shape
    (D,).
    """
    versions: Integers = field(default_factory=empty_integers)
    """Bits of the versions in W, then in R, of the S sampled documents; shape (S,)."""
    tested: Integers = field(default_factory=empty_integers)
    """`IN_WHOLE` and `IN_WINDOW` bits of the Q questions about sampled documents, shape (Q,)."""
    twelfths: Integers = field(default_factory=empty_integers)
    """Twelfth of the version with the middle of the evidence, by characters, for rows of W."""
    ranks: Integers = field(default_factory=empty_integers)
    """Column of `profile.RANKS` for rows of W."""
    unread: Integers = field(default_factory=empty_integers)
    """0 for evidence within the window, 1 for `Unread.CUT`, 2 for `Unread.BEYOND`, for rows of W;
    shape (0,) if unknown.
    """
    window_twelfths: Integers = field(default_factory=empty_integers)
    """Twelfth of the version by tokens for rows of R; shape (0,) if both tests have the same rows.
    """
    window_ranks: Integers = field(default_factory=empty_integers)
    """Column of `profile.RANKS` for rows of R, or shape (0,)."""
    window: Window = Window.UNKNOWN
    room: int = 0
    """Maximum number of tokens of an excerpt; 0 without excerpts."""
    digest: str = ""
    """Digest of the versions of W."""
    window_digest: str = ""
    """Digest of the versions of R."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Counts by `LeftOut`."""

    @property
    def key(self) -> tuple[str, str, str, str, str, bytes]:
        """Sort key."""
        return (
            self.documents,
            self.queries,
            self.subset,
            self.digest,
            self.window_digest,
            self.ranks.tobytes(),
        )

    @property
    def owner(self) -> tuple[str, str, str]:
        """The `identity` of the `DocumentSet`."""
        return self.subset, self.documents, self.queries

    def quota(self, sample_size: int) -> int:
        """Return the set's number of documents per length in a sample of this size."""
        return math.ceil(sample_size / self.subsets)


@dataclass(frozen=True, eq=False)
class RotationRows:
    """The n rows of one test; each column has shape (n,)."""

    query: Integers
    """Index of the question in `DocumentRanks.columns`."""
    version: Integers
    """0 for the original, 1 and 2 for rotations."""
    twelfths: Integers
    """Twelfth of the version with the middle of the evidence."""
    ranks: Integers
    """Column of `profile.RANKS`."""
    unread: Integers
    """0 if the evidence is within the window."""

    def select(self, rows: Booleans) -> RotationRows:
        """Return the selected rows."""
        return RotationRows(*(column[rows] for column in vars(self).values()))


@dataclass(frozen=True, eq=False)
class RotationRanks:
    """Ranks of rotated versions; additive for one model."""

    sets: tuple[RotationSet, ...]
    """Sorted by `RotationSet.key`."""

    def __add__(self, other: RotationRanks) -> RotationRanks:
        return RotationRanks(tuple(sorted((*self.sets, *other.sets), key=lambda part: part.key)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RotationRanks) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(tuple(part.key for part in self.sets))

    @cached_property
    def sample_size(self) -> int:
        """Documents per length in the smallest sample. Samples are nested."""
        return min((part.sample_size for part in self.sets), default=0)

    @property
    def untested(self) -> Untested | None:
        """The reason why no set has rows; None if any set has rows."""
        reasons = [part.untested for part in self.sets]
        return None if None in reasons else next(iter(reasons), None)

    @property
    def is_partly_tested(self) -> bool:
        """True if some sets have rows and the system could not score rotations of other sets."""
        reasons = {part.untested for part in self.sets}
        return None in reasons and bool(reasons & {Untested.NO_TEXTS, Untested.SCORES_DIFFER})

    @property
    def is_order_blind(self) -> bool:
        """True if no scores depend on word order."""
        return bool(self.sets) and all(part.untested is Untested.ORDER_BLIND for part in self.sets)

    @property
    def window(self) -> Window:
        """The text that test R rotates; unknown if sets differ in it or in `room`."""
        kinds = {(part.window, part.room) for part in self._tested}
        return kinds.pop()[0] if len(kinds) == 1 else Window.UNKNOWN

    @property
    def room(self) -> int:
        """Maximum number of tokens of an excerpt; 0 without excerpts or if sets differ."""
        rooms = {part.room for part in self._tested}
        return rooms.pop() if len(rooms) == 1 else 0

    @property
    def _tested(self) -> list[RotationSet]:
        """The sets with rows."""
        return [part for part in self.sets if part.untested is None]

    def digests(self, *, window: bool) -> tuple[tuple[str, str, str, str], ...]:
        """Return digests of the questions and versions of one test. Rows of two models can be
        paired if the digests are equal.
        """
        return tuple(
            (*part.owner, part.window_digest if window else part.digest) for part in self._tested
        )

    def covers(self, ranks: DocumentRanks) -> bool:
        """Return True if every set of a result has rotations."""
        owners = {part.owner for part in self.sets}
        return all(part.identity in owners for part in ranks.sets)

    def rows(
        self, ranks: DocumentRanks, *, window: bool, sample_size: int | None = None
    ) -> RotationRows:
        """Return the rows of test W or test R.

        Args:
            ranks: The ranks of the same result.
            window: If true, rows of test R.
            sample_size: Documents per length; by default, and at most, those of the smallest
                sample.
        """
        firsts = dict[tuple[str, str, str], tuple[int, DocumentSet]]()
        first = 0
        for owner in ranks.sets:
            firsts.setdefault(owner.identity, (first, owner))
            first += len(owner.ranks)
        size = sample_size or self.sample_size
        rows_by_set = [RotationRows(*[empty_integers()] * 5)]
        for part in self._tested:
            if part.owner not in firsts:
                continue
            first, owner = firsts[part.owner]
            query, version, document = _list_rows(part, owner, window=window)
            version_ranks = part.ranks
            twelfths = part.twelfths
            unread = np.zeros(len(query), np.int64)
            if window and part.window is not Window.WHOLE:
                version_ranks = part.window_ranks
                twelfths = part.window_twelfths
            elif len(part.unread) and not window:
                unread = part.unread
            rows = RotationRows(query + first, version, twelfths, version_ranks, unread)
            sample_ranks = part.sample[part.sample > 0][document]
            rows_by_set.append(rows.select(sample_ranks <= part.quota(size)))
        columns = zip(*(vars(rows).values() for rows in rows_by_set), strict=True)
        return RotationRows(*map(np.concatenate, columns))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"schema": SCHEMA, "sets": [_pack(part) for part in self.sets]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], ranks: DocumentRanks) -> RotationRanks:
        """Read the output of `to_json`.

        Args:
            data: The JSON.
            ranks: The ranks of the same result, with the same documents and questions.

        Raises:
            ProfileError: The JSON is damaged or contradicts the ranks.
            NewerSchemaError: A newer version of posir wrote it.
        """
        owners = {part.identity: part for part in ranks.sets}
        with reading_json(data, SCHEMA, field=ROTATIONS_KEY):
            sets = [_unpack(row, owners) for row in data["sets"]]
        return cls(tuple(sorted(sets, key=lambda part: part.key)))


def _question_owners(part: RotationSet, owner: DocumentSet) -> tuple[Integers, Integers]:
    """Return the rows of questions about sampled documents in the `DocumentSet`, and the index of
    the sampled document of each.
    """
    documents = np.repeat(np.arange(len(owner.document_sizes)), owner.document_sizes)
    is_sampled = part.sample[documents] > 0
    indices = np.cumsum(part.sample > 0) - 1
    return np.flatnonzero(is_sampled), indices[documents[is_sampled]]


def _list_rows(
    part: RotationSet, owner: DocumentSet, *, window: bool
) -> tuple[Integers, Integers, Integers]:
    """Return question, version and sampled document of each row of a test."""
    questions, documents = _question_owners(part, owner)
    shares_rows = window and part.window is Window.WHOLE
    bit = IN_WHOLE
    versions = part.versions % VERSION_BITS
    if window and not shares_rows:
        bit = IN_WINDOW
        versions = part.versions // VERSION_BITS
    has_rows = (part.tested & bit) > 0
    has_version = (versions[documents][:, None] >> np.arange(VERSIONS)) & 1 > 0
    rows, numbers = np.nonzero(has_version & has_rows[:, None])
    return questions[rows], numbers.astype(np.int64), documents[rows]


#: Array attributes of a set in JSON.
COLUMNS = (
    "sample",
    "versions",
    "tested",
    "twelfths",
    "ranks",
    "unread",
    "window_twelfths",
    "window_ranks",
)
#: A stored number of questions, documents or tokens.
Count: TypeAlias = Annotated[int, Field(strict=True, ge=0, lt=MAX_SAMPLE)]


class _Header(BaseModel):
    """The attributes of a set in JSON, except arrays."""

    model_config = ConfigDict(from_attributes=True)

    subset: str
    documents: str
    queries: str
    sample_size: Annotated[Count, Field(ge=1)]
    subsets: Annotated[Count, Field(ge=1)]
    room: Count
    digest: str
    window_digest: str
    window: Window
    left_out: dict[LeftOut, Count]
    untested: Untested | None = None


def _pack(part: RotationSet) -> dict[str, Any]:
    values = _Header.model_validate(part).model_dump(mode="json", exclude_none=True)
    if part.untested is not None:
        return values
    return values | {name: pack_column(getattr(part, name)) for name in COLUMNS}


def _unpack(
    row: Mapping[str, Any], owners: Mapping[tuple[str, str, str], DocumentSet]
) -> RotationSet:
    """Read a set; raise ValueError if it is inconsistent or contradicts the ranks."""
    part = RotationSet(**dict(_Header.model_validate(row)))
    owner = owners.get(part.owner)
    if owner is None:
        raise ValueError(
            "a set has documents or questions that are missing from the ranks by document"
        )
    if part.untested is not None:
        return part
    limit = max(VERSIONS * len(owner.ranks), len(owner.document_sizes))
    columns: dict[str, Any] = {name: unpack_column(row[name], limit) for name in COLUMNS}
    part = replace(part, **columns)
    _check_columns(part, owner)
    return part


def _check_columns(part: RotationSet, owner: DocumentSet) -> None:
    """Raise ValueError if columns contradict each other or the ranks of the original documents."""
    if len(part.sample) != len(owner.document_sizes):
        raise ValueError("'sample' does not fit the documents")
    questions, _ = _question_owners(part, owner)
    if len(part.versions) != int((part.sample > 0).sum()) or len(part.tested) != len(questions):
        raise ValueError("'versions' or 'tested' does not fit the sampled documents")
    query, version, _ = _list_rows(part, owner, window=False)
    window_rows = 0 if part.window is Window.WHOLE else len(_list_rows(part, owner, window=True)[0])
    rows = len(query)
    # Allowed sizes and exclusive upper bound of each column.
    limits = {
        "versions": ((len(part.versions),), VERSION_BITS**2),
        "tested": ((len(part.tested),), 4),
        "twelfths": ((rows,), TWELFTHS),
        "ranks": ((rows,), len(RANKS)),
        "unread": ((0, rows), 3),
        "window_twelfths": ((window_rows,), TWELFTHS),
        "window_ranks": ((window_rows,), len(RANKS)),
    }
    for name, (sizes, bound) in limits.items():
        column = getattr(part, name)
        if len(column) not in sizes:
            raise ValueError(f"'{name}' does not fit the tested questions and versions")
        if column.max(initial=0) >= bound:
            raise ValueError(f"'{name}' has a value above {bound - 1}")
    is_original = version == 0
    if not np.array_equal(part.ranks[is_original], owner.ranks[query[is_original]]):
        raise ValueError("the rank of an original document differs from its rank in the search")
    if len(part.unread) and len(owner.twelfths):
        is_unread = owner.twelfths[query[is_original]] >= TWELFTHS
        if not np.array_equal(part.unread[is_original] > 0, is_unread):
            raise ValueError(
                "evidence of an original document is truncated in one field and not in another"
            )


def code_unread(twelfths: Integers) -> Integers:
    """Map `ReadEvidence.twelfths` to 0 for evidence within the window, 1 for `Unread.CUT` and 2 for
    `Unread.BEYOND`.
    """
    return np.where(twelfths < TWELFTHS, 0, twelfths - Unread.CUT + 1)


def read_sample_size() -> int:
    """Read the number of documents to rotate per length; raise PosirError if the variable is
    invalid.
    """
    text = os.environ.get(ROTATED_VARIABLE, "").strip()
    if text and not (text.isdecimal() and len(text) < 10):
        raise PosirError(
            f"{ROTATED_VARIABLE}={text}: must be the number of documents per length, or 0 for "
            f"none. Unset it for {DEFAULT_SAMPLE}."
        )
    return int(text) if text else DEFAULT_SAMPLE


def build_untested(
    ranks: DocumentRanks, untested: Untested, sample_size: int, subsets: int
) -> RotationRanks:
    """Build the rotation ranks of an untested result, with the reason."""
    sets = (RotationSet(*part.identity, sample_size, subsets, untested) for part in ranks.sets)
    return RotationRanks(tuple(sets))
