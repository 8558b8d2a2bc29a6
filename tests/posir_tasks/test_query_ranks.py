"""Kept ranks written and read back, and the profile that they make against the one that was stored."""

import json
import logging

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posir_tasks.errors import PosirError
from posir_tasks.evidence import Evidence
from posir_tasks.files import LOCK_FILE
from posir_tasks.profile import PositionProfile
from posir_tasks.query_ranks import query_ranks_path, read_query_ranks, save_query_ranks
from posir_tasks.schemes import AbsolutePositions, LabeledPositions, RelativePositions

ABSOLUTE = AbsolutePositions()
RUN = ("org/a model", "refs/pr/1", "PosIR-English")


def evidence_of(starts):
    starts = np.asarray(starts, np.int64)
    labels = tuple(("beginning", "middle, end", "unknown")[start % 3] for start in starts)
    return Evidence(
        [f"q{row}" for row in range(len(starts))],
        ["d"] * len(starts),
        starts,
        starts + 7,
        np.full(len(starts), 4000),
        starts + 1,
        labels,
    )


@pytest.mark.parametrize(
    "scheme", [RelativePositions(), AbsolutePositions(), LabeledPositions()], ids=lambda item: item.axes.scheme[:5]
)
@settings(deadline=None, max_examples=25)
@given(queries=st.lists(st.tuples(st.sampled_from([0, 99, 100, 101, 500, 600, 3120, 3121]), st.integers(0, 1200)), min_size=1))
def test_query_ranks_give_the_profile_of_the_run(tmp_path_factory, scheme, queries):
    evidence, ranks = evidence_of([start for start, _ in queries]), np.array([rank for _, rank in queries])
    kept = read_query_ranks(save_query_ranks(tmp_path_factory.mktemp("ranks"), *RUN, "sports", scheme, evidence, ranks))
    assert kept.profile("sports") == PositionProfile.from_ranks(scheme, evidence, ranks)
    assert kept.table["query_id"].to_list() == evidence.query_ids
    assert kept.table["rank"].to_list() == ranks.tolist()
    assert (kept.header.model, kept.header.revision, kept.header.task) == RUN


def keep(folder, subset, ranks, starts=(0, 600), scheme=ABSOLUTE):
    return save_query_ranks(folder, *RUN, subset, scheme, evidence_of(starts), np.array(ranks))


def test_a_subset_is_added_or_replaced_and_the_others_stay(tmp_path):
    for subset, ranks in (("sports", [1, 2]), ("game", [3, 4]), ("sports", [5, 0])):
        file = keep(tmp_path, subset, ranks)
    kept = read_query_ranks(file)
    assert kept.subsets == {"sports", "game"}
    assert kept.select_subset("sports")["rank"].to_list() == [5, 0]
    assert kept.select_subset("game")["rank"].to_list() == [3, 4]
    assert {item.name for item in file.parent.iterdir()} == {file.name, LOCK_FILE}


def test_the_file_says_what_it_is_of_and_other_tools_read_it(tmp_path):
    file = keep(tmp_path, "sports", [1, 2], starts=(100, 9000))
    table = pq.read_table(file)
    assert table.to_pylist() == [
        {"subset": "sports", "query_id": "q0", "rank": 1, "length": 0, "positions": [0, 1]},
        {"subset": "sports", "query_id": "q1", "rank": 2, "length": 0, "positions": []},
    ]
    of = json.loads(table.schema.metadata[b"posir"])
    assert (of["schema"], of["model"], of["revision"], of["task"]) == (1, *RUN)
    assert of["axes"]["scheme"] == ABSOLUTE.axes.scheme


def test_ranks_of_another_scheme_are_not_mixed_in(tmp_path, caplog):
    keep(tmp_path, "sports", [1, 2])
    with caplog.at_level(logging.WARNING):
        file = keep(tmp_path, "game", [3, 4], scheme=RelativePositions())
    assert read_query_ranks(file).subsets == {"game"}
    assert "absolute-" in caplog.text
    assert "replacing it" in caplog.text


def test_a_damaged_file_is_written_anew(tmp_path, caplog):
    file = keep(tmp_path, "sports", [1, 2])
    file.write_bytes(file.read_bytes()[:40])
    with caplog.at_level(logging.WARNING):
        keep(tmp_path, "game", [3, 4])
    assert read_query_ranks(file).subsets == {"game"}
    assert str(file) in caplog.text


def test_nothing_is_left_of_a_write_that_fails(tmp_path, monkeypatch):
    file = keep(tmp_path, "sports", [1, 2])
    before = file.read_bytes()

    def failing(table, where, **options):  # noqa: ARG001
        where.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(pq, "write_table", failing)
    with pytest.raises(OSError, match="disk full"):
        keep(tmp_path, "game", [3, 4])
    assert file.read_bytes() == before
    assert {item.name for item in file.parent.iterdir()} == {file.name, LOCK_FILE}


def test_path(tmp_path):
    assert query_ranks_path(tmp_path, *RUN) == tmp_path / "org__a_model" / "refs__pr__1" / "PosIR-English_ranks.parquet"


@settings(deadline=None)
@given(st.tuples(*[st.text(st.sampled_from("a./\\: \0~"), max_size=6)] * 3))
def test_no_name_leaves_the_folder(tmp_path_factory, names):
    folder = tmp_path_factory.getbasetemp() / "predictions"
    try:
        path = query_ranks_path(folder, *names)
    except PosirError:
        return
    assert path.resolve().parent.parent.parent == folder.resolve()


@pytest.mark.parametrize("name", ["", ".", "..", "a\\b", "C:"])
def test_bad_names_are_refused(tmp_path, name):
    with pytest.raises(PosirError, match="Rename it"):
        query_ranks_path(tmp_path, "org/model", name, "task")


def rewritten(file, change_of=lambda of: of, change_table=lambda table: table):
    table = pq.read_table(file)
    of = change_of(json.loads(table.schema.metadata[b"posir"]))
    pq.write_table(change_table(table).replace_schema_metadata({b"posir": json.dumps(of).encode()}), file)


def with_column(name, values):
    def change(table):
        index = table.schema.get_field_index(name)
        return table.set_column(index, table.schema.field(index), pa.array(values, table.schema.field(index).type))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"change_of": lambda of: of | {"schema": 2}}, "schema 2"),
        ({"change_of": lambda _: {"schema": 1}}, "model: Field required"),
        ({"change_of": lambda _: []}, "TypeError"),
        ({"change_table": lambda table: table.drop_columns(["rank"])}, "rank"),
        ({"change_table": with_column("length", [0, 1])}, "'length' has an index outside 0 to 0"),
        ({"change_table": with_column("positions", [[0], [-1]])}, "'positions' has an index outside 0 to 5"),
        ({"change_table": with_column("rank", [1, None])}, "empty field"),
    ],
    ids=["newer", "no model", "no object", "no rank", "length", "position", "null"],
)
def test_files_that_are_not_query_ranks_are_refused(tmp_path, change, message):
    file = keep(tmp_path, "sports", [1, 2])
    rewritten(file, **change)
    with pytest.raises(PosirError, match=message) as caught:
        read_query_ranks(file)
    assert str(file) in str(caught.value)


def test_other_files(tmp_path):
    with pytest.raises(PosirError, match="--prediction-folder"):
        read_query_ranks(tmp_path / "absent.parquet")
    plain = tmp_path / "plain.parquet"
    pq.write_table(pa.table({"rank": [1]}), plain)
    with pytest.raises(PosirError, match="not a file of per-query ranks"):
        read_query_ranks(plain)


def test_settings_of_a_model_have_a_file_each(tmp_path):
    evidence, files = evidence_of([0, 600]), {}
    for experiment, ranks in ((None, [1, 2]), ("dim_64", [3, 4]), ("dim_32", [5, 6])):
        file = save_query_ranks(tmp_path, *RUN, "sports", ABSOLUTE, evidence, np.array(ranks), experiment=experiment)
        assert file == query_ranks_path(tmp_path, *RUN, experiment)
        files[file] = ranks
    assert {file: read_query_ranks(file).table["rank"].to_list() for file in files} == files
