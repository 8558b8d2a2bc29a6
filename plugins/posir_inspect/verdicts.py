"""Verdicts: differences with their uncertainty in sentences, 'not enough texts to say' among them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from posir_report.summary import ReportRow
from posir_significance.intervals import ALPHA, TAILS, Z
from posir_significance.power import POWER, standardized_effect
from posir_significance.verdict import Verdict, describe_verdict
from posir_tasks.display.numbers import format_percent, format_points
from posir_tasks.display.wording import pluralize
from posir_tasks.estimates import Interval
from posir_tasks.evidence import Integers

Floats = NDArray[np.float64]

#: Difference in nDCG@10 that is too small to matter.
SMALL = 0.05
#: How far below the best chunk size another one may be to be preferred for its fewer vectors.
MARGIN = 0.02
#: With fewer texts, finding the right one among ten is too easy to say anything.
MIN_TEXTS = 50
#: Bootstrap samples, and seed of the random numbers.
DRAWS, SEED = 2000, 14
MOST_TEXTS = 1_000_000


class Finding(StrEnum):
    """The finding on a difference."""

    LOWER = "lower"
    """It is negative."""
    HIGHER = "higher"
    """It is positive."""
    UNEVEN = "uneven"
    """Position matters, but start and end do not differ."""
    NONE = "none"
    """It is not significant, and at most 5 points of nDCG@10 either way."""
    UNKNOWN = "not enough texts to say"


@dataclass(frozen=True)
class InspectionVerdict:
    """The finding in a sentence."""

    finding: Finding
    sentence: str
    texts_needed: int | None = None
    """About how many texts would be enough; None unless there are not enough."""


def judge_fading(rows: Sequence[ReportRow], texts: int, bins: int) -> InspectionVerdict:
    """Judge how nDCG@10 depends on the part of the text that a question is about, as a report of the same rows does.

    Args:
        rows: Of a report: all lengths, then each length bucket, with their verdicts.
        texts: Number of texts.
        bins: Number of position bins.
    """
    row = rows[0]
    if row.start_to_end is None or row.start_to_end.interval is None:
        return InspectionVerdict(Finding.UNKNOWN, "No question about the first or the last third of a text.", None)
    difference, (low, high) = row.start_to_end.value, row.start_to_end.interval
    points = f"{format_percent(abs(difference))} points [{_ends(difference, (low, high))}]"
    significant_alone = row.verdict is not None and row.verdict.significant
    significant = texts >= MIN_TEXTS and significant_alone
    if significant and low > 0:
        cause = ": it is not read (truncation)" if row.verdict is Verdict.TRUNCATION else ""
        return InspectionVerdict(
            Finding.LOWER,
            f"Evidence fades{cause}: nDCG@10 is {points} lower in the last third of a text than in the first.",
        )
    if significant and high < 0:
        return InspectionVerdict(
            Finding.HIGHER, f"Evidence at the start fades: nDCG@10 is {points} higher in the last third than in the first."
        )
    if significant:
        return InspectionVerdict(
            Finding.UNEVEN, f"Position matters ({row.verdict}), but start and end differ by only {points} of nDCG@10."
        )
    if texts >= MIN_TEXTS and max(-low, high) <= SMALL:
        return InspectionVerdict(
            Finding.NONE,
            f"Evidence does not fade: start and end differ by {points} of nDCG@10, {describe_verdict(row, row.verdict)}.",
        )
    needed, shown = count_needed(rows, texts, bins), max(abs(difference), SMALL) * 100
    doubt = (
        f"among fewer than {MIN_TEXTS}, the right one is easy to find"
        if significant_alone
        else describe_verdict(row, row.verdict)
    )
    return InspectionVerdict(
        Finding.UNKNOWN,
        f"Not enough texts to say: {pluralize(texts, 'text')}. Start and end differ by {points} of nDCG@10 ({doubt}); about "
        f"{needed:,} texts would show a difference of {shown:.0f} points.",
        needed,
    )


def count_needed(rows: Sequence[ReportRow], texts: int, bins: int) -> int:
    """Return about how many texts like these show the difference from start to end with 80 % power, or one of 5 points.

    The larger of the measured difference and `SMALL` is to be significant after correction; standard errors fall with the root
    of the number of texts.

    Args:
        rows: As in `judge_fading`; the first has an interval of its difference.
        texts: Number of texts.
        bins: Number of position bins.
    """
    row = rows[0]
    assert row.start_to_end is not None
    assert row.start_to_end.interval is not None
    low, high = row.start_to_end.interval
    error = (high - low) / (2 * float(stdtrit(max(texts - 1, 1), TAILS[1])))
    tests = 1 + sum(score_row.p_corrected is not None and score_row.queries != row.queries for score_row in rows[1:])
    effect = standardized_effect(bins, POWER) + float(ndtri(1 - ALPHA / (2 * tests))) - Z
    needed = texts * (effect * error / max(abs(row.start_to_end.value), SMALL)) ** 2
    return max(MIN_TEXTS, round_up(max(needed, texts + 1)))


def _ends(difference: float, interval: Interval) -> str:
    """Return the ends of an interval in points, with the sign of the difference taken as positive."""
    low, high = interval if difference >= 0 else (-interval[1], -interval[0])
    return f"{format_percent(low)}, {format_percent(high)}"


def round_up(texts: float) -> int:
    """Return a number of texts rounded up to two digits, and at most a million."""
    if texts >= MOST_TEXTS:
        return MOST_TEXTS
    unit = 10 ** max(0, math.floor(math.log10(max(1.0, texts))) - 1)
    return int(math.ceil(texts / unit) * unit)


def bootstrap_means(gains: Sequence[Floats], documents: Integers) -> Floats:
    """Return the means of several columns of gains over bootstrap samples of documents.

    Documents are drawn, each with all its queries, since queries about one document are not independent; the same documents for
    all columns, so that differences between columns are paired (Efron & Tibshirani 1993, An Introduction to the Bootstrap,
    chapter 8).

    Args:
        gains: Gains of n queries, several times, each of shape (n,).
        documents: Number of each query's document, shape (n,).

    Returns:
        Shape (draws, columns).
    """
    counts = np.bincount(documents)
    sums = np.stack([np.bincount(documents, column, len(counts)) for column in gains], axis=1)
    present = counts > 0
    sums, counts = sums[present], counts[present]
    weights = np.random.default_rng(SEED).multinomial(len(counts), np.full(len(counts), 1 / len(counts)), DRAWS)
    means: Floats = (weights @ sums) / (weights @ counts)[:, None]
    return means


def percentile_interval(values: Floats) -> Interval:
    """Return the central 95 % of bootstrap values, shape (draws,)."""
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


@dataclass(frozen=True)
class ChunkVerdict(InspectionVerdict):
    """The chunk size to choose."""

    size: int | None = None
    """Chunk size in tokens; None for whole texts, or if there are not enough texts to say."""


def judge_sizes(means: Floats, draws: Floats, vectors: Mapping[int | None, int], texts: int) -> ChunkVerdict:
    """Choose the fewest vectors of the chunk sizes that are at most `MARGIN` below the best, with a confidence of 95 %.

    Args:
        means: nDCG@10 of each size, in the order of `vectors`, shape (S,).
        draws: The same of bootstrap samples, shape (draws, S).
        vectors: Number of vectors by size in tokens, of whole texts (None) first.
        texts: Number of texts.
    """
    sizes = list(vectors)
    if texts < MIN_TEXTS:
        return ChunkVerdict(
            Finding.UNKNOWN,
            f"Not enough texts to say: {pluralize(texts, 'text')}; at least {MIN_TEXTS} would be needed.",
            MIN_TEXTS,
        )
    gaps, estimates = draws.max(axis=1, keepdims=True) - draws, means.max() - means
    low, high = np.quantile(gaps, (0.05, 0.95), axis=0)
    best = int(means.argmax())
    good = [row for row in range(len(sizes)) if high[row] <= MARGIN or row == best]
    chosen = min(good, key=lambda row: vectors[sizes[row]])
    unclear = [
        row for row in range(len(sizes)) if vectors[sizes[row]] < vectors[sizes[chosen]] and low[row] <= MARGIN < high[row]
    ]
    sentence = _describe_choice(sizes, means, draws, vectors, chosen)
    if not unclear:
        return ChunkVerdict(Finding.HIGHER if chosen else Finding.NONE, sentence, None, sizes[chosen])
    cheapest = min(unclear, key=lambda row: vectors[sizes[row]])
    distance = max(abs(float(estimates[cheapest]) - MARGIN), 0.1 * MARGIN)
    width = float(max(high[cheapest] - estimates[cheapest], estimates[cheapest] - low[cheapest]))
    needed = max(round_up(texts * (width / distance) ** 2), round_up(texts + 1))
    doubt = f" Not enough texts to say whether {name_size(sizes[cheapest])} would do; about {needed:,} would be enough."
    return ChunkVerdict(Finding.UNKNOWN, sentence + doubt, needed, sizes[chosen])


def _describe_choice(
    sizes: Sequence[int | None], means: Floats, draws: Floats, vectors: Mapping[int | None, int], chosen: int
) -> str:
    size = sizes[chosen]
    if size is None:
        return f"Whole texts are enough: no chunk size is more than {MARGIN * 100:.0f} points of nDCG@10 better."
    gain = float(means[chosen] - means[0])
    low, high = percentile_interval(draws[:, chosen] - draws[:, 0])
    return (
        f"Chunks of {size} tokens {_compare_with_best(means, chosen)}: nDCG@10 {format_percent(means[chosen])}, "
        f"{format_points(gain)} points [{format_points(low)}, {format_points(high)}] against whole texts, with "
        f"{vectors[size] / vectors[None]:.1f} times as many vectors."
    )


def _compare_with_best(means: Floats, chosen: int) -> str:
    return "serve best" if chosen == int(means.argmax()) else f"are enough, within {MARGIN * 100:.0f} points of the best"


def name_size(size: int | None) -> str:
    """Return a chunk size in words."""
    return "whole texts" if size is None else f"chunks of {size} tokens"
