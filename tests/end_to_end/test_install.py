"""What a wheel and an editable install put into site-packages."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOOK = (ROOT / "autoload" / "posir.pth").read_text()


def built(kind: str, folder: Path) -> zipfile.ZipFile:
    """Build a wheel of a kind ("wheel" or "editable") and open it."""
    code = f"from hatchling.build import build_{kind}; print(build_{kind}({str(folder)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return zipfile.ZipFile(folder / done.stdout.split()[-1])


def test_a_wheel_has_the_hook_and_every_module_and_data_file(tmp_path: Path):
    wheel = built("wheel", tmp_path)
    names = set(wheel.namelist())
    assert wheel.read("posir.pth").decode() == HOOK
    inits = [ROOT / "posir_tasks" / "__init__.py", *ROOT.glob("plugins/*/__init__.py"), *ROOT.glob("leaderboard/*/__init__.py")]
    missing = [
        file
        for init in inits
        for file in init.parent.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and file.relative_to(init.parents[1]).as_posix() not in names
    ]
    assert len(inits) > 2
    assert not missing
    assert "posir_autoload.py" in names


def test_an_editable_install_has_the_hook_too(tmp_path: Path):
    wheel = built("editable", tmp_path)
    assert wheel.read("posir.pth").decode() == HOOK
    (paths,) = (name for name in wheel.namelist() if name.endswith(".pth") and name != "posir.pth")
    assert paths < "posir.pth", "Python reads .pth files in order of name, and the hook needs the folders"
    assert str(ROOT / "autoload") in wheel.read(paths).decode().splitlines()


@pytest.mark.parametrize("autoload", ["1", "0"])
def test_the_hook_never_raises_even_where_the_package_is_broken(tmp_path: Path, autoload: str):
    (tmp_path / "posir_autoload.py").write_text("raise RuntimeError('broken')")
    done = subprocess.run(
        [sys.executable, "-S", "-c", HOOK],
        cwd=tmp_path,
        env={"POSIR_AUTOLOAD": autoload},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("", "")
