"""Ranks of rotated documents: the same question with its evidence in each third of the document.

Test W rotates the whole document, which may be truncated. Test R rotates an excerpt that fits into
the window. Each version is ranked among the unchanged other documents. Ranks are additive (`a + b`
pools subsets), and estimates are computed from them without the model.
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

from posir_tasks.base.arrays import Booleans, Integers, make_empty_column
from posir_tasks.base.errors import PosirError
from posir_tasks.text.rotations import VERSIONS
from posir_tasks.values.columns import pack_column, unpack_column
from posir_tasks.values.document_ranks import DocumentRanks, DocumentSet
from posir_tasks.values.evidence import TWELFTHS, Unread
from posir_tasks.values.profile import RANKS, validate_json
from posir_tasks.values.result_schema import ROTATIONS_KEY, SCHEMA

#: Environment variable with the number of documents to rotate per length; 0 for none.
ROTATED_VARIABLE = "POSIR_ROTATED"
#: Number of documents to rotate per length, split equally between the subsets of the task.
DEFAULT_SAMPLE = 400
#: Number of possible combinations of a document's versions in one test.
VERSION_COMBINATIONS = 2**VERSIONS
#: Bits of a question with rows in test W and in test R.
IN_WHOLE = 1
IN_WINDOW = 2
#: Exclusive upper limit of stored counts.
COUNT_LIMIT = 2**31


class Window(StrEnum):
    """The text that test R rotates."""

    WHOLE = "whole"
    """The whole document, which fits into the window. Both tests have the same rows."""
    EXCERPT = "excerpt"
    """An excerpt that fits into the window."""
    UNKNOWN = "unknown"
    """There is no test R, since the window is unknown."""


class UntestedReason(StrEnum):
    """The reason why a result has no rotated versions."""

    ORDER_BLIND = "order_blind"
    """Scores do not depend on word order, so every version has the rank of the original."""
    NO_TEXTS = "no_texts"
    """The system returns ranks and cannot score new texts."""
    ONE_UNIT = "one_unit"
    """No sampled document has two sentences."""
    SEVERAL_POSITIONS = "several_positions"
    """Each question has several evidence spans."""
    SCORES_DIFFER = "scores_differ"
    """The embedder does not reproduce the scores of the run."""


class ExclusionReason(StrEnum):
    """The reason why a sampled document or question has no rows. The prefix names the unit."""

    DOCUMENTS_OF_ONE_UNIT = "documents_of_one_unit"
    DOCUMENTS_WITHOUT_EXCERPT = "documents_without_excerpt"
    QUESTIONS_OUTSIDE_EXCERPT = "questions_outside_excerpt"
    QUESTIONS_MISSED_BY_FIRST_STAGE = "questions_missed_by_first_stage"
    QUESTIONS_WITHOUT_SPAN = "questions_without_span"
    QUESTIONS_WITH_FEW_HITS = "questions_with_few_hits"
    COPIES = "copies"
    """Copies of a question's document, excluded from the other documents."""


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
    untested: UntestedReason | None = None
    """None if there are rows."""
    sample: Integers = field(default_factory=make_empty_column)
    """Rank of each document, from 1, in the sample of its length, or 0 if it is not sampled; shape
    (D,).
    """
    versions: Integers = field(default_factory=make_empty_column)
    """Bits of the versions in W, then in R, for each of the S sampled documents; shape (S,)."""
    tested: Integers = field(default_factory=make_empty_column)
    """`IN_WHOLE` and `IN_WINDOW` bits of each of the Q questions about sampled documents, shape
    (Q,).
    """
    twelfths: Integers = field(default_factory=make_empty_column)
    """Twelfth of the version with the middle of the evidence, by characters, for rows of W."""
    ranks: Integers = field(default_factory=make_empty_column)
    """Column of `profile.RANKS` for rows of W."""
    unread: Integers = field(default_factory=make_empty_column)
    """0 for evidence within the window, 1 for `Unread.CUT`, 2 for `Unread.BEYOND`, for rows of W;
    shape (0,) if unknown.
    """
    window_twelfths: Integers = field(default_factory=make_empty_column)
    """Twelfth of the version by tokens for rows of R; shape (0,) if both tests have the same rows.
    """
    window_ranks: Integers = field(default_factory=make_empty_column)
    """Column of `profile.RANKS` for rows of R; shape (0,) like `window_twelfths`."""
    window: Window = Window.UNKNOWN
    room: int = 0
    """Maximum number of tokens of an excerpt; 0 without excerpts."""
    digest: str = ""
    """Digest of the versions of W."""
    window_digest: str = ""
    """Digest of the versions of R."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Counts by `ExclusionReason`."""

    @property
    def sort_key(self) -> tuple[str, str, str, str, str, bytes]:
        """Key that sorts sets independently of the order of addition."""
        return (
            self.documents,
            self.queries,
            self.subset,
            self.digest,
            self.window_digest,
            self.ranks.tobytes(),
        )

    @property
    def identity(self) -> tuple[str, str, str]:
        """Equal to `DocumentSet.identity`."""
        return self.subset, self.documents, self.queries

    def compute_quota(self, sample_size: int) -> int:
        """Compute how many documents per length a sample of this size has in this set."""
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
    """0 if the evidence is within the window, else as in `RotationSet.unread`."""

    def select(self, mask: Booleans) -> RotationRows:
        """Return the selected rows."""
        return RotationRows(*(column[mask] for column in vars(self).values()))


@dataclass(frozen=True, eq=False)
class RotationRanks:
    """Ranks of rotated versions; additive for one model."""

    sets: tuple[RotationSet, ...]
    """Sorted by `RotationSet.sort_key`."""

    def __add__(self, other: RotationRanks) -> RotationRanks:
        return RotationRanks(
            tuple(sorted((*self.sets, *other.sets), key=lambda rotation_set: rotation_set.sort_key))
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RotationRanks) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(tuple(rotation_set.sort_key for rotation_set in self.sets))

    @cached_property
    def sample_size(self) -> int:
        """Number of documents per length in the smallest sample. Samples are nested."""
        return min((rotation_set.sample_size for rotation_set in self.sets), default=0)

    @property
    def untested(self) -> UntestedReason | None:
        """Why no set has rows, or None if any set has rows."""
        reasons = [rotation_set.untested for rotation_set in self.sets]
        return None if None in reasons else next(iter(reasons), None)

    @property
    def is_partly_tested(self) -> bool:
        """True if some sets have rows and others could not be scored."""
        reasons = {rotation_set.untested for rotation_set in self.sets}
        return None in reasons and bool(
            reasons & {UntestedReason.NO_TEXTS, UntestedReason.SCORES_DIFFER}
        )

    @property
    def is_order_blind(self) -> bool:
        """True if scores of no set depend on word order."""
        return bool(self.sets) and all(
            rotation_set.untested is UntestedReason.ORDER_BLIND for rotation_set in self.sets
        )

    @property
    def window(self) -> Window:
        """The text that test R rotates, or `UNKNOWN` if sets differ in it or in `room`."""
        windows = {(rotation_set.window, rotation_set.room) for rotation_set in self._tested}
        return windows.pop()[0] if len(windows) == 1 else Window.UNKNOWN

    @property
    def room(self) -> int:
        """Maximum number of tokens in an excerpt; 0 without excerpts or if sets differ."""
        rooms = {rotation_set.room for rotation_set in self._tested}
        return rooms.pop() if len(rooms) == 1 else 0

    @property
    def _tested(self) -> list[RotationSet]:
        """Sets with rows."""
        return [rotation_set for rotation_set in self.sets if rotation_set.untested is None]

    def list_digests(self, *, window: bool) -> tuple[tuple[str, str, str, str], ...]:
        """Return digests of the questions and versions of one test. If they are equal for two
        models, their rows can be paired.
        """
        return tuple(
            (*rotation_set.identity, rotation_set.window_digest if window else rotation_set.digest)
            for rotation_set in self._tested
        )

    def covers(self, ranks: DocumentRanks) -> bool:
        """Return True if every set of the result has rotations."""
        document_sets = {rotation_set.identity for rotation_set in self.sets}
        return all(rotation_set.identity in document_sets for rotation_set in ranks.sets)

    def select_rows(
        self, ranks: DocumentRanks, *, window: bool, sample_size: int | None = None
    ) -> RotationRows:
        """Return the rows of test W or test R.

        Args:
            ranks: The ranks of the same result.
            window: If true, rows of test R.
            sample_size: Number of documents per length, at most that of the smallest sample, which
                is the default.
        """
        firsts = dict[tuple[str, str, str], tuple[int, DocumentSet]]()
        first = 0
        for document_set in ranks.sets:
            firsts.setdefault(document_set.identity, (first, document_set))
            first += len(document_set.ranks)
        size = sample_size or self.sample_size
        rows_by_set = [RotationRows(*[make_empty_column()] * 5)]
        for rotation_set in self._tested:
            if rotation_set.identity not in firsts:
                continue
            first, document_set = firsts[rotation_set.identity]
            query, version, document = _list_rows(rotation_set, document_set, window=window)
            version_ranks = rotation_set.ranks
            twelfths = rotation_set.twelfths
            unread = np.zeros(len(query), np.int64)
            if window and rotation_set.window is not Window.WHOLE:
                version_ranks = rotation_set.window_ranks
                twelfths = rotation_set.window_twelfths
            elif len(rotation_set.unread) and not window:
                unread = rotation_set.unread
            rows = RotationRows(query + first, version, twelfths, version_ranks, unread)
            sample_ranks = rotation_set.sample[rotation_set.sample > 0][document]
            rows_by_set.append(rows.select(sample_ranks <= rotation_set.compute_quota(size)))
        columns = zip(*(vars(rows).values() for rows in rows_by_set), strict=True)
        return RotationRows(*map(np.concatenate, columns))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"schema": SCHEMA, "sets": [_pack(rotation_set) for rotation_set in self.sets]}

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
        document_sets = {rotation_set.identity: rotation_set for rotation_set in ranks.sets}
        with validate_json(data, SCHEMA, field=ROTATIONS_KEY):
            sets = [_unpack(row, document_sets) for row in data["sets"]]
        return cls(tuple(sorted(sets, key=lambda rotation_set: rotation_set.sort_key)))


def _find_sampled_questions(
    rotation_set: RotationSet, document_set: DocumentSet
) -> tuple[Integers, Integers]:
    """Return the rows of the questions about sampled documents, and the index of each question's
    document in the sample.
    """
    documents = np.repeat(np.arange(len(document_set.document_sizes)), document_set.document_sizes)
    is_sampled = rotation_set.sample[documents] > 0
    indices = np.cumsum(rotation_set.sample > 0) - 1
    return np.flatnonzero(is_sampled), indices[documents[is_sampled]]


def _list_rows(
    rotation_set: RotationSet, document_set: DocumentSet, *, window: bool
) -> tuple[Integers, Integers, Integers]:
    """Return the question, version and sampled document of each row of a test."""
    questions, documents = _find_sampled_questions(rotation_set, document_set)
    shares_rows = window and rotation_set.window is Window.WHOLE
    bit = IN_WHOLE
    versions = rotation_set.versions % VERSION_COMBINATIONS
    if window and not shares_rows:
        bit = IN_WINDOW
        versions = rotation_set.versions // VERSION_COMBINATIONS
    has_rows = (rotation_set.tested & bit) > 0
    has_version = (versions[documents][:, None] >> np.arange(VERSIONS)) & 1 > 0
    rows, numbers = np.nonzero(has_version & has_rows[:, None])
    return questions[rows], numbers.astype(np.int64), documents[rows]


#: Attributes of a set that are stored as columns.
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
Count: TypeAlias = Annotated[int, Field(strict=True, ge=0, lt=COUNT_LIMIT)]


class _Header(BaseModel):
    """The stored attributes of a set, except columns."""

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
    left_out: dict[ExclusionReason, Count]
    untested: UntestedReason | None = None


def _pack(rotation_set: RotationSet) -> dict[str, Any]:
    values = _Header.model_validate(rotation_set).model_dump(mode="json", exclude_none=True)
    if rotation_set.untested is not None:
        return values
    return values | {name: pack_column(getattr(rotation_set, name)) for name in COLUMNS}


def _unpack(
    row: Mapping[str, Any], document_sets: Mapping[tuple[str, str, str], DocumentSet]
) -> RotationSet:
    """Read a set; raise ValueError if it is inconsistent or contradicts the ranks."""
    rotation_set = RotationSet(**dict(_Header.model_validate(row)))
    document_set = document_sets.get(rotation_set.identity)
    if document_set is None:
        raise ValueError(
            "a set has documents or questions that are missing from the ranks by document"
        )
    if rotation_set.untested is not None:
        return rotation_set
    limit = max(VERSIONS * len(document_set.ranks), len(document_set.document_sizes))
    columns: dict[str, Any] = {name: unpack_column(row[name], limit) for name in COLUMNS}
    rotation_set = replace(rotation_set, **columns)
    _check_columns(rotation_set, document_set)
    return rotation_set


def _check_columns(rotation_set: RotationSet, document_set: DocumentSet) -> None:
    """Raise ValueError if columns contradict each other or the ranks of the original documents."""
    if len(rotation_set.sample) != len(document_set.document_sizes):
        raise ValueError("'sample' does not match the documents")
    questions, _ = _find_sampled_questions(rotation_set, document_set)
    if len(rotation_set.versions) != int((rotation_set.sample > 0).sum()) or len(
        rotation_set.tested
    ) != len(questions):
        raise ValueError("'versions' or 'tested' does not match the sampled documents")
    query, version, _ = _list_rows(rotation_set, document_set, window=False)
    window_rows = (
        0
        if rotation_set.window is Window.WHOLE
        else len(_list_rows(rotation_set, document_set, window=True)[0])
    )
    rows = len(query)
    # Allowed sizes and exclusive upper bound of each column.
    limits = {
        "versions": ((len(rotation_set.versions),), VERSION_COMBINATIONS**2),
        "tested": ((len(rotation_set.tested),), 4),
        "twelfths": ((rows,), TWELFTHS),
        "ranks": ((rows,), len(RANKS)),
        "unread": ((0, rows), 3),
        "window_twelfths": ((window_rows,), TWELFTHS),
        "window_ranks": ((window_rows,), len(RANKS)),
    }
    for name, (sizes, bound) in limits.items():
        column = getattr(rotation_set, name)
        if len(column) not in sizes:
            raise ValueError(f"'{name}' does not match the tested questions and versions")
        if column.max(initial=0) >= bound:
            raise ValueError(f"'{name}' has a value above {bound - 1}")
    is_original = version == 0
    if not np.array_equal(rotation_set.ranks[is_original], document_set.ranks[query[is_original]]):
        raise ValueError("the rank of an original document differs from its rank in the search")
    if len(rotation_set.unread) and len(document_set.twelfths):
        is_unread = document_set.twelfths[query[is_original]] >= TWELFTHS
        if not np.array_equal(rotation_set.unread[is_original] > 0, is_unread):
            raise ValueError(
                "evidence of an original document is truncated in one field but not in another"
            )


def encode_unread(twelfths: Integers) -> Integers:
    """Map `ReadEvidence.twelfths` to 0 for evidence within the window, 1 for `Unread.CUT` and 2 for
    `Unread.BEYOND`.
    """
    return np.where(twelfths < TWELFTHS, 0, twelfths - Unread.CUT + 1)


def read_sample_size() -> int:
    """Read the number of documents to rotate per length from the environment; raise PosirError if
    it is invalid.
    """
    text = os.environ.get(ROTATED_VARIABLE, "").strip()
    if text and not (text.isdecimal() and len(text) < 10):
        raise PosirError(
            f"{ROTATED_VARIABLE}={text}: must be the number of documents per length, or 0 for "
            f"none. Unset it for {DEFAULT_SAMPLE}."
        )
    return int(text) if text else DEFAULT_SAMPLE


def build_untested(
    ranks: DocumentRanks, untested: UntestedReason, sample_size: int, subsets: int
) -> RotationRanks:
    """Build the rotation ranks of a result that cannot be tested, with the reason."""
    sets = (
        RotationSet(*rotation_set.identity, sample_size, subsets, untested)
        for rotation_set in ranks.sets
    )
    return RotationRanks(tuple(sets))
