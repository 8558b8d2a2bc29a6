"""Dispatchers do not wait for fake workers, which complete when polled."""

import pytest

from posir_run import jobs


@pytest.fixture(autouse=True)
def _disable_waiting(monkeypatch):
    monkeypatch.setattr(jobs, "POLL_SECONDS", 0)
