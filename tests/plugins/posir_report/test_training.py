"""Test the share of a task's sources in training data, from mteb's metadata."""

import json
from pathlib import Path

import mteb
import pytest

import posir
from posir_tasks.data.sources import list_sources, measure_overlap
from tests.support.comparison import draw_evidence, write_run

EVIDENCE = draw_evidence(30)
TRAINED = {"a": ["SQuAD", "MIRACLRetrieval"], "b": None, "c": ["Fineweb-Edu-Chinese"]}


def write_runs(folder: Path, domain: str = "game", **options: object) -> Path:
    """Write a result per model, with training data in mteb's metadata."""
    options["domains"] = {domain: EVIDENCE}
    for name, datasets in TRAINED.items():
        file = write_run(folder / name, f"org/{name}", 1, **options)
        meta = file.with_name("model_meta.json")
        meta.write_text(json.dumps(json.loads(meta.read_text()) | {"training_datasets": datasets}))
    write_run(folder / "d", "org/d", 1, **options)
    return folder


@pytest.mark.parametrize(
    ("task", "shares", "note"),
    [
        (
            "SQuAD-PosQ",
            {"org/a": 1, "org/b": None, "org/c": 0, "org/d": None},
            "(SQuAD) that are in a model's training data, according to mteb's metadata: 100% for "
            "a; unknown for b, d; 0% for c.",
        ),
        (
            "PosIR-English",
            {"org/a": 0, "org/b": None, "org/c": 0.5, "org/d": None},
            "(IndustryCorpus2, FineWeb) that are in a model's training data, according to mteb's "
            "metadata: 0% for a; unknown for b, d; 50% for c.",
        ),
    ],
)
def test_a_report_has_the_share_of_the_sources(tmp_path, task, shares, note):
    report = posir.report(write_runs(tmp_path, task=task))
    rows = json.loads(report.to_json())
    assert {row["model"]: row["training_overlap"]["share"] for row in rows} == shares
    assert note in " ".join(str(report).split())


def test_data_of_unknown_sources_has_no_note(tmp_path):
    report = posir.report(write_runs(tmp_path, "harbour"))
    assert "training data" not in str(report)
    overlaps = [row["training_overlap"] for row in json.loads(report.to_json())]
    assert overlaps == [{"sources": [], "share": None}] * len(overlaps)
    assert not list_sources("PosIR-Mini", ["default"])


def test_source_names_match_mteb():
    """mteb's metadata names each known source like its retrieval task."""
    known = {
        "SQuAD-PosQ": "SQuAD",
        "MIRACL-PosIR": "MIRACLRetrievalHardNegatives",
        "NQ-PosIR": "NQ",
        "TyDiQA-PosIR": "mr-tydi",
        "FineWeb-PosQ": "FineWeb-Edu",
    }
    trained = set[str]()
    for meta in mteb.get_model_metas():
        trained |= meta.training_datasets or set()
    for task, name in known.items():
        sources = list_sources(task, ["default"])
        assert name in trained
        assert (measure_overlap(sources, [name]), measure_overlap(sources, ["MSMARCO"])) == (1, 0)
    (squad,) = [name for name in trained if name == "SQuADKorV1Retrieval"]
    assert measure_overlap(list_sources("SQuAD-PosQ", []), [squad]) == 0
