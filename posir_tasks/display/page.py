"""Pages of a single file that need no network: a shell with style and charts, which each command fills; and fragments."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import altair as alt
import vl_convert
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from posir_tasks.display.figures import render_image
from posir_tasks.display.tables import DisplaySection


def bundle_chart_library() -> str:
    """Return a script that defines `vegaEmbed` (Vega, Vega-Lite and Vega-Embed, BSD license)."""
    # Without the patch version, as vl-convert names its Vega-Lite.
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", ".".join(alt.SCHEMA_VERSION.split(".")[:2]))


def render_page(package: str, template: str, **values: Any) -> str:
    """Return a page as HTML by a template in `templates` of a package, which extends the shell, `page.html`; all is escaped."""
    values |= {"version": version("posir"), "bundle": bundle_chart_library()}
    return build_environment(package).get_template(template).render(values)


def build_environment(*packages: str) -> Environment:
    """Return the templates of packages and those that are shared; everything is escaped, except the JavaScript of Vega."""
    loader = ChoiceLoader([PackageLoader(package) for package in (*packages, __package__)])
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)


def render_sections(title: str, sections: Sequence[DisplaySection], legend: Sequence[str]) -> str:
    """Return a page with a title, sections and paragraphs on how to read them."""
    return render_page(__package__, "sections.html", title=title, sections=sections, legend=legend)


def render_fragment(title: str, sections: Sequence[DisplaySection], legend: Sequence[str]) -> str:
    """Return the same for a notebook: charts are images, which need no script."""
    template = build_environment().get_template("fragment.html")
    return template.render(title=title, sections=sections, legend=legend, render_image=render_image)
