"""Models that must be downloaded while the Hub is unreachable."""

import socket
import time

import mteb
import pytest
from huggingface_hub import constants

from posir_tasks.base.errors import PosirError
from posir_tasks.models import hub
from posir_tasks.models.hub import explain_missing_hub, find_hub_problem, is_hub_model
from posir_tasks.models.references import ModelReference, strip_organization
from posir_tasks.models.registry import find_model, load_model
from tests.support.embedding_server import Handler, serve
from tests.support.models import write_tiny_model

REGISTERED = "sentence-transformers/all-mpnet-base-v2"
#: Port 9, which is almost always closed.
CLOSED = "http://127.0.0.1:9"
ALTERNATIVES = r"folder .* HF_ENDPOINT .* HF_HUB_CACHE .* HF_HUB_OFFLINE=1"


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch, tmp_path) -> pytest.MonkeyPatch:
    """Turn off offline mode, with an empty cache and an unreachable Hub."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "empty"))
    monkeypatch.setattr(constants, "ENDPOINT", CLOSED)
    monkeypatch.setattr(hub, "TIMEOUT", 0.2)
    return monkeypatch


def test_closed_ports_silent_servers_and_offline_mode_are_problems(online):
    assert find_hub_problem().startswith(f"{CLOSED} cannot be reached: ConnectError")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        online.setattr(constants, "ENDPOINT", address)
        assert address in find_hub_problem()
    online.setattr(hub, "get_session", lambda: time.sleep(3600))
    assert find_hub_problem() == f"{address} did not respond within 0.2 seconds"
    online.setattr(constants, "HF_HUB_OFFLINE", True)
    assert find_hub_problem() == "HF_HUB_OFFLINE is set"


def test_any_response_means_that_the_hub_is_reachable(online):
    class RejectingHandler(Handler):
        def do_HEAD(self):  # noqa: N802
            self.send_error(403)

    with serve(RejectingHandler) as address:
        online.setattr(constants, "ENDPOINT", address)
        assert find_hub_problem() is None


def test_a_missing_model_raises_one_error_without_the_hub(online, tmp_path):
    missing = (
        rf"(?s)^{REGISTERED} is not complete in the cache \({tmp_path}/empty\).* \({CLOSED} "
        rf"cannot be .*{ALTERNATIVES}"
    )
    for name in (REGISTERED, "all-mpnet-base-v2"):
        with pytest.raises(PosirError, match=missing):
            mteb.get_model(name)
    unknown = (
        rf"^no model 'all-mpnet-base-v3'\. Did you mean {strip_organization(REGISTERED)}\? "
        rf"It is not .* \({CLOSED} "
    )
    for find in (find_model, load_model):
        with pytest.raises(PosirError, match=unknown):
            find(ModelReference("all-mpnet-base-v3"))
    assert not constants.HF_HUB_OFFLINE
    online.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(PosirError, match=rf"(?s)\(HF_HUB_OFFLINE is set\)\..*{ALTERNATIVES}"):
        mteb.get_model(REGISTERED)
    assert constants.HF_HUB_OFFLINE


@pytest.mark.usefixtures("online")
def test_operating_system_errors_are_not_replaced():
    for error in (OSError(28, "No space left on device"), ValueError("wrong"), PosirError("wrong")):
        with pytest.raises(type(error)) as raised, explain_missing_hub("failed"):
            raise error
        assert raised.value is error


def test_the_hub_is_not_contacted_if_nothing_must_be_downloaded(online, tmp_path):
    online.setattr(hub, "find_hub_problem", lambda: pytest.fail("contacted"))
    folder = write_tiny_model(tmp_path / "mine")
    for name in (
        str(folder),
        f"{folder}+chunks(32)",
        "mteb/baseline-bm25s",
        "mteb/baseline-random-encoder",
    ):
        mteb.get_model(name, device="cpu")
    is_from_hub = {
        name: is_hub_model(find_model(ModelReference(name)))
        for name in (REGISTERED, "m@http://localhost:1/v1")
    }
    assert is_from_hub == {REGISTERED: True, "m@http://localhost:1/v1": False}
