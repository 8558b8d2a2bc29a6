"""Views: titles of what a probe measures, the form of its figure, and its finding as a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeAlias, runtime_checkable

from posir_probe.probe import ModelProbe, Summary, TextProbe, value_at
from posir_probe.sums import ProbeSums
from posir_tasks.display.numbers import FORMATS, format_estimate
from posir_tasks.estimates import Estimate
from posir_tasks.scores import Unit

#: Between the name of a series of values and that of a position.
SEPARATOR = " · "
#: Line of a control embedder, for which the value is known or follows from words alone.
CONTROL = "order-blind control"
#: Title of an axis of nDCG@10.
SCORE = "nDCG@10 (x 100)"
#: Maps sums to the finding, a sentence without a full stop; None where it is undefined.
Finding: TypeAlias = Callable[[ProbeSums], str | None]


class Form(StrEnum):
    """Forms of a figure; only places that have an order are joined by a line."""

    PLACES = "places"
    """Places on an axis from the start of a text, 0, to its end, 1."""
    STEPS = "steps"
    """Named places in their order."""
    BARS = "bars"
    """Equal parts of a text, each with its share."""
    CATEGORIES = "categories"
    """Categories without an order, below each other."""


@dataclass(frozen=True)
class SummaryLabel:
    """Title and unit of a summary of a probe's values."""

    title: str
    """At most 40 characters, understood without the title of the probe."""
    unit: Unit = Unit.INDEX


@dataclass(frozen=True)
class ProbeView:
    """Titles of a probe's values and positions, and its finding."""

    find: Finding
    value: str = ""
    """Title of the axis of values; empty for the title of the probe."""
    place: str = ""
    """Title of the axis of positions."""
    form: Form = Form.STEPS
    unit: Unit = Unit.INDEX
    """Unit of the values at all positions."""
    summaries: Mapping[str, SummaryLabel] = field(default_factory=dict)
    """Labels of summaries, by their name."""
    series: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Panel and line that each series is drawn in, by its name; the line of the model itself is empty."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Titles of positions, by their name without the series."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Place of each position in the text, in [0, 1]."""
    shares_axis: bool = True
    """Whether all panels have the same axis of values."""
    contrast: str | None = None
    """Summary that is positive if the beginning of a text counts more than its end; None if there is none."""
    in_window: bool = False
    """Whether the texts that are measured fit the model's window."""
    shows_window: bool = False
    """Whether a figure marks where the model's window ends in a text."""
    of_data: bool = False
    """Whether the data alone determines the values, and not the model."""

    def split(self, position: str) -> tuple[str, str, str]:
        """Return panel, line and title of a position."""
        name, _, place = position.rpartition(SEPARATOR)
        panel, line = self.series.get(name, (name, ""))
        return panel, line, self.names.get(place, place)


@runtime_checkable
class ViewedProbe(Protocol):
    """A probe that says how people see its values."""

    @property
    def view(self) -> ProbeView:
        """Titles, form and finding."""


def find_view(probe: TextProbe | ModelProbe | None) -> ProbeView:
    """Return the view of a probe; of one that declares none, its first summary is the finding."""
    if isinstance(probe, ViewedProbe):
        return probe.view
    summary = next(iter(probe.summaries.items()), None) if probe else None
    if probe is None or summary is None:
        return ProbeView(lambda _: None)
    name, compute = summary
    contrast = name if name == "start_to_end" else None
    return ProbeView(state_value(f"{probe.title}: {humanize(name)} {{}}", compute), contrast=contrast)


def label_summary(probe: TextProbe | ModelProbe | None, name: str) -> SummaryLabel:
    """Return the label of a summary; of one that has none, its name as words."""
    return find_view(probe).summaries.get(name, SummaryLabel(humanize(name).capitalize()))


def humanize(name: str) -> str:
    """Return a name as words."""
    return name.replace("_", " ")


def format_size(value: float, unit: Unit) -> str:
    """Format the size of a difference, without a sign."""
    return FORMATS[unit](abs(value)).lstrip("+")


def includes_zero(estimate: Estimate) -> bool:
    """Return whether the 95 % interval of a difference includes 0; without one, whether the difference is 0."""
    return estimate.interval[0] <= 0 <= estimate.interval[1] if estimate.interval else estimate.value == 0


def compare_sides(summary: Summary, positive: str, negative: str, neither: str, unit: Unit = Unit.INDEX) -> Finding:
    """Return the finding of a signed difference: sentences with `{}` for its size, and one where its interval includes 0."""

    def find(sums: ProbeSums) -> str | None:
        estimate = sums.estimate(summary)
        if estimate is None:
            return None
        if includes_zero(estimate):
            return f"{neither} ({format_estimate(estimate, FORMATS[unit])})"
        return (positive if estimate.value > 0 else negative).format(format_size(estimate.value, unit))

    return find


def state_value(sentence: str, *summaries: Summary, unit: Unit = Unit.INDEX) -> Finding:
    """Return a finding that states values: a sentence with `{}` for each."""

    def find(sums: ProbeSums) -> str | None:
        estimates = [sums.estimate(summary) for summary in summaries]
        values = [FORMATS[unit](estimate.value) for estimate in estimates if estimate is not None]
        return sentence.format(*values) if len(values) == len(summaries) else None

    return find


def state_largest(sentence: str, names: Mapping[int, str], unit: Unit = Unit.PERCENT) -> Finding:
    """Return a finding that names the largest of several values: a sentence with `{}` for its name and for the value."""

    def find(sums: ProbeSums) -> str | None:
        estimates = {name: sums.estimate(lambda values, at=at: value_at(values, at)) for at, name in names.items()}  # type: ignore[misc]
        known = {name: estimate.value for name, estimate in estimates.items() if estimate is not None}
        largest = max(known, key=lambda name: known[name], default=None)
        return sentence.format(largest, FORMATS[unit](known[largest])) if largest is not None else None

    return find
