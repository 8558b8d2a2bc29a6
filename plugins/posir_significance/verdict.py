"""The verdict on a row: whether position matters, in which direction, and whether the model's window explains it.

Rooms that do not use `Decision` yet take their verdict from `judge`, and its words from `describe_verdict`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from posir_significance.direction import Direction
from posir_significance.intervals import ALPHA
from posir_tasks.display.numbers import MISSING, format_p_value
from posir_tasks.estimates import Difference, Estimate, Interval

#: Truncation explains a difference from start to end if less than this share of it is left within the window.
REMAINING = 0.5


class Verdict(StrEnum):
    """The verdict on the effect of position in a row."""

    PRIMACY = "primacy"
    RECENCY = "recency"
    MIDDLE_DIP = "middle dip"
    MIDDLE_PEAK = "middle peak"
    UNCLEAR = "significant, no clear direction"
    TRUNCATION = "truncation"
    """The effect is significant, and the model's input window explains it."""
    NOT_SIGNIFICANT = "not significant"
    TOO_FEW = "too few documents"
    """Too few documents: whatever their scores, none could be significant."""

    @property
    def significant(self) -> bool:
        """Whether position matters, be it for bias or truncation."""
        return self not in (Verdict.NOT_SIGNIFICANT, Verdict.TOO_FEW)


class TestedRow(Protocol):
    """The values that a verdict follows from: a row of a report. None if undefined or unknown."""

    @property
    def p_value(self) -> float | None:
        """P-value of the position effect, before correction."""

    @property
    def p_corrected(self) -> float | None:
        """P-value as `correct_p_values` returns it."""

    @property
    def psi(self) -> Estimate | None:
        """The estimate, which needs fewer documents than a test."""

    @property
    def start_to_end(self) -> Estimate | None:
        """First third minus last third of the document, in nDCG@10; the interval is never corrected."""

    @property
    def beyond_window(self) -> float | None:
        """Share of the queries whose evidence ends beyond the model's window."""

    @property
    def p_value_within_window(self) -> float | None:
        """p-value of the position effect over the evidence within the window."""

    @property
    def start_to_end_within_window(self) -> Estimate | None:
        """Start to end over the evidence within the window."""


def judge(row: TestedRow, direction: Direction, overall: TestedRow) -> Verdict | None:
    """Return the verdict on a row; None if position was not tested.

    Args:
        row: With its corrected p-value.
        direction: That its contrasts have, whatever its p-value.
        overall: The row of all lengths, which has the scores within the window.
    """
    if row.p_value is None and row.psi is None:
        return None
    if row.p_corrected is None:
        return Verdict.TOO_FEW
    if row.p_corrected >= ALPHA:
        return Verdict.NOT_SIGNIFICANT
    if is_explained_by_truncation(row, direction, overall):
        return Verdict.TRUNCATION
    return Verdict.UNCLEAR if direction is Direction.UNCLEAR else Verdict(direction.value)


def is_explained_by_truncation(row: TestedRow, direction: Direction, overall: TestedRow) -> bool:
    """Return whether a significant effect is what the model's window does: it vanishes within the window.

    Evidence beyond the window is never read, which lowers scores at later positions only. The window explains an effect if
    evidence is beyond it, the start is found better or no direction is clear, and over the evidence within it, at all lengths,
    the effect is not significant and less than half of the difference from start to end is left.
    """
    if not row.beyond_window or direction not in (Direction.PRIMACY, Direction.UNCLEAR):
        return False
    if overall.p_value_within_window is not None and overall.p_value_within_window < ALPHA:
        return False
    whole, within = row.start_to_end, overall.start_to_end_within_window
    if whole is None or within is None:
        return True
    return whole.value > 0 and within.value < REMAINING * whole.value


def describe_verdict(row: TestedRow, verdict: Verdict | None) -> str:
    """Return a verdict in words; where p or interval would say otherwise, with what they say before correction."""
    if verdict is None:
        return MISSING
    interval = row.start_to_end.interval if row.start_to_end else None
    return describe_insignificance(row.p_value, interval) if verdict is Verdict.NOT_SIGNIFICANT else verdict.value


def describe_insignificance(p_value: float | None, interval: Interval | None) -> str:
    """Return that something is not significant; if p or an interval of it would say otherwise, that they are not corrected.

    Args:
        p_value: Before correction.
        interval: 95 % interval of a difference.
    """
    if p_value is not None and p_value < ALPHA:
        return f"{Verdict.NOT_SIGNIFICANT} (p {format_p_value(p_value)} before correction)"
    if interval and not interval[0] <= 0 <= interval[1]:
        return f"{Verdict.NOT_SIGNIFICANT} (interval without 0 before correction)"
    return Verdict.NOT_SIGNIFICANT.value


def is_significant(difference: Estimate | None, p_corrected: float | None) -> bool:
    """Return whether a difference is significant: p below 0.05 after correction, and an interval without 0.

    The p-value in rows of PSI tests the effect of position, which may change while PSI does not.
    """
    if difference is None or difference.interval is None or p_corrected is None:
        return False
    return p_corrected < ALPHA and not difference.interval[0] <= 0 <= difference.interval[1]


def describe_difference(difference: Difference | None, p_corrected: float | None) -> str:
    """Return in words what the test of a difference allows to say; empty without a test.

    Args:
        difference: With p and interval before correction.
        p_corrected: As `correct_p_values` returns it; None if too few documents could be significant.
    """
    if difference is None or difference.p_value is None:
        return ""
    if p_corrected is None:
        return Verdict.TOO_FEW.value
    if is_significant(difference, p_corrected):
        return "significant"
    if p_corrected < ALPHA:
        return "the effect of position differs, PSI not clearly"
    return describe_insignificance(difference.p_value, difference.interval)
