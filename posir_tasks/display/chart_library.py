"""The script that draws the charts of pages."""

from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

import vl_convert

from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import get_cache_folder, write_text


@cache
def load_chart_library() -> str:
    """Load a script that defines `vegaEmbed` (Vega, Vega-Lite and Vega-Embed, BSD license). It is
    cached in `POSIR_CACHE` if possible, since bundling takes more than a second.
    """
    name = f"vega-{version('vl-convert-python')}.js"
    script = _read_cached(name)
    if script is None:
        script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
        # The user's home folder may be unknown, which is a RuntimeError.
        with suppress(PosirError, RuntimeError):
            write_text(_locate(name), f"{_write_header(script)}\n{script}")
    return script


def _locate(name: str) -> Path:
    return get_cache_folder() / "libraries" / name


def _read_cached(name: str) -> str | None:
    """Read a cached script; None if it is missing, unreadable or damaged."""
    try:
        text = _locate(name).read_bytes().decode()
    except (OSError, ValueError, RuntimeError):
        return None
    header, _, script = text.partition("\n")
    return script if header == _write_header(script) else None


def _write_header(script: str) -> str:
    return f"// {digest(script).hex()}"
