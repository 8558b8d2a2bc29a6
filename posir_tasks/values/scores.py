"""Scores of a result, each declared once: what it is called, how it reads, and how it is computed
from a group of queries.

Everything that shows a score follows from its declaration: keys of the result file, columns of
reports with their legend, CSV, LaTeX, and the leaderboard's columns with their tooltips.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np

from posir_tasks.base.arrays import Floats, Integers
from posir_tasks.base.errors import ProfileError
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.place_ranks import places_from_json, places_to_json
from posir_tasks.values.profile import Addable, PositionProfile, pool
from posir_tasks.values.read_part import UNKNOWN, ReadPart
from posir_tasks.values.result_schema import NO_SCORES, PLACES_KEY, PROFILE_KEY, ROTATIONS_KEY
from posir_tasks.values.rotation_ranks import RotationRanks
from posir_tasks.values.tokens_read import CorpusRead, TokensRead

logger = logging.getLogger(__name__)

Value = TypeVar("Value")


#: Value of a score; None where it is undefined.
ScoreValue: TypeAlias = Estimate | float | int | str | None
#: Name of the group of all queries, next to those of the length buckets.
ALL = "all"
#: Keys of the result file: the scores of each group of queries, and those of each position bin.
GROUPS_KEY = "position_scores"
BINS_KEY = "position_bins"
#: What the key of a score looks like.
KEY = re.compile(r"[a-z][a-z0-9_]*")


class Unit(StrEnum):
    """The unit of a score, which decides how its values are printed."""

    PERCENT = "percent"
    """A score in [0, 1], printed x 100: `58.3`."""
    POINTS = "points"
    """A difference of such scores in [-1, 1], printed x 100 with its sign: `+4.2`."""
    INDEX = "index"
    """A value in [0, 1], printed with three decimals, as papers print PSI: `0.217`."""
    P_VALUE = "p_value"
    """Printed with three decimals, or `<0.001`."""
    COUNT = "count"
    """A whole number: `42,015`."""
    NUMBER = "number"
    """Any number, printed with two decimals: `1.73`."""
    TEXT = "text"


class Better(StrEnum):
    """The direction in which a score is better."""

    HIGHER = "higher"
    LOWER = "lower"
    NEAR_ZERO = "near zero"
    NEITHER = "neither"


def _add_optional(left: Addable | None, right: Addable | None) -> Addable | None:
    values = [value for value in (left, right) if value is not None]
    return pool(values) if values else None


@dataclass(frozen=True, eq=False)
class ResultValues:
    """The additive values of a result, which all its scores are computed from. Values of one model
    and scheme add.
    """

    ranks: DocumentRanks
    read: ReadPart = UNKNOWN
    """The part of a text that the model reads."""
    tokens_read: TokensRead | None = None
    """The tokens of the corpus that it reads; None if unknown."""
    places: DocumentRanks | None = None
    """The queries with several places of evidence, which are not among the ranks; None if there are
    none.
    """
    rotations: RotationRanks | None = None
    """Ranks of rotated versions of a sample of the documents; None if none are stored."""
    computed: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    """Values that plugins compute once for all their scores. They are small, since a report may
    have thousands of results.
    """

    @property
    def corpus(self) -> CorpusRead:
        """Both of what is read."""
        return CorpusRead(self.read, self.tokens_read)

    @property
    def profile(self) -> PositionProfile:
        """The position profile of the ranks."""
        return self.ranks.profile

    @cached_property
    def read_profile(self) -> PositionProfile | None:
        """Profile of the queries whose evidence is read whole; None if all is read, or if that is
        unknown.
        """
        columns = self.ranks.columns
        if (
            self.read.tokens is None
            or self.ranks.counted_with is None
            or len(columns.twelfths) != len(columns.ranks)
        ):
            return None
        return self.ranks.within_window().profile

    def __add__(self, other: ResultValues) -> ResultValues:
        ranks = self.ranks + other.ranks
        corpus = self.corpus + other.corpus
        places = _add_optional(self.places, other.places)
        rotations = _add_optional(self.rotations, other.rotations)
        return ResultValues(ranks, corpus.read, corpus.tokens, places, rotations)

    def to_json(self) -> dict[str, Any]:
        """Return the fields of a result that hold the values."""
        data = {PROFILE_KEY: self.profile.to_json()}
        data |= self.ranks.to_json()
        data |= self.corpus.to_json()
        if self.places:
            data[PLACES_KEY] = places_to_json(self.places)
        if self.rotations:
            data[ROTATIONS_KEY] = self.rotations.to_json()
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ResultValues:
        """Read what `to_json` returned; raise ProfileError if it is damaged or contradictory,
        NewerSchemaError if newer.
        """
        profile = PositionProfile.from_json(data.get(PROFILE_KEY, {}))
        ranks = DocumentRanks.from_json(data, profile.axes, profile.queries)
        if ranks.profile != profile:
            raise ProfileError("The position profile and the ranks by document disagree.")
        corpus = CorpusRead.from_json(data)
        places = places_from_json(data[PLACES_KEY], profile.axes) if PLACES_KEY in data else None
        rotations = (
            RotationRanks.from_json(data[ROTATIONS_KEY], ranks) if ROTATIONS_KEY in data else None
        )
        return cls(ranks, corpus.read, corpus.tokens, places, rotations)

    def groups(self) -> Iterator[QueryGroup]:
        """Yield all queries, then the queries of each length bucket if there are several."""
        yield QueryGroup(self)
        lengths = len(self.profile.lengths)
        if lengths > 1:
            for index in range(lengths):
                yield QueryGroup(self, length=index)

    def estimate_bins(self, gain: Floats) -> list[Estimate | None]:
        """Return the mean gain of each position bin, over all lengths, as `QueryGroup.estimate`
        does; computed once for all bins.
        """
        from posir_tasks.values.means import estimate_means

        by_gain = self.computed.setdefault("bins", {})
        key = gain.tobytes()
        if key not in by_gain:
            columns = self.ranks.columns
            query, position = self.ranks.memberships
            size = len(self.profile.positions)
            shares = 1 / np.bincount(position, minlength=size)[position]
            gains = gain[columns.ranks[query]]
            means = estimate_means(gains, columns.clusters[query], shares, position, size)
            by_gain[key] = [mean and Estimate(mean.value, mean.interval) for mean in means]
        estimates: list[Estimate | None] = by_gain[key]
        return estimates

    def bins(self) -> Iterator[QueryGroup]:
        """Yield the queries of each position bin, over all lengths."""
        for index in range(len(self.profile.positions)):
            yield QueryGroup(self, position=index)


@dataclass(frozen=True, eq=False)
class QueryGroup:
    """The queries of a result that a score is computed over: all of them, one length bucket, or one
    position bin.
    """

    values: ResultValues
    length: int | None = None
    """Index of the length bucket; None for all lengths."""
    position: int | None = None
    """Index of the position bin; None for all positions."""

    @property
    def name(self) -> str:
        """Key of the group in the result file: `all`, or the length bucket, such as `q1`."""
        if self.length is None:
            return ALL
        return self.values.profile.lengths[self.length].lower()

    @property
    def profile(self) -> PositionProfile:
        """The position profile of the group's length bucket, or of all lengths."""
        if self.length is None:
            return self.values.profile
        return self.values.profile.of_length(self.length)

    @property
    def counts(self) -> Integers:
        """Queries per position bin and rank column, shape (P, 12); of the group's bin alone, shape
        (1, 12).
        """
        counts: Integers = self.profile.counts.sum(axis=0)
        if self.position is None:
            return counts
        return counts[self.position : self.position + 1]

    @property
    def queries(self) -> int:
        """Number of distinct queries."""
        if self.position is None:
            return self.profile.queries
        return int(self.counts.sum())

    @cached_property
    def rows(self) -> Integers:
        """The group's queries as indices into the columns of the ranks, shape (n,).

        A query on a shared boundary belongs to both bins, and counts once in a group of several.
        """
        ranks = self.values.ranks
        lengths = ranks.cell_lengths[ranks.columns.cells]
        if self.position is None:
            rows = np.arange(len(lengths))
        else:
            query, position = ranks.memberships
            rows = query[position == self.position]
        selected: Integers = rows if self.length is None else rows[lengths[rows] == self.length]
        return selected

    def mean(self, gain: Floats) -> float | None:
        """Return the mean gain over the queries; None without queries.

        Args:
            gain: Gain in [0, 1] of each rank column of `posir_tasks.values.profile.RANKS`: ranks 1
                to 10, 11 to 100, and not found. Shape (12,).
        """
        gains = gain[self.values.ranks.columns.ranks[self.rows]]
        return float(gains.mean()) if len(gains) else None

    def estimate(self, gain: Floats) -> Estimate | None:
        """Return the mean gain with its 95% interval for new documents; None without queries.

        Questions about one document are not independent: documents are the clusters. Near 0 and 1
        the interval is Wilson's. There is none with fewer than two documents.
        """
        if self.position is not None and self.length is None:
            return self.values.estimate_bins(gain)[self.position]
        # SciPy takes long to import.
        from posir_tasks.values.means import estimate_mean

        columns = self.values.ranks.columns
        gains = gain[columns.ranks[self.rows]]
        mean = estimate_mean(gains, columns.clusters[self.rows])
        return Estimate(mean.value, mean.interval) if mean else None


@dataclass(frozen=True)
class ScoreInfo:
    """The declaration of a score: its name, unit and meaning."""

    key: str
    """Its name in the result file, CSV and JSON; unique, lower case."""
    title: str
    """Heading of its column."""
    description: str
    """One sentence: the legend below a table, the tooltip of a column."""
    unit: Unit = Unit.NUMBER
    better: Better = Better.NEITHER
    citation: str = ""
    """Paper and arXiv id of its definition."""
    interval: bool = False
    """Whether it has a 95% interval: its values are `Estimate`s, or None."""
    column: bool = True
    """Whether tables show it unless other columns are chosen."""

    def __post_init__(self) -> None:
        if not KEY.fullmatch(self.key):
            raise ValueError(
                f"score key '{self.key}': must be lower-case letters, digits and underscores, a "
                "letter first"
            )


@dataclass(frozen=True, kw_only=True)
class Score(ScoreInfo):
    """A score that is computed from additive values, for every group of queries.

    `compute` must depend on the group alone, so that pooled results can be scored and old ones
    rescored without the model. It returns an `Estimate` if the score is declared with an interval,
    and None where it is undefined.
    """

    compute: Callable[[QueryGroup], ScoreValue]
    by_position: bool = False
    """Whether it is computed for each position bin, too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.key in (*NO_SCORES, GROUPS_KEY, BINS_KEY):
            raise ValueError(
                f"score key '{self.key}': a key of mteb's or posir's own in a result file; choose "
                "another key"
            )


GroupScores: TypeAlias = Mapping[str, ScoreValue]


class ComputedScores(Mapping[str, ScoreValue]):
    """The scores of one of several groups of queries, each computed for all of them when that of
    one is asked for.

    A score that raises for one group is omitted from all, with a warning that names its plugin.
    """

    def __init__(
        self, keys: Collection[str], compute: Callable[[str], list[ScoreValue]], place: int
    ) -> None:
        self._keys = keys
        self._compute = compute
        self._place = place

    @classmethod
    def split(
        cls, declared: Iterable[tuple[str, Score]], groups: Iterable[QueryGroup]
    ) -> list[GroupScores]:
        """Return the scores of each group, given those that plugins declare, by the plugin's
        name.
        """
        of_groups = list(groups)
        by_key = {score.key: (plugin, score) for plugin, score in declared}

        @cache
        def compute(key: str) -> list[ScoreValue]:
            """Return the values of a score, one for each group; none if it cannot be computed."""
            plugin, score = by_key[key]
            try:
                return [check_value(score.compute(group)) for group in of_groups]
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
                logger.warning(
                    "posir plugin '%s': score '%s' raised %s; it is missing", plugin, key, problem
                )
                return []

        return [cls(by_key, compute, place) for place in range(len(of_groups))]

    def __getitem__(self, key: str) -> ScoreValue:
        values = self._compute(key)
        if not values:
            raise KeyError(key)
        return values[self._place]

    def __iter__(self) -> Iterator[str]:
        return (key for key in self._keys if self._compute(key))

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, eq=False)
class ResultScores:
    """The scores of a result by key: of each group of queries, and of each position bin."""

    declared: tuple[ScoreInfo, ...]
    """Declarations of the scores; all groups have all of them that can be computed."""
    groups: Mapping[str, GroupScores]
    bins: tuple[GroupScores, ...]

    def __getitem__(self, group: str) -> GroupScores:
        return self.groups[group]

    def to_json(self, positions: Sequence[str], taken: Collection[str] = ()) -> dict[str, Any]:
        """Return the scores as a result file has them: of groups, of bins, and next to mteb's own,
        whose names are `taken`.
        """
        columns = [
            score.key for score in self.declared if score.column and score.unit is not Unit.TEXT
        ]
        flat = dict[str, ScoreValue]()
        for group, scores in self.groups.items():
            for key in columns:
                if key in scores:
                    value = scores[key]
                    name = key if group == ALL else f"{key}_{group}"
                    flat[name] = value.value if isinstance(value, Estimate) else value
        return {
            GROUPS_KEY: {
                group: scores_to_json(scores, self.declared)
                for group, scores in self.groups.items()
            },
            BINS_KEY: [
                {"position": name, **scores_to_json(scores, self.declared)}
                for name, scores in zip(positions, self.bins, strict=True)
            ],
            **{key: value for key, value in flat.items() if key not in taken},
        }


#: What follows the key of a score in the names of its interval.
INTERVAL = re.compile("_(low|high|interval)$")


def prefix_scores(cells: Mapping[str, Value], taken: Collection[str]) -> dict[str, Value]:
    """Return cells of scores by name, those of a score whose key another column has as
    `scores.NAME`.
    """
    return {
        f"scores.{name}" if INTERVAL.sub("", name) in taken else name: cell
        for name, cell in cells.items()
    }


def flatten(key: str, value: ScoreValue) -> dict[str, float | int | str | None]:
    """Return the columns of a value: an estimate has `key`, `key_low` and `key_high`, any other
    value `key`.
    """
    if isinstance(value, Estimate):
        return {key: value.value, f"{key}_low": value.low, f"{key}_high": value.high}
    return {key: value}


def scores_to_json(scores: GroupScores, declared: Iterable[ScoreInfo]) -> dict[str, Any]:
    """Return the scores of a group as they stand in the result file: one with an interval as `key`
    and `key_interval`.
    """
    values: dict[str, Any] = {}
    for score in declared:
        if score.key in scores:
            value = scores[score.key]
            if isinstance(value, Estimate):
                values |= estimate_to_json(score.key, value)
                continue
            values[score.key] = value
            if score.interval:
                values[f"{score.key}_interval"] = None
    return values


def estimate_to_json(key: str, estimate: Estimate) -> dict[str, Any]:
    """Return an estimate as two fields: `key`, and `key_interval` with the ends of its 95%
    interval, or None.
    """
    return {
        key: estimate.value,
        f"{key}_interval": list(estimate.interval) if estimate.interval else None,
    }


def check_value(value: object) -> ScoreValue:
    """Return a value that can be a score's; raise TypeError, or ValueError if it is not finite or
    outside its interval.
    """
    match value:
        case Estimate(value=estimate, interval=interval):
            numbers = [estimate, *(interval or ())]
            if not all(map(math.isfinite, numbers)):
                raise ValueError(f"{value} is not finite; return None where a score is undefined")
            if interval and not interval[0] <= estimate <= interval[1]:
                raise ValueError(
                    f"the interval [{interval[0]}, {interval[1]}] does not contain {estimate}"
                )
            return value
        case float() if not math.isfinite(value):
            raise ValueError(f"{value} is not finite; return None where a score is undefined")
        case None | float() | int() | str() if not isinstance(value, bool):
            return value
    raise TypeError(f"{value!r} is no score; return an Estimate, a number, a string or None")
