"""Numbers as text: one function per kind of number, and one mark for a missing value."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import isnan
from typing import Any

from posir_tasks.values.estimates import Estimate
from posir_tasks.values.scores import ScoreValue, Unit

#: Text for a value that is undefined or that no plugin computed.
MISSING = "–"
Format = Callable[[float | None], str]


def format_number(value: float | None, spec: str) -> str:
    """Format a value by a format specification such as `,.1f`; `MISSING` for None. What rounds to 0
    has no sign.
    """
    if value is None:
        return MISSING
    text = format(value, spec)
    return text if text.strip("+-0.,") else text.lstrip("+-")


def format_percent(value: float | None, spec: str = ".1f") -> str:
    """Format a score in [0, 1] x 100, with one decimal unless `spec` says otherwise: `58.3`."""
    return format_number(None if value is None else value * 100, spec)


#: Formats a count with thousands separators: `42,015`.
format_count: Callable[[int | None], str] = partial(format_number, spec=",.0f")
#: Formats a signed difference of scores x 100, with one decimal: `+4.2`.
format_points: Format = partial(format_percent, spec="+.1f")
#: Formats a PSI in [0, 1] with three decimals, as the papers print it: `0.217`.
format_psi: Format = partial(format_number, spec=".3f")
#: Formats a signed difference of PSI: `-0.042`.
format_psi_difference: Format = partial(format_number, spec="+.3f")


def format_p_value(value: float | None) -> str:
    """Format a p-value with three decimals; below them `<0.001`."""
    return "<0.001" if value is not None and value < 0.001 else format_number(value, ".3f")


def format_estimate(estimate: Estimate | None, form: Format) -> str:
    """Format an estimate followed by its interval if it has one: `58.3 [55.1, 61.4]`; `MISSING` for
    None.
    """
    return (
        f"{form(estimate.value)} {format_interval(estimate, form)}".rstrip()
        if estimate
        else MISSING
    )


def format_interval(estimate: Estimate | None, form: Format) -> str:
    """Format the interval of an estimate: `[55.1, 61.4]`; an empty string if it has none."""
    return f"[{', '.join(map(form, estimate.interval))}]" if estimate and estimate.interval else ""


def format_score(unit: Unit, value: ScoreValue) -> str:
    """Format the value of a score: `58.3 [55.1, 61.4]` for an estimate in percent; `MISSING` for
    None.
    """
    if isinstance(value, Estimate):
        return format_estimate(value, FORMATS[unit])
    return value if isinstance(value, str) else FORMATS[unit](value)


#: How the numbers of a unit are printed.
FORMATS: Mapping[Unit, Callable[[Any], str]] = {
    Unit.PERCENT: format_percent,
    Unit.POINTS: format_points,
    Unit.INDEX: format_psi,
    Unit.P_VALUE: format_p_value,
    Unit.COUNT: format_count,
    Unit.NUMBER: partial(format_number, spec=".2f"),
    Unit.TEXT: lambda value: MISSING if value is None else str(value),
}

#: Heights of an eighth of the axis each, from 0 to 1, and what an unknown score shows.
HEIGHTS, EMPTY = "▁▂▃▄▅▆▇█", "·"


def draw_sparkline(scores: Iterable[float]) -> str:
    """Return scores in [0, 1] on an axis from 0 to 1, a character for each; NaN where unknown."""
    return "".join(
        EMPTY if isnan(score) else HEIGHTS[min(int(score * len(HEIGHTS)), len(HEIGHTS) - 1)]
        for score in scores
    )
