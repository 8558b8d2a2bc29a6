"""The script that draws the charts of pages."""

from contextlib import suppress
from importlib.metadata import version

import vl_convert

from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import get_cache_folder, write_text


def load_chart_library(vega_lite: str | None = None) -> str:
    """Load a script that defines `vegaEmbed` (Vega, Vega-Lite and Vega-Embed, BSD license). It is
    cached, since bundling takes more than a second.

    Args:
        vega_lite: Version of Vega-Lite without patch number, such as `6.1`; the newest by default.
    """
    name = f"vega-{version('vl-convert-python')}-{vega_lite or 'newest'}.js"
    file = get_cache_folder() / "libraries" / name
    if file.is_file():
        return file.read_text(encoding="utf-8")
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vega_lite)
    # A page needs no cache.
    with suppress(PosirError):
        write_text(file, script)
    return script
