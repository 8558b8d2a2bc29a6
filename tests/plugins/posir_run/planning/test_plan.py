"""Plans of made models, whose speed is known, and of a real one through the command."""

import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from posir_run.planning import calibration
from posir_run.planning import plan as plan_module
from posir_run.planning.calibration import Calibration, Duration, Speed, measure
from posir_run.planning.plan import ModelSpeed, plan_of
from posir_run.planning.samples import Samples
from posir_run.planning.sizes import Lengths, SubsetSize
from posir_run.planning.tables import print_plans
from posir_tasks.command.app import build_app
from posir_tasks.embeddings.format import EmbeddingFormat
from tests.support.datasets import ASKED, POSIR_FOLDER, TEXTS, posir_tables, write_domain

SAMPLES = Samples(([], [], [], []), [], drawn=True)


def speed(*seconds):
    return Speed(32, seconds)


#: A token takes 1 ms in the shortest texts and 2 ms in the longest, a query 1/2 s.
KNOWN = Calibration("made", (speed(0.001), None, None, speed(0.001, 0.003)), speed(0.5), EmbeddingFormat("numpy", "float16", 8))


def size(task, corpus, texts, tokens, queries):
    return SubsetSize(task, corpus, Lengths(texts, tokens), queries, counted=True)


SIZES = [
    size("English", "e/game", (10, 0, 0, 1), (1_000, 0, 0, 2_000), 4),
    size("English", "e/sports", (5, 0, 0, 0), (500, 0, 0, 0), 2),
    size("German-English", "e/game", (10, 0, 0, 1), (1_000, 0, 0, 2_000), 6),
]


def plan(model):
    return plan_of(model, SIZES, SAMPLES)


def test_a_plan_adds_up_and_a_store_spares_shared_documents():
    made = plan(ModelSpeed("m", KNOWN, "", 16))
    english, german = made.tasks
    assert (english.units, sum(english.documents.texts), english.queries) == (2, 16, 6)
    assert (german.units, sum(german.documents.texts), german.queries) == (1, 11, 6)
    assert english.bytes == (16 + 6) * 16
    assert english.duration == Duration(1.5 + 2 + 3, pytest.approx(1.5 + 4 + 3), 1.5 + 6 + 3)
    assert made.total.documents == english.documents + german.documents
    assert made.total.duration == Duration(12.5, 16.5, 20.5)
    assert made.stored.documents == english.documents
    assert made.stored.queries == 12
    assert made.stored.duration.mean == pytest.approx(1.5 + 4 + 6)


def test_what_was_not_measured_is_not_estimated():
    unknown, told = plan(ModelSpeed("m", None, "why not", None)), plan(ModelSpeed("m", None, "why not", 1_536))
    assert unknown.total.duration is None
    assert unknown.total.bytes is None
    assert told.total.bytes == (27 + 12) * 1_536


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (ModelSpeed("m", KNOWN, "", 16), "16.5 s (12.5 to 20.5)"),
        (ModelSpeed("m", KNOWN, "", 16), "Q4 500 (333 to 1,000; 32 texts a round); queries a second 2 (2 to 2;"),
        (
            ModelSpeed("m", KNOWN, "", 16),
            "with POSIR_EMBEDDINGS 11 documents, which several tasks share, are not encoded again",
        ),
        (ModelSpeed("m", None, "why not", None), "Time: not estimated, since the model could not be measured (why not)."),
    ],
)
def test_a_table_says_what_its_numbers_rest_on(model, said, capsys):
    print_plans(Console(width=400), [plan(model)])
    assert said in capsys.readouterr().out


@pytest.fixture
def clock(monkeypatch):
    """Let a text take a second for every eight characters, and a batch one more."""
    monkeypatch.setattr(calibration, "timed", lambda encode, texts: encode(texts) or 1 + sum(map(len, texts)) / 8)


@pytest.mark.usefixtures("clock")
def test_a_round_is_as_long_as_can_be_timed(monkeypatch):
    monkeypatch.setattr(calibration, "ROUND_SECONDS", 7)
    encoded = []
    found = measure(encoded.append, ["x" * 8] * 100, len)
    assert [len(texts) for texts in encoded] == [1, 2, 4, 8, 8, 8, 8]
    assert found == Speed(8, (9 / 64,) * 3)


@pytest.mark.usefixtures("clock")
def test_few_texts_are_measured_all_together_and_slow_ones_not_thrice(monkeypatch):
    monkeypatch.setattr(calibration, "ROUND_SECONDS", 1_000)
    assert measure(lambda _: None, ["x" * 8] * 5, len) == Speed(5, (6 / 40,) * 3)
    monkeypatch.setattr(calibration, "PATIENCE", -1)
    assert measure(lambda _: None, ["x" * 8] * 5, len) == Speed(5, (6 / 40,))


@pytest.fixture
def data(tmp_path, monkeypatch):
    root = tmp_path / POSIR_FOLDER
    write_domain(root, posir_tables())
    write_domain(root, posir_tables(), language="deu-Latn")
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))
    monkeypatch.setattr(calibration, "ROUND_SECONDS", 0)


@pytest.mark.usefixtures("data")
def test_the_command_plans_for_every_model_what_the_data_holds():
    tasks = ("PosIR-English", "PosIR-German-English", "PosIR-German")
    models = ("mteb/baseline-random-encoder", "baseline-bm25s")
    done = CliRunner().invoke(build_app(), ["plan", "-t", *tasks, "-m", *models, "--format", "json"])
    assert done.exit_code == 0, done.output
    dense, sparse = json.loads(done.stdout)
    texts, queries = len(TEXTS), len(ASKED)
    assert [load["name"] for load in dense["tasks"]] == [*tasks]
    assert sum(dense["total"]["documents"]["texts"]) == 3 * texts
    assert sum(dense["stored"]["documents"]["texts"]) == 2 * texts
    assert dense["total"]["bytes"] == 3 * (texts + queries) * 32 * 4
    assert dense["model"]["bytes_a_text"] == 32 * 4
    assert 0 < dense["total"]["duration"]["low"] <= dense["total"]["duration"]["mean"] <= dense["total"]["duration"]["high"]
    assert dense["counted"]
    assert dense["drawn"]
    assert sparse["model"]["problem"] == "it is no dense encoder"
    assert sparse["total"]["duration"] is None


@pytest.mark.usefixtures("data")
def test_a_model_that_cannot_be_loaded_is_planned_by_its_metadata(monkeypatch):
    def fail(model):
        raise OSError(f"no weights of {model.name}\nin a cache")

    monkeypatch.setattr(plan_module, "load_model", fail)
    done = CliRunner().invoke(build_app(), ["plan", "-t", "PosIR-English", "-m", "Qwen3-Embedding-0.6B", "--format", "json"])
    (plan_,) = json.loads(done.stdout)
    assert plan_["model"]["calibration"] is None
    assert plan_["model"]["problem"] == "OSError: no weights of Qwen/Qwen3-Embedding-0.6B"
    assert plan_["total"]["bytes"] == (len(TEXTS) + len(ASKED)) * 1024 * 4
