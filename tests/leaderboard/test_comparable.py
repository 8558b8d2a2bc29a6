"""Results on different data are never ranked together: the content of the data decides, not its revision."""

import json
import re
from dataclasses import replace

import mteb
import pytest

from posir_leaderboard.board.build import build_site
from posir_leaderboard.board.comparable import NOT_PINNED, Pin, compute_pin, mark_records, read_pins, write_pins
from posir_leaderboard.board.records import BoardRecord
from posir_leaderboard.board.views import build_average_view, build_task_view, domain_matrix, task_matrix
from posir_tasks.errors import PosirError
from tests.support.board import GROUPS, fake_model, fake_record
from tests.support.damage import call_posir
from tests.support.guessing import write_guesses

#: Average of English and German.
GROUP = GROUPS[0]


def on_data(
    number: int, data: str, revision: str = "c" * 40, *, date: str = "2026-01-31", published: bool = False
) -> BoardRecord:
    record = fake_record(replace(fake_model(number), published=published), "PosIR-English", number)
    return replace(record, detail={**record.detail, "data": data, "data_revision": revision, "date": date})


def own_view(records):
    return build_task_view("PosIR-English", mark_records(records, None))


@pytest.mark.parametrize(
    ("records", "marks"),
    [
        # A copy of the Hub's data is the same data.
        ([(0, "d1"), (1, "d1", "local-1"), (2, "d2", "local-2")], ["", "", "local data"]),
        ([(2, "d2", "local-2")], [""]),
        ([(2, "d2", "local-2"), (3, "d3", "local-3"), (4, "d2", "local-4")], ["", "local data", ""]),
        ([(0, "d1"), (1, "d2"), (2, "d2")], ["other data", "", ""]),
        # Published results, and local or the Hub's data beside them.
        ([(0, "", ""), (1, "d1", "local-1")], ["the papers' data", ""]),
        ([(0, "", ""), (2, "d2")], ["", ""]),
    ],
)
def test_a_result_on_other_data_is_not_ranked_among_others(records, marks):
    view = own_view([on_data(*record, published=record[1] == "") for record in records])
    assert [row.mark for row in view.rows] == marks
    columns = view.columns("all")
    assert [rank is None for rank in columns["rank"]] == [bool(mark) for mark in marks]
    assert columns["paired"] == [0] * len(marks)


def test_in_a_length_bucket_a_published_mean_over_positions_is_not_ranked_among_means_over_queries():
    paper = on_data(0, "", "", published=True)
    rows = tuple(row if row.length == "all" else row.with_scores(ndcg_at_10=None) for row in paper.rows)
    view = own_view([replace(paper, rows=rows), on_data(1, "d1"), on_data(2, "d1")])
    assert view.columns("all")["other_data"] == ["", "", ""]
    columns = view.columns("Q4")
    assert columns["other_data"] == ["mean over positions", "", ""]
    assert columns["rank"][0] is None
    assert columns["lead"][-1] == " (no interval: other queries or few documents). "
    assert own_view([on_data(2, "d2", "local-0123456789")]).data == "PosIR-English data, local: 01234567"


def test_of_as_many_results_the_newest_decide_which_data_are_ranked():
    view = own_view([on_data(0, "d1", date="2026-05-01"), on_data(1, "d2")])
    assert [row.mark for row in view.rows] == ["", "other data"]


def test_published_results_have_an_average_beside_own_ones_of_one_task():
    published = [replace(on_data(0, "", "", published=True), task=task) for task in GROUP.averaged_tasks]
    own = [on_data(1, "d1", "local-1"), replace(on_data(1, "d2", "local-2"), task="PosIR-German")]
    rows = build_average_view(GROUP, mark_records([*published, own[0]], None)).rows
    assert [(row.comparable, row.partial) for row in rows] == [(True, ""), (False, "1 of 2 tasks")]
    rows = build_average_view(GROUP, mark_records([*published, *own], None)).rows
    assert [row.mark for row in rows] == ["the papers' data", ""]


def test_a_matrix_has_results_on_the_same_data_only():
    records = mark_records([on_data(0, "d1"), on_data(1, "d1"), on_data(2, "d2", "e" * 40)], None)
    indices = {record.model.id: place for place, record in enumerate(records)}
    assert task_matrix("Language", {"PosIR-English": "English"}, records, indices)["models"] == [0, 1]
    assert domain_matrix("PosIR-English", records, indices)["models"] == [0, 1]


def test_an_average_is_not_ranked_if_a_task_is_on_other_data():
    records = [on_data(number, "d1") for number in range(3)]
    records += [replace(record, task="PosIR-German") for record in records]
    records[-1] = replace(records[-1], detail={**records[-1].detail, "data": "d2"})
    assert [row.mark for row in build_average_view(GROUP, mark_records(records, None)).rows] == ["", "", "other data"]


def test_pinned_data_are_ranked_however_many_results_are_on_others_and_however_new():
    honest, forged = on_data(0, "a" * 16), [on_data(number, "b" * 16, date="2096-01-01") for number in range(1, 4)]
    unpinned = replace(honest, task="PosIR-German")
    pins = {"PosIR-English": Pin(revision="c" * 40, digest="a" * 16)}
    marks = [record.mark for record in mark_records([honest, *forged, unpinned], pins)]
    assert marks == ["", "other data", "other data", "other data", NOT_PINNED]
    published = on_data(5, "", "", published=True)
    assert [record.mark for record in mark_records([published], pins)] == [""]
    assert {record.mark for record in mark_records([honest, *forged], {})} == {NOT_PINNED}


def test_pins_are_written_and_read_and_a_damaged_file_is_named(tmp_path):
    assert read_pins(tmp_path) is None
    pins = {"PosIR-Mini": compute_pin("PosIR-Mini")}
    assert pins["PosIR-Mini"] == compute_pin("PosIR-Mini")
    assert read_pins(write_pins(tmp_path, pins).parent) == pins
    for content in ('{"PosIR-Mini": {"revision": "1", "digest": "x"}}', "[]", "{", '{"a": 1, "a": 2}'):
        (tmp_path / "pins.json").write_text(content)
        with pytest.raises(PosirError, match="pins"):
            read_pins(tmp_path)
    with pytest.raises(PosirError, match="PosIR-Minni"):
        compute_pin("PosIR-Minni")


@pytest.mark.usefixtures("nothing_published")
def test_a_forged_result_neither_removes_others_nor_passes_unsaid(tmp_path, monkeypatch):
    """A copy with other digests, or without them, a date in the future, or a made-up revision, beside an honest result."""
    task = mteb.get_task("PosIR-Mini")
    write_guesses(tmp_path, [task], name="org/honest", revision="1" * 40)
    for number in range(4):
        file = write_guesses(tmp_path, [task], name=f"org/forged-{number}", revision="2" * 40) / "PosIR-Mini.json"
        data = json.loads(file.read_text())
        run_record = data["scores"]["test"][0]["position_run"]
        if number == 0:
            run_record["data_digest"]["corpus"] = "0123456789abcdef"
        elif number == 1:
            del run_record["data_digest"]
        elif number == 2:
            data["date"] = 4_000_000_000
        else:
            run_record["data_revision"] = "9"
        file.write_text(json.dumps(data))
    write_pins(tmp_path, {"PosIR-Mini": compute_pin("PosIR-Mini")})
    built = build_site(tmp_path, tmp_path / "site", tmp_path / "cache")
    assert built.results == 2
    assert built.unranked == ("org/forged-0, PosIR-Mini: other data",)
    fields = ["date", "position_run.data_digest", "position_run.data_revision"]
    assert sorted(problem.field for problem in built.problems) == fields
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path / "cache"))
    command = ["leaderboard", "build", "--results", tmp_path, "--output", tmp_path / "again"]
    assert call_posir(*command).status == 0
    strict = call_posir(*command, "--strict")
    assert strict.status == 1
    assert all(re.search(f"org(__|/)forged-{number}", strict.said) for number in range(4))
