"""Declare scores (name, unit, description) and compute them from the additive values of a result.

Result files, reports, CSV, LaTeX and the leaderboard use the declarations.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property
from itertools import islice
from typing import Any, TypeAlias, TypeVar

import numpy as np

from posir_tasks.base.arrays import Booleans, Floats, Integers
from posir_tasks.base.errors import ProfileError
from posir_tasks.base.logs import warn_once
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.place_ranks import parse_places, serialize_places
from posir_tasks.values.profile import Addable, PositionProfile, pool
from posir_tasks.values.read_part import UNKNOWN, ReadPart
from posir_tasks.values.result_schema import NON_SCORE_KEYS, PLACES_KEY, PROFILE_KEY, ROTATIONS_KEY
from posir_tasks.values.rotation_ranks import RotationRanks
from posir_tasks.values.tokens_read import CorpusRead, TokensRead

logger = logging.getLogger(__name__)

Value = TypeVar("Value")


#: Value of a score; None if undefined.
ScoreValue: TypeAlias = Estimate | float | int | str | None
#: Name of the group of all queries.
ALL = "all"
#: Keys of the result file for scores by group of queries and by position bin.
GROUPS_KEY = "position_scores"
BINS_KEY = "position_bins"
#: Pattern of score keys.
KEY = re.compile(r"[a-z][a-z0-9_]*")


class Unit(StrEnum):
    """The unit of a score, which determines its format."""

    PERCENT = "percent"
    """A score in [0, 1], printed x 100: `58.3`."""
    POINTS = "points"
    """A difference of two percent scores in [-1, 1], printed x 100 with its sign: `+4.2`."""
    INDEX = "index"
    """A value in [0, 1], printed with three decimals, as papers print PSI: `0.217`."""
    P_VALUE = "p_value"
    """Printed with three decimals, or `<0.001`."""
    COUNT = "count"
    """A whole number: `42,015`."""
    NUMBER = "number"
    """Any number, printed with two decimals: `1.73`."""
    TEXT = "text"


class Direction(StrEnum):
    """Which values of a score are better."""

    HIGHER = "higher"
    LOWER = "lower"
    NEAR_ZERO = "near zero"
    NEITHER = "neither"


def _add_optional(left: Addable | None, right: Addable | None) -> Addable | None:
    values = [value for value in (left, right) if value is not None]
    return pool(values) if values else None


@dataclass(frozen=True, eq=False)
class ResultValues:
    """The additive values of a result, from which all scores are computed.

    Values can be added for the same model and scheme.
    """

    ranks: DocumentRanks
    read: ReadPart = UNKNOWN
    """The window of the model."""
    tokens_read: TokensRead | None = None
    """Counts of read and truncated tokens of the corpus; None if unknown."""
    places: DocumentRanks | None = None
    """Queries with several evidence spans. `ranks` excludes them."""
    rotations: RotationRanks | None = None
    """Ranks of rotated documents; None if not stored."""
    cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    """Cache for plugins. Values must be small, since a report may contain thousands of results."""

    @property
    def corpus(self) -> CorpusRead:
        """The window and the token counts."""
        return CorpusRead(self.read, self.tokens_read)

    @property
    def profile(self) -> PositionProfile:
        """The position profile of the ranks."""
        return self.ranks.profile

    @cached_property
    def read_profile(self) -> PositionProfile | None:
        """Profile of the queries with evidence within the window. None if the window covers whole
        texts or positions are unknown.
        """
        columns = self.ranks.columns
        if (
            self.read.tokens is None
            or self.ranks.counted_with is None
            or len(columns.twelfths) != len(columns.ranks)
        ):
            return None
        return self.ranks.select_within_window().profile

    def __add__(self, other: ResultValues) -> ResultValues:
        ranks = self.ranks + other.ranks
        corpus = self.corpus + other.corpus
        places = _add_optional(self.places, other.places)
        rotations = _add_optional(self.rotations, other.rotations)
        return ResultValues(ranks, corpus.read, corpus.tokens, places, rotations)

    def to_json(self) -> dict[str, Any]:
        """Return the fields of a result file."""
        data = {PROFILE_KEY: self.profile.to_json()}
        data |= self.ranks.to_json()
        data |= self.corpus.to_json()
        if self.places:
            data[PLACES_KEY] = serialize_places(self.places)
        if self.rotations:
            data[ROTATIONS_KEY] = self.rotations.to_json()
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ResultValues:
        """Read the output of `to_json`.

        Raises:
            ProfileError: A field is damaged or contradicts another field.
            NewerSchemaError: A newer version of posir wrote it.
        """
        profile = PositionProfile.from_json(data.get(PROFILE_KEY, {}))
        ranks = DocumentRanks.from_json(data, profile.axes, profile.queries)
        if ranks.profile != profile:
            raise ProfileError("The position profile and the ranks by document disagree.")
        corpus = CorpusRead.from_json(data)
        places = parse_places(data[PLACES_KEY], profile.axes) if PLACES_KEY in data else None
        rotations = (
            RotationRanks.from_json(data[ROTATIONS_KEY], ranks) if ROTATIONS_KEY in data else None
        )
        return cls(ranks, corpus.read, corpus.tokens, places, rotations)

    def iterate_groups(self) -> Iterator[QueryGroup]:
        """Yield the group of all queries, then a group per length bucket if there are several."""
        yield QueryGroup(self)
        lengths = len(self.profile.lengths)
        if lengths > 1:
            for index in range(lengths):
                yield QueryGroup(self, length=index)

    def estimate_bins(self, gain: Floats) -> list[Estimate | None]:
        """Estimate the mean gain of each position bin over all lengths, as `QueryGroup.estimate`
        does. The estimates are cached.
        """
        from posir_tasks.values.means import estimate_means

        estimates_by_gain = self.cache.setdefault("bins", {})
        key = gain.tobytes()
        if key not in estimates_by_gain:
            layout = self.ranks.layout
            gains = gain[self.ranks.columns.ranks[layout.query]]
            means = estimate_means(gains, layout.bin_design)
            estimates_by_gain[key] = [
                Estimate(mean.value, mean.interval) if mean else None for mean in means
            ]
        estimates: list[Estimate | None] = estimates_by_gain[key]
        return estimates

    @property
    def batch(self) -> ResultBatch:
        """The results whose means are estimated together with those of this result."""
        if BATCH_KEY not in self.cache:
            ResultBatch.join([self])
        batch: ResultBatch = self.cache[BATCH_KEY]
        return batch

    def iterate_bins(self) -> Iterator[QueryGroup]:
        """Yield a group per position bin, over all lengths."""
        for index in range(len(self.profile.positions)):
            yield QueryGroup(self, position=index)


#: Key of a result's batch in its cache.
BATCH_KEY = "batch"


@dataclass(frozen=True, eq=False)
class ResultBatch:
    """Results whose means are estimated together once one of them is needed, since a call takes
    longer than its arithmetic.
    """

    results: tuple[ResultValues, ...]
    estimates: dict[tuple[str, bytes], Any] = field(default_factory=dict, init=False, repr=False)
    """Cached estimates by kind of group and gain."""
    cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    """Cache for plugins."""

    @classmethod
    def join(cls, results: Iterable[ResultValues]) -> None:
        """Make results a batch. It stays in memory as long as one of them."""
        batch = cls(tuple(results))
        for values in batch.results:
            values.cache[BATCH_KEY] = batch

    @cached_property
    def indices(self) -> Mapping[int, int]:
        """Index of each result by its `id`."""
        return {id(values): index for index, values in enumerate(self.results)}

    def estimate_overall(self, gain: Floats) -> list[Estimate | None]:
        """Estimate the mean gain of all queries of each result, as `QueryGroup.estimate` does."""
        key = ("overall", gain.tobytes())
        if key not in self.estimates:
            masks: list[list[Booleans | None]] = [[None]] * len(self.results)
            self.estimates[key] = [estimate for (estimate,) in self._estimate(gain, masks)]
        estimates: list[Estimate | None] = self.estimates[key]
        return estimates

    def estimate_lengths(self, gain: Floats) -> list[list[Estimate | None]]:
        """Estimate the mean gain of each length bucket of each result."""
        key = ("lengths", gain.tobytes())
        if key not in self.estimates:
            masks: list[list[Booleans | None]] = []
            for values in self.results:
                lengths = values.ranks.layout.lengths
                count = len(values.profile.lengths)
                masks.append([lengths == index for index in range(count)])
            self.estimates[key] = list(self._estimate(gain, masks))
        estimates: list[list[Estimate | None]] = self.estimates[key]
        return estimates

    def _estimate(
        self, gain: Floats, masks: Sequence[Sequence[Booleans | None]]
    ) -> Iterator[list[Estimate | None]]:
        """Estimate the mean gain of selected queries of each result, for each of its masks. None
        selects all queries.
        """
        from posir_tasks.values.means import estimate_jointly

        gains = []
        designs = []
        for values, selections in zip(self.results, masks, strict=True):
            layout = values.ranks.layout
            row_gains = gain[values.ranks.columns.ranks]
            for mask in selections:
                gains.append(row_gains if mask is None else row_gains[mask])
                selected = layout if mask is None else layout.select(mask)
                designs.append(selected.mean_design)
        means = iter(estimate_jointly(gains, designs))
        for selections in masks:
            estimates = (mean for (mean,) in islice(means, len(selections)))
            yield [Estimate(mean.value, mean.interval) if mean else None for mean in estimates]


@dataclass(frozen=True, eq=False)
class QueryGroup:
    """The queries that a score is computed from: all of a result, a length bucket or a position
    bin.
    """

    values: ResultValues
    length: int | None = None
    """Index of the length bucket; None for all lengths."""
    position: int | None = None
    """Index of the position bin; None for all positions."""

    @property
    def name(self) -> str:
        """Key of the group in the result file: `all`, or a length bucket such as `q1`."""
        if self.length is None:
            return ALL
        return self.values.profile.lengths[self.length].lower()

    @cached_property
    def profile(self) -> PositionProfile:
        """The position profile of the group's length bucket, or of all lengths."""
        if self.length is None:
            return self.values.profile
        return self.values.profile.select_length(self.length)

    @property
    def counts(self) -> Integers:
        """Queries per position bin and rank column, shape (P, 12); (1, 12) for a position bin. The
        array is new, so that a score may change it.
        """
        rows = slice(None) if self.length is None else slice(self.length, self.length + 1)
        counts: Integers = self.values.profile.counts[rows].sum(axis=0)
        if self.position is None:
            return counts
        return counts[self.position : self.position + 1]

    @property
    def queries(self) -> int:
        """Number of distinct queries."""
        if self.position is not None:
            return int(self.counts.sum())
        totals = self.values.profile.totals
        return int(totals.sum() if self.length is None else totals[self.length].sum())

    @cached_property
    def rows(self) -> Integers:
        """Indices of the queries in `DocumentRanks.columns`, shape (n,).

        A query on a boundary is in both bins, but is counted once in a group of all positions.
        """
        layout = self.values.ranks.layout
        lengths = layout.lengths
        if self.position is None:
            rows = np.arange(len(lengths))
        else:
            rows = layout.query[layout.position == self.position]
        selected: Integers = rows if self.length is None else rows[lengths[rows] == self.length]
        return selected

    def mean(self, gain: Floats) -> float | None:
        """Return the mean gain of the queries, or None without queries.

        Args:
            gain: Gain in [0, 1] of each column of `posir_tasks.values.profile.RANKS`: ranks 1 to
                10, 11 to 100, and not found. Shape (12,).
        """
        gains = gain[self.values.ranks.columns.ranks[self.rows]]
        return float(gains.mean()) if len(gains) else None

    def estimate(self, gain: Floats) -> Estimate | None:
        """Estimate the mean gain with a 95% interval for new documents; None without queries.

        Documents are clusters, since questions about the same document are not independent. Near 0
        and 1 the interval is Wilson's. At least two documents are needed for an interval.
        """
        if self.position is not None and self.length is None:
            return self.values.estimate_bins(gain)[self.position]
        if self.position is None:
            batch = self.values.batch
            index = batch.indices[id(self.values)]
            if self.length is None:
                return batch.estimate_overall(gain)[index]
            return batch.estimate_lengths(gain)[index][self.length]
        # Importing SciPy is slow.
        from posir_tasks.values.means import estimate_mean

        columns = self.values.ranks.columns
        gains = gain[columns.ranks[self.rows]]
        mean = estimate_mean(gains, columns.clusters[self.rows])
        return Estimate(mean.value, mean.interval) if mean else None


@dataclass(frozen=True)
class ScoreInfo:
    """The declaration of a score: its name, unit and meaning."""

    key: str
    """Name in result files, CSV and JSON; unique, lower case."""
    title: str
    """Column heading."""
    description: str
    """One sentence for the legend of a table and the tooltip of a column."""
    unit: Unit = Unit.NUMBER
    better: Direction = Direction.NEITHER
    citation: str = ""
    """Paper that defines the score, with its arXiv id."""
    interval: bool = False
    """Whether values are `Estimate`s with a 95% interval, or None."""
    column: bool = True
    """Whether tables show the score by default."""

    def __post_init__(self) -> None:
        if not KEY.fullmatch(self.key):
            raise ValueError(
                f"score key '{self.key}': must be lower-case letters, digits and underscores, and "
                "begin with a letter"
            )


@dataclass(frozen=True, kw_only=True)
class Score(ScoreInfo):
    """A score computed from the additive values of a group of queries.

    `compute` must depend only on the group, so that pooled and old results can be scored without
    the model. It returns an `Estimate` if `interval` is true, and None for an undefined score.
    """

    compute: Callable[[QueryGroup], ScoreValue]
    by_position: bool = False
    """Whether the score is also computed per position bin."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.key in (*NON_SCORE_KEYS, GROUPS_KEY, BINS_KEY):
            raise ValueError(
                f"score key '{self.key}': reserved by mteb or posir in result files. Choose "
                "another key."
            )


GroupScores: TypeAlias = Mapping[str, ScoreValue]


class ComputedScores(Mapping[str, ScoreValue]):
    """The scores of a group of queries, each computed on first access.

    A score that raises is missing in this group, with a warning that names its plugin.
    """

    def __init__(self, declarations: Mapping[str, tuple[str, Score]], group: QueryGroup) -> None:
        self._declarations = declarations
        self._group = group
        self._values: dict[str, ScoreValue] = {}
        self._missing = set[str]()

    def __getitem__(self, key: str) -> ScoreValue:
        if key in self._missing:
            raise KeyError(key)
        if key not in self._values:
            plugin, score = self._declarations[key]
            try:
                self._values[key] = check_value(score.compute(self._group))
            except Exception as error:
                self._missing.add(key)
                problem = f"{type(error).__name__}: {error}"
                message = (
                    f"posir plugin '{plugin}': score '{key}' raised {problem}, so its value is "
                    "missing for these queries"
                )
                warn_once(logger, message)
                raise KeyError(key) from error
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return (key for key in self._declarations if key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, eq=False)
class ResultScores:
    """The scores of a result by group of queries and by position bin."""

    declarations: tuple[ScoreInfo, ...]
    groups: Mapping[str, GroupScores]
    bins: tuple[GroupScores, ...]

    def __getitem__(self, group: str) -> GroupScores:
        return self.groups[group]

    def to_json(
        self, positions: Sequence[str], reserved_keys: Collection[str] = ()
    ) -> dict[str, Any]:
        """Return the fields of a result file: scores by group, scores by bin, and top-level scores.

        `reserved_keys` are used by other fields of the file, so scores with these keys are skipped
        at the top level.
        """
        columns = [
            score.key for score in self.declarations if score.column and score.unit is not Unit.TEXT
        ]
        by_group = dict[str, Any]()
        flat = dict[str, ScoreValue]()
        for group, scores in self.groups.items():
            by_group[group] = serialize_scores(scores, self.declarations)
            suffix = "" if group == ALL else f"_{group}"
            for key in columns:
                flat_key = f"{key}{suffix}"
                if key not in scores or flat_key in reserved_keys:
                    continue
                value = scores[key]
                flat[flat_key] = value.value if isinstance(value, Estimate) else value
        by_bin = [
            {"position": name, **serialize_scores(scores, self.declarations)}
            for name, scores in zip(positions, self.bins, strict=True)
        ]
        return {GROUPS_KEY: by_group, BINS_KEY: by_bin, **flat}


#: Suffixes of interval columns.
INTERVAL_SUFFIX = re.compile("_(low|high|interval)$")


def prefix_scores(cells: Mapping[str, Value], reserved_keys: Collection[str]) -> dict[str, Value]:
    """Rename cells to `scores.NAME` if another column has the score's name."""
    return {
        f"scores.{name}" if _drop_interval_suffix(name) in reserved_keys else name: cell
        for name, cell in cells.items()
    }


# Rows have the same names.
@cache
def _drop_interval_suffix(name: str) -> str:
    return INTERVAL_SUFFIX.sub("", name)


def flatten(key: str, value: ScoreValue) -> dict[str, float | int | str | None]:
    """Return a score as columns: `key`, plus `key_low` and `key_high` for an estimate."""
    if isinstance(value, Estimate):
        return {key: value.value, f"{key}_low": value.low, f"{key}_high": value.high}
    return {key: value}


def serialize_scores(scores: GroupScores, declarations: Iterable[ScoreInfo]) -> dict[str, Any]:
    """Return the scores of a group as JSON. Scores with an interval also get `key_interval`."""
    values: dict[str, Any] = {}
    for score in declarations:
        if score.key not in scores:
            continue
        value = scores[score.key]
        if isinstance(value, Estimate):
            values |= serialize_estimate(score.key, value)
            continue
        values[score.key] = value
        if score.interval:
            values[f"{score.key}_interval"] = None
    return values


def serialize_estimate(key: str, estimate: Estimate) -> dict[str, Any]:
    """Return the fields `key` and `key_interval` ([lower bound, upper bound] or None)."""
    return {
        key: estimate.value,
        f"{key}_interval": list(estimate.interval) if estimate.interval else None,
    }


def check_value(value: object) -> ScoreValue:
    """Return the value of a score if it is valid.

    Raises:
        TypeError: The value is not an Estimate, number, string or None.
        ValueError: The value is infinite or NaN, or lies outside its interval.
    """
    match value:
        case Estimate(value=estimate, interval=interval):
            numbers = [estimate, *(interval or ())]
            if not all(map(math.isfinite, numbers)):
                raise ValueError(f"{value} is not finite; return None for an undefined score")
            if interval and not interval[0] <= estimate <= interval[1]:
                raise ValueError(
                    f"the interval [{interval[0]}, {interval[1]}] does not contain {estimate}"
                )
            return value
        case float() if not math.isfinite(value):
            raise ValueError(f"{value} is not finite; return None for an undefined score")
        case None | float() | int() | str() if not isinstance(value, bool):
            return value
    raise TypeError(f"{value!r} is not a score; return an Estimate, a number, a string or None")
