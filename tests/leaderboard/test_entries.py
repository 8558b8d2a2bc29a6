"""Test that untrusted result files are read or reported."""

import copy
import json
import os
import re
import unicodedata
from pathlib import Path
from unittest.mock import Mock

import mteb
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from posir_leaderboard.board.comparable import separate_data
from posir_leaderboard.board.records import Exclusion, Unranked, pool_subsets, score_task
from posir_leaderboard.entries import (
    MAX_BYTES,
    MAX_NAME,
    EntryError,
    ModelMeta,
    find_entry_files,
    find_origin_problems,
    read_entries,
    read_entry,
)
from posir_leaderboard.submission import build_submission
from posir_tasks.base.errors import PosirError
from posir_tasks.models.protocols import find_protocol
from posir_tasks.results import read_result_file, read_results, rescore_file
from posir_tasks.values.columns import pack_column, unpack_column
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.evidence import Evidence, ReadEvidence
from posir_tasks.values.profile import PositionProfile
from posir_tasks.values.read_part import ReadPart, WindowSource
from posir_tasks.values.schemes import RelativePositions
from tests.support.damage import find, places
from tests.support.results import write_result

#: JSON values with numbers of any size.
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)

READ = ReadPart.first(100, WindowSource.CLASS)


def is_safe(text):
    turning = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    return not any(
        unicodedata.category(word) in {"Cc", "Cs", "Zl", "Zp"}
        or unicodedata.bidirectional(word) in turning
        for word in text
    )


def evidence(count):
    starts = np.arange(count) * 900 // count
    ids, lengths = [f"q{k}" for k in range(count)], np.full(count, 1_000)
    return Evidence(ids, ["d"] * count, starts, starts + 20, lengths, lengths // 4)


def profile(*ranks):
    return PositionProfile.from_ranks(RelativePositions(), evidence(len(ranks)), np.array(ranks))


def build_scores(*ranks, subset="sports"):
    """Build the ranks of a model that reads the first 100 of 250 tokens."""
    estimate = ReadEvidence.estimate(READ, evidence(len(ranks)), ["eng-Latn"])
    return DocumentRanks.from_ranks(
        RelativePositions(), evidence(len(ranks)), np.array(ranks), estimate, subset
    )


@pytest.fixture
def file(tmp_path):
    subsets = {"sports": build_scores(1, 2, 0, 4, 1), "game": build_scores(1, 1, 11, subset="game")}
    return write_result(tmp_path, subsets, read=READ)


def change_file(file, change):
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data))


def assert_rejected(file, field=None):
    """Assert that only this file of its folder is rejected, and return the reason."""
    other = write_result(file.parents[3], {"sports": profile(1)}, model="org/other")
    entries, problems = read_entries(file.parents[3])
    assert [entry.file for entry in entries] == [other]
    (problem,) = problems
    assert str(file.parent) in problem.file
    assert field is None or problem.field == field
    return str(problem)


@pytest.mark.parametrize("parent", [0, 1, 2, 3])
def test_entry_is_read_from_any_parent_folder(file, parent, monkeypatch):
    monkeypatch.chdir(file.parents[parent])
    assert len(read_entries(Path())[0]) == 1
    (entry,), problems = read_entries(file.parents[parent])
    assert problems == []
    assert (entry.model, entry.revision, entry.task) == ("org/model", "rev1", "PosIR-English")
    assert entry.file == file
    assert [result.subset for result in entry.subsets] == ["sports", "game"]
    assert entry.subsets[1].profile == profile(1, 1, 11)
    assert entry.subsets[0].ranks == build_scores(1, 2, 0, 4, 1)
    assert entry.subsets[0].values.read == READ
    assert entry.subsets[0].values.read.tokens == 100
    assert entry.data == json.loads(file.read_text())
    assert entry.meta == {"name": "org/model", "revision": "rev1"}


def test_other_tasks_and_json_files_are_skipped(tmp_path, file):
    (file.parent / "NFCorpus.json").write_text(
        json.dumps({"task_name": "NFCorpus", "scores": {"test": [{"hf_subset": "a"}]}})
    )
    (tmp_path / "settings.json").write_text("[1, 2")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "predictions.json").write_text("{" * 100)
    entries, problems = read_entries(tmp_path)
    assert ([entry.task for entry in entries], problems) == (["PosIR-English"], [])
    with pytest.raises(PosirError, match=re.escape(f"{tmp_path / 'typo'}: no such folder")):
        read_entries(tmp_path / "typo")


# File contents


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not readable JSON"),
        (b"[]", "field 'task_name': is missing"),
        (b"null", "field 'task_name': is missing"),
        (b'{"task_name": "x"}', "field 'scores': is missing"),
        (
            b'{"task_name": "x", "scores": []}',
            r"field 'scores': is \[\]; Input should be a valid dictionary",
        ),
        (b'{"task_name": "x", "scores": {"test": [1]}}', "field 'scores.test.0': is 1"),
        (b'{"task_name": "x", "scores": {"test": 1}}', "field 'scores.test': is 1"),
        (
            b'{"task_name": "PosIR-English", "scores": {"test": [{"hf_subset": 7, '
            b'"position_profile": 1}]}}',
            "hf_subset",
        ),
        (
            b'{"task_name": "PosIR-English", "scores": {"test": [{"hf_subset": "../up", '
            b'"position_profile": 1}]}}',
            "hf_subset",
        ),
        (
            b'{"task_name": "<script>", "scores": {"test": [{"position_profile": 1}]}}',
            "field 'task_name': is <script>",
        ),
        (
            b'{"task_name": "PosIR-English", "scores": {"test": [{"hf_subset": "<b>", '
            b'"position_profile": 1}]}}',
            "is <b>",
        ),
        (b'{"scores": {}, "scores": {}}', "'scores' occurs twice"),
        (b'{"scores": {"psi": NaN}}', "is nan"),
        (b'{"a":' * 400 + b"1" + b"}" * 400, "nested"),
        (b" " * (MAX_BYTES + 1), "larger than 4 MiB"),
    ],
)
def test_invalid_file_is_reported_and_the_others_are_read(file, content, why):
    file.write_bytes(content)
    assert re.search(why, assert_rejected(file))


def test_largest_result_and_nan_nauc_are_read(file):
    change_file(
        file, lambda data: data["scores"]["test"][0].update(nauc_recall_at_100_max=float("nan"))
    )
    file.write_bytes(file.read_bytes().ljust(MAX_BYTES))
    assert np.isnan(read_entry(file).data["scores"]["test"][0]["nauc_recall_at_100_max"])


@pytest.mark.parametrize("name", ["PosIR-English.json", "model_meta.json"])
def test_link_is_not_followed(tmp_path, file, name):
    link = file.with_name(name)
    link.symlink_to(link.replace(tmp_path / "elsewhere.txt"))
    assert "links are not followed" in assert_rejected(file)


def test_linked_folder_is_not_entered(tmp_path, file):
    outside = tmp_path / "outside"
    inside = tmp_path / "inside" / "results"
    inside.mkdir(parents=True)
    file.parents[1].replace(outside)
    (inside / "org__model").symlink_to(outside)
    assert read_entries(inside) == ([], [])


def test_pipes_and_unreadable_files_are_reported(file, monkeypatch):
    with monkeypatch.context() as denied:
        denied.setattr(Path, "open", Mock(side_effect=PermissionError(13, "Permission denied")))
        with pytest.raises(EntryError, match="Permission denied"):
            read_entry(file)
    file.unlink()
    os.mkfifo(file)
    assert "is not a regular file" in assert_rejected(file)


# Model and folder


@pytest.mark.parametrize(
    "name",
    [
        None,
        7,
        "",
        "model",
        "/model",
        "org/",
        "org//model",
        "org/model/more",
        "../model",
        "org/..",
        "org/.",
        "./model",
        "org\\model/x",
        "org/mod\nel",
        "org/model\n",
        "org/\x1b[31mmodel",
        "org/\u202eledom",
        "org/mo\u200bdel",
        "оrg/model",  # the first letter is Cyrillic
        "org/<script>alert(1)</script>",
        'org/"model',
        "org/'model",
        "org/`model`",
        "org/model&amp;",
        "org/" + "m" * 300,
        "o" * (MAX_NAME - 1) + "/m",
    ],
)
def test_hostile_model_name_is_rejected(file, name):
    file.with_name("model_meta.json").write_text(json.dumps({"name": name, "revision": "rev1"}))
    said = assert_rejected(file, field="name")
    assert is_safe(said)
    assert len(said) < 600


def test_a_revision_must_be_a_folder_name(file):
    for revision in (None, 1, "", "..", ".", "a/b", "a b", "r" * 129, "\u202ea", "-x"):
        file.with_name("model_meta.json").write_text(
            json.dumps({"name": "org/model", "revision": revision})
        )
        assert_rejected(file, field="revision")
    for meta in ("[]", "null", "3", '"org/model"', "{}"):
        file.with_name("model_meta.json").write_text(meta)
        assert_rejected(file, field="name")


def test_every_name_of_mtebs_registry_is_allowed(tmp_path):
    known = mteb.get_model_metas()
    assert len(known) > 900
    for meta in known:
        ModelMeta.model_validate({"name": meta.name, "revision": meta.revision})
    name = "mongodb/voyage-4-large (embed_dim=2048, evolved_prompts=True)"
    folder = tmp_path / "results" / name.replace("/", "__").replace(" ", "_") / "1"
    file = write_result(tmp_path, {"sports": profile(1)}, model=name, revision="1")
    folder.parent.mkdir()
    file.parent.replace(folder)
    assert [entry.model for entry in read_entries(folder)[0]] == [name]


@given(
    name=st.text(max_size=40) | st.from_regex(r"[a-z./\\_-]{1,9}/[a-z./\\_ -]{1,9}", fullmatch=True)
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_model_name_must_match_the_folder(file, name):
    file.with_name("model_meta.json").write_text(json.dumps({"name": name, "revision": "rev1"}))
    entries, problems = read_entries(file.parent)
    assert [entry.model for entry in entries] == (["org/model"] if name == "org/model" else [])
    assert len(problems) == (name != "org/model")


@pytest.mark.parametrize(
    ("name", "revision"), [("Qwen/Qwen3-Embedding-0.6B", "rev1"), ("org/model", "rev2")]
)
def test_result_in_another_models_folder_is_rejected(file, name, revision):
    file.with_name("model_meta.json").write_text(json.dumps({"name": name, "revision": revision}))
    assert (
        f"is in org__model/rev1, but model_meta.json names {name.replace('/', '__')}/{revision}"
        in assert_rejected(file)
    )


def test_experiment_is_not_a_result_of_the_model(tmp_path):
    write_result(tmp_path, {"sports": profile(1)}, experiment="prompts")
    assert read_entries(tmp_path) == ([], [])
    assert [file.name for file in find_entry_files(tmp_path, experiments=True)] == [
        "PosIR-English.json"
    ]
    own = write_result(tmp_path, {"sports": profile(1)})
    ((entry,), problems) = read_entries(tmp_path)
    assert (entry.file, problems) == (own, [])
    write_result(tmp_path, {"sports": profile(1)}, model="a/y")
    assert [file.parent.parent.name for file in find_entry_files(tmp_path)] == [
        "a__y",
        "org__model",
    ]


def test_protocol_run_is_an_unranked_entry(tmp_path):
    model = "BAAI/bge-m3"
    own = write_result(tmp_path, {"sports": profile(1)}, model=model)
    made = write_result(tmp_path, {"sports": profile(1)}, model=model, experiment="protocol_posir")
    entries, problems = read_entries(tmp_path)
    assert ({entry.file: entry.paper for entry in entries}, problems) == (
        {own: None, made: "posir"},
        [],
    )
    (entry,) = (entry for entry in entries if entry.paper)
    assert "the settings of posir for BAAI/bge-m3" in " ".join(
        map(str, find_origin_problems(entry))
    )
    data = json.loads(made.read_text())
    data["scores"]["test"][0]["position_run"]["protocol"] = {
        "asked": find_protocol("posir", model).list_values()
    }
    made.write_text(json.dumps(data))
    (asked,) = (entry for entry in read_entries(tmp_path)[0] if entry.paper)
    assert "the settings of posir" not in " ".join(map(str, find_origin_problems(asked)))
    record = score_task(pool_subsets(asked))
    assert record.model.label == "BAAI/bge-m3 (protocol posir)"
    separated = separate_data([record, score_task(pool_subsets(entries[0]))], {}, submitted=False)
    excluded = [Exclusion(Unranked.PROTOCOL, "posir"), None]
    assert [shown.exclusion for shown in separated] == excluded
    differing = [
        [note for note in scored.detail["notes"] if "mteb's settings" in note]
        for scored in map(score_task, map(pool_subsets, entries))
    ]
    assert sorted(map(len, differing)) == [0, 1], (
        "the run with mteb's settings alone says where they differ"
    )
    commit = build_submission([asked], "org/board")
    assert all(
        f"/{made.parent.parent.parent.name}/experiments/protocol_posir/" in path
        for path in commit.files
    )


def test_result_without_model_meta_is_rejected(file):
    posing = file.replace(file.with_name("SQuAD-PosQ.json"))
    assert_rejected(posing, field="task_name")
    posing.replace(file).with_name("model_meta.json").unlink()
    assert "model_meta.json: is missing" in assert_rejected(file)


def test_result_of_a_posir_task_without_profile_is_rejected(file):
    change_file(
        file, lambda data: [scores.pop("position_profile") for scores in data["scores"]["test"]]
    )
    assert "is missing in every subset" in assert_rejected(file, field="position_profile")


def test_two_files_for_a_model_and_task_are_both_excluded(tmp_path, file):
    second = write_result(tmp_path / "again", {"sports": profile(1, 1)})
    entries, (problem,) = read_entries(tmp_path)
    assert entries == []
    assert {str(file), str(second)} <= set(re.findall(r"[^ ;:]+\.json", str(problem)))


@pytest.mark.parametrize("split", ["test", "train"])
def test_duplicate_subset_is_rejected(file, split):
    change_file(
        file, lambda data: data["scores"].setdefault(split, []).append(data["scores"]["test"][0])
    )
    assert "subset 'sports': occurs twice" in assert_rejected(file)


# Counts


@pytest.mark.parametrize("count", ["-1", str(10**30), str(2**63 - 1), str(10**7 + 1), "1.5", "x"])
@pytest.mark.parametrize("field", ["counts", "totals"])
def test_impossible_counts_are_rejected(file, field, count):
    def change(data):
        rows = data["scores"]["test"][0]["position_profile"][field]
        rows = rows[0] if field == "counts" else rows
        rows[0] = count + rows[0][1:]

    change_file(file, change)
    assert_rejected(file, field="position_profile")


@pytest.mark.parametrize("field", ["twelfths", "thirds", "counted_with"])
@pytest.mark.parametrize("value", ["9", "-1", "z!", 10**30, [0], "abc", {}, [[1], 2, 3, 4]])
def test_impossible_evidence_positions_are_rejected(file, field, value):
    change_file(
        file, lambda data: data["scores"]["test"][0]["read_ranks"]["sets"][0].update({field: value})
    )
    assert_rejected(file)


@pytest.mark.parametrize("key", ["read", "read_ranks", "document_keys"])
@pytest.mark.parametrize("value", [[], "x", 3, None])
def test_additive_values_must_be_objects(file, key, value):
    change_file(file, lambda data: data["scores"]["test"][1].update({key: value}))
    assert "subset 'game'" in assert_rejected(file)


def repack(data, column, replaced):
    stored = data["scores"][0]["read_ranks"]["sets"][0]
    stored[column] = pack_column(replaced(unpack_column(stored[column], 5)))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda data: data["scores"][0].update(read={**READ.to_json(), "tokens": 10**12}), "read"),
        (lambda data: data["scores"][0].update(read={**READ.to_json(), "tokens": -1}), "read"),
        (
            lambda data: data["scores"][0].update(read={"kind": "all", "known_by": "claimed"}),
            "read_ranks",
        ),
        (lambda data: data["scores"][0].update(read={"kind": "unknown"}), "read_ranks"),
        (lambda data: data["scores"][0].update(read=None), "read"),
        (lambda data: data["scores"][0].update(read_ranks=None), "read_ranks"),
        (
            lambda data: data["scores"][0].update(
                document_ranks=data["scores"][1]["document_ranks"]
            ),
            "damaged",
        ),
        (
            lambda data: data["scores"][0].update(read_ranks=data["scores"][1]["read_ranks"]),
            "damaged",
        ),
        (
            lambda data: data["scores"][0]["document_ranks"]["sets"][0].update(subset="game"),
            "document_ranks",
        ),
        (
            lambda data: data["scores"][0]["position_profile"]["axes"].update(
                position_title="Quality"
            ),
            "position_profile.axes",
        ),
        (
            lambda data: data["scores"][0]["position_profile"]["axes"]["length_titles"].reverse(),
            "position_profile.axes",
        ),
        (
            lambda data: data["scores"][0]["position_run"].update(missing_subsets=None),
            "missing_subsets",
        ),
        (
            lambda data: data["scores"][0]["position_run"].update(missing_subsets=[1]),
            "missing_subsets",
        ),
        (
            lambda data: data["scores"][0]["position_run"].update(data_revision=["main"]),
            "data_revision",
        ),
        (lambda data: data["scores"][0]["position_run"].update(data_digest="x"), "data_digest"),
        (lambda data: data["scores"][0]["position_run"].update(tolerated={"x": -1}), "tolerated"),
        (lambda data: data["scores"][0].update(position_run=None), "position_run"),
        (lambda data: data["scores"][0].update(position_run=[]), "position_run"),
        (lambda data: repack(data, "thirds", lambda column: 2 - column), "read_ranks"),
    ],
)
def test_board_and_report_name_contradictions(file, change, field):
    change_file(file, lambda data: change({"scores": data["scores"]["test"]}))
    assert field in assert_rejected(file)
    (result,) = read_results(file.parents[3])
    assert result.model == "org/other"
    with pytest.raises(PosirError, match=field):
        list(read_result_file(file))
    with pytest.raises(PosirError, match=field):
        rescore_file(file)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"schema": 9}, "schema 9"),
        ({"counts": None}, "damaged"),
        ({"queries": 1}, "'queries' is 1"),
    ],
)
def test_message_on_unreadable_profile_names_the_subset(file, change, why):
    change_file(file, lambda data: data["scores"]["test"][1]["position_profile"].update(change))
    said = assert_rejected(file, field="position_profile")
    assert "subset 'game'" in said
    assert why in said


@pytest.mark.parametrize(
    "field", ["scheme", "lengths", "positions", "position_title", "length_titles"]
)
def test_markup_in_profile_names_is_rejected(file, field):
    def change(data):
        axes = data["scores"]["test"][0]["position_profile"]["axes"]
        axes[field] = "<b>" if isinstance(axes[field], str) else ["<b>"] * len(axes[field])

    change_file(file, change)
    assert "is <b>; String should match" in assert_rejected(file)


# Random damage


@given(drawn=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_result_with_a_replaced_part_is_read_or_reported(tmp_path, drawn):
    file = write_result(tmp_path, {"sports": build_scores(1, 2)}, read=READ)
    data = json.loads(file.read_text())
    *way, last = drawn.draw(
        st.sampled_from(sorted((path for path in places(data) if path), key=repr))
    )
    inside = find(data, way)
    before, inside[last] = copy.deepcopy(inside[last]), drawn.draw(VALUES)
    assume(inside[last] != before)
    file.write_text(json.dumps(data))
    entries, problems = read_entries(tmp_path)
    assert len(entries) + len(problems) <= 1
    assert all(map(is_safe, map(str, problems)))


@given(offset=st.integers(0), byte=st.integers(0, 255))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_result_with_a_replaced_byte_is_read_or_reported(tmp_path, offset, byte):
    file = write_result(tmp_path, {"sports": profile(1, 2)})
    content = bytearray(file.read_bytes())
    content[offset % len(content)] = byte
    file.write_bytes(content)
    entries, problems = read_entries(tmp_path)
    assert len(entries) + len(problems) <= 1
