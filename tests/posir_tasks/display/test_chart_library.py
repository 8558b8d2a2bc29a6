"""Test that the script of charts is bundled once, and again if its cached file is unusable."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import vl_convert

from posir_tasks.display.chart_library import load_chart_library


@pytest.fixture
def bundled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str | None]]:
    """Replace the bundler, and return the versions of Vega-Lite that it has bundled."""
    versions: list[str | None] = []

    def bundle(_snippet: str, version: str | None) -> str:
        versions.append(version)
        return f"script {version}\r\nwindow.vegaEmbed = é;"

    monkeypatch.setattr(vl_convert, "javascript_bundle", bundle)
    load_chart_library.cache_clear()
    yield versions
    load_chart_library.cache_clear()


def load_in_new_process(version: str | None) -> str:
    load_chart_library.cache_clear()
    return load_chart_library(version)


def test_each_version_is_bundled_once(tmp_path: Path, monkeypatch, bundled):
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path))
    scripts = [load_in_new_process(version) for version in ("6.1", None, "6.1", None)]
    assert scripts[:2] == scripts[2:]
    assert [script.split("\r")[0] for script in scripts[:2]] == ["script 6.1", "script None"]
    assert bundled == ["6.1", None]


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(file.read_bytes()[:-5]),
        lambda file: file.write_bytes(b"\xff" + file.read_bytes()),
        lambda file: (file.unlink(), file.mkdir()),
    ],
)
def test_damaged_file_is_bundled_again(
    tmp_path: Path, monkeypatch, bundled, damage: Callable[[Path], object]
):
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path))
    script = load_chart_library("6.1")
    (file,) = (tmp_path / "libraries").iterdir()
    damage(file)
    assert load_in_new_process("6.1") == script
    assert bundled == ["6.1", "6.1"]


@pytest.mark.parametrize("cache", ["file", "~nosuchuser/cache"])
def test_page_needs_no_cache(tmp_path: Path, monkeypatch, bundled, cache: str):
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSIR_CACHE", cache)
    scripts = {load_chart_library("6.1"), load_chart_library("6.1")}
    assert len(scripts) == 1
    # A process bundles once.
    assert bundled == ["6.1"]
