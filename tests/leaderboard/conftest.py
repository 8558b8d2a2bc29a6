"""Fixtures that cache or skip the slowest parts of building a site."""

from collections.abc import Iterator

import pytest

from posir_leaderboard.board import build
from tests.support.board import published


@pytest.fixture(scope="session", autouse=True)
def _cache_libraries_and_published_records() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(build, "load_chart_library", lambda: "Vega, which takes seconds to bundle")
        patched.setattr(build, "list_published_records", published)
        yield


@pytest.fixture
def no_published_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish only one result, on a task that the tests do not use."""
    monkeypatch.setattr(build, "list_published_records", lambda: published()[:1])
