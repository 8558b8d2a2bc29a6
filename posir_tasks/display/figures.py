"""Figures, the files that they are written to, and pages of a single file that need no network, which each command fills."""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import altair as alt
import typer
import vl_convert
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from posir_tasks.display.charts import render_svg
from posir_tasks.display.progress import progress
from posir_tasks.display.strip import NARROW, SCALE, draw_strips
from posir_tasks.errors import PosirError
from posir_tasks.files import atomic_write

#: Characters of a task or model in a file name.
SLUG = 80


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
        """File name of its picture without suffix: letters, digits, dots, dashes and underscores; not unique."""
        parts = (re.sub(r"[^A-Za-z0-9.-]+", "_", part or "").strip("._")[:SLUG] for part in (self.task, self.model, self.kind))
        return ".".join(part for part in parts if part)


def render_image(figure: Figure) -> str:
    """Return a figure as the address of an image that holds all its content, in SVG."""
    return f"data:image/svg+xml;base64,{base64.b64encode(render_svg(figure.chart).encode()).decode()}"


def export(figures: Sequence[Figure], png: Path | None, pages: Mapping[Path, Callable[[], bytes]]) -> None:
    """Write figures to a folder, if one is given, and pages to files, and print their names; raise PosirError if that fails."""
    try:
        files = write_pictures(figures, png) if png else []
        for file, render in pages.items():
            with atomic_write(file) as temporary:
                temporary.write_bytes(render())
            files.append(file)
    except OSError as error:
        target = error.filename2 or error.filename  # the second name is the target of renaming
        raise PosirError(f"{target}: cannot be written ({error.strerror}). Choose another file or folder.") from error
    for file in files:
        typer.echo(f"written: {file}", err=True)


def write_pictures(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """Write a PNG for each figure; raise PosirError if the folder is a file."""
    if folder.exists() and not folder.is_dir():
        raise PosirError(f"{folder}: a file, not a folder. --png takes the folder to write pictures to.")
    paths = [folder / f"{name}.png" for name in deduplicate([figure.slug for figure in figures])]
    for path, figure in progress(list(zip(paths, figures, strict=True)), "Writing pictures"):
        with atomic_write(path) as temporary:
            figure.chart.save(temporary, format="png", scale_factor=SCALE)
    return paths


def deduplicate(names: Sequence[str]) -> list[str]:
    """Return names that are distinct even if case is ignored: the second of a name gets `-2`."""
    lower = [name.lower() for name in names]
    counts = [lower[: at + 1].count(name) for at, name in enumerate(lower)]
    return [name if count == 1 else f"{name}-{count}" for name, count in zip(names, counts, strict=True)]


@cache
def bundle_chart_library() -> str:
    """Return a script that defines `vegaEmbed` (Vega, Vega-Lite and Vega-Embed, BSD license)."""
    # Without the patch version, as vl-convert names its Vega-Lite.
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", ".".join(alt.SCHEMA_VERSION.split(".")[:2]))


def render_page(package: str, template: str, **values: Any) -> str:
    """Return HTML by a template in `templates` of a package, which may extend the shell, `page.html`; values are escaped."""
    loader = ChoiceLoader([PackageLoader(package), PackageLoader(__package__)])
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.globals |= {"bundle": bundle_chart_library, "render_image": render_image}
    environment.globals |= {"draw_strips": draw_strips, "NARROW": NARROW}
    return environment.get_template(template).render(values, version=version("posir"))
