"""Plans for models of known speed, and for a real model with the command."""

import csv
import io
import json
from unittest.mock import Mock

import pytest

from posir_run import plan as plan_module
from posir_run.plan import (
    Duration,
    ModelSpeed,
    SpeedCalibration,
    build_plan,
    build_table,
    describe_plan,
    measure_speed,
)
from posir_run.sizes import SubsetSize, TextCounts
from posir_tasks.models.embeddings.cache import EmbeddingFormat
from tests.support.cli import call_posir
from tests.support.datasets import ASKED, POSIR_FOLDER, TEXTS, posir_tables, write_domain

RANDOM, QWEN = "mteb/baseline-random-encoder", "Qwen3-Embedding-0.6B"


def speed(*seconds):
    return Duration.from_rounds(seconds)


#: 1 ms per token in the shortest texts, 2 ms in the longest texts, and 0.5 s per query.
KNOWN = SpeedCalibration(
    (speed(0.001), None, None, speed(0.001, 0.003)),
    speed(0.5),
    EmbeddingFormat("numpy", "float16", 8),
)


def size(task, corpus, texts, tokens, queries):
    return SubsetSize(task, corpus, TextCounts(texts, tokens), queries, is_counted=True)


SIZES = [
    size("English", "e/game", (10, 0, 0, 1), (1_000, 0, 0, 2_000), 4),
    size("English", "e/sports", (5, 0, 0, 0), (500, 0, 0, 0), 2),
    size("German-English", "e/game", (10, 0, 0, 1), (1_000, 0, 0, 2_000), 6),
]


def plan(*model):
    return build_plan(ModelSpeed("m", *model), SIZES, is_sampled=True)


def test_totals_are_sums_and_a_cache_saves_shared_documents():
    cost_plan = plan(KNOWN, "", 16)
    english, german = cost_plan.tasks
    assert (english.jobs, sum(english.documents.texts), english.queries) == (2, 16, 6)
    assert (german.jobs, sum(german.documents.texts), german.queries) == (1, 11, 6)
    assert english.bytes == (16 + 6) * 16
    assert english.duration == Duration(1.5 + 2 + 3, pytest.approx(1.5 + 4 + 3), 1.5 + 6 + 3)
    assert cost_plan.total.documents == english.documents + german.documents
    assert cost_plan.total.duration == Duration(12.5, 16.5, 20.5)
    assert (cost_plan.with_cache.documents, cost_plan.with_cache.queries) == (english.documents, 12)
    assert cost_plan.with_cache.duration.mean == pytest.approx(1.5 + 4 + 6)
    # Without a calibration, the time is not estimated.
    unknown, known_size = plan(None, "the reason", None), plan(None, "the reason", 1_536)
    assert (unknown.total.duration, unknown.total.bytes, known_size.total.bytes) == (
        None,
        None,
        (27 + 12) * 1_536,
    )


def test_a_table_explains_its_estimates():
    measured = (
        "16.5 s (12.5 to 20.5)",
        "11 fewer documents with POSIR_EMBEDDINGS",
    )
    for model, parts in (
        ((KNOWN, "", 16), measured),
        ((None, "the reason", None), ["(the reason)."]),
    ):
        estimated = plan(*model)
        printed = describe_plan(estimated)
        assert [part for part in parts if part not in printed] == []
        # A model without embeddings has no cache.
        assert any("cache" in row[0] for row in build_table(estimated).rows) is (
            model[0] is not None
        )


def test_the_sample_grows_until_a_round_can_be_timed(
    monkeypatch,
):
    # A batch takes one second plus one second per eight characters.
    monkeypatch.setattr(
        plan_module,
        "time_encoding",
        lambda encode, texts: encode(texts) or 1 + sum(map(len, texts)) / 8,
    )
    monkeypatch.setattr(plan_module, "ROUND_SECONDS", 7)
    encoded = []
    assert measure_speed(encoded.append, ["x" * 8] * 100, len) == speed(9 / 64)
    assert [len(texts) for texts in encoded] == [1, 2, 4, 8, 8, 8, 8]
    monkeypatch.setattr(plan_module, "ROUND_SECONDS", 1_000)
    assert measure_speed(lambda _: None, ["x" * 8] * 5, len) == speed(6 / 40)
    monkeypatch.setattr(plan_module, "MAX_BENCHMARK_SECONDS", -1)
    assert measure_speed(lambda _: None, ["x" * 8] * 5, len) == speed(6 / 40)


@pytest.fixture
def data(tmp_path, monkeypatch):
    root = tmp_path / POSIR_FOLDER
    write_domain(root, posir_tables())
    write_domain(root, posir_tables(), language="deu-Latn")
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))
    monkeypatch.setattr(plan_module, "ROUND_SECONDS", 0)


def invoke(tasks, models, format_="json"):
    result = call_posir(["run", "--plan", "-t", *tasks, "-m", *models, "--format", format_])
    assert result.exit_code == 0, result.output
    return (
        json.loads(result.stdout)
        if format_ == "json"
        else list(csv.DictReader(io.StringIO(result.stdout)))
    )


@pytest.mark.usefixtures("data")
def test_the_command_plans_every_model_from_the_data():
    tasks = ("PosIR-English", "PosIR-German-English", "PosIR-German")
    dense, sparse = invoke(tasks, (RANDOM, "baseline-bm25s"))
    texts, queries = len(TEXTS), len(ASKED)
    assert [estimate["name"] for estimate in dense["tasks"]] == [*tasks]
    assert sum(dense["total"]["documents"]["texts"]) == 3 * texts
    assert sum(dense["with_cache"]["documents"]["texts"]) == 2 * texts
    assert dense["total"]["bytes"] == 3 * (texts + queries) * 32 * 4
    assert dense["model"]["bytes_per_text"] == 32 * 4
    low, mean, high = (dense["total"]["duration"][name] for name in ("low", "mean", "high"))
    assert 0 < low <= mean <= high
    assert (dense["counted"], dense["sampled"]) == (True, True)
    assert (sparse["model"]["problem"], sparse["total"]["duration"]) == (
        "not a dense encoder",
        None,
    )


@pytest.mark.usefixtures("data")
def test_csv_has_a_row_of_numbers_for_each_model_and_task(monkeypatch):
    monkeypatch.setattr(plan_module, "calibrate", lambda *_: KNOWN)
    tasks = ("PosIR-English", "PosIR-German-English")
    rows = invoke(tasks, [RANDOM], "csv")
    assert [row["task"] for row in rows] == [*tasks, "total", "with cache"]
    assert {row["model"] for row in rows} == {RANDOM}
    assert [int(row["documents"]) for row in rows] == [
        len(TEXTS),
        len(TEXTS),
        2 * len(TEXTS),
        len(TEXTS),
    ]
    assert all(
        float(row["seconds_low"]) <= float(row["seconds_mean"]) <= float(row["seconds_high"])
        for row in rows
    )


@pytest.mark.usefixtures("data")
def test_a_model_that_fails_to_load_is_planned_from_its_metadata(monkeypatch):
    monkeypatch.setattr(
        plan_module, "load_model", Mock(side_effect=OSError("no weights\nin a cache"))
    )
    (plan_,) = invoke(["PosIR-English"], [QWEN])
    assert (plan_["model"]["calibration"], plan_["model"]["problem"]) == (
        None,
        "OSError: no weights",
    )
    assert plan_["total"]["bytes"] == (len(TEXTS) + len(ASKED)) * 1024 * 4
