"""Format numbers, with a function for each unit."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import isnan
from typing import Any

from posir_tasks.display.labels import EstimateText
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.scores import ScoreValue, Unit

#: Text for an undefined value or a score that was not computed.
MISSING = "–"
Format = Callable[[float | None], str]


def format_number(value: float | None, spec: str) -> str:
    """Format a number with a format specification such as `,.1f`. None becomes `MISSING`.

    Numbers that round to 0 have no sign.
    """
    if value is None:
        return MISSING
    text = format(value, spec)
    return text if text.strip("+-0.,") else text.lstrip("+-")


def format_percent(value: float | None, spec: str = ".1f") -> str:
    """Format a score in [0, 1] x 100, by default with one decimal: `58.3`."""
    return format_number(None if value is None else value * 100, spec)


#: Formats a count with thousands separators: `42,015`.
format_count: Callable[[int | None], str] = partial(format_number, spec=",.0f")
#: Formats a signed difference of scores x 100, with one decimal: `+4.2`.
format_points: Format = partial(format_percent, spec="+.1f")
#: Formats a PSI in [0, 1] with three decimals, as in the papers: `0.217`.
format_psi: Format = partial(format_number, spec=".3f")
#: Formats a signed difference of PSI: `-0.042`.
format_psi_difference: Format = partial(format_number, spec="+.3f")


def format_p_value(value: float | None) -> str:
    """Format a p-value with three decimals: `0.035`, `<0.001`."""
    return "<0.001" if value is not None and value < 0.001 else format_number(value, ".3f")


def format_estimate(estimate: Estimate | None, format_value: Format, note: str = "") -> str:
    """Format an estimate with its interval and a note: `58.3 [55.1, 61.4]`. None becomes
    `MISSING`.
    """
    if estimate is None:
        return MISSING
    value = format_value(estimate.value)
    if estimate.interval is None:
        return f"{value}{note}"
    ends = list(map(format_value, estimate.interval))
    return EstimateText(value, f"[{', '.join(ends)}]{note}", ends)


def format_interval(estimate: Estimate | None, format_value: Format) -> str:
    """Format the interval of an estimate: `[55.1, 61.4]`. Return "" without an interval."""
    if estimate is None or estimate.interval is None:
        return ""
    return f"[{', '.join(map(format_value, estimate.interval))}]"


def format_score(unit: Unit, value: ScoreValue) -> str:
    """Format the value of a score in its unit: `58.3 [55.1, 61.4]` for an estimate in percent."""
    if isinstance(value, Estimate):
        return format_estimate(value, FORMATS[unit])
    return value if isinstance(value, str) else FORMATS[unit](value)


#: Format function by unit.
FORMATS: Mapping[Unit, Callable[[Any], str]] = {
    Unit.PERCENT: format_percent,
    Unit.POINTS: format_points,
    Unit.INDEX: format_psi,
    Unit.P_VALUE: format_p_value,
    Unit.COUNT: format_count,
    Unit.NUMBER: partial(format_number, spec=".2f"),
    Unit.TEXT: lambda value: MISSING if value is None else str(value),
}

#: Bars of a sparkline, in eighths of the axis from 0 to 1, and the character for NaN.
BARS, UNKNOWN_BAR = "▁▂▃▄▅▆▇█", "·"
#: Parts of a horizontal bar, from one eighth of a character to a whole one.
HORIZONTAL_BARS = "▏▎▍▌▋▊▉█"


def draw_sparkline(scores: Iterable[float]) -> str:
    """Draw scores in [0, 1] or NaN as bars, one character each."""
    return "".join(
        UNKNOWN_BAR if isnan(score) else BARS[min(int(score * len(BARS)), len(BARS) - 1)]
        for score in scores
    )
