"""Test that the script of charts is bundled once, and again if its cached file is unusable."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import vl_convert

from posir_tasks.display.chart_library import load_chart_library


@pytest.fixture
def bundled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Replace the bundler, and return the snippets that it has bundled."""
    snippets: list[str] = []

    def bundle(snippet: str) -> str:
        snippets.append(snippet)
        return f"\r\n{snippet} é;"

    monkeypatch.setattr(vl_convert, "javascript_bundle", bundle)
    load_chart_library.cache_clear()
    yield snippets
    load_chart_library.cache_clear()


def load_in_new_process() -> str:
    load_chart_library.cache_clear()
    return load_chart_library()


def test_script_is_bundled_once_per_version_of_the_bundler(tmp_path: Path, monkeypatch, bundled):
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path))
    assert load_in_new_process() == load_in_new_process()
    assert len(bundled) == 1
    monkeypatch.setattr("posir_tasks.display.chart_library.version", lambda _: "99")
    load_in_new_process()
    assert len(bundled) == 2


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
    script = load_chart_library()
    (file,) = (tmp_path / "libraries").iterdir()
    damage(file)
    assert load_in_new_process() == script
    assert len(bundled) == 2


@pytest.mark.parametrize("cache", ["file", "~nosuchuser/cache"])
def test_page_needs_no_cache(tmp_path: Path, monkeypatch, bundled, cache: str):
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSIR_CACHE", cache)
    scripts = {load_chart_library(), load_chart_library()}
    assert len(scripts) == 1
    # A process bundles once.
    assert len(bundled) == 1
