"""The script of Vega, which vl-convert bundles anew in each process: here it is bundled once for
all processes and runs.
"""

import hashlib
from pathlib import Path
from typing import Any

import vl_convert

from posir_tasks.base.files import write_text

#: Bundles by version of vl-convert and arguments.
FOLDER = Path(__file__).parents[2] / ".pytest_cache" / "charts"

_bundle = vl_convert.javascript_bundle


def read_or_bundle(*arguments: Any) -> str:
    """Read the bundle of these arguments, or bundle it and save it."""
    key = repr((vl_convert.__version__, arguments))
    file = FOLDER / f"{hashlib.sha256(key.encode()).hexdigest()}.js"
    if not file.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        write_text(file, _bundle(*arguments))
    return file.read_text(encoding="utf-8")


vl_convert.javascript_bundle = read_or_bundle
