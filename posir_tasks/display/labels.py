"""Cell texts with a color, a link or an interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum


class Tone(StrEnum):
    """The color of a state in a terminal and on a page."""

    GOOD = "green"
    BAD = "red"
    OPEN = "yellow"
    """Undecided, printed faint."""
    BEST = "bold"
    """The best of several values: bold in LaTeX."""


class Label(str):
    """A cell text with a color, such as the state `inconclusive`, or with a link."""

    tone: Tone | None
    link: str
    """The `anchor` of a section on the same page, or empty."""

    def __new__(cls, text: str, tone: Tone | None = Tone.OPEN, link: str = "") -> Label:
        """Create a label from its text."""
        label = super().__new__(cls, text)
        label.tone = tone
        label.link = link
        return label


class Measured(str):
    """The text of an estimate with an interval: `58.3 [55.1, 61.4]`."""

    value: str
    ends: Sequence[str]

    def __new__(cls, text: str, value: str = "", ends: Sequence[str] = ()) -> Measured:
        """Create the text of a value and the ends of its interval, all as printed."""
        measured = super().__new__(cls, text)
        measured.value = value
        measured.ends = ends
        return measured


def find_tone(cell: object) -> Tone | None:
    """Return the tone of a label, or None for other cells."""
    return cell.tone if isinstance(cell, Label) else None


def find_link(cell: object) -> str:
    """Return the anchor of a label, or an empty string for other cells."""
    return cell.link if isinstance(cell, Label) else ""


def is_measured(cell: object) -> bool:
    """Return True for the text of an estimate with an interval."""
    return isinstance(cell, Measured)


def change_text(cell: str, change: Callable[[str], str]) -> str:
    """Change the text of a cell. A label keeps its tone and link."""
    return Label(change(cell), cell.tone, cell.link) if isinstance(cell, Label) else change(cell)
