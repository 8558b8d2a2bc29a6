"""`posir inspect`, with a tiny model in a local folder."""

import json

import pytest
from typer.testing import CliRunner

from posir_tasks.command.app import build_app
from posir_tasks.errors import PosirError
from tests.support.models import write_tiny_model
from tests.support.probed_encoders import invent_texts


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(write_tiny_model(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    for number, text in enumerate(invent_texts(12, 6)):
        (folder / f"{number}.txt").write_text(text)
    (folder / "scan.pdf").write_bytes(b"%PDF-1.7\x00")
    return folder


def invoke(*arguments):
    result = CliRunner().invoke(build_app(), [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


@pytest.mark.slow
def test_a_folder_is_inspected_and_shown_in_every_format(model, texts, tmp_path):
    arguments = ("inspect", model, texts, "--max-questions", 60)
    text = invoke(*arguments, "--html", tmp_path / "page.html")
    assert "12 texts of" in text
    assert "Skipped: 1 binary (scan.pdf)." in text
    assert "How far the model reads" in text
    assert "Not enough texts to say: 12" in text
    assert "vegaEmbed" in (tmp_path / "page.html").read_text()
    found = json.loads(invoke(*arguments, "--format", "json"))
    assert len(found["chunks"]) == 6
    assert found["skipped"] == [{"name": "scan.pdf", "reason": "binary", "detail": ""}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tiny", "missing/folder"), "missing/folder: no such file or folder"),
        (("tiny", "PosIR-Minni"), "Did you mean PosIR-Mini"),
        (("mteb/baseline-bm25s", "PosIR-Mini"), "not a dense encoder"),
    ],
)
def test_mistakes_are_explained(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PosirError) as error:
        invoke("inspect", *arguments)
    assert message in str(error.value)
