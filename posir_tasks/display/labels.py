"""Table cells: strings with a color, a link or an interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum


class Tone(StrEnum):
    """The color of a cell in a terminal and on a page."""

    GOOD = "green"
    BAD = "red"
    OPEN = "yellow"
    """Inconclusive; printed dim in a terminal."""
    BEST = "bold"
    """The best of several values; bold in LaTeX."""


class Label(str):
    """A cell with a color, such as the state `inconclusive`, or with a link."""

    tone: Tone | None
    link: str
    """`anchor` of a section on the same page, or ""."""

    def __new__(cls, text: str, tone: Tone | None = Tone.OPEN, link: str = "") -> Label:
        """Create a label."""
        label = super().__new__(cls, text)
        label.tone = tone
        label.link = link
        return label


class EstimateText(str):
    """A formatted estimate with an interval: `58.3 [55.1, 61.4]`."""

    value: str
    ends: Sequence[str]

    def __new__(cls, text: str, value: str = "", ends: Sequence[str] = ()) -> EstimateText:
        """Create the cell. `value` and `ends`, the bounds of the interval, are formatted."""
        measured_text = super().__new__(cls, text)
        measured_text.value = value
        measured_text.ends = ends
        return measured_text


def find_tone(cell: object) -> Tone | None:
    """Return the tone of a label, or None for other cells."""
    return cell.tone if isinstance(cell, Label) else None


def find_link(cell: object) -> str:
    """Return the link of a label, or "" for other cells."""
    return cell.link if isinstance(cell, Label) else ""


def is_estimate_text(cell: object) -> bool:
    """Return True if the cell is a formatted estimate with an interval."""
    return isinstance(cell, EstimateText)


def change_text(cell: str, change: Callable[[str], str]) -> str:
    """Apply a function to the text of a cell. Labels keep their tone and link."""
    return Label(change(cell), cell.tone, cell.link) if isinstance(cell, Label) else change(cell)
