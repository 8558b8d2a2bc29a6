"""Tasks and models are found without duplicates, and invalid requests raise errors."""

import pytest

from posir_run.jobs import find_workload
from posir_tasks.base.errors import PosirError
from posir_tasks.models.references import ModelReference
from tests.support.datasets import POSIR_FOLDER, posir_tables, write_domain

BM25 = "mteb/baseline-bm25s"


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Two domains in English and German."""
    for language in ("eng-Latn", "deu-Latn"):
        for domain in ("sports", "game"):
            write_domain(tmp_path / POSIR_FOLDER, posir_tables(), language=language, domain=domain)
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))


@pytest.mark.usefixtures("data")
def test_there_is_a_job_per_model_task_and_subset():
    tasks, random = (
        ("PosIR-English", "PosIR-German-English", "PosIR-Mini"),
        "mteb/baseline-random-encoder",
    )
    jobs = find_workload(tasks, (), (BM25, random)).list_jobs()
    expected = [f"{task} · {domain}" for task in tasks[:2] for domain in ("game", "sports")] + [
        "PosIR-Mini · default"
    ]
    assert [str(job) for job in jobs] == [
        f"{model} · {name}" for model in (BM25, random) for name in expected
    ]
    assert [job.corpus for job in jobs[:2]] == [job.corpus for job in jobs[2:4]]
    assert len({job.corpus for job in jobs}) == 3
    # A monolingual task of another language has its own corpus.
    jobs = find_workload(("PosIR-English", "PosIR-German"), (), (BM25,)).list_jobs()
    assert len({job.corpus for job in jobs}) == len(jobs) == 4


def test_tasks_of_benchmarks_are_added_without_duplicates():
    workload = find_workload(
        ("SQuAD-PosQ", "PosIR-Mini", "PosIR-Mini"), ("PosQ",), (BM25, "baseline-bm25s")
    )
    assert [task.metadata.name for task in workload.tasks] == [
        "SQuAD-PosQ",
        "PosIR-Mini",
        "FineWeb-PosQ",
    ]
    assert list(workload.models) == [ModelReference(BM25)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": ["PosIR-Mni"]}, r"^'PosIR-Mni' not found\. Did you mean: 'PosIR-Mini'\?"),
        ({"benchmarks": ["PosIr"]}, r"'PosIr' not found\. Did you mean: PosIR\?"),
        ({"tasks": ["NFCorpus"]}, r"no evidence positions in NFCorpus\. .*`mteb run`"),
        ({}, r"no task given"),
        (
            {"tasks": ["PosIR-Mini"], "models": ["mteb/baseline-bm25"]},
            r"no model [^\n]* Did you mean mteb/",
        ),
        (
            {"tasks": ["PosIR-Mini"], "revision": "older"},
            r"Model revision older not found .* Expected 0_3_0",
        ),
        (
            {"tasks": ["PosIR-Mini"], "models": ["a", "b"], "revision": "r"},
            r"--revision r: applies to one model",
        ),
    ],
)
def test_an_unknown_name_is_reported_with_a_suggestion(options, message):
    with pytest.raises(PosirError, match=message):
        find_workload(**{"tasks": (), "benchmarks": (), "models": [BM25]} | options)
