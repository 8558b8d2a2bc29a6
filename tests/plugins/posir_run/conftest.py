"""Fake workers complete whenever the dispatcher polls, so it need not wait for them."""

import pytest

from posir_run import jobs


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch):
    monkeypatch.setattr(jobs, "POLL_SECONDS", 0)
