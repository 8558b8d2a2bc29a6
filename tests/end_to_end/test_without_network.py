"""Commands that need a model from the Hub, without a network: one sentence, after one attempt."""

import socket
from pathlib import Path

import pytest

from tests.support.commands import run

#: Nobody listens there.
CLOSED = "http://127.0.0.1:9"
MODEL = "all-mpnet-base-v2"
COMMANDS = [
    ("mteb", "run", "-t", "PosIR-Mini", "-m", MODEL),
    ("mteb", "run", "-t", "PosIR-Mini", "-m", "nosuchmodel"),
    ("posir", "inspect", MODEL, "texts.txt"),
    ("posir", "probe", MODEL, "--data", "PosIR-Mini"),
    ("posir", "mitigate", MODEL, "PosIR-Mini"),
    ("posir", "train", "nosuchmodel", "--data", "PosIR-Mini", "--output", "trained"),
]


def check_refusal(command: tuple[str, ...], address: str, folder: Path) -> None:
    """Run a command with a Hub at an address and an empty cache; assert that it ends in what is
    wrong and what to do.
    """
    done = run(*command, HF_ENDPOINT=address, HF_HOME=str(folder / "hub"), HF_HUB_OFFLINE="0")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    message = done.stderr[done.stderr.index("error: ") :]
    assert message.count("\n") == 2
    for text in (address, "Give the folder of a model", "HF_ENDPOINT", "HF_HUB_OFFLINE=1"):
        assert text in message


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a file of texts."""
    lines = (f"The bell number {row} rings in the tower over the old town." for row in range(20))
    (tmp_path / "texts.txt").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_closed_port(reader: Path, command: tuple[str, ...]):
    check_refusal(command, CLOSED, reader)


@pytest.mark.slow
def test_a_server_that_never_answers_is_asked_once(reader: Path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        check_refusal(COMMANDS[0], f"http://127.0.0.1:{silent.getsockname()[1]}", reader)
        silent.setblocking(False)
        silent.accept()
        with pytest.raises(BlockingIOError):
            silent.accept()
