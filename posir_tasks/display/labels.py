"""Cell texts with a color or a link."""

from __future__ import annotations

from collections.abc import Callable
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


def find_tone(cell: object) -> Tone | None:
    """Return the tone of a label, or None for other cells."""
    return cell.tone if isinstance(cell, Label) else None


def find_link(cell: object) -> str:
    """Return the anchor of a label, or an empty string for other cells."""
    return cell.link if isinstance(cell, Label) else ""


def change_text(cell: str, change: Callable[[str], str]) -> str:
    """Change the text of a cell. A label keeps its tone and link."""
    return Label(change(cell), cell.tone, cell.link) if isinstance(cell, Label) else change(cell)
