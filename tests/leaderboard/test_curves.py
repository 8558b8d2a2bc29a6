"""Test the leaderboard's curves: sparse bins, averages, and published results."""

import json
from dataclasses import replace

import pytest

from posir_leaderboard.board.averages import average_detail
from posir_leaderboard.board.published import (
    add_query_counts,
    collect_query_counts,
    read_statistics,
)
from posir_leaderboard.board.views import build_task_view
from posir_significance.findings import State
from posir_tasks.base.errors import PosirError
from tests.support.board import columns_at, fake_model, fake_record, published


def test_average_has_the_mean_curve():
    tasks = english, german = [
        fake_record(fake_model(0), task, seed) for seed, task in enumerate(("a", "b"))
    ]
    average = average_detail(tasks, [row.length for row in english.rows])["panels"][4]["ndcg_at_10"]
    both = zip(*(task.find_detail("panels", "Q4")["ndcg_at_10"] for task in tasks), strict=True)
    assert average == pytest.approx([sum(pair) / 2 for pair in both], abs=1e-6)
    assert (
        average_detail(
            [english, replace(german, detail={**german.detail, "positions": []})], ["all"]
        )
        == {}
    )


def test_published_positions_have_a_curve_and_no_state():
    records = {(record.model.name, record.task): record for record in published()}
    row = records["bge-m3-dense", "SQuAD-PosQ"].rows_by_length["all"]
    difference = row.start_minus_end
    assert max(0, difference.low) < difference.value < difference.high
    rows = [row for record in records.values() for row in record.rows]
    assert {row.states for row in rows} == {(State.NOT_TESTED,)}
    assert {row.position_effect for row in rows} == {None}
    assert any(
        "neither windows nor texts" in note
        for note in records["bge-m3-dense", "SQuAD-PosQ"].detail["notes"]
    )


def test_query_counts_come_from_complete_results():
    result = fake_record(fake_model(0), "PosIR-English", 0)
    local = replace(result, detail={**result.detail, "data_revision": "local-1"})
    english = [record for record in published() if record.task == "PosIR-English"]
    (before, *_), (after, *_) = (
        add_query_counts(english, collect_query_counts([value])) for value in (local, result)
    )
    assert before.rows[1].ndcg_at_10_as_published.interval is None
    assert after.rows[1].queries == 10_500
    score = after.rows[1].ndcg_at_10_as_published
    assert score.low < score.value < score.high


def write_statistics(folder, dataset="PosIR-English"):
    """Write the output of `posir stats TASK --format json` for two domains and their total."""
    bins = {
        "all": [40] * 20,
        "Q1": [10] * 20,
        "Q2": [12] * 19 + [10],
        "Q3": [10] * 20,
        "Q4": [8] * 19 + [10],
    }
    domain = {"domain": "sports", "queries": 1, "histogram": {"all": [1]}}
    content = {
        "dataset": dataset,
        "source": "folder",
        "rows": [domain, {"domain": "all", "queries": 800, "histogram": bins}],
    }
    file = folder / f"{dataset}.json"
    file.write_text(json.dumps(content))
    return file


def test_query_counts_come_from_statistics(tmp_path):
    counts = read_statistics([write_statistics(tmp_path)])
    known = [record for record in published() if record.task in ("PosIR-English", "PosIR-German")]
    rows = {count.task: count for count in add_query_counts(known, counts)}
    view = build_task_view("PosIR-English", add_query_counts(known, counts))
    by_length = rows["PosIR-English"].rows_by_length
    assert [by_length[name].queries for name in ("all", "Q1", "Q2", "Q4")] == [800, 200, 238, 162]
    assert all(rank is not None for rank in columns_at(view, "Q3")["rank"]), (
        "with counts there are intervals, and so ranks"
    )
    wide, narrow = (by_length[name].score for name in ("Q4", "Q1"))
    assert wide.high - wide.low > narrow.high - narrow.low, "8 in a bin, not 10"
    assert rows["PosIR-German"].rows_by_length["Q1"].queries is None


def test_files_without_statistics_are_rejected(tmp_path):
    for content in ("no JSON", "{}", '{"dataset": "PosIR-English", "rows": []}'):
        (tmp_path / "stats.json").write_text(content)
        with pytest.raises(PosirError, match=r"statistics of a task from .*stats.json"):
            read_statistics([tmp_path / "stats.json"])
    with pytest.raises(PosirError, match="Cannot read the statistics"):
        read_statistics([tmp_path / "missing.json"])
    with pytest.raises(
        PosirError, match=r"PosIR-Mini, which has no published results.*PosIR-English"
    ):
        read_statistics([write_statistics(tmp_path, "PosIR-Mini")])
