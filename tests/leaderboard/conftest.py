"""What building a site takes longest for, once or not at all."""

from collections.abc import Iterator

import pytest

from posir_leaderboard.board import build, site
from tests.support.board import published


@pytest.fixture(scope="session", autouse=True)
def _one_library_and_one_reading_of_what_is_published() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(site, "bundle_chart_library", lambda: "Vega, which takes seconds to bundle")
        patched.setattr(build, "list_published_records", published)
        yield


@pytest.fixture
def nothing_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish one result alone, on another task than those of the tests."""
    monkeypatch.setattr(build, "list_published_records", lambda: published()[:1])
