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
HEIGHT, LABEL, LINE, AXIS = 72, 18, 18, 34
#: Share of a wide picture that the drawing takes, distance to the words, and pixels of a letter of
#: them.
DRAWN, GAP, LETTER = 0.58, 20, 7.1
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
    def edges(self) -> list[float]:
        """Return where parts begin and end, in [0, 1]: one more than there are parts, what is
        truncated included.
        """
        width = (1 - self.truncated) / len(self.ndcg_by_part)
        before = len(self.ndcg_by_part) if self.before is None else self.before
        read = [place * width for place in range(len(self.ndcg_by_part) + 1)]
        return (
            [*read[: before + 1], *(edge + self.truncated for edge in read[before:])]
            if self.truncated
            else read
        )

    @property
    def scores(self) -> list[tuple[Estimate | None, bool]]:
        """Return nDCG@10 of each part between the edges, and whether it is read."""
        parts: list[tuple[Estimate | None, bool]] = [(part, True) for part in self.ndcg_by_part]
        if self.truncated:
            parts.insert(
                len(parts) if self.before is None else self.before, (self.ndcg_truncated, False)
            )
        return parts

    @property
    def axis(self) -> tuple[float, float, str, str]:
        """Return where the labels of the axis begin and end, in [0, 1], and both: of what is read,
        if that is at one end.
        """
        if not self.truncated or self.before not in (None, 0):
            return 0, 1, "start of documents", "end"
        if self.before == 0:
            return self.truncated, 1, "start of the window", "end"
        return 0, 1 - self.truncated, "start", "end of the window"

    @property
    def labels(self) -> list[str]:
        """Return the names of the parts of what is read."""
        count = len(self.ndcg_by_part)
        return list(self.places) or [f"{at} of {count}" for at in range(1, count + 1)]

    @property
    def share(self) -> str:
        """Return how much is truncated: `59% of the evidence truncated`; empty if nothing."""
        share = (
            f"truncated: {self.counted}"
            if self.counted
            else f"{format_share(self.truncated)} of {self.scale.whole} truncated"
        )
        return share if self.truncated else ""

    @property
    def ndcg_read(self) -> float | None:
        """Return the mean of the parts that are read; None if one of them is empty."""
        values = [part.value for part in self.ndcg_by_part if part]
        return sum(values) / len(values) if len(values) == len(self.ndcg_by_part) else None

    @property
    def description(self) -> str:
        """Return the picture in a sentence, for readers who do not see it."""
        heights = ", ".join(
            self.scale.format(part.value if part else None) for part in self.ndcg_by_part
        )
        if self.places:
            named = zip(self.labels, heights.split(", "), strict=True)
            heights = "; ".join(map(" ".join, named))
        lost = self.scale.format(self.ndcg_truncated.value if self.ndcg_truncated else None)
        unread = (
            f"; {self.share}{f', {self.scale.name} {lost}' if self.ndcg_truncated else ''}"
            if self.truncated
            else ""
        )
        words = f" {'. '.join(self.words)}." if self.words else ""
        return f"{self.name}: {self.scale.name} from start to end {heights}{unread}.{words}"


def format_share(share: float) -> str:
    """Return a share above 0: `59%`, `under 1%`."""
    return f"{format_percent(share, '.0f')}%" if share > 0.005 else "under 1%"


def describe_marks(strips: Sequence[Strip]) -> str:
    """Return what the marks of pictures are."""
    scale = strips[0].scale
    unread = (
        f" Hatched: {scale.whole} truncated, as a share of all and not a position in each document."
    )
    said = f"From the start of {scale.caption}. Band: 95% interval."
    unread += " Dashed: what a truncated part has, as any two parts of a document." * bool(
        scale.unread
    )
    even = f" Dashed: {scale.even}." if scale.even else ""
    return said + even + unread * any(strip.truncated for strip in strips)


def sketch_strip(strip: Strip) -> str:
    """Return a strip as a line of text: `▆▅▄┊░░`, with a mark where reading ends; `·` where there
    is no evidence.
    """
    parts, marks = len(strip.ndcg_by_part), 1 if strip.before in (None, 0) else 2
    unread = (
        min(max(round(CHARACTERS * strip.truncated), 1), CHARACTERS - marks - 1)
        if strip.truncated
        else 0
    )
    columns = CHARACTERS - unread - (marks if unread else 0)
    ends = np.arange(parts + 1) / parts
    values = np.array([part.value if part else math.nan for part in strip.ndcg_by_part])
    means = []
    for low, high in pairwise(np.arange(columns + 1) / columns):
        overlap = np.clip(
            np.minimum(ends[1:], high) - np.maximum(ends[:-1], low), 0, None
        ) * ~np.isnan(values)
        means.append(
            float(overlap @ np.nan_to_num(values) / overlap.sum())
            if overlap.sum() > 1e-9
            else math.nan
        )
    line, before = (
        draw_sparkline(means),
        columns if strip.before is None else round(columns * strip.before / parts),
    )
    beyond = (MARK if before else "", UNREAD * unread, MARK if before < columns else "")
    return f"{line[:before]}{''.join(beyond) if unread else ''}{line[before:]}"


def sketch_strips(strips: Sequence[Strip], width: int = 1000) -> list[str]:
    """Return a line for each strip: name, sketch and, if there is room for it, the finding, else
    how much is truncated.
    """
    sketches = [f"  {sketch_strip(strip):{CHARACTERS}}  " for strip in strips]
    shares = [
        f"{sketch}{strip.share}".rstrip() for sketch, strip in zip(sketches, strips, strict=True)
    ]
    names = shorten_names(
        [strip.name for strip in strips], width - max(map(len, shares), default=0)
    )
    longest = max(map(len, names), default=0)
    findings = [
        f"{sketch}{strip.words[-1]}" for sketch, strip in zip(sketches, strips, strict=True)
    ]
    fits = longest + max(map(len, findings), default=0) <= width
    return [
        f"{name:{longest}}{end}"
        for name, end in zip(names, findings if fits else shares, strict=True)
    ]


def explain_sketches(strips: Sequence[Strip]) -> str:
    """Return what the lines of text are."""
    unread = f"; {UNREAD} truncated" * any(strip.truncated for strip in strips)
    return f"Bars: from start to end of a document, height {strips[0].scale.name}{unread}."


def draw_glyph(strip: Strip, width: int = 120, height: int = 36) -> str:
    """Return the drawing alone, for the row of a table."""
    size = (
        f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'preserveAspectRatio="none"'
    )
    marks = "".join(_draw_marks(strip, 0, 2, width, height - 3))
    label = html.escape(strip.description)
    return (
        f'<svg class="strip" xmlns="http://www.w3.org/2000/svg" {size} role="img" '
        f'aria-label="{label}">{marks}</svg>'
    )


def draw_strips(
    strips: Sequence[Strip],
    *,
    width: int = WIDE,
    heading: str = "",
    source: str = "",
    explained: bool = True,
) -> str:
    """Return strips below each other on one axis as SVG, their words at their side, and below them
    what the marks are.

    Args:
        strips: One for each system.
        width: Of the picture in pixels.
        heading: A line above them.
        source: Data and date, below them.
        explained: Whether the words stand at their side, and below them what the marks are.
    """
    shown = strips if explained else [replace(strip, words=()) for strip in strips]
    drawn, height = _draw_rows(shown, width, heading, source, explained=explained)
    return _wrap_svg(drawn, strips, (width, height), (width, height))


def draw_card(strips: Sequence[Strip], heading: str, source: str) -> str:
    """Return strips as a card of 1,200 x 630 pixels: the fewer there are, the larger."""
    width, ratio = WIDE, CARD[1] / CARD[0]
    while (rows := _draw_rows(strips, width, heading, source))[1] > width * ratio:
        width += 20
    moved = f'<g transform="translate(0 {(width * ratio - rows[1]) / 2:.1f})">{rows[0]}</g>'
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
        with atomic_write(Path(file)) as temporary:
            temporary.write_bytes(
                self.svg.encode() if suffix == ".svg" else render_png(self.svg, SCALE)
            )


def render_png(svg: str, scale: float = 1) -> bytes:
    """Return the PNG of a picture."""
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
    """Return heading, strips, caption and source, and how high they are."""
    beside = width >= WIDE
    drawn = round(width * DRAWN) if beside else width - AXIS - 12
    letters = int((width - AXIS - drawn - GAP - 12 if beside else width - 24) / LETTER)
    parts, top = [], 12.0
    if heading:
        parts.append(_write(12, top + 14, heading, "ink", 'font-size="16" font-weight="600"'))
        top += 28
    for strip in strips:
        names = textwrap.wrap(strip.name, letters)
        lines = [line for words in strip.words for line in textwrap.wrap(words, letters)]
        left, start = (AXIS + drawn + GAP, top + LABEL) if beside else (12, top)
        parts += [
            _write(left, start + 12 + LINE * at, name, "ink", 'font-weight="600"')
            for at, name in enumerate(names)
        ]
        parts += [
            _write(left, start + 12 + LINE * at, line, "ink")
            for at, line in enumerate(lines, len(names))
        ]
        words = LINE * (len(names) + len(lines))
        parts += _draw_labeled(strip, top if beside else top + words, drawn)
        top += (
            max(words + LABEL, HEIGHT + 2 * LABEL) + 14
            if beside
            else words + HEIGHT + 2 * LABEL + 14
        )
    caption = describe_marks(strips) if explained and strips else ""
    below = [
        *textwrap.wrap(caption, int((width - 24) / 6.6)),
        *textwrap.wrap(source, int((width - 24) / 6.6)),
    ]
    parts += [
        _write(12, top + 10 + 15 * at, line, "faint", 'font-size="12"')
        for at, line in enumerate(below)
    ]
    return "".join(parts), top + 15 * len(below) + 8


def _draw_labeled(strip: Strip, top: float, width: int) -> Iterator[str]:
    """Yield a drawing with the labels of its axes, and above it how much is truncated."""
    bottom = top + LABEL + HEIGHT
    yield from _draw_marks(strip, AXIS, top + LABEL, width, HEIGHT)
    small = 'font-size="12"'
    for height, y in ((1, top + LABEL + 8), (0.5, bottom - HEIGHT / 2 + 4), (0, bottom)):
        yield _write(
            AXIS - 6,
            y,
            strip.scale.format(height * strip.scale.top),
            "faint",
            f'{small} text-anchor="end"',
        )
    low, high, *names = strip.axis
    fits = width * (high - low) > len(" ".join(names)) * LETTER
    for name, at, anchor in zip(names, (low, high), ("start", "end"), strict=True):
        yield _write(
            AXIS + width * at,
            bottom + 14,
            name if fits else SHORT.get(name, name),
            "faint",
            f'{small} text-anchor="{anchor}"',
        )
    for (_, is_read), (start, end) in zip(strip.scores, pairwise(strip.edges), strict=True):
        if not is_read:
            fits, middle = (
                width * (end - start) > len(strip.share) * LETTER,
                ("middle", (start + end) / 2),
            )
            anchor, x = (
                middle
                if fits or 0 < start < end < 1 - 1e-9
                else ("end", end)
                if start
                else ("start", 0)
            )
            yield _write(
                AXIS + width * x,
                top + LABEL - 5,
                strip.share,
                "ink",
                f'{small} text-anchor="{anchor}"',
            )
            if width * (end - start) > len(under := f"share of {strip.scale.whole}") * LETTER:
                yield _write(
                    AXIS + width * (start + end) / 2,
                    bottom + 14,
                    under,
                    "faint",
                    f'{small} text-anchor="middle"',
                )


def _draw_marks(
    strip: Strip, left: float, top: float, width: float, height: float
) -> Iterator[str]:
    """Yield axis, bars with their intervals, and what is truncated, hatched."""
    paths: dict[str, list[str]] = {
        kind: [] for kind in ("bars", "hatch", "band", "grid", "level", "mean")
    }
    bottom = top + height
    for (score, is_read), (start, end) in zip(strip.scores, pairwise(strip.edges), strict=True):
        # What is truncated is no continuation of what is read.
        apart = (0.0, 0.0) if is_read else (APART * (start > 0), APART * (end < 1 - 1e-9))
        x, across = left + width * (start + apart[0]), width * max(end - start - sum(apart), 0)
        # Lines of neighbors overlap, or a gap would show.
        line = f"h{_number(across + is_read)}"
        paths["grid"] += [
            f"M{_number(x)} {_number(bottom - height * share)}{line}" for share in (0, 0.5, 1)
        ]
        if not is_read:
            paths["grid"] += [
                f"M{_number(edge)} {_number(top)}v{_number(height)}" for edge in (x, x + across)
            ]
            paths["hatch"] += _hatch(x, bottom, across, height)
        if score is None:
            continue
        up = height * score.value / strip.scale.top
        if not is_read and strip.scale.unread:
            paths["level"] += [f"M{_number(left)} {_number(bottom - up)}h{_number(width)}"]
            continue
        if is_read:
            # Neighbors share an edge, or a line of the paper would show between them.
            paths["bars"].append(
                f"M{_number(x)} "
                f"{_number(bottom)}v{_number(-up)}H{_number(x + across)}V{_number(bottom)}z"
            )
        if score.interval:
            low, high = (bottom - height * value / strip.scale.top for value in score.interval)
            paths["band"].append(
                f"M{_number(x)} {_number(low)}H{_number(x + across)}V{_number(high)}H{_number(x)}z"
            )
        paths["mean"].append(f"M{_number(x)} {_number(bottom - up)}h{_number(across)}")
    if strip.scale.even and strip.ndcg_read is not None:
        up, across = (
            height * strip.ndcg_read / strip.scale.top,
            width * (strip.axis[1] - strip.axis[0]),
        )
        paths["level"].append(f"M{_number(left)} {_number(bottom - up)}h{_number(across)}")
    for kind, path in paths.items():
        if path:
            yield f'<path class="{kind}" {KINDS[kind][0]} d="{"".join(path)}"/>'


def _hatch(x: float, bottom: float, width: float, height: float) -> Iterator[str]:
    """Yield diagonal lines within a rectangle; a pattern would need a name, which is not unique on
    a page.
    """
    for offset in np.arange(-height, width, HATCH).tolist():
        first, last = max(offset, 0.0), min(offset + height, width)
        if last > first:
            ends = ((x + along, bottom - (along - offset)) for along in (first, last))
            yield "M{} {}L{} {}".format(*(_number(value) for end in ends for value in end))


def _write(x: float, y: float, text: str, kind: str, style: str = "") -> str:
    return (
        f'<text class="{kind}" {KINDS[kind][0]} x="{_number(x)}" y="{_number(y)}" '
        f"{style}>{html.escape(text)}</text>"
    )


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
