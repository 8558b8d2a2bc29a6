"""An estimate with its interval, and a difference of two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

Interval: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Estimate:
    """An estimate and its 95% interval, which contains it."""

    value: float
    interval: Interval | None = None
    """None where there are too few clusters or documents for one."""

    @property
    def low(self) -> float | None:
        """Low end of the interval."""
        return self.interval[0] if self.interval else None

    @property
    def high(self) -> float | None:
        """High end of the interval."""
        return self.interval[1] if self.interval else None


@dataclass(frozen=True)
class Difference(Estimate):
    """A difference, b - a, and the p-value of no difference."""

    p_value: float | None = None
    """Two-sided, not corrected, in (0, 1]; None with too few clusters of documents for a test."""
    interval_at: Callable[[float], Interval] | None = field(default=None, repr=False, compare=False)
    """Returns the interval of a level in (0, 1), such as 0.99; None where there is no interval."""
