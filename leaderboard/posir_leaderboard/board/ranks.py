"""Differences between models, and the resulting ranges of ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from posir_significance.decision import DEFAULT_MARGINS
from posir_significance.findings import CHANGE_LEVEL, MIN_DOCUMENTS, ChangeState
from posir_significance.observations import Observations
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.means import ALPHA

RankRange = tuple[int, int]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

#: Number of metrics of a change, whose intervals are simultaneous.
METRIC_COUNT = round(ALPHA / (1 - CHANGE_LEVEL))
#: States of a pair of models, empty if not paired. Pairs store indices, since names take memory.
CHANGE_STATES = ("", *ChangeState)


@dataclass(frozen=True)
class MeanByCluster:
    """A model's nDCG@10, with its deviation in each cluster (article or document)."""

    queries: str
    """Digest of the queries and their documents, in order."""
    gains: Floats
    """nDCG@10 of each query, shape (n,)."""
    deviations: Floats
    """Sum of (g - m) / n over the queries of each cluster, shape (C,)."""
    degrees: float
    """Degrees of freedom: 1 / sum of the squared shares of the clusters, minus 1."""


def average_by_cluster(ranks: DocumentRanks) -> list[MeanByCluster | None]:
    """Compute means over all lengths, then in each length bucket; None below two clusters."""
    overall = Observations.from_ranks(ranks)
    digest = "+".join(f"{part.documents}:{part.queries}" for part in ranks.sets)
    length_count = len(ranks.axes.lengths)
    groups = [overall]
    if length_count > 1:
        groups += [
            overall.select(overall.layout.lengths == length) for length in range(length_count)
        ]
    means: list[MeanByCluster | None] = []
    for group in groups:
        gains = group.gains
        cluster = group.layout.cluster_numbers
        shares = np.bincount(cluster) / max(len(gains), 1)
        if len(shares) < 2:
            means.append(None)
            continue
        centered = (gains - gains.mean()) / len(gains)
        deviations = np.bincount(cluster, weights=centered).astype(np.float64)
        degrees = max(1 / float(shares @ shares) - 1, 1.0)
        means.append(MeanByCluster(digest, gains, deviations, degrees))
    return means


@dataclass(frozen=True, eq=False)
class PairedDifferences:
    """Differences in nDCG@10 between k models, estimated as in `compare_groups`."""

    values: Floats
    """Row minus column, shape (k, k); NaN if two models have different queries."""
    errors: Floats
    """Standard errors, for new clusters, shape (k, k)."""
    degrees: Floats
    """Degrees of freedom, shape (k, k)."""
    documents: Floats
    """Number of clusters, shape (k, k)."""
    comparisons: int = METRIC_COUNT
    """Number of comparisons for which intervals are adjusted (Bonferroni)."""

    @cached_property
    def paired(self) -> Mask:
        """True if two different models have the same queries, shape (k, k)."""
        mask: Mask = ~np.isnan(self.values)
        np.fill_diagonal(mask, val=False)
        return mask

    @cached_property
    def half_widths(self) -> Floats:
        """Half the width of the interval of each difference, shape (k, k)."""
        # Computing a quantile is slow, and there are few distinct degrees of freedom.
        degrees, inverse = np.unique(self.degrees, return_inverse=True)
        quantiles = stdtrit(degrees, 1 - ALPHA / self.comparisons / 2)
        widths: Floats = quantiles[inverse].reshape(self.errors.shape) * self.errors
        return widths

    def read_change(self, row: int, column: int) -> tuple[Estimate | None, ChangeState | None]:
        """Return the difference of two models and its state, or (None, None) if not paired."""
        if not self.paired[row, column]:
            return None, None
        value = float(self.values[row, column])
        half = float(self.half_widths[row, column])
        state = ChangeState(CHANGE_STATES[self.codes[row, column]])
        return Estimate(value, (value - half, value + half)), state

    def find_clearly_better(self) -> Mask:
        """Find the pairs in which the row's model is better, shape (k, k).

        The intervals are simultaneous over all pairs.
        """
        pairs = int(self.paired.sum()) // 2
        joint = replace(self, comparisons=max(self.comparisons, pairs))
        better = CHANGE_STATES.index(ChangeState.BETTER)
        mask: Mask = (self.codes == better) & (joint.codes == better)
        return mask

    @property
    def states(self) -> NDArray[np.str_]:
        """The change from the column's to the row's model, shape (k, k); empty if not paired."""
        return np.array(CHANGE_STATES)[self.codes]

    @property
    def letters(self) -> list[str]:
        """The initials of each row's changes, k strings of length k; `-` if not paired."""
        initials = "".join(state[:1] or "-" for state in CHANGE_STATES).encode()
        rows = np.frombuffer(initials, np.uint8)[self.codes]
        return [row.tobytes().decode() for row in rows]

    @cached_property
    def codes(self) -> NDArray[np.int8]:
        """The index of each change in `CHANGE_STATES`, shape (k, k).

        Applies the rule of `decide_change` to all pairs at once.
        """
        margin = DEFAULT_MARGINS.ndcg_at_10
        half = self.half_widths
        low = self.values - half
        high = self.values + half
        rules = {
            "": ~self.paired,
            # The first matching rule applies.
            ChangeState.INCONCLUSIVE: self.documents < MIN_DOCUMENTS,
            ChangeState.EQUIVALENT: (-margin < low) & (high < margin),
            ChangeState.BETTER: low > 0,
            ChangeState.WORSE: high < 0,
        }
        codes = [np.int8(CHANGE_STATES.index(state)) for state in rules]
        default = np.int8(CHANGE_STATES.index(ChangeState.INCONCLUSIVE))
        return np.select(list(rules.values()), codes, default)


def compute_paired_differences(means: Sequence[MeanByCluster | None]) -> PairedDifferences:
    """Compare models pairwise, as `estimate_difference` does.

    The squared error is C / (C - 1) sum (d_1 - d_2)^2 over the C clusters.
    """
    # Slow to import, and not needed for scoring.
    from scipy.spatial.distance import cdist

    shape = (len(means), len(means))
    values = np.full(shape, np.nan)
    errors = np.full(shape, np.nan)
    degrees = np.ones(shape)
    documents = np.zeros(shape)
    groups = defaultdict[str, dict[int, MeanByCluster]](dict)
    for index, mean in enumerate(means):
        if mean:
            groups[mean.queries][index] = mean
    for group in groups.values():
        block = np.ix_(list(group), list(group))
        deviations = np.array([mean.deviations for mean in group.values()])
        gains = np.array([mean.gains for mean in group.values()])
        clusters = deviations.shape[1]
        queries = gains.shape[1]
        level = gains.mean(axis=1)
        squares = cdist(deviations, deviations, "sqeuclidean")
        # A pseudo-query keeps errors positive if two models agree on all queries.
        share = (cdist(gains, gains, "cityblock") + 0.5) / (queries + 1)
        pseudo = share * (1 - share) / queries**2
        values[block] = level[:, None] - level
        errors[block] = np.sqrt(clusters / (clusters - 1) * squares + pseudo)
        degrees[block] = next(iter(group.values())).degrees
        documents[block] = clusters
    return PairedDifferences(values, errors, degrees, documents)


def average_differences(tasks: Iterable[PairedDifferences], *, power: int) -> PairedDifferences:
    """Average the differences of the same models over tasks.

    Args:
        tasks: The differences on each of one or more tasks, used one at a time to save memory.
        power: 2 for independent tasks, whose errors add in quadrature; 1 for full correlation.
    """
    count = 0
    values: Floats = np.zeros(1)
    powers: Floats = np.zeros(1)
    degrees: Floats = np.full(1, np.inf)
    documents: Floats = np.full(1, np.inf)
    for task in tasks:
        count += 1
        values = values + task.values
        powers = powers + task.errors**power
        degrees = np.minimum(degrees, task.degrees)
        documents = np.minimum(documents, task.documents)
    return PairedDifferences(values / count, powers ** (1 / power) / count, degrees, documents)


def compute_rank_ranges(
    scores: Sequence[Estimate | None], differences: PairedDifferences | None = None
) -> list[RankRange | None]:
    """Compute the range of possible ranks of each score.

    The best rank is 1 + the number of better models, the worst rank is the number of models minus
    the number of worse models. Models with the same queries are compared by
    `PairedDifferences.find_clearly_better`. Other models differ if their intervals do not overlap,
    as in Klein, Wright & Wieczorek 2020, Journal of the Royal Statistical Society C 69, 589-606.
    With 95% intervals of similar width and independent errors, two models with the same true score
    are separated in 0.6% of comparisons. A score without an interval has no range.

    Args:
        scores: None for an unranked model, which is not counted in ranks.
        differences: Differences of the same models, if any have the same queries.
    """
    intervals = [(score and score.interval) or (np.nan, np.nan) for score in scores]
    ends = np.array(intervals).reshape(-1, 2)
    has_interval = ~np.isnan(ends[:, 0])
    ahead = ends[:, :1] > ends[:, 1]
    if differences:
        ahead = np.where(differences.paired, differences.find_clearly_better(), ahead)
    ahead &= has_interval[:, None] & has_interval
    first = 1 + ahead.sum(axis=0)
    last = len(scores) - scores.count(None) - ahead.sum(axis=1)
    ranges = zip(first.tolist(), last.tolist(), strict=True)
    return [
        ends if is_ranked else None for ends, is_ranked in zip(ranges, has_interval, strict=True)
    ]
