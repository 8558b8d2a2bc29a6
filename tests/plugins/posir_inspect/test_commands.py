"""`posir inspect`, with a tiny model in a local folder."""

import json

import pytest
from typer.testing import CliRunner

from posir_tasks.command.app import build_app
from posir_tasks.errors import PosirError
from tests.support.embedding_server import serve_embeddings
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
    arguments = ("inspect", model, texts)
    text = invoke(*arguments, "--html", tmp_path / "page.html")
    assert "12 texts of" in text
    assert "Skipped: 1 binary (scan.pdf)." in text
    assert "How far the model reads" in text
    assert "cannot be said" in text
    assert "vegaEmbed" in (tmp_path / "page.html").read_text()
    values = json.loads(invoke(*arguments, "--format", "json"))
    assert values["chunks"]["chosen"] in ("whole texts", "chunks of 62 tokens")
    assert values["skipped"] == [{"name": "scan.pdf", "reason": "binary", "detail": ""}]


@pytest.mark.slow
def test_a_server_is_inspected_and_one_that_refuses_texts_is_explained(texts):
    with serve_embeddings(model="bge-m3", window=30) as server:
        text = invoke("inspect", server.reference, texts)
    assert "It reads only the first 30 words of a text (about " in text
    assert "although BAAI/bge-m3 claims 8,192 tokens. 58.3 % [58.3, 58.3] of these texts is never read" in text
    with serve_embeddings(model="bge-m3", max_words=50) as server, pytest.raises(PosirError) as error:
        invoke("inspect", server.reference, texts)
    assert "It reads only the first 50 words of a text" in str(error.value)
    assert "12 of 12 texts are longer" in str(error.value)
    assert "Let the model or its server truncate them" in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tiny", "PosIR-Mini", "--budget", "much"), "Write a number such as 200000, 200k or 2M"),
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
