"""Words for a state in a cell, with the color that follows from the state."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class Tone(StrEnum):
    """The color of a state in a terminal and on a page; there is no other color."""

    GOOD = "green"
    BAD = "red"
    OPEN = "yellow"
    """Nothing is decided: shown faint."""
    BEST = "bold"
    """The best of several values, which LaTeX prints in bold."""


class Label(str):
    """A text with a color, such as the state `inconclusive`, or a link; it may have further
    lines.
    """

    tone: Tone | None
    link: str
    """The `anchor` of a section of the same page; empty for none."""

    def __new__(cls, text: str, tone: Tone | None = Tone.OPEN, link: str = "") -> Label:
        """Make a label; its color follows from the tone."""
        label = super().__new__(cls, text)
        label.tone = tone
        label.link = link
        return label


def find_tone(cell: object) -> Tone | None:
    """Find the tone of a label; None for any other cell."""
    return cell.tone if isinstance(cell, Label) else None


def find_link(cell: object) -> str:
    """Return the anchor that a label links to; empty for any other cell."""
    return cell.link if isinstance(cell, Label) else ""


def change_text(cell: str, change: Callable[[str], str]) -> str:
    """Change the text of a cell; a label stays one."""
    return Label(change(cell), cell.tone, cell.link) if isinstance(cell, Label) else change(cell)
