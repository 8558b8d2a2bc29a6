"""A fresh virtual environment on top of this one, in which a test can install packages in
isolation.
"""

import sys
import sysconfig
import venv
from importlib.metadata import entry_points
from pathlib import Path

from tests.support.commands import CLEAN

COMMANDS = ("mteb", "posir", "pip")


def fresh_environment(folder: Path) -> dict[str, str]:
    """Create a virtual environment with access to this Python's packages; return its environment
    variables.

    If this Python is itself in a virtual environment, `--system-site-packages` would not process
    its `.pth` files.
    """
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    site = (
        folder
        / "lib"
        / f"python{sys.version_info.major}.{sys.version_info.minor}"
        / "site-packages"
    )
    (site / "below.pth").write_text(
        f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    )
    for point in entry_points(group="console_scripts"):
        if point.name in COMMANDS:
            script = folder / "bin" / point.name
            # The guard is needed as in installed scripts: workers of `posir run` import the script
            # that started them.
            script.write_text(
                f"#!{python}\nimport sys\nfrom {point.module} import {point.attr}\n"
                f"if __name__ == '__main__':\n    sys.exit({point.attr}())\n"
            )
            script.chmod(0o755)
    return CLEAN | {
        "PATH": f"{folder / 'bin'}:{CLEAN['PATH']}",
        "VIRTUAL_ENV": str(folder),
        "POSIR_CACHE": str(folder / "cache"),
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
