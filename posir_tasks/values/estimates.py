"""Estimates and differences with intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

Interval: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Estimate:
    """An estimate with its 95% interval."""

    value: float
    interval: Interval | None = None
    """None with too few clusters."""

    @property
    def low(self) -> float | None:
        """Lower bound of the interval."""
        return self.interval[0] if self.interval else None

    @property
    def high(self) -> float | None:
        """Upper bound of the interval."""
        return self.interval[1] if self.interval else None


@dataclass(frozen=True)
class Difference(Estimate):
    """A difference b - a with its interval and p-value."""

    p_value: float | None = None
    """Two-sided p-value without correction, in (0, 1]; None with too few clusters."""
    compute_interval: Callable[[float], Interval] | None = field(
        default=None, repr=False, compare=False
    )
    """Computes the interval at a level in (0, 1), such as 0.99; None without an interval."""
