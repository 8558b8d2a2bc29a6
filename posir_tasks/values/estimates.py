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
    """None for too few clusters or documents."""

    @property
    def low(self) -> float | None:
        """Lower end of the interval."""
        return self.interval[0] if self.interval else None

    @property
    def high(self) -> float | None:
        """Upper end of the interval."""
        return self.interval[1] if self.interval else None


@dataclass(frozen=True)
class Difference(Estimate):
    """A difference b - a with the p-value for no difference."""

    p_value: float | None = None
    """Two-sided, uncorrected, in (0, 1]; None for too few clusters of documents."""
    interval_at: Callable[[float], Interval] | None = field(default=None, repr=False, compare=False)
    """Computes the interval at a level in (0, 1), such as 0.99; None without an interval."""
