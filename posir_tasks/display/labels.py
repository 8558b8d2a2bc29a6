"""Texts with parts or properties that pages show: a color, a link, an interval, a detail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import ClassVar, Self


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


class TwoPartText(str):
    """A text of two parts, which pages show differently."""

    PATTERN: ClassVar[str]
    main: str
    detail: str
    """The second part, or ""."""

    def __new__(cls, main: str, detail: str = "") -> Self:
        """Join the parts with the pattern of the class. Without a detail, there is only `main`."""
        text = super().__new__(cls, cls.PATTERN.format(main, detail) if detail else main)
        text.main = main
        text.detail = detail
        return text


class EstimateText(TwoPartText):
    """A formatted value with its interval: `58.3 [55.1, 61.4]`."""

    PATTERN = "{} {}"
    ends: Sequence[str]
    """Formatted bounds of the interval."""

    def __new__(cls, value: str, interval: str = "", ends: Sequence[str] = ()) -> Self:
        """Join the value and the interval, which may end with a note."""
        text = super().__new__(cls, value, interval)
        text.ends = ends
        return text


class Title(TwoPartText):
    """A title or name with a detail, which pages show smaller: `PosIR-Mini · 720 queries`."""

    PATTERN = "{} · {}"


class Term(TwoPartText):
    """A term with its explanation, or a step with its reason: `Add texts: 5 are too few`."""

    PATTERN = "{}: {}"


class ShellCommand(TwoPartText):
    """A shell command with a comment, which text shows on the line above."""

    PATTERN = "# {1}\n{0}"


def join_steps(steps: Iterable[str]) -> str:
    """Join steps to a text with a sentence for each."""
    return f"{'. '.join(steps)}."


def get_parts(text: str) -> tuple[str, str]:
    """Return the main part and the detail of a text. Texts of one part have no detail."""
    return (text.main, text.detail) if isinstance(text, TwoPartText) else (text, "")


def find_tone(cell: object) -> Tone | None:
    """Return the tone of a label, or None for other cells."""
    return cell.tone if isinstance(cell, Label) else None


def find_link(cell: object) -> str:
    """Return the link of a label, or "" for other cells."""
    return cell.link if isinstance(cell, Label) else ""


def is_estimate_text(cell: object) -> bool:
    """Return True if the cell is a formatted estimate with an interval."""
    return isinstance(cell, EstimateText)


def change_text(text: str, change: Callable[[str], str]) -> str:
    """Apply a function to a text. Labels keep their tone and link, other texts their parts."""
    if isinstance(text, Label):
        return Label(change(text), text.tone, text.link)
    if isinstance(text, TwoPartText) and not isinstance(text, EstimateText):
        return type(text)(change(text.main), change(text.detail))
    return change(text)
