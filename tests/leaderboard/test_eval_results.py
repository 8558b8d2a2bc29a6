"""Test nDCG@10 on a model's page, in huggingface_hub's format, with a small local Hub."""

import json
import sys
from types import ModuleType

import numpy as np
import pytest
import yaml
from huggingface_hub import parse_eval_result_entries

from posir_leaderboard.entries import Entry
from posir_leaderboard.submission import build_eval_results
from posir_tasks.base.errors import PosirError
from posir_tasks.data.declared import SQUAD
from posir_tasks.results import SubsetResult
from posir_tasks.tasks.catalog import load_builtin_tasks
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.evidence import Evidence
from posir_tasks.values.schemes import RelativePositions
from posir_tasks.values.scores import ResultValues
from tests.support.commands import run
from tests.support.datasets import write_squad
from tests.support.guessing import MODEL, REVISION, write_guesses
from tests.support.hub import Folder, Store, serve_all
from tests.support.results import as_of_the_hub

LEADERBOARD = "my-org/posir-results"
PAGE = f"https://huggingface.co/datasets/{LEADERBOARD}"
COMMIT, OTHER_COMMIT = "a" * 40, "b" * 40


def entry(tmp_path, *ranks, task="PosIR-English", revisions=(COMMIT, COMMIT)):
    file = tmp_path / "org__model" / "rev1" / f"{task}.json"
    subsets = []
    for subset, of_subset, revision in zip(
        ("sports", "game"), (ranks[:1], ranks[1:]), revisions, strict=True
    ):
        starts = np.arange(len(of_subset))
        lengths = np.full(len(of_subset), 100)
        evidence = Evidence(
            [f"q{k}" for k in starts], ["d"] * len(of_subset), starts, starts + 1, lengths, lengths
        )
        ranks = DocumentRanks.from_ranks(RelativePositions(), evidence, np.array(of_subset))
        subsets.append(
            SubsetResult(
                "org/model",
                "rev1",
                task,
                subset,
                ResultValues(ranks),
                {"data_revision": revision},
                file,
            )
        )
    return Entry("org/model", "rev1", task, file, tuple(subsets), {}, {})


def read_value(entry):
    (content,) = build_eval_results([entry], PAGE).files.values()
    (item,) = parse_eval_result_entries(yaml.safe_load(content))
    return item


def test_value_is_the_mean_over_all_queries(tmp_path):
    item = read_value(entry(tmp_path, 1, 2, 3, 0))
    assert item.value == pytest.approx((1 + 1 / np.log2(3) + 1 / 2 + 0) / 4, abs=1e-6)
    assert (item.dataset_id, item.task_id, item.dataset_revision) == (
        "infgrad/PosIR-Benchmark-v1",
        "PosIR-English",
        COMMIT,
    )
    assert item.source_url == f"{PAGE}/blob/main/results/org__model/rev1/PosIR-English.json"
    assert item.notes == "nDCG@10 over 4 queries"
    several = read_value(entry(tmp_path, 1, 2, revisions=(COMMIT, OTHER_COMMIT)))
    assert several.dataset_revision is None


def test_each_task_has_a_file_with_one_value(tmp_path):
    entries = [
        entry(tmp_path, 1, 2, task=task) for task in ("PosIR-English", "SQuAD-PosQ", "PosIR-Mini")
    ]
    commit = build_eval_results(entries, PAGE)
    assert commit.repository == "model org/model"
    assert list(commit.files) == [
        ".eval_results/posir-english.yaml",
        ".eval_results/squad-posq.yaml",
    ]
    for content in commit.files.values():
        assert len(parse_eval_result_entries(yaml.safe_load(content))) == 1
    assert PAGE in commit.description
    with pytest.raises(PosirError, match="needs results on a dataset of the Hub"):
        build_eval_results(entries[2:], PAGE)


def test_old_huggingface_hub_is_reported(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", ModuleType("huggingface_hub"))
    with pytest.raises(PosirError, match="pip install -U huggingface_hub"):
        build_eval_results([entry(tmp_path, 1, 2)], PAGE)


def test_results_reach_the_model_page(tmp_path, monkeypatch):
    write_squad(tmp_path / "data" / "squad_v2", (0, 50, 100, 120))
    monkeypatch.setenv("POSIR_DATA", str(tmp_path / "data"))
    folder = write_guesses(tmp_path / "output", [load_builtin_tasks()["SQuAD-PosQ"]()])
    file = as_of_the_hub(folder / "SQuAD-PosQ.json", SQUAD.revision)
    data = Folder(SQUAD.repository, tmp_path / "data" / "squad_v2", SQUAD.revision, branches=())
    leaderboard, model = Store(LEADERBOARD), Store(MODEL, kind="models", commits=[REVISION])
    with serve_all(data, leaderboard, model) as hub:
        sent = run(
            "posir",
            "submit",
            str(tmp_path / "output"),
            "--repo",
            LEADERBOARD,
            "--eval-results",
            HF_ENDPOINT=hub.url,
            HF_HOME=str(tmp_path / "hub"),
            HF_HUB_OFFLINE="0",
            HF_TOKEN="hf_none",
        )
    assert sent.returncode == 0, sent.stderr
    assert f"dataset {LEADERBOARD}: sent 2 files: pull request #1" in sent.stdout
    assert f"model {MODEL}: sent 1 file: pull request #1" in sent.stdout
    assert set(data.revisions) == {SQUAD.revision}

    (results,), (page,) = leaderboard.pulls, model.pulls
    path = f"results/org__guessing/{REVISION}/SQuAD-PosQ.json"
    scores = json.loads(file.read_text())
    # Names of local folders are not sent.
    scores["scores"]["test"][0]["position_run"].pop("reference", None)
    assert json.loads(results.files[path]) == scores
    assert page.changed == (".eval_results/squad-posq.yaml",)
    (entry,) = parse_eval_result_entries(
        yaml.safe_load(page.files[".eval_results/squad-posq.yaml"])
    )
    assert entry.value == json.loads(file.read_text())["scores"]["test"][0]["ndcg_at_10"]
    assert entry.source_url == f"{hub.url}/datasets/{LEADERBOARD}/blob/main/{path}"
