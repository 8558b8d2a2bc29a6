"""Figures, the files that they are written to, and pages of a single file that need no network,
which each command fills.
"""

import base64
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache, partial
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import atomic_write
from posir_tasks.base.progress import progress
from posir_tasks.base.secrets import redact_collected
from posir_tasks.base.wording import COMMAND, PAPER, bind
from posir_tasks.display.charts import NUMBER, render_svg
from posir_tasks.display.labels import find_link, find_tone
from posir_tasks.display.strip import (
    SCALE,
    SHORT,
    STYLE,
    FigureStyle,
    Strip,
    draw_glyph,
    draw_strips,
    format_share,
    render_png,
)

#: Characters of a task or model in a file name.
SLUG = 80
#: CSS pixels and points of an inch, and dots of an inch of a bare PNG.
PIXELS, POINTS, DOTS = 96, 72, 600
#: Inches of a bare chart and points of its text: a column of a paper, and its captions.
COLUMN, CAPTION = 3.3, 8.0
#: Pixels of the narrowest panel with its axis, and of the lowest.
NARROWEST, LOWEST = 145, 90
#: Width of a letter and of a cell with a number as shares of the size of text; pixels of text in a
#: picture of the answer.
LETTER, CELL, DRAWN = 0.58, 1.6, 12
#: Title of a panel in lines.
TITLE = "split(replace(datum.label, ': ', ' · '), ' · ')"
#: Width and height of a picture in SVG.
SIZE = re.compile(r'width="([\d.]+)" height="([\d.]+)"')

#: Where papers are, and a name with hyphens, outside of tags.
HOSTS = {"arXiv": "https://arxiv.org/abs/", "OpenReview": "https://openreview.net/forum?id="}
NAME = re.compile(r"(?<![^\s(>])(\w[\w./+]*-[\w./+-]*\w)(?![^<]*>)")


@dataclass(frozen=True)
class Figure:
    """A chart and what it shows."""

    kind: str
    """Name of the kind of figure, such as `curves`, or of a probe."""
    task: str | None
    """None for all tasks."""
    model: str | None
    """Its label; None for all models."""
    chart: alt.VConcatChart

    @property
    def title(self) -> str:
        """Its finding."""
        return str(self.chart.usermeta["title"])

    @property
    def label(self) -> str:
        """Its title, subject and explanation, for screen readers."""
        return str(self.chart.description)

    @property
    def slug(self) -> str:
        """File name of its picture without suffix: letters, digits, dots, dashes and underscores;
        not unique.
        """
        parts = (_shorten_slug(part or "") for part in (self.task, self.model, self.kind))
        return ".".join(part for part in parts if part)


def _shorten_slug(text: str) -> str:
    slug = re.sub(r"[^A-Za-z0-9.-]+", "_", text).strip("._")
    return slug if len(slug) <= SLUG else f"{slug[: SLUG - 9]}-{digest(text, size=4).hex()}"


def render_image(figure: Figure) -> str:
    """Return a figure as the address of an image that holds all its content, in SVG."""
    return (
        f"data:image/svg+xml;base64,{base64.b64encode(render_svg(figure.chart).encode()).decode()}"
    )


def export(files: Mapping[Path, Callable[[], bytes]]) -> list[Path]:
    """Write files and return their names; raise PosirError if that fails."""
    try:
        for file, render in progress(list(files.items()), "Writing files"):
            with atomic_write(file) as temporary:
                temporary.write_bytes(render())
    except OSError as error:
        target = error.filename2 or error.filename  # the second name is the target of renaming
        raise PosirError(
            f"{target}: cannot be written ({error.strerror}). Choose another file or folder."
        ) from error
    return list(files)


def prepare_figures(
    strips: Sequence[Strip], figures: Sequence[Figure], folder: Path, style: FigureStyle
) -> dict[Path, Callable[[], bytes]]:
    """Return what draws each chart by its file, the picture of the answer first; raise PosirError
    if there is none.
    """
    if folder.exists() and not folder.is_dir():
        raise PosirError(
            f"{folder}: a file, not a folder. --figures takes the folder to write charts to."
        )
    draws = [("answer", partial(_draw_answer, strips, style))] if strips else []
    draws += [(figure.slug, partial(_draw_figure, figure, style)) for figure in figures]
    if not draws:
        raise PosirError(
            "There is no chart of this. Omit --figures, or ask for the default tables."
        )
    names = deduplicate([name for name, _ in draws])
    return {
        folder / f"{name}.{style.format}": partial(_convert, draw, style)
        for name, (_, draw) in zip(names, draws, strict=True)
    }


def _convert(draw: Callable[[], str], style: FigureStyle) -> bytes:
    """Return a chart as a file, which has the same size in inches in all formats."""
    svg = draw()
    if style.format == "pdf":
        # A pixel of SVG is a point of PDF.
        return bytes(
            vl_convert.svg_to_pdf(_resize(svg, float(SIZE.findall(svg)[0][0]) * POINTS / PIXELS))
        )
    return (
        render_png(svg, DOTS / PIXELS if style.bare else SCALE)
        if style.format == "png"
        else svg.encode()
    )


def _draw_answer(strips: Sequence[Strip], style: FigureStyle) -> str:
    if not style.bare:
        return draw_strips(strips)
    width, size = _measure_style(style)
    svg = draw_strips(strips, width=round(width * DRAWN / size), explained=False)
    named = (
        re.sub('font-family="[^"]*"', f'font-family="{escape(style.font)}"', svg)
        if style.font
        else svg
    )
    return _resize(named, width)


def _draw_figure(figure: Figure, style: FigureStyle) -> str:
    """Return a chart as SVG; a bare one without text around it, in the width and with the text of
    its style.
    """
    if not style.bare:
        return render_svg(figure.chart)
    chart, (width, size) = figure.chart.to_dict(), _measure_style(style)
    for part in (chart, chart["vconcat"][0]):
        part.pop("title", None)
    config = chart["config"]
    config |= {"padding": 1, "font": style.font or config["font"], "text": {"fontSize": size}}
    config["axis"] |= {"labelLimit": width, "labelOverlap": "greedy", "labelSeparation": size / 2}
    most = {"labelLimit": 0.46 * width, "gradientLength": 0.5 * width}
    for part in _walk([config, chart["vconcat"]]):
        part |= {key: size for key in part if key.endswith("ontSize")} | {
            key: min(part[key], most[key]) for key in most if key in part
        }
        part |= {"legend": part["legend"] | {"columns": 1}} if part.get("legend") else {}
    config["legend"] |= {"orient": "bottom", "labelLimit": width - 3 * size, "symbolSize": 5 * size}
    for part in _list_parts(chart):
        _fit(part, chart, width, size)
    return _resize(vl_convert.vegalite_to_svg(chart), width)


def _measure_style(style: FigureStyle) -> tuple[float, float]:
    """Return the width of a bare chart and the size of its text in pixels."""
    return (style.width or COLUMN) * PIXELS, (style.font_size or CAPTION) * PIXELS / POINTS


def _walk(part: Any) -> Iterator[dict[str, Any]]:
    """Yield all mappings of a chart, the outer ones first."""
    if isinstance(part, dict):
        yield part
    if isinstance(part, dict | list):
        for inner in part.values() if isinstance(part, dict) else part:
            yield from _walk(inner)


def _list_parts(chart: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the parts of a chart that stand below each other: each is a panel, or several of the
    same width.
    """
    for part in chart["vconcat"]:
        yield from _list_parts(part) if "vconcat" in part else [part]


def _fit(part: dict[str, Any], chart: Mapping[str, Any], width: float, size: float) -> None:
    """Change the part of a bare chart to a width, axes included, in pixels."""
    columns = max(1, min(part.get("columns", 1), int(width // NARROWEST)))
    part |= {
        key: value
        for key, value in (("columns", columns), ("spacing", 2 * size), ("bounds", "full"))
        if key in part
    }
    panel, room = part.get("spec", part), 0.7 * width / columns
    is_step, is_square = isinstance(panel["width"], dict), panel["width"] == panel["height"]
    if "facet" in part:
        part["facet"]["header"] = {
            "labelExpr": TITLE,
            "labelFontWeight": "normal",
            "labelLimit": width / columns,
        }
    if not isinstance(panel["height"], dict):
        panel["height"] = min(panel["height"], max(LOWEST, 0.6 * room))
    _shorten_titles(
        panel,
        {"x": room, "y": room if isinstance(panel["height"], dict) else panel["height"]},
        size,
    )

    def measure(inner: float) -> float:
        panel["width"] = {"step": inner} if is_step else inner
        return float(SIZE.findall(vl_convert.vegalite_to_svg({**chart, "vconcat": [part]}))[0][0])

    # What is not panel or cell, such as an axis, is as wide whatever these are, if they are wider
    # than their titles.
    first = 8 * size if is_step else width
    narrow, wide = measure(first), measure(2 * first)
    inner = max(first * (1 + (width - narrow) / max(wide - narrow, 1)), 1)
    panel["width"] = {"step": inner} if is_step else inner
    if is_square:
        panel["height"] = {"step": max(inner, 1.2 * size)}
    # A number in a narrow cell would cover its neighbors.
    cell = str(inner) if is_step else f"(datum.end - datum.start) * {inner}"
    for layer in panel.get("layer", ()):
        if layer["mark"].get("style") == NUMBER:
            layer["transform"] = [
                *layer.get("transform", ()),
                {"filter": f"{cell} > {CELL * size}"},
            ]


def _shorten_titles(panel: Mapping[str, Any], room: Mapping[str, float], size: float) -> None:
    """Divide titles of axes into lines as long as the axis, without what is in parentheses if that
    is too long.
    """
    for encoding in (part["encoding"] for part in _walk(panel) if "encoding" in part):
        for channel, length in room.items():
            letters, axis = int(length / size / LETTER), encoding.get(channel)
            if isinstance(axis, dict) and (title := axis.get("title")):
                shown = title if len(title) <= letters else title.partition(" (")[0]
                axis["title"] = textwrap.wrap(shown, letters)


def _resize(svg: str, width: float) -> str:
    """Return a picture as wide as given, in pixels."""
    old, height = map(float, SIZE.findall(svg)[0])
    return SIZE.sub(f'width="{width:g}" height="{height * width / old:g}"', svg, count=1)


def deduplicate(names: Sequence[str]) -> list[str]:
    """Return names that are distinct even if case is ignored: the second of a name gets `-2`."""
    lower = [name.lower() for name in names]
    counts = [lower[: at + 1].count(name) for at, name in enumerate(lower)]
    return [
        name if count == 1 else f"{name}-{count}" for name, count in zip(names, counts, strict=True)
    ]


@cache
def bundle_chart_library() -> str:
    """Return a script that defines `vegaEmbed` (Vega, Vega-Lite and Vega-Embed, BSD license)."""
    # Without the patch version, as vl-convert names its Vega-Lite.
    return vl_convert.javascript_bundle(
        "window.vegaEmbed = vegaEmbed;", ".".join(alt.SCHEMA_VERSION.split(".")[:2])
    )


def mark(text: object) -> Markup:
    """Return text as HTML in which commands are code, and a number stays with its unit and
    interval.
    """
    linked = PAPER.sub(
        lambda paper: f'<a href="{HOSTS[paper[1]]}{paper[2]}">{paper[0]}</a>',
        escape(bind(str(text))),
    )
    return Markup(COMMAND.sub(r"<code>\1</code>", linked))


def keep_whole(text: object) -> Markup:
    """Return text as HTML in which a name with hyphens begins a new line rather than being
    broken.
    """
    return Markup(NAME.sub(r'<span class="whole">\1</span>', bind(str(Markup.escape(text)))))


def render_page(package: str, template: str, **values: Any) -> str:
    """Return HTML by a template in `templates` of a package, which may extend the shell,
    `page.html`; values are escaped.
    """
    loader = ChoiceLoader([PackageLoader(package), PackageLoader(__package__)])
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.globals |= {"bundle": bundle_chart_library, "render_image": render_image}
    environment.globals |= {"draw_strips": draw_strips, "draw_glyph": draw_glyph}
    environment.globals |= {"STRIP_STYLE": STYLE, "format_share": format_share, "SHORT": SHORT}
    environment.filters |= {
        "mark": mark,
        "color": find_tone,
        "link": find_link,
        "whole": keep_whole,
    }
    page = environment.get_template(template).render(
        values, version=version("posir"), today=date.today()
    )
    return redact_collected(page)
