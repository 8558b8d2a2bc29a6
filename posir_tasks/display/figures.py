"""Figures, the files that they are written to, and pages of a single file that need no network,
which each command fills.
"""

import base64
import re
import textwrap
from collections import Counter
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
COLUMN, CAPTION = 3.0, 8.0
#: Width of a cell with a number as a share of the size of text; pixels of text in a picture of the
#: answer.
CELL, DRAWN = 1.6, 12
#: Width of a panel of a bare chart as a share of the chart, and characters of a line of a title.
PANEL = 0.7
#: Greatest height of a panel as a share of its width.
TALL = 0.5
MAX_TITLE = 36
#: The title of a panel in lines, which are no longer than the panel.
LINES = "split(datum.label, ' · ')"
#: Times that a bare chart is drawn to find the size of its text.
FITTING_STEPS = 3
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
    """Render a figure as the address of an image that holds all its content, in SVG."""
    return (
        f"data:image/svg+xml;base64,{base64.b64encode(render_svg(figure.chart).encode()).decode()}"
    )


def export(files: Mapping[Path, Callable[[], bytes]]) -> list[Path]:
    """Write files and return their names; raise PosirError if that fails."""
    for file, render in progress(list(files.items()), "Writing files"):
        with atomic_write(file) as temporary:
            temporary.write_bytes(render())
    return list(files)


def prepare_figures(
    strips: Sequence[Strip], figures: Sequence[Figure], folder: Path, style: FigureStyle
) -> dict[Path, Callable[[], bytes]]:
    """Prepare what draws each chart by its file, the picture of the answer first; raise PosirError
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
            "There is no chart of this: too few documents, or a table of its own. Omit --figures, "
            "or ask for more documents or the default tables."
        )
    names = deduplicate([name for name, _ in draws])
    files: dict[Path, Callable[[], bytes]] = {}
    for name, (_, draw) in zip(names, draws, strict=True):
        files[folder / f"{name}.{style.format}"] = partial(_convert, draw, style)
    return files


def _convert(draw: Callable[[], str], style: FigureStyle) -> bytes:
    """Convert a chart to a file, which has the same size in inches in all formats."""
    svg = draw()
    if style.format == "pdf":
        # A pixel of SVG is a point of PDF.
        return bytes(vl_convert.svg_to_pdf(_resize(svg, _measure(svg) * POINTS / PIXELS)))
    if style.format == "png":
        return render_png(svg, DOTS / PIXELS if style.bare else SCALE)
    return svg.encode()


def _draw_answer(strips: Sequence[Strip], style: FigureStyle) -> str:
    if not style.bare:
        return draw_strips(strips)
    width, size = _measure_style(style)
    svg = draw_strips(strips, width=round(width * DRAWN / size), explained=False)
    if style.font:
        svg = re.sub('font-family="[^"]*"', f'font-family="{escape(style.font)}"', svg)
    return _resize(svg, width)


def _draw_figure(figure: Figure, style: FigureStyle) -> str:
    """Draw a chart as SVG; a bare one without text around it, in the width and with the text of its
    style.
    """
    if not style.bare:
        return render_svg(figure.chart)
    width, size = _measure_style(style)
    chart = figure.chart.to_dict()
    for part in (chart, chart["vconcat"][0]):
        part.pop("title", None)
    config = chart["config"]
    config |= {"padding": 1, "font": style.font or config["font"]}
    config["legend"] |= {"orient": "bottom"}
    for part in _walk(chart["vconcat"]):
        if isinstance(part.get("width"), int | float):
            part["width"] = min(part["width"], PANEL * width)
            if isinstance(part.get("height"), int | float):
                part["height"] = min(part["height"], TALL * part["width"])
        if isinstance(part.get("title"), str):
            part["title"] = textwrap.wrap(part["title"], MAX_TITLE)
    svg = vl_convert.vegalite_to_svg(chart)
    # Larger text makes a chart wider, which makes its text smaller in the width of the style.
    for _ in range(FITTING_STEPS):
        scaled = size * _measure(svg) / width
        _set_text(chart, scaled)
        svg = vl_convert.vegalite_to_svg(chart)
    _omit_numbers(chart, scaled)
    return _resize(vl_convert.vegalite_to_svg(chart), width)


def _omit_numbers(chart: Mapping[str, Any], size: float) -> None:
    """Leave numbers out of cells that are too narrow for text of a size, in pixels."""
    for panel in _walk(chart["vconcat"]):
        for layer in panel.get("layer", ()):
            if layer["mark"].get("style") == NUMBER:
                step = panel["width"]
                cell = f"(datum.end - datum.start) * {step}"
                if isinstance(step, dict):
                    cell = str(step["step"])
                shown = {"filter": f"{cell} > {CELL * size}"}
                layer["transform"] = [*layer.get("transform", ()), shown]


def _set_text(chart: dict[str, Any], size: float) -> None:
    """Set the size of all text, in pixels, and put panels and entries of legends below each
    other.
    """
    chart["config"] |= {"text": {"fontSize": size}}
    chart["config"]["axis"] |= {"labelOverlap": "greedy", "labelSeparation": size / 2}
    for part in _walk([chart["config"], chart["vconcat"]]):
        for name in part:
            if name.endswith("ontSize"):
                part[name] = size
        if "facet" in part:
            part["columns"] = 1
            part["facet"]["header"] = {"labelFontWeight": "normal", "labelExpr": LINES}
        if isinstance(part.get("legend"), dict):
            part["legend"]["columns"] = 1


def _measure_style(style: FigureStyle) -> tuple[float, float]:
    """Measure the width of a bare chart and the size of its text in pixels."""
    return (style.width or COLUMN) * PIXELS, (style.font_size or CAPTION) * PIXELS / POINTS


def _walk(part: Any) -> Iterator[dict[str, Any]]:
    """Yield all mappings of a chart, the outer ones first."""
    if isinstance(part, dict):
        yield part
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            yield from _walk(inner)


def _measure(svg: str) -> float:
    """Measure the width of a picture in pixels."""
    return float(SIZE.findall(svg)[0][0])


def _resize(svg: str, width: float) -> str:
    """Make a picture as wide as given, in pixels."""
    old, height = map(float, SIZE.findall(svg)[0])
    return SIZE.sub(f'width="{width:g}" height="{height * width / old:g}"', svg, count=1)


def deduplicate(names: Sequence[str]) -> list[str]:
    """Make names distinct even if case is ignored: the second of a name gets `-2`."""
    counts = Counter[str]()
    distinct = []
    for name in names:
        counts[name.lower()] += 1
        number = counts[name.lower()]
        distinct.append(name if number == 1 else f"{name}-{number}")
    return distinct


@cache
def bundle_chart_library() -> str:
    """Build a script that defines `vegaEmbed` (Vega, Vega-Lite and Vega-Embed, BSD license)."""
    # Without the patch version, as vl-convert names its Vega-Lite.
    return vl_convert.javascript_bundle(
        "window.vegaEmbed = vegaEmbed;", ".".join(alt.SCHEMA_VERSION.split(".")[:2])
    )


def mark(text: object) -> Markup:
    """Convert text to HTML in which commands are code, and a number stays with its unit and
    interval.
    """
    linked = PAPER.sub(_link_paper, escape(bind(str(text))))
    return Markup(COMMAND.sub(r"<code>\1</code>", linked))


def _link_paper(paper: re.Match[str]) -> str:
    return f'<a href="{HOSTS[paper[1]]}{paper[2]}">{paper[0]}</a>'


def keep_whole(text: object) -> Markup:
    """Return text as HTML in which a name with hyphens begins a new line rather than being
    broken.
    """
    return Markup(NAME.sub(r'<span class="whole">\1</span>', bind(str(Markup.escape(text)))))


def render_page(package: str, template: str, **values: Any) -> str:
    """Render a template in `templates` of a package, which may extend the shell, `page.html`;
    values are escaped.
    """
    loader = ChoiceLoader([PackageLoader(package), PackageLoader(__package__)])
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.globals |= {
        "bundle": bundle_chart_library,
        "render_image": render_image,
        "draw_strips": draw_strips,
        "draw_glyph": draw_glyph,
        "STRIP_STYLE": STYLE,
        "format_share": format_share,
        "SHORT": SHORT,
    }
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
