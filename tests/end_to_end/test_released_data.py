"""Data as released, with rows that break rules of the layout, by the plain command."""

import json
from pathlib import Path

import polars as pl

from tests.support.commands import run
from tests.support.datasets import POSIR_FOLDER, posir_tables, write_domain

RAW = [
    {"question": question, "content": content, "span_class": classes}
    for question, content, classes in (
        ("Where was the mill?", "The mill stood by the river. It burned down in 1901.", ["before"]),
        ("When did it burn?", "The mill stood by the river. It burned down.", ["middle", "after"]),
        ("", "Bees hum.", []),
    )
]


def write_translation(root: Path) -> None:
    """Write German texts beside the spans of their English originals, a blank document, and a
    judgment of a removed query.
    """
    tables = posir_tables()
    blank = pl.DataFrame({"_id": ["blank"], "text": [""]})
    removed = pl.DataFrame({"query-id": ["gone"], "corpus-id": ["doc_0"], "score": [1]})
    corpus = pl.concat([tables["corpus"].select("_id", text="Der Text: " + pl.col("text")), blank])
    queries = tables["queries"].with_columns(
        pl.col("pos_token_length").cast(pl.UInt16), domain=pl.lit("sports")
    )
    released = {
        "corpus": corpus,
        "queries": queries,
        "qrels": pl.concat([tables["qrels"], removed]),
    }
    write_domain(root / POSIR_FOLDER, released, language="deu-Latn")


def test_released_data_runs_and_missing_data_is_one_sentence(tmp_path: Path):
    data, output = tmp_path / "data", tmp_path / "out"
    write_translation(data)
    for folder in ("FineWeb-PosQ_raw", "FineWeb-PosQ"):
        (data / folder).mkdir()
        file = "train.jsonl" if folder.endswith("raw") else "notes.txt"
        (data / folder / file).write_text("\n".join(map(json.dumps, RAW)))
    ran = run(
        "mteb",
        "run",
        "-t",
        "PosIR-German",
        "FineWeb-PosQ-Raw",
        "FineWeb-PosQ",
        "-m",
        "mteb/baseline-bm25s",
        "--output-folder",
        str(output),
        POSIR_DATA=str(data),
    )
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    assert f"folder {data / 'FineWeb-PosQ'}: no files of FineWeb-PosQ" in " ".join(
        ran.stderr.split()
    )
    results = {
        file.stem: json.loads(file.read_text())["scores"]["test"]
        for file in output.rglob("*-*.json")
    }
    (german,), (raw,) = results["PosIR-German"], results["FineWeb-PosQ-Raw"]
    assert set(results) == {"PosIR-German", "FineWeb-PosQ-Raw"}
    counts = {"documents_without_text": 1, "queries_removed": 1, "queries_with_another_length": 4}
    assert german["position_run"]["tolerated"] == counts
    assert german["position_profile"]["queries"] == 4
    told = " ".join((ran.stdout + ran.stderr).split())
    assert told.count("4 of 4 queries") == 1
    assert raw["position_profile"]["queries"] == 2
    assert [part["queries"] for part in raw["position_bins"]] == [1, 1, 1]
    assert raw["position_run"]["tolerated"] == {}
