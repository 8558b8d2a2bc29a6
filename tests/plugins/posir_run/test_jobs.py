"""What a user asks for by name is found, each once; what cannot be run is one message."""

import pytest

from posir_run.jobs import RunRequest, find
from posir_tasks.errors import PosirError
from posir_tasks.models import ModelReference
from tests.support.datasets import POSIR_FOLDER, posir_tables, write_domain

BM25 = "mteb/baseline-bm25s"


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Two domains in English and German."""
    for language in ("eng-Latn", "deu-Latn"):
        for domain in ("sports", "game"):
            write_domain(tmp_path / POSIR_FOLDER, posir_tables(), language=language, domain=domain)
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))


def asked(*tasks, benchmarks=(), models=(BM25,), revision=None):
    return find(RunRequest(tasks, benchmarks, models, revision))


@pytest.mark.usefixtures("data")
def test_units_are_models_by_tasks_by_subsets_and_tasks_share_their_corpora():
    work = asked("PosIR-English", "PosIR-German-English", "PosIR-Mini", models=(BM25, "mteb/baseline-random-encoder"))
    units = work.units()
    assert [str(unit) for unit in units[:5]] == [
        f"{BM25} · PosIR-English · game",
        f"{BM25} · PosIR-English · sports",
        f"{BM25} · PosIR-German-English · game",
        f"{BM25} · PosIR-German-English · sports",
        f"{BM25} · PosIR-Mini · default",
    ]
    assert [unit.model.name for unit in units[5:]] == ["mteb/baseline-random-encoder"] * 5
    english, german = units[0:2], units[2:4]
    assert [unit.corpus for unit in english] == [unit.corpus for unit in german]
    assert len({unit.corpus for unit in units}) == 3


@pytest.mark.usefixtures("data")
def test_a_monolingual_task_of_another_language_has_its_own_corpus():
    units = asked("PosIR-English", "PosIR-German").units()
    assert len({unit.corpus for unit in units}) == len(units) == 4


def test_tasks_of_benchmarks_are_added_and_nothing_is_there_twice():
    work = asked("SQuAD-PosQ", "PosIR-Mini", "PosIR-Mini", benchmarks=("PosQ",), models=(BM25, "baseline-bm25s"))
    assert [task.metadata.name for task in work.tasks] == ["SQuAD-PosQ", "PosIR-Mini", "FineWeb-PosQ"]
    assert list(work.models) == [ModelReference(BM25)]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"tasks": ["PosIR-Mni"]}, r"'PosIR-Mni' not found\. Did you mean: 'PosIR-Mini'\?"),
        ({"benchmarks": ["PosIr"]}, r"'PosIr' not found\. Did you mean: PosIR\?"),
        ({"tasks": ["NFCorpus"]}, r"no evidence positions in NFCorpus\. .*`mteb run`"),
        ({}, r"no task is given"),
        (
            {"tasks": ["PosIR-Mini"], "models": ["mteb/baseline-bm25"]},
            r"no model .* Did you mean mteb/",
        ),
        ({"tasks": ["PosIR-Mini"], "revision": "older"}, r"Model revision older not found .* Expected 0_3_0"),
        ({"tasks": ["PosIR-Mini"], "models": ["a", "b"], "revision": "r"}, r"--model-revision r: is of one model"),
    ],
)
def test_what_is_not_there_is_named_with_what_was_meant(request_, message):
    with pytest.raises(PosirError, match=message):
        find(RunRequest(**{"tasks": (), "benchmarks": (), "models": [BM25]} | request_))
