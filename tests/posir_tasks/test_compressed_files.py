"""Compressed data files: every reader of JSON and JSON Lines takes them, and says if one is damaged."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from posir_build.sample import open_source
from posir_build.settings import BuildSettings
from posir_data.texts import read_texts
from posir_probe.data import open_probe_source
from posir_tasks.command.app import build_app
from posir_tasks.errors import DataError
from posir_tasks.files import split_suffix
from posir_train.examples import read_examples
from posir_train.settings import open_dataset
from tests.plugins.posir_train.texts import build_examples, write_squad

EXAMPLES = build_examples(articles=2, questions=3)
TEXTS = {document.text for document in EXAMPLES.documents}


def compress(file: Path) -> Path:
    """Replace a file by a compressed one, as `gzip` does."""
    compressed = file.with_name(f"{file.name}.gz")
    compressed.write_bytes(gzip.compress(file.read_bytes()))
    file.unlink()
    return compressed


@pytest.fixture
def squad(tmp_path):
    return compress(write_squad(tmp_path / "facts.json", EXAMPLES))


@pytest.fixture
def lines(tmp_path):
    rows = [
        {"context": example.document.text, "question": example.question, "start": example.start, "end": example.end}
        for example in EXAMPLES.examples
    ]
    (tmp_path / "lines.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return compress(tmp_path / "lines.jsonl")


@pytest.fixture
def beir(tmp_path):
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    pairs = [f"{example.id}\t{example.document.id}\t1\t{example.start}\t{example.end}" for example in EXAMPLES.examples]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore\tstart\tend", *pairs]))
    tables = {
        "corpus": [{"_id": document.id, "text": document.text} for document in EXAMPLES.documents],
        "queries": [{"_id": example.id, "text": example.question} for example in EXAMPLES.examples],
    }
    for name, rows in tables.items():
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        compress(folder / f"{name}.jsonl")
    return folder


def run_import(source, output):
    options = ("--language", "eng-Latn", "--domain", "facts", "--output", str(output))
    return CliRunner().invoke(build_app(), ["import", str(source), *options], catch_exceptions=False)


def test_imports(squad, lines, beir, tmp_path):
    for number, source in enumerate([squad, lines, beir]):
        assert "facts: 2 documents, 6 questions" in run_import(source, tmp_path / f"out{number}").stdout


def test_texts_questions_and_documents(squad, lines, beir):
    examples = read_examples(open_dataset(str(squad)))
    assert examples.name == "facts"
    assert len(examples.examples) == 6
    probed = open_probe_source(str(squad))
    assert probed.name == "facts"
    for source in (probed, open_probe_source(str(beir))):
        assert [set(read().documents.values()) for read in source.subsets.values()] == [TEXTS]
    assert {text.text for text in read_texts(str(beir)).texts} == TEXTS
    assert {text.text for text in read_texts(str(lines), column="context").texts} == TEXTS
    settings = BuildSettings.model_construct(documents=str(beir / "corpus.jsonl.gz"), text_field="text", id_field=None)
    assert {document.text for document in open_source(settings).read_texts()} == TEXTS


@pytest.mark.parametrize("damage", [lambda content: content[:-20], lambda _: b"{}", lambda content: content[:40] + b"!" * 80])
def test_a_damaged_file_is_one_sentence(squad, lines, beir, damage, tmp_path):
    for file in (squad, lines, beir / "corpus.jsonl.gz"):
        file.write_bytes(damage(file.read_bytes()))
    for source in (squad, lines, beir):
        with pytest.raises(DataError, match=r"(facts.json|lines.jsonl|corpus.jsonl)\.gz: .*not a complete gzip file \("):
            run_import(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    settings = BuildSettings.model_construct(documents=str(beir / "corpus.jsonl.gz"), text_field="text", id_field=None)
    with pytest.raises(DataError, match="not a complete gzip file"):
        list(open_source(settings).read_texts())
    shutil.rmtree(beir / "qrels")
    with pytest.raises(DataError, match="not a complete gzip file"):
        read_texts(str(beir))


def test_the_suffix_of_the_format():
    assert [split_suffix(Path(name)) for name in ("A.JSON.GZ", "a.gz", "a")] == [("A", ".json"), ("a", ""), ("a", "")]
