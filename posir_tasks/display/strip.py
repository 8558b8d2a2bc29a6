"""One picture of the answer: a document from its start to its end, how well evidence is found
there, and what is truncated.

Pages, notebooks, cards and the leaderboard show it as SVG that needs no script and no network,
terminals as a line of text.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import atomic_write
from posir_tasks.base.wording import shorten_names
from posir_tasks.display.numbers import draw_sparkline, format_percent
from posir_tasks.values.estimates import Estimate

#: Widths of a picture, in pixels: of a page, and of a telephone, where the words are above the
#: drawing.
WIDE, NARROW = 760, 350
#: Pixels of a card, as previews of links have them.
CARD = 1200, 630
#: Heights of the drawing, of the label above and below it, and of a line of words; width of the
#: axis with its labels.
HEIGHT, LABEL, LINE, AXIS = 72, 18, 18, 48
#: Share of a wide picture that the drawing takes, distance to the words, and pixels of a letter of
#: them.
DRAWN, GAP, LETTER = 0.58, 20, 7.1
#: Letters of a bold name in the room of one that is not.
BOLD = 0.87
#: Pixels of a PNG for each pixel of the picture.
SCALE = 2
#: Pixels between the lines of what is hatched, and share of the drawing that parts it from what is
#: read.
HATCH, APART = 7, 0.014
#: Labels of an axis where there is no room for the others.
SHORT = {"end of the window": "window ends", "start of the window": "window begins"}
#: Characters of a line of text.
CHARACTERS = 12
UNREAD, MARK = "░", "┊"
#: Attributes of each kind of mark in light, and their colors in dark: Okabe & Ito 2008 (Color
#: Universal Design) and grays.
KINDS = {
    "paper": ('fill="#fff"', "fill:#191a1c"),
    "ink": ('fill="#1a1a1a"', "fill:#e8e8e4"),
    "faint": ('fill="#5c5c5c"', "fill:#a9a9a3"),
    "bars": ('fill="#d6e8f3" shape-rendering="crispEdges"', "fill:#1d4259"),
    "hatch": ('fill="none" stroke="#777" stroke-opacity="0.45"', "stroke:#9a9a95"),
    "band": ('fill="#8fc1de" shape-rendering="crispEdges"', "fill:#316a8b"),
    "grid": ('fill="none" stroke="#b4b9bd" shape-rendering="crispEdges"', "stroke:#5b6066"),
    "level": (
        'fill="none" stroke="#5c5c5c" stroke-dasharray="4 3" shape-rendering="crispEdges"',
        "stroke:#a9a9a3",
    ),
    "mean": (
        'fill="none" stroke="#005f96" stroke-width="2" shape-rendering="crispEdges"',
        "stroke:#7cc6f2",
    ),
}
DARK = "".join(f".strip .{kind}{{{dark}}}" for kind, (_, dark) in KINDS.items())
STYLE = f"<style>@media screen and (prefers-color-scheme:dark){{{DARK}}}</style>"
FONT = 'font-family="system-ui,Segoe UI,Roboto,DejaVu Sans,Verdana,sans-serif" font-size="13"'

FigureFormat: TypeAlias = Literal["svg", "pdf", "png"]


@dataclass(frozen=True)
class FigureStyle:
    """Format and looks of charts in files; one that is not bare has no width and no font of its
    own.
    """

    format: FigureFormat = "svg"
    bare: bool = False
    """Whether they are for a paper, which has a caption: without title, explanation and source."""
    width: float | None = None
    """Inches of a bare chart; by default a column of a paper."""
    font_size: float | None = None
    """Points of all its text; by default that of a caption."""
    font: str | None = None
    """Name of its font, or several separated by commas, of which the first that there is counts."""

    def __post_init__(self) -> None:
        if not self.bare and (self.width or self.font_size or self.font):
            raise PosirError(
                "Width and font can be chosen for bare charts, which have no text around them. "
                "Add --bare."
            )


@dataclass(frozen=True)
class Scale:
    """The quantity that the height of a picture is, in [0, 1]."""

    name: str
    format: Callable[[float | None], str]
    whole: str
    """The whole of which a share is truncated."""
    caption: str
    """A clause on the heights."""
    unread: str = ""
    """The meaning of the height `{}` of a truncated part, if it is no score."""
    unit: str = ""
    """The unit, and what it is measured on, for the line below the name on a page."""
    top: float = 1.0
    """The value at the top of the picture."""
    even: str = ""
    """The meaning of a dashed line at the mean of what is read; empty for none."""


NDCG = Scale(
    "nDCG@10",
    partial(format_percent, spec=".0f"),
    "the evidence",
    "documents to their end: how well evidence at that place is found (nDCG@10, 0 to 100)",
)


@dataclass(frozen=True)
class Strip:
    """A document from its start to its end, as one system finds evidence in it."""

    name: str
    words: tuple[str, ...]
    """Lines on the window and on the position effect, and last the finding."""
    ndcg_by_part: tuple[Estimate | None, ...]
    """nDCG@10 in equal parts of the window, from start to end, or of the document if it is unknown;
    None if empty.
    """
    truncated: float = 0.0
    """Share of the questions whose evidence is truncated, wholly or in part; 0 if the window is
    unknown.
    """
    ndcg_truncated: Estimate | None = None
    """nDCG@10 of that evidence; None if there is none."""
    before: int | None = None
    """Parts of the window that lie before what is truncated; None for all."""
    finding: str = ""
    """The answer in one or two sentences, for the card of a page."""
    facts: Callable[[], Iterable[tuple[str, str]]] = field(default=tuple, compare=False)
    """Returns names and values of what the finding rests on, then what to do; they take long. What
    follows the first line of a value explains it.
    """
    scale: Scale = NDCG
    """The quantity that is drawn."""
    code: str = ""
    """A command that does what is to do, for the card of a page."""
    codes: tuple[tuple[str, str, str, bool], ...] = ()
    """Code to do it in several libraries, for the card of a page: name, a sentence, the code, and
    whether it is open.
    """
    border: str = ""
    """The end of the window, for the axis of a page."""
    places: tuple[str, ...] = ()
    """Names of the parts."""
    counted: str = ""
    """The number of questions whose evidence is truncated, instead of their share: `351 of 394
    sentences`.
    """

    @property
    def read_before(self) -> int:
        """Parts of the window before what is truncated."""
        return len(self.ndcg_by_part) if self.before is None else self.before

    @property
    def edges(self) -> list[float]:
        """Where parts begin and end, in [0, 1]: one more than there are parts, what is truncated
        included.
        """
        count = len(self.ndcg_by_part)
        read = [(1 - self.truncated) / count * place for place in range(count + 1)]
        if not self.truncated:
            return read
        before = self.read_before
        return [*read[: before + 1], *(edge + self.truncated for edge in read[before:])]

    @property
    def scores(self) -> list[tuple[Estimate | None, bool]]:
        """nDCG@10 of each part between the edges, and whether it is read."""
        parts: list[tuple[Estimate | None, bool]] = [(part, True) for part in self.ndcg_by_part]
        if self.truncated:
            parts.insert(self.read_before, (self.ndcg_truncated, False))
        return parts

    @property
    def axis(self) -> tuple[float, float, str, str]:
        """Where the labels of the axis begin and end, in [0, 1], and both: of what is read, if that
        is at one end.
        """
        if not self.truncated or self.before not in (None, 0):
            return 0, 1, "start of documents", "end"
        if self.before == 0:
            return self.truncated, 1, "start of the window", "end"
        return 0, 1 - self.truncated, "start", "end of the window"

    @property
    def labels(self) -> list[str]:
        """The names of the parts of what is read."""
        count = len(self.ndcg_by_part)
        return list(self.places) or [f"{at} of {count}" for at in range(1, count + 1)]

    @property
    def share(self) -> str:
        """How much is truncated: `59% of the evidence truncated`; empty if nothing."""
        if not self.truncated:
            return ""
        if self.counted:
            return f"truncated: {self.counted}"
        return f"{format_share(self.truncated)} of {self.scale.whole} truncated"

    @property
    def ndcg_read(self) -> float | None:
        """The mean of the parts that are read; None if one of them is empty."""
        values = [part.value for part in self.ndcg_by_part if part]
        if len(values) < len(self.ndcg_by_part):
            return None
        return sum(values) / len(values)

    @property
    def description(self) -> str:
        """The picture in a sentence, for readers who do not see it."""
        shown = [self.scale.format(part.value if part else None) for part in self.ndcg_by_part]
        heights = ", ".join(shown)
        if self.places:
            heights = "; ".join(map(" ".join, zip(self.places, shown, strict=True)))
        if self.truncated:
            heights += f"; {self.share}"
        if self.truncated and self.ndcg_truncated:
            heights += f", {self.scale.name} {self.scale.format(self.ndcg_truncated.value)}"
        sentences = [f"{self.name}: {self.scale.name} from start to end {heights}", *self.words]
        return f"{'. '.join(sentences)}."


def format_share(share: float) -> str:
    """Format a share above 0: `59%`, `under 1%`."""
    return f"{format_percent(share, '.0f')}%" if share > 0.005 else "under 1%"


def describe_marks(strips: Sequence[Strip]) -> str:
    """Explain the marks of pictures."""
    scale = strips[0].scale
    sentences = [f"From the start of {scale.caption}. Band: 95% interval."]
    if scale.even:
        sentences.append(f"Dashed: {scale.even}.")
    if any(strip.truncated for strip in strips):
        sentences.append(
            f"Hatched: {scale.whole} truncated, as a share of all and not a position in each "
            "document."
        )
        if scale.unread:
            sentences.append("Dashed: what a truncated part has, as any two parts of a document.")
    return " ".join(sentences)


def sketch_strip(strip: Strip) -> str:
    """Sketch a strip as a line of text: `▆▅▄┊░░`, with a mark where reading ends; `·` where there
    is no evidence.
    """
    parts = len(strip.ndcg_by_part)
    marks = 1 if strip.before in (None, 0) else 2
    columns = CHARACTERS
    unread = 0
    if strip.truncated:
        share = round(CHARACTERS * strip.truncated)
        unread = min(max(share, 1), CHARACTERS - marks - 1)
        columns = CHARACTERS - unread - marks
    values = np.array([part.value if part else math.nan for part in strip.ndcg_by_part])
    is_known = ~np.isnan(values)
    ends = np.linspace(0, 1, parts + 1)
    edges = np.linspace(0, 1, columns + 1)
    # The mean of a column is over the parts that it overlaps.
    sums = np.diff(np.interp(edges, ends, np.append(0, np.cumsum(np.nan_to_num(values)))))
    widths = np.diff(np.interp(edges, ends, np.append(0, np.cumsum(is_known))))
    means = [
        total / width if width > 1e-9 else math.nan
        for total, width in zip(sums.tolist(), widths.tolist(), strict=True)
    ]
    line = draw_sparkline(means)
    if not unread:
        return line
    before = round(columns * strip.read_before / parts)
    first = MARK if before else ""
    last = MARK if before < columns else ""
    return f"{line[:before]}{first}{UNREAD * unread}{last}{line[before:]}"


def sketch_strips(strips: Sequence[Strip], width: int = 1000) -> list[str]:
    """Sketch a line for each strip: name, sketch and, if there is room for it, the finding, else
    how much is truncated.
    """
    sketches = [f"  {sketch_strip(strip):{CHARACTERS}}  " for strip in strips]
    rows = list(zip(sketches, strips, strict=True))
    ends = [f"{sketch}{strip.share}".rstrip() for sketch, strip in rows]
    room = width - max(map(len, ends), default=0)
    names = shorten_names([strip.name for strip in strips], room)
    longest = max(map(len, names), default=0)
    findings = [f"{sketch}{strip.words[-1]}" for sketch, strip in rows]
    if longest + max(map(len, findings), default=0) <= width:
        ends = findings
    return [f"{name:{longest}}{end}" for name, end in zip(names, ends, strict=True)]


def explain_sketches(strips: Sequence[Strip]) -> str:
    """Explain the lines of text."""
    unread = f"; {UNREAD} truncated" if any(strip.truncated for strip in strips) else ""
    return f"Bars: from start to end of a document, height {strips[0].scale.name}{unread}."


def draw_glyph(strip: Strip, width: int = 120, height: int = 36) -> str:
    """Draw the marks alone, for the row of a table."""
    marks = "".join(_draw_marks(strip, 0, 2, width, height - 3))
    return (
        f'<svg class="strip" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" preserveAspectRatio="none" role="img" '
        f'aria-label="{html.escape(strip.description)}">{marks}</svg>'
    )


def draw_strips(
    strips: Sequence[Strip], *, width: int = WIDE, source: str = "", explained: bool = True
) -> str:
    """Draw strips below each other on one axis as SVG.

    Args:
        strips: One for each system.
        width: Of the picture in pixels.
        source: Data and date, below them.
        explained: Whether the words stand at their side, and below them what the marks are.
    """
    shown = strips if explained else [replace(strip, words=()) for strip in strips]
    drawn, height = _draw_rows(shown, width, "", source, explained=explained)
    return _wrap_svg(drawn, strips, (width, height), (width, height))


def draw_card(strips: Sequence[Strip], heading: str, source: str) -> str:
    """Draw strips as a card of 1,200 x 630 pixels: the fewer there are, the larger."""
    ratio = CARD[1] / CARD[0]
    width = WIDE
    drawn, height = _draw_rows(strips, width, heading, source)
    while height > width * ratio:
        width += 20
        drawn, height = _draw_rows(strips, width, heading, source)
    moved = f'<g transform="translate(0 {(width * ratio - height) / 2:.1f})">{drawn}</g>'
    return _wrap_svg(moved, strips, (width, round(width * ratio, 1)), CARD)


@dataclass(frozen=True, repr=False)
class Picture:
    """A picture that a notebook shows without a script or a network."""

    svg: str

    def _repr_html_(self) -> str:
        return self.svg

    def save(self, file: str | Path) -> None:
        """Write the picture as `.svg` or `.png`; raise PosirError for another suffix."""
        suffix = Path(file).suffix.lower()
        if suffix not in (".svg", ".png"):
            raise PosirError(f"{file}: a picture is written as .svg or .png.")
        content = self.svg.encode() if suffix == ".svg" else render_png(self.svg, SCALE)
        with atomic_write(Path(file)) as temporary:
            temporary.write_bytes(content)


def render_png(svg: str, scale: float = 1) -> bytes:
    """Render a picture as PNG."""
    import vl_convert  # Altair's converter, which takes long to import

    png: bytes = vl_convert.svg_to_png(svg, scale=scale)
    return png


def _wrap_svg(
    drawn: str, strips: Sequence[Strip], view: tuple[float, float], size: tuple[float, float]
) -> str:
    label = html.escape(" ".join(strip.description for strip in strips))
    return (
        f'<svg class="strip" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {view[0]:g} '
        f'{view[1]:g}" width="{size[0]:g}" '
        f'height="{size[1]:g}" {FONT} role="img" aria-label="{label}">{STYLE}'
        f'<rect class="paper" {KINDS["paper"][0]} width="100%" height="100%"/>{drawn}</svg>'
    )


def _draw_rows(
    strips: Sequence[Strip], width: int, heading: str, source: str, *, explained: bool = True
) -> tuple[str, float]:
    """Draw heading, strips, caption and source, and measure how high they are."""
    is_wide = width >= WIDE
    drawn = round(width * DRAWN) if is_wide else width - AXIS - 12
    left = AXIS + drawn + GAP if is_wide else 12
    letters = int((width - left - 12) / LETTER)
    parts = []
    top = 12.0
    if heading:
        parts.append(_write(12, top + 14, heading, "ink", 'font-size="16" font-weight="600"'))
        top += 28
    for strip in strips:
        names = textwrap.wrap(strip.name, int(letters * BOLD))
        lines = [line for words in strip.words for line in textwrap.wrap(words, letters)]
        y = top + 12 + (LABEL if is_wide else 0)
        for at, line in enumerate([*names, *lines]):
            weight = 'font-weight="600"' if at < len(names) else ""
            parts.append(_write(left, y + LINE * at, line, "ink", weight))
        words = LINE * (len(names) + len(lines))
        picture = HEIGHT + 2 * LABEL
        if is_wide:
            parts += _draw_labeled(strip, top, drawn)
            top += max(words + LABEL, picture) + 14
        else:
            parts += _draw_labeled(strip, top + words, drawn)
            top += words + picture + 14
    below = [describe_marks(strips)] if explained and strips else []
    for text in (*below, source):
        for line in textwrap.wrap(text, int((width - 24) / 6.6)):
            parts.append(_write(12, top + 10, line, "faint", 'font-size="12"'))
            top += 15
    return "".join(parts), top + 8


def _draw_labeled(strip: Strip, top: float, width: int) -> Iterator[str]:
    """Yield a drawing with the labels of its axes, and above it how much is truncated."""
    bottom = top + LABEL + HEIGHT
    turned = f'transform="translate(11 {_number(bottom - HEIGHT / 2)}) rotate(-90)"'
    if len(strip.scale.name) * LETTER < HEIGHT:
        yield _write(0, 0, strip.scale.name, "faint", f"{_anchor('middle')} {turned}")
    yield from _draw_marks(strip, AXIS, top + LABEL, width, HEIGHT)
    for height, y in ((1, top + LABEL + 8), (0.5, bottom - HEIGHT / 2 + 4), (0, bottom)):
        value = strip.scale.format(height * strip.scale.top)
        yield _write(AXIS - 6, y, value, "faint", _anchor("end"))
    low, high, *names = strip.axis
    fits = width * (high - low) > len(" ".join(names)) * LETTER
    for name, at, anchor in zip(names, (low, high), ("start", "end"), strict=True):
        label = name if fits else SHORT.get(name, name)
        yield _write(AXIS + width * at, bottom + 14, label, "faint", _anchor(anchor))
    if not strip.truncated:
        return
    start, end = strip.edges[strip.read_before : strip.read_before + 2]
    anchor, x = ("end", end) if start else ("start", 0.0)
    fits = width * (end - start) > len(strip.share) * LETTER
    if fits or 0 < start < end < 1 - 1e-9:
        anchor, x = ("middle", (start + end) / 2)
    yield _write(AXIS + width * x, top + LABEL - 5, strip.share, "ink", _anchor(anchor))


def _draw_marks(
    strip: Strip, left: float, top: float, width: float, height: float
) -> Iterator[str]:
    """Yield axis, bars with their intervals, and what is truncated, hatched."""
    paths: dict[str, list[str]] = {
        kind: [] for kind in ("bars", "hatch", "band", "grid", "level", "mean")
    }
    scale = strip.scale
    bottom = top + height
    for (score, is_read), (start, end) in zip(strip.scores, pairwise(strip.edges), strict=True):
        x = left + width * start
        right = left + width * end
        if not is_read:
            # What is truncated is no continuation of what is read.
            x += width * APART * (start > 0)
            right = max(x, right - width * APART * (end < 1 - 1e-9))
            paths["hatch"] += _hatch(x, bottom, right - x, height)
        paths["grid"] += _draw_grid(x, right, top, height, is_read=is_read)
        if score is None:
            continue
        y = bottom - height * score.value / scale.top
        if not is_read and scale.unread:
            paths["level"].append(_line(left, y, width))
            continue
        if is_read:
            # Neighbors share an edge, or a line of the paper would show between them.
            paths["bars"].append(_box(x, right, bottom, y))
        if score.interval:
            low, high = (bottom - height * value / scale.top for value in score.interval)
            paths["band"].append(_box(x, right, low, high))
        paths["mean"].append(_line(x, y, right - x))
    if scale.even and strip.ndcg_read is not None:
        y = bottom - height * strip.ndcg_read / scale.top
        paths["level"].append(_line(left, y, width * (strip.axis[1] - strip.axis[0])))
    for kind, path in paths.items():
        if path:
            yield f'<path class="{kind}" {KINDS[kind][0]} d="{"".join(path)}"/>'


def _draw_grid(
    x: float, right: float, top: float, height: float, *, is_read: bool
) -> Iterator[str]:
    for share in (0, 0.5, 1):
        # Lines of neighbors overlap, or a gap would show.
        yield _line(x, top + height * share, right - x + is_read)
    if not is_read:
        for edge in (x, right):
            yield f"M{_number(edge)} {_number(top)}v{_number(height)}"


def _line(x: float, y: float, length: float) -> str:
    return f"M{_number(x)} {_number(y)}h{_number(length)}"


def _box(left: float, right: float, low: float, high: float) -> str:
    x = _number(left)
    return f"M{x} {_number(low)}H{_number(right)}V{_number(high)}H{x}z"


def _hatch(x: float, bottom: float, width: float, height: float) -> Iterator[str]:
    """Yield diagonal lines within a rectangle; a pattern would need a name, which is not unique on
    a page.
    """
    for offset in np.arange(-height, width, HATCH).tolist():
        first = max(offset, 0.0)
        last = min(offset + height, width)
        if last > first:
            begin = f"{_number(x + first)} {_number(bottom - first + offset)}"
            yield f"M{begin}L{_number(x + last)} {_number(bottom - last + offset)}"


def _anchor(anchor: str) -> str:
    return f'font-size="12" text-anchor="{anchor}"'


def _write(x: float, y: float, text: str, kind: str, style: str) -> str:
    return (
        f'<text class="{kind}" {KINDS[kind][0]} x="{_number(x)}" y="{_number(y)}" '
        f"{style}>{html.escape(text)}</text>"
    )


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
