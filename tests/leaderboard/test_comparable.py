"""Results on different data are never ranked together: the content of the data decides, not its revision."""

from dataclasses import replace

from posir_leaderboard.board.groups import Group, TaskChoice
from posir_leaderboard.board.matrix import domain_matrix, task_matrix
from posir_leaderboard.board.records import BoardRecord
from posir_leaderboard.board.views import build_average_view, build_task_view
from tests.support.board import fake_model, fake_record


def on_data(
    number: int, data: str, revision: str = "c" * 40, *, date: str = "2026-01-31", published: bool = False
) -> BoardRecord:
    """Return a result on data of an identity and a revision."""
    record = fake_record(replace(fake_model(number), published=published), "PosIR-English", number)
    return replace(record, detail={**record.detail, "data": data, "data_revision": revision, "date": date})


def test_a_result_on_other_data_is_not_ranked_among_others():
    hub, copy, local = on_data(0, "d1"), on_data(1, "d1", "local-1"), on_data(2, "d2", "local-2")
    view = build_task_view("PosIR-English", [hub, copy, local])
    assert [row.other_data for row in view.rows] == ["", "", "local data"], "a copy of the Hub's data is the same data"
    assert view.columns("all")["rank"][2] is None
    assert view.columns("all")["paired"][2] == 0
    alone = build_task_view("PosIR-English", [local])
    assert alone.columns("all")["rank"] == [(1, 1)], "results on the same local data are comparable"
    two = build_task_view("PosIR-English", [local, on_data(3, "d3", "local-3"), on_data(4, "d2", "local-4")])
    assert [row.other_data for row in two.rows] == ["", "local data", ""]


def test_results_on_two_commits_of_the_hub_are_not_ranked_together():
    few, most, also = on_data(0, "d1", date="2026-05-01"), on_data(1, "d2"), on_data(2, "d2")
    view = build_task_view("PosIR-English", [few, most, also])
    assert [row.other_data for row in view.rows] == ["other data", "", ""]
    assert [rank is None for rank in view.columns("all")["rank"]] == [True, False, False]
    newest = build_task_view("PosIR-English", [few, most])
    assert [row.other_data for row in newest.rows] == ["", "other data"], "of as many results, the newest decides"


def test_local_results_are_ranked_and_published_ones_are_not_ranked_among_them():
    published, local = on_data(0, "", "", published=True), on_data(1, "d1", "local-1")
    assert [row.other_data for row in build_task_view("PosIR-English", [published, local]).rows] == ["the papers' data", ""]
    hub = on_data(2, "d2")
    assert [row.other_data for row in build_task_view("PosIR-English", [published, hub]).rows] == ["", ""]


def test_a_matrix_has_results_on_the_same_data_only():
    records = [on_data(0, "d1"), on_data(1, "d1"), on_data(2, "d2", "e" * 40)]
    indices = {record.model.id: place for place, record in enumerate(records)}
    assert task_matrix("Language", {"PosIR-English": "English"}, records, indices)["models"] == [0, 1]
    assert domain_matrix("PosIR-English", records, indices)["models"] == [0, 1]


def test_an_average_is_not_ranked_if_a_task_is_on_other_data():
    group = Group(
        "PosIR", "Language", "", tuple(TaskChoice(task, task, averaged=True) for task in ("PosIR-English", "PosIR-German"))
    )
    records = [on_data(number, "d1") for number in range(3)]
    records += [replace(record, task="PosIR-German") for record in records]
    records[-1] = replace(records[-1], detail={**records[-1].detail, "data": "d2"})
    assert [row.other_data for row in build_average_view(group, records).rows] == ["", "", "other data"]
