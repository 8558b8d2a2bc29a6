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


class Label(str):
    """A text that names a state, such as `inconclusive`; it may have further lines."""

    tone: Tone

    def __new__(cls, text: str, tone: Tone = Tone.OPEN) -> Label:
        """Make a label; its color follows from the tone."""
        label = super().__new__(cls, text)
        label.tone = tone
        return label


def find_tone(cell: object) -> Tone | None:
    """Find the tone of a label; None for any other cell."""
    return cell.tone if isinstance(cell, Label) else None


def change_text(cell: str, change: Callable[[str], str]) -> str:
    """Change the text of a cell; a label stays one."""
    return Label(change(cell), cell.tone) if isinstance(cell, Label) else change(cell)
