"""Test that only results on data with the same content are ranked together."""

import json
import re
from dataclasses import replace

import mteb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posir_leaderboard.board.build import build_site
from posir_leaderboard.board.comparable import (
    KNOWN_PINS,
    Pin,
    compute_pin,
    format_pins,
    read_pins,
    separate_data,
)
from posir_leaderboard.board.groups import add_data_tables
from posir_leaderboard.board.records import BoardRecord, Exclusion, Unranked
from posir_leaderboard.board.views import build_average_view, build_task_view
from posir_tasks.base.errors import PosirError
from tests.support.board import (
    GROUPS,
    columns_at,
    contents,
    fake_model,
    fake_record,
    read_site,
)
from tests.support.damage import call_posir
from tests.support.guessing import write_guesses

#: Average of English and German.
GROUP = GROUPS[0]


def set_data(
    number: int,
    data: str,
    revision: str = "c" * 40,
    *,
    date: str = "2026-01-31",
    published: bool = False,
) -> BoardRecord:
    record = fake_record(replace(fake_model(number), published=published), "PosIR-English", number)
    return replace(
        record, detail={**record.detail, "data": data, "data_revision": revision, "date": date}
    )


def separate_submitted(records):
    return separate_data(records, KNOWN_PINS, submitted=False)


def build_submitted_view(records):
    return build_task_view("PosIR-English", separate_submitted(records))


#: The table of the task.
MAIN = ""


@pytest.mark.parametrize(
    ("records", "tables"),
    [
        # A copy of the Hub's data is the same data.
        ([(0, "d1"), (1, "d1", "local-1"), (2, "d2", "local-2")], [MAIN, MAIN, "local-2"]),
        ([(2, "d2", "local-2")], [MAIN]),
        # With several versions, none keeps the task's name, regardless of result counts and dates.
        (
            [(2, "d2", "local-2"), (3, "d3", "local-3"), (4, "d2", "local-4")],
            ["local-2", "local-3", "local-2"],
        ),
        ([(0, "d1"), (1, "d2", "e" * 40), (2, "d2", "e" * 40)], ["c" * 12, "e" * 12, "e" * 12]),
        ([(0, "d1"), (1, "d2")], ["c" * 12 + ", content d1", "c" * 12 + ", content d2"]),
        # Published results next to results on local data or the Hub's data.
        ([(0, "", ""), (1, "d1", "local-1")], [MAIN, MAIN]),
        ([(0, "", ""), (2, "d2")], [MAIN, MAIN]),
        ([(0, "", ""), (2, "d2"), (3, "d3", "local-3")], [MAIN, MAIN, "local-3"]),
        ([(0, "", ""), (2, "d2"), (3, "d3", "e" * 40)], [MAIN, "c" * 12, "e" * 12]),
    ],
)
def test_each_version_of_the_data_has_a_table(records, tables):
    separated = separate_submitted(
        [set_data(*record, published=record[1] == "") for record in records]
    )
    expected = [f"PosIR-English (data {name})" if name else "PosIR-English" for name in tables]
    assert [record.task for record in separated] == expected
    assert [record.base_task for record in separated] == [
        "PosIR-English" if name else "" for name in tables
    ]
    for task in set(expected):
        view = build_task_view(task, separated)
        assert all(
            rank
            for rank, row in zip(columns_at(view, "all")["rank"], view.rows, strict=True)
            if not row.exclusion
        )
        assert {row.exclusion for row in view.rows} <= {None, Exclusion(Unranked.PAPERS_DATA)}


@given(
    st.lists(
        st.tuples(
            st.sampled_from("wxyz"),
            st.sampled_from(["c" * 40, "e" * 40, "local-1", "local-2"]),
            st.booleans(),
        ),
        min_size=1,
        max_size=8,
    )
)
@settings(max_examples=60, deadline=None)
def test_no_table_has_results_on_different_data(drawn):
    revisions: dict[str, str] = {}
    records = []
    for number, (data, revision, is_new) in enumerate(drawn):
        date = "2096-01-01" if is_new else "2026-01-01"
        records.append(set_data(number, data * 16, revisions.setdefault(data, revision), date=date))
    separated = separate_submitted(records)
    tables: dict[str, set[str]] = {}
    for record in separated:
        tables.setdefault(record.task, set()).add(record.data)
    assert all(len(data) == 1 for data in tables.values())
    assert len(tables) == len({record.data for record in records})
    copies = [
        replace(record, model=fake_model(number + 100))
        for number, record in enumerate(records[:1] * 5)
    ]
    again = separate_submitted([*records, *copies])
    assert [record.task for record in again[: len(records)]] == [
        record.task for record in separated
    ]


def test_table_of_other_data_is_in_the_group_of_the_task():
    separated = separate_submitted([set_data(0, "d1"), set_data(1, "d2", "local-0123456789abcdef")])
    extended, mini = add_data_tables(GROUPS, separated)
    assert list(extended.labels)[:2] == ["PosIR-English", "PosIR-English (data local-01234567)"]
    assert extended.labels["PosIR-English (data local-01234567)"] == "English (data local-01234567)"
    assert extended.averaged_tasks == GROUP.averaged_tasks
    assert mini == GROUPS[1]


def test_partial_results_are_in_the_table_of_their_revision():
    partial = replace(set_data(2, "p", "e" * 40), partial="1 of 31 subsets")
    separated = separate_submitted([set_data(0, "d1"), set_data(1, "d2", "e" * 40), partial])
    assert separated[1].task == separated[2].task != separated[0].task
    assert separate_submitted([partial])[0].task == "PosIR-English"


def test_partial_results_of_one_revision_share_a_table():
    partial = [
        replace(set_data(number, data, "e" * 40), partial="1 of 31 subsets")
        for number, data in enumerate(("p", "q"))
    ]
    assert [record.task for record in separate_submitted(partial)] == ["PosIR-English"] * 2


def test_means_over_positions_are_not_ranked_among_query_means():
    paper = set_data(0, "", "", published=True)
    rows = tuple(
        row if row.length == "all" else row.with_scores(ndcg_at_10=None) for row in paper.rows
    )
    view = build_submitted_view([replace(paper, rows=rows), set_data(1, "d1"), set_data(2, "d1")])
    assert columns_at(view, "all")["other_data"] == ["", "", ""]
    columns = columns_at(view, "Q4")
    assert columns["other_data"] == ["mean over positions", "", ""]
    assert columns["rank"][0] is None
    assert columns["lead"][-1] == " (no interval: other queries or few documents). "
    assert (
        build_submitted_view([set_data(2, "d2", "local-0123456789")]).data
        == "PosIR-English data, local: 01234567"
    )


def test_published_averages_appear_next_to_submitted_tasks():
    published = [
        replace(set_data(0, "", "", published=True), task=task) for task in GROUP.averaged_tasks
    ]
    own = [set_data(1, "d1", "local-1"), replace(set_data(1, "d2", "local-2"), task="PosIR-German")]
    rows = build_average_view(GROUP, separate_submitted([*published, own[0]])).rows
    assert [(row.comparable, row.partial) for row in rows] == [(True, ""), (False, "1 of 2 tasks")]
    rows = build_average_view(GROUP, separate_submitted([*published, *own])).rows
    assert [row.exclusion for row in rows] == [Exclusion(Unranked.PAPERS_DATA), None]


def test_average_omits_a_task_on_other_data():
    records = [set_data(number, "d1") for number in range(3)]
    records += [replace(record, task="PosIR-German") for record in records]
    records[-1] = replace(
        records[-1], detail={**records[-1].detail, "data": "d2", "data_revision": "local-2"}
    )
    rows = build_average_view(GROUP, separate_submitted(records)).rows
    assert [(row.partial, row.comparable) for row in rows] == [
        ("", True),
        ("", True),
        ("1 of 2 tasks", False),
    ]


def test_pinned_data_are_ranked_regardless_of_other_results():
    honest, forged = (
        set_data(0, "a" * 16),
        [set_data(number, "b" * 16, date="2096-01-01") for number in range(1, 4)],
    )
    unpinned = replace(honest, task="PosIR-German")
    pins = {"PosIR-English": Pin(revision="c" * 40, digest="a" * 16)}
    separated = separate_data([honest, *forged, unpinned], pins, submitted=True)
    not_pinned = Exclusion(Unranked.NOT_PINNED)
    assert [record.exclusion for record in separated] == [None, *[not_pinned] * 4]
    assert [record.task for record in separated[1:4]] == [
        "PosIR-English (data cccccccccccc, content bbbbbbbb)"
    ] * 3
    assert (separated[0].task, separated[4].task) == ("PosIR-English", "PosIR-German")
    published = set_data(5, "", "", published=True)
    assert separate_data([published], pins, submitted=True)[0].exclusion is None
    unpinned = separate_data([honest, *forged], {}, submitted=True)
    assert {record.exclusion for record in unpinned} == {not_pinned}
    # The same on a private board, which knows the content of packaged data.
    own = separate_data([honest, *forged], pins, submitted=False)
    other_content = Exclusion(Unranked.OTHER_CONTENT, "c" * 12)
    assert [record.exclusion for record in own] == [None, *[other_content] * 3]
    assert own[0].task == "PosIR-English" != own[1].task


def test_known_pins_match_the_packaged_data():
    assert set(KNOWN_PINS) == {"PosIR-Mini"}
    assert {task: compute_pin(task) for task in KNOWN_PINS} == KNOWN_PINS


def damage_corpus(data):
    data["scores"]["test"][0]["position_run"]["data_digest"]["corpus"] = "f" * 16


def damage_queries(data):
    data["scores"]["test"][0]["position_run"]["data_digest"]["queries"] = "0" * 16


def set_future_date(data):
    damage_corpus(data)
    data["date"] = 3_976_000_000


@pytest.mark.usefixtures("no_published_results")
@pytest.mark.parametrize("forge", [damage_corpus, damage_queries, set_future_date])
def test_forged_digest_removes_no_other_result(tmp_path, forge):
    task = mteb.get_task("PosIR-Mini")
    results = tmp_path / "results"
    write_guesses(results, [task], name="org/honest", revision="1" * 40)
    for number in range(3):
        file = (
            write_guesses(results, [task], name=f"org/forged-{number}", revision="2" * 40)
            / "PosIR-Mini.json"
        )
        data = json.loads(file.read_text())
        forge(data)
        file.write_text(json.dumps(data))
    built = build_site(results, tmp_path / "site", tmp_path / "cache")
    data = contents(read_site(tmp_path / "site"))
    (view,) = (
        value
        for name, value in data.items()
        if name.startswith("views/") and value["name"] == "PosIR-Mini"
    )
    names = data["board"]["models"]["name"]
    assert [names[place] for place in view["models"]] == ["org/honest"]
    assert view["columns"]["other_data"] == [""]
    if forge is set_future_date:
        assert [problem.field for problem in built.problems] == ["date"] * 3
        assert built.separate_tables == []
    else:
        assert built.problems == []
        assert len(built.separate_tables) == 1
        assert all(f"forged-{number}" in " ".join(built.unranked) for number in range(3))
        assert not any("honest" in name for name in built.unranked)


def test_pins_round_trip_and_damaged_pins_are_reported(tmp_path):
    assert read_pins(tmp_path) is None
    pins = {"PosIR-Mini": compute_pin("PosIR-Mini")}
    assert pins["PosIR-Mini"] == compute_pin("PosIR-Mini")
    (tmp_path / "pins.json").write_text(format_pins(pins))
    assert read_pins(tmp_path) == pins
    for content in (
        '{"PosIR-Mini": {"revision": "1", "digest": "x"}}',
        "[]",
        "{",
        '{"a": 1, "a": 2}',
    ):
        (tmp_path / "pins.json").write_text(content)
        with pytest.raises(PosirError, match="pins"):
            read_pins(tmp_path)
    with pytest.raises(PosirError, match="PosIR-Minni"):
        compute_pin("PosIR-Minni")


@pytest.mark.usefixtures("no_published_results")
def test_forged_result_is_reported_and_removes_no_other(tmp_path, monkeypatch):
    """A copy of a valid result has other or no digests, a future date, or an invented revision."""
    task = mteb.get_task("PosIR-Mini")
    write_guesses(tmp_path, [task], name="org/honest", revision="1" * 40)
    for number in range(4):
        file = (
            write_guesses(tmp_path, [task], name=f"org/forged-{number}", revision="2" * 40)
            / "PosIR-Mini.json"
        )
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
    (tmp_path / "pins.json").write_text(format_pins({"PosIR-Mini": compute_pin("PosIR-Mini")}))
    built = build_site(tmp_path, tmp_path / "site", tmp_path / "cache")
    assert built.results == 2
    (unranked,) = built.unranked
    assert re.match(r"org/forged-0, PosIR-Mini \(data 1, content [0-9a-f]{8}\): ", unranked)
    fields = ["date", "position_run.data_digest", "position_run.data_revision"]
    assert sorted(problem.field for problem in built.problems) == fields
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path / "cache"))
    command = ["leaderboard", "build", "--results", tmp_path, "--output", tmp_path / "again"]
    assert call_posir(*command).status == 0
    strict = call_posir(*command, "--strict")
    assert strict.status == 1
    assert all(re.search(f"org(__|/)forged-{number}", strict.said) for number in range(4))
