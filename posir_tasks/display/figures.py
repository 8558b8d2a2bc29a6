"""Write figures to files, and render self-contained HTML pages."""

import base64
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import vl_convert
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import write_atomically
from posir_tasks.base.progress import track_items
from posir_tasks.base.records import Fields, Record
from posir_tasks.base.secrets import redact_collected
from posir_tasks.base.wording import COMMAND, PAPER, keep_together
from posir_tasks.display.chart_library import load_chart_library
from posir_tasks.display.charts import NUMBER, FramedChart, render_svg
from posir_tasks.display.labels import find_link, find_tone, get_parts, is_estimate_text
from posir_tasks.display.numbers import MISSING
from posir_tasks.display.position_charts import (
    SCALE,
    STYLE,
    FigureStyle,
    PositionCharts,
    draw_glyph,
    draw_position_charts,
    format_share,
    render_png,
)

#: Functions that render files, by path.
Renderers: TypeAlias = dict[Path, Callable[[], bytes]]
#: Maximum number of characters of a task or model in a file name.
MAX_SLUG = 80
#: CSS pixels, points, and dots of a bare PNG, per inch.
PIXELS, POINTS, DOTS = 96, 72, 600
#: Defaults of bare charts: width in inches, a column of a paper, and text size in points, that of a
#: caption.
COLUMN_WIDTH, CAPTION_SIZE = 3.0, 8.0
#: Minimum width of a cell with a number, relative to the text size.
MIN_CELL_WIDTH = 1.6
#: Text size of a position chart in pixels.
CHART_TEXT_SIZE = 12
#: Maximum width of a panel of a bare chart, relative to the chart.
MAX_PANEL_WIDTH = 0.7
#: Maximum height of a panel, relative to its width.
MAX_PANEL_HEIGHT = 0.5
#: Maximum number of characters in a line of a title.
MAX_TITLE = 36
#: Vega expression: the title of a panel, split into lines.
TITLE_LINES = "split(datum.label, ' · ')"
#: Number of iterations to fit the text size of a bare chart.
FITTING_STEPS = 3
#: Width and height of an SVG image.
SVG_SIZE = re.compile(r'width="([\d.]+)" height="([\d.]+)"')

#: Start of the URL of a paper, by host.
HOSTS = {"arXiv": "https://arxiv.org/abs/", "OpenReview": "https://openreview.net/forum?id="}
#: A name with hyphens outside HTML tags.
NAME = re.compile(r"(?<![^\s(>])(\w[\w./+]*-[\w./+-]*\w)(?![^<]*>)")


@dataclass(frozen=True)
class Figure:
    """A chart with its task and model."""

    kind: str
    """Kind of figure, such as `curves`, or name of a probe."""
    task: str | None
    """Name of the task, or None if the figure shows all tasks."""
    model: str | None
    """Label of the model, or None if the figure shows all models."""
    chart: FramedChart
    has_own_title: bool = True
    """Whether pages show the title in a section with a title."""

    @property
    def title(self) -> str:
        """The finding."""
        return str(self.chart.texts["title"])

    @property
    def label(self) -> str:
        """Title, subject and explanation for screen readers."""
        return str(self.chart.specification["description"])

    @property
    def slug(self) -> str:
        """File name without suffix, from letters, digits, dots, dashes and underscores. It is not
        unique.
        """
        parts = (_shorten_slug(part or "") for part in (self.task, self.model, self.kind))
        return ".".join(part for part in parts if part)


def _shorten_slug(text: str) -> str:
    slug = re.sub(r"[^A-Za-z0-9.-]+", "_", text).strip("._")
    return slug if len(slug) <= MAX_SLUG else f"{slug[: MAX_SLUG - 9]}-{digest(text, size=4).hex()}"


def render_image(figure: Figure) -> str:
    """Render a figure as an SVG data URL."""
    content = base64.b64encode(render_svg(figure.chart).encode()).decode()
    return f"data:image/svg+xml;base64,{content}"


def export(files: Renderers) -> list[Path]:
    """Render and write files. Return their paths. Raise PosirError if a file is not writable."""
    for file, render in track_items(list(files.items()), "Writing files"):
        with write_atomically(file) as temporary:
            temporary.write_bytes(render())
    return list(files)


def prepare_figures(
    charts: PositionCharts, figures: Sequence[Figure], folder: Path, style: FigureStyle
) -> Renderers:
    """Map the file of each chart to the function that renders it, position charts first.

    Raises:
        PosirError: There is no chart, or `folder` is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise PosirError(
            f"{folder} is a file, not a folder. Pass a folder for the charts to --figures."
        )
    draws = [(figure.slug, partial(_draw_figure, figure, style)) for figure in figures]
    if charts:
        draws.insert(0, ("answer", partial(_draw_answer, charts, style)))
    if not draws:
        raise PosirError(
            "There is no chart: too few documents, or a table without charts. Omit --figures, or "
            "use more documents or the default tables."
        )
    names = deduplicate([name for name, _ in draws])
    return {
        folder / f"{name}.{style.format}": partial(_convert_format, draw, style)
        for name, (_, draw) in zip(names, draws, strict=True)
    }


def _convert_format(draw: Callable[[], str], style: FigureStyle) -> bytes:
    """Draw a chart and convert it to a format. The size in inches is the same in all formats."""
    svg = draw()
    if style.format == "pdf":
        # vl-convert converts a pixel to a point.
        return bytes(vl_convert.svg_to_pdf(_resize(svg, _measure_width(svg) * POINTS / PIXELS)))
    if style.format == "png":
        return render_png(svg, DOTS / PIXELS if style.bare else SCALE)
    return svg.encode()


def _draw_answer(charts: PositionCharts, style: FigureStyle) -> str:
    if not style.bare:
        return draw_position_charts(charts)
    width, size = _measure_style(style)
    svg = draw_position_charts(charts, width=round(width * CHART_TEXT_SIZE / size), explained=False)
    if style.font:
        svg = re.sub('font-family="[^"]*"', f'font-family="{escape(style.font)}"', svg)
    return _resize(svg, width)


def _draw_figure(figure: Figure, style: FigureStyle) -> str:
    """Draw a chart as SVG. Bare charts have the width and font of the style, and no text around
    them.
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
    for part in _iterate_mappings(chart["vconcat"]):
        if isinstance(part.get("width"), int | float):
            part["width"] = min(part["width"], MAX_PANEL_WIDTH * width)
            if isinstance(part.get("height"), int | float):
                part["height"] = min(part["height"], MAX_PANEL_HEIGHT * part["width"])
        if isinstance(part.get("title"), str):
            part["title"] = textwrap.wrap(part["title"], MAX_TITLE)
    svg = vl_convert.vegalite_to_svg(chart)
    # Larger text widens the chart, and scaling the chart to its width shrinks the text again.
    for _ in range(FITTING_STEPS):
        text_size = size * _measure_width(svg) / width
        _set_text(chart, text_size)
        svg = vl_convert.vegalite_to_svg(chart)
    _omit_narrow_numbers(chart, text_size)
    return _resize(vl_convert.vegalite_to_svg(chart), width)


def _omit_narrow_numbers(chart: Fields, size: float) -> None:
    """Omit numbers from cells that are too narrow for text of `size` pixels."""
    for panel in _iterate_mappings(chart["vconcat"]):
        for layer in panel.get("layer", ()):
            if layer["mark"].get("style") == NUMBER:
                width = panel["width"]
                cell_width = f"(datum.end - datum.start) * {width}"
                if isinstance(width, dict):
                    cell_width = str(width["step"])
                is_wide = {"filter": f"{cell_width} > {MIN_CELL_WIDTH * size}"}
                layer["transform"] = [*layer.get("transform", ()), is_wide]


def _set_text(chart: Record, size: float) -> None:
    """Set the size of all text in pixels, and place panels and legend entries below each other."""
    chart["config"] |= {"text": {"fontSize": size}}
    chart["config"]["axis"] |= {"labelOverlap": "greedy", "labelSeparation": size / 2}
    for part in _iterate_mappings([chart["config"], chart["vconcat"]]):
        for name in part:
            if name.endswith("ontSize"):
                part[name] = size
        if "facet" in part:
            part["columns"] = 1
            part["facet"]["header"] = {"labelFontWeight": "normal", "labelExpr": TITLE_LINES}
        if isinstance(part.get("legend"), dict):
            part["legend"]["columns"] = 1


def _measure_style(style: FigureStyle) -> tuple[float, float]:
    """Return the width and the text size of bare charts in pixels."""
    points = style.font_size or CAPTION_SIZE
    return (style.width or COLUMN_WIDTH) * PIXELS, points * PIXELS / POINTS


def _iterate_mappings(part: Any) -> Iterator[Record]:
    """Yield all mappings of a chart specification, outer mappings first."""
    if isinstance(part, dict):
        yield part
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            yield from _iterate_mappings(inner)


def _measure_width(svg: str) -> float:
    """Return the width of an SVG image in pixels."""
    return float(SVG_SIZE.findall(svg)[0][0])


def _resize(svg: str, width: float) -> str:
    """Scale an SVG image to a width in pixels."""
    old, height = map(float, SVG_SIZE.findall(svg)[0])
    return SVG_SIZE.sub(f'width="{width:g}" height="{height * width / old:g}"', svg, count=1)


def deduplicate(names: Sequence[str]) -> list[str]:
    """Append numbers to repeated names, ignoring case: the second `a` becomes `a-2`."""
    counts = Counter[str]()
    unique_names = []
    for name in names:
        counts[name.lower()] += 1
        number = counts[name.lower()]
        unique_names.append(name if number == 1 else f"{name}-{number}")
    return unique_names


def format_markup(text: object) -> Markup:
    """Convert text to HTML: commands become code, papers become links, and numbers are kept on a
    line with their unit and interval.
    """
    html = PAPER.sub(
        lambda paper: f'<a href="{HOSTS[paper[1]]}{paper[2]}">{paper[0]}</a>',
        escape(keep_together(str(text))),
    )
    return Markup(COMMAND.sub(r"<code>\1</code>", html))


def begin_sentence(text: str) -> str:
    """Capitalize a sentence, unless its first word contains a capital, such as `nDCG@10`."""
    return text if text[1:2].isupper() else text[:1].upper() + text[1:]


def keep_names_whole(text: object) -> Markup:
    """Convert text to HTML in which names with hyphens are not broken."""
    return Markup(
        NAME.sub(r'<span class="whole">\1</span>', keep_together(str(Markup.escape(text))))
    )


def render_page(package: str, template: str, **values: Any) -> str:
    """Render a template from the `templates` folder of a package. It may extend `page.html`.

    Values are escaped, and secrets are redacted.
    """
    loader = ChoiceLoader([PackageLoader(package), PackageLoader(__package__)])
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.globals |= {
        "vega": load_chart_library,
        "render_image": render_image,
        "draw_position_charts": draw_position_charts,
        "draw_glyph": draw_glyph,
        "STRIP_STYLE": STYLE,
        "format_share": format_share,
        "MISSING": MISSING,
    }
    environment.tests["measured"] = is_estimate_text
    environment.filters |= {
        "markup": format_markup,
        "color": find_tone,
        "link": find_link,
        "parts": get_parts,
        "sentence": begin_sentence,
        "whole": keep_names_whole,
    }
    page = environment.get_template(template).render(
        values, version=version("posir"), today=date.today()
    )
    return redact_collected(page)
