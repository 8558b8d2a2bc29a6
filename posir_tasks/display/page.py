"""Pages of a single file that need no network: a shell with style and charts, which each command fills; and fragments."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import altair as alt
import vl_convert
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from posir_tasks.display.figures import render_image


def bundle_chart_library() -> str:
    """Return a script that defines `vegaEmbed` (Vega, Vega-Lite and Vega-Embed, BSD license)."""
    # Without the patch version, as vl-convert names its Vega-Lite.
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", ".".join(alt.SCHEMA_VERSION.split(".")[:2]))


def render_page(package: str, template: str, **values: Any) -> str:
    """Return HTML by a template in `templates` of a package, which may extend the shell, `page.html`; values are escaped."""
    loader = ChoiceLoader([PackageLoader(package), PackageLoader(__package__)])
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    functions = {"bundle": bundle_chart_library, "render_image": render_image}
    return environment.get_template(template).render(values | functions, version=version("posir"))
