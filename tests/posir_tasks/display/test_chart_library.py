"""Test that the script of charts is bundled once."""

from pathlib import Path

import pytest
import vl_convert

from posir_tasks.display.chart_library import load_chart_library


@pytest.fixture
def bundled(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Replace the bundler, and return the versions of Vega-Lite that it has bundled."""
    versions: list[str | None] = []

    def bundle(_snippet: str, version: str | None) -> str:
        versions.append(version)
        return f"script {version}"

    monkeypatch.setattr(vl_convert, "javascript_bundle", bundle)
    return versions


def test_each_version_is_bundled_once(tmp_path: Path, monkeypatch, bundled):
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path))
    scripts = [load_chart_library(version) for version in ("6.1", None, "6.1", None)]
    assert scripts == ["script 6.1", "script None"] * 2
    assert bundled == ["6.1", None]


def test_page_needs_no_writable_cache(tmp_path: Path, monkeypatch, bundled):
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("POSIR_CACHE", str(file))
    assert load_chart_library("6.1") == "script 6.1"
    assert load_chart_library("6.1") == "script 6.1"
    assert bundled == ["6.1", "6.1"]
