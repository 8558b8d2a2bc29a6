"""What commands print with `--format json` fits the schemas that the site publishes."""

import json
from pathlib import Path

import jsonschema
import pytest

import posir
from docs_site.json_schema import SCHEMAS, build_schema
from posir_tasks.display.presentation import Result
from tests.plugins.posir_train.texts import build_examples, write_squad
from tests.support.comparison import write_run
from tests.support.datasets import write_beir_folder
from tests.support.models import write_tiny_model
from tests.support.probed_encoders import invent_texts


def find_misfits(command: str, result: Result) -> list[str]:
    """List what of a result's JSON does not fit the schema of a command."""
    schema = build_schema(command)
    jsonschema.Draft202012Validator.check_schema(schema)
    document = json.loads(result.to_json())
    assert document
    return [str(error) for error in jsonschema.Draft202012Validator(schema).iter_errors(document)]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of two models with positions, and of a run on plain judgments."""
    folder = tmp_path_factory.mktemp("results")
    for seed, model in enumerate(("org/a", "org/b")):
        write_run(folder, model, seed, hit_rates=(0.9, 0.5, 0.3))
    rows = [{"_id": f"{row}", "text": f"text {row}"} for row in range(12)]
    beir = write_beir_folder(
        folder / "beir", rows, rows, ((row["_id"], row["_id"], 1) for row in rows)
    )
    ranked = {row["_id"]: {row["_id"]: 1.0} for row in rows}
    posir.score(ranked, data=beir, name="run", output=folder)
    return folder


def test_a_report_fits(results: Path):
    assert find_misfits("report", posir.read_results(results)) == []


def test_a_comparison_fits(results: Path):
    assert find_misfits("compare", posir.compare(results=results, baseline="org/a")) == []


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("facts")
    return write_squad(folder / "facts.json", build_examples(articles=4, questions=3))


def test_statistics_fit(facts: Path):
    assert find_misfits("stats", posir.stats(facts)) == []


def test_a_scored_retriever_of_chunks_fits(facts: Path, tmp_path: Path):
    (subset,) = posir.open_data(facts).subsets
    corpus = subset.read().corpus
    texts = dict(zip(corpus["id"], corpus["text"], strict=True))

    def search(_query: str, k: int) -> list[tuple[str, float, str]]:
        chunks = [(name, text[at : at + 60]) for name, text in texts.items() for at in (0, 60)]
        return [(name, float(-row), text) for row, (name, text) in enumerate(chunks)][:k]

    assert find_misfits("score", posir.score(search, data=facts, output=tmp_path)) == []


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for number, text in enumerate(invent_texts(12, 6)):
        (folder / f"t{number}.txt").write_text(text)
    return folder


def test_an_inspected_index_fits(texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path))

    def search(_query: str, k: int) -> list[str]:
        return ["t1", "t2"][:k]

    assert (
        find_misfits("inspect", posir.inspect(texts=texts, retriever=search, max_requests=20)) == []
    )


@pytest.mark.slow
def test_an_inspected_model_fits(texts: Path, tmp_path: Path):
    model = str(write_tiny_model(tmp_path / "tiny"))
    assert find_misfits("inspect", posir.inspect(model, texts)) == []


@pytest.mark.parametrize("command", SCHEMAS)
def test_a_document_with_another_key_does_not_fit(command: str):
    schema = build_schema(command)
    validator = jsonschema.Draft202012Validator(schema)
    document = (
        {"unknown": 1} if "anyOf" in schema or schema["type"] == "object" else [{"unknown": 1}]
    )
    assert not validator.is_valid(document)
