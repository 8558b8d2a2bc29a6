"""A fresh virtual environment on top of this one: what a test installs there, nobody else sees."""

import sys
import sysconfig
import venv
from importlib.metadata import entry_points
from pathlib import Path

from tests.support.commands import CLEAN

COMMANDS = ("mteb", "posir", "pip")


def fresh_environment(folder: Path) -> dict[str, str]:
    """Make a virtual environment that has this Python's packages; return the variables of a shell that has activated it.

    This Python may be a virtual environment itself, whose `.pth` files another one does not read by `--system-site-packages`.
    """
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (site / "below.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    for point in entry_points(group="console_scripts"):
        if point.name in COMMANDS:
            script = folder / "bin" / point.name
            # Guarded as installers guard it: the workers of `posir run` import the script that started them.
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
